"use strict";
/* The report in the browser: tables that sort and filter, plots that answer. Text goes in as text, never as markup. */
(() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  function make(name, attributes = {}, ...children) {
    const inSvg = ["svg", "g", "path", "line", "text", "circle", "rect", "title", "desc"].includes(name);
    const node = inSvg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  const written = (x, digits = 4) => (x === null || x === undefined || !Number.isFinite(x) ? "–" : x.toFixed(digits));
  const label = (kind, name) => (data.labels[kind] && data.labels[kind][name]) || name;

  function options(select, names, kind, wanted) {
    const kept = wanted !== undefined ? wanted : select.value;
    select.replaceChildren(...names.map((name) => make("option", { value: name }, label(kind, name))));
    if (names.includes(kept)) select.value = kept;
  }

  /* ---- tables that sort ---- */

  function sortable(table) {
    const head = all("thead th", table);
    head.forEach((th, column) => {
      const button = make("button", { type: "button" });
      button.append(...th.childNodes);
      button.insertBefore(make("span", { class: "arrow", "aria-hidden": "true" }), button.querySelector("small"));
      th.append(button);
      th.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const up = th.getAttribute("aria-sort") !== "ascending";
        head.forEach((other) => other.setAttribute("aria-sort", "none"));
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        sort(table.tBodies[0], column, up);
      });
    });
  }

  function sort(body, column, up) {
    const keys = new Map([...body.rows].map((row) => [row, key(row.cells[column])]));
    const rows = [...keys.keys()].sort((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      const order = typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
      return up ? order : -order;
    });
    body.append(...rows);
  }

  function key(cell) {
    if (!("value" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  }

  all("table.sortable").forEach(sortable);

  /* ---- tables that filter ---- */

  const filters = all("#filters select, #filters input");
  function filter() {
    const chosen = Object.fromEntries(filters.map((control) => [control.name, control.value]));
    const words = chosen.text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (of, name) => !chosen[name] || of[name] === undefined || of[name] === chosen[name];
    all("[data-protocol]").forEach((block) => {
      block.hidden = !(fits(block.dataset, "protocol") && fits(block.dataset, "setting"));
    });
    all("table.judged tr").forEach((row) => {
      const inBody = row.parentElement.tagName === "TBODY";
      const text = all("th", row).map((th) => th.textContent).join(" ").toLowerCase();
      const named = !inBody || words.every((word) => text.includes(word) || (row.dataset.words || "").includes(word));
      row.hidden = !(fits(row.dataset, "dataset") && fits(row.dataset, "method") && named);
    });
    all("table.judged [data-metric]").forEach((cell) => {
      cell.hidden = !(fits(cell.dataset, "metric") && fits(cell.dataset, "method"));
    });
    const rows = all("[data-protocol]:not([hidden]) table.judged tbody tr");
    const shown = rows.filter((row) => !row.hidden).length;
    byId("shown").textContent = `${shown} of ${rows.length} rows shown`;
  }
  filters.forEach((control) => control.addEventListener("input", filter));
  byId("clear").addEventListener("click", () => {
    filters.forEach((control) => {
      if (control.name !== "protocol" && control.name !== "setting") control.value = "";
    });
    filter();
  });
  filter();

  /* ---- colours ---- */

  const colour = (method) => `var(--c${data.colours[method] ?? 3})`;
  const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
  const dash = (method) => DASHES[Math.floor((data.colours[method] ?? 3) / 3) % DASHES.length];
  const swatch = (method) =>
    make("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" },
      make("path", { d: "M0 4H26", stroke: colour(method), "stroke-width": 3, "stroke-dasharray": dash(method) }));

  /* ---- axes ---- */

  function ticks(low, high, wanted) {
    const rough = (high - low) / Math.max(1, wanted);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999) || power;
    const found = [];
    for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) found.push(Number(t.toPrecision(12)));
    return found;
  }

  function range(values, pad = 0.06) {
    const there = values.filter((x) => x !== null && Number.isFinite(x));
    if (!there.length) return [0, 1];
    const low = Math.min(...there), high = Math.max(...there);
    const room = (high - low || Math.abs(high) || 1) * pad;
    return [Math.max(0, low - room), high + room];
  }

  const scale = ([a, b], [c, d]) => (x) => c + ((x - a) / (b - a || 1)) * (d - c);

  function axes(svg, box, xs, ys, { title, bottom, rows }) {
    const [x, y] = [scale(xs, [box.left, box.right]), scale(ys, [box.bottom, box.top])];
    const marks = rows || ticks(...ys, Math.max(3, (box.bottom - box.top) / 32)).map((t) => [t, String(t)]);
    for (const [t, name] of marks) {
      svg.append(make("line", { class: "grid", x1: box.left, x2: box.right, y1: y(t), y2: y(t) }),
        make("text", { x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, name));
    }
    svg.append(make("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      make("text", { class: "head", x: box.left, y: box.top - 8 }, title));
    if (bottom) {
      for (const t of ticks(...xs, (box.right - box.left) / 90)) {
        svg.append(make("text", { x: x(t), y: box.bottom + 17, "text-anchor": "middle" }, t.toLocaleString("en")));
      }
      svg.append(make("text", { x: box.right, y: box.bottom + 33, "text-anchor": "end" }, bottom));
    }
    return { x, y };
  }

  function line(points, x, y) {
    let path = "", open = false;
    for (const [u, v] of points) {
      if (v === null || v === undefined) { open = false; continue; }
      path += `${open ? "L" : "M"}${x(u).toFixed(1)} ${y(v).toFixed(1)}`;
      open = true;
    }
    return path;
  }

  function put(plot, svg) {
    const old = plot.querySelector("svg");
    if (old) old.replaceWith(svg);
    else plot.prepend(svg);
  }

  function resized(node, draw) {
    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(node.clientWidth - width) < 2) return;
      width = node.clientWidth;
      draw();
    }).observe(node);
  }

  /* ---- convergence ---- */

  const PANELS = [
    { key: "v", title: "True validation loss", height: 210 },
    { key: "l", title: "Loss followed", height: 130 },
    { key: "q", title: "Gap of the surrogate", height: 100 },
  ];

  function convergence() {
    const plot = byId("convergence-plot"), picks = byId("convergence-methods");
    const [setting, dataset, metric, seed] = ["setting", "dataset", "metric", "seed"].map((n) => byId(`convergence-${n}`));
    const runs = data.runs, off = new Set();
    let lines = [], at = null;

    const distinct = (field, from) => [...new Set(from.map((run) => run[field]))];
    const inSetting = () => runs.filter((run) => String(run.s) === setting.value);
    const inDataset = () => inSetting().filter((run) => run.d === dataset.value);
    const inCell = () => inDataset().filter((run) => run.m === metric.value);

    function fill() {
      options(dataset, distinct("d", inSetting()), "dataset");
      options(metric, distinct("m", inDataset()), "metric");
      const seeds = distinct("seed", inCell()).sort((a, b) => a - b).map(String);
      options(seed, ["", ...seeds], "seed");
      picks.replaceChildren(...distinct("k", inCell()).map((method) => {
        const box = make("input", { type: "checkbox", value: method });
        box.checked = !off.has(method);
        box.style.setProperty("--swatch", colour(method));
        box.addEventListener("change", () => { off[box.checked ? "delete" : "add"](method); draw(); });
        return make("label", {}, box, swatch(method), label("method", method));
      }));
      draw();
    }

    function gathered() {
      const methods = distinct("k", inCell()).filter((method) => !off.has(method));
      return methods.map((method) => {
        const own = inCell().filter((run) => run.k === method && (seed.value === "" || String(run.seed) === seed.value));
        const longest = own.reduce((a, b) => (data.grids[b.g].length > data.grids[a.g].length ? b : a), own[0]);
        const alike = own.filter((run) => run.g === longest?.g);
        return { method, own, steps: longest ? data.grids[longest.g] : [], mean: means(alike) };
      }).filter((entry) => entry.own.length);
    }

    function means(alike) {
      const mean = (key, i) => {
        const there = alike.map((run) => run[key][i]).filter((x) => x !== null && x !== undefined);
        return there.length ? there.reduce((a, b) => a + b, 0) / there.length : null;
      };
      return Object.fromEntries(PANELS.map(({ key }) => [key, alike.length ? alike[0][key].map((_, i) => mean(key, i)) : []]));
    }

    function draw() {
      lines = gathered();
      const width = Math.max(280, plot.clientWidth - 20), left = 52, right = width - 24;
      const steps = lines.flatMap((entry) => entry.own.flatMap((run) => data.grids[run.g]));
      const xs = [0, Math.max(1, ...steps)];
      const svg = make("svg", { role: "img", tabindex: "0", "aria-describedby": "convergence-said" });
      let top = 26;
      PANELS.forEach(({ key, title, height }, i) => {
        const box = { left, right, top, bottom: top + height };
        const values = lines.flatMap((entry) => entry.own.flatMap((run) => run[key]));
        const there = values.some((x) => x !== null);
        const { x, y } = axes(svg, box, xs, there ? range(values) : [0, 1], {
          title: there ? title : `${title}: none of these has one`, bottom: i === PANELS.length - 1 ? "model steps" : "",
        });
        for (const { method, own, steps: grid, mean } of lines) {
          const pen = { stroke: colour(method), "stroke-dasharray": dash(method), "data-method": method };
          if (own.length > 1) {
            own.forEach((run) => svg.append(make("path", {
              class: "seed", ...pen, opacity: 0.28, "stroke-width": 1, "stroke-dasharray": "",
              d: line(data.grids[run.g].map((u, j) => [u, run[key][j]]), x, y),
            })));
          }
          svg.append(make("path", {
            class: "mean", ...pen, "stroke-width": 2, d: line(grid.map((u, j) => [u, mean[key][j]]), x, y),
          }));
          if (key === "v") own.forEach((run) => run.b && svg.append(make("circle", {
            cx: x(run.b[0]), cy: y(run.b[1]), r: own.length > 1 ? 2.5 : 4, fill: colour(method),
          })));
        }
        top += height + 34;
      });
      const bottom = top - 34;
      const cross = make("line", { class: "cross", y1: 20, y2: bottom, visibility: "hidden" });
      svg.append(cross);
      svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 40}`);
      svg.setAttribute("aria-label", `Training on ${label("dataset", dataset.value)} for ${label("metric", metric.value)}`);
      put(plot, svg);
      watch(svg, cross, scale([left, right], xs), scale(xs, [left, right]), width, xs[1]);
      said();
    }

    function said() {
      byId("convergence-said").textContent = lines.map(({ method, own }) => {
        const kept = own.map((run) => run.b && run.b[1]).filter((x) => x !== null && x !== undefined);
        const mean = kept.length ? kept.reduce((a, b) => a + b, 0) / kept.length : null;
        return `${label("method", method)}: least true validation loss ${written(mean)}`;
      }).join("; ");
    }

    function watch(svg, cross, toStep, toX, width, last) {
      const tip = byId("convergence-tip");
      const hide = () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); at = null; };
      const show = (step) => {
        at = Math.min(last, Math.max(0, step));
        const rows = lines.map(({ method, steps, mean }) => {
          const i = steps.reduce((best, u, j) => (Math.abs(u - at) < Math.abs(steps[best] - at) ? j : best), 0);
          return [method, steps[i], ...PANELS.map(({ key }) => mean[key][i])];
        });
        if (!rows.length) return hide();
        const x = toX(rows[0][1]);
        cross.setAttribute("x1", x); cross.setAttribute("x2", x); cross.setAttribute("visibility", "visible");
        tip.replaceChildren(tipTable(rows));
        tip.hidden = false;
        const pixels = (x / width) * svg.clientWidth;
        const flip = pixels > svg.clientWidth / 2;
        tip.style.top = "2.2rem";
        tip.style.left = flip ? "" : `${pixels + 22}px`;
        tip.style.right = flip ? `${svg.clientWidth - pixels + 22}px` : "";
      };
      svg.addEventListener("pointermove", (event) => {
        const box = svg.getBoundingClientRect();
        show(toStep(((event.clientX - box.left) / box.width) * width));
      });
      svg.addEventListener("pointerleave", hide);
      svg.addEventListener("blur", hide);
      svg.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!by || !lines.length) return;
        event.preventDefault();
        show((at ?? 0) + by * Math.max(1, last / 60));
      });
    }

    function tipTable(rows) {
      const head = make("tr", {}, make("th", {}, `step ${rows[0][1].toLocaleString("en")}`),
        ...["true", "followed", "gap"].map((name) => make("th", {}, name)));
      return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows.map(([method, , ...values]) =>
        make("tr", {}, make("th", { style: `color:${colour(method)}` }, label("method", method)),
          ...values.map((value) => make("td", {}, written(value)))))));
    }

    options(setting, Object.keys(data.labels.setting), "setting");
    [setting, dataset, metric].forEach((select) => select.addEventListener("input", fill));
    seed.addEventListener("input", draw);
    fill();
    resized(plot, draw);
  }
  if (data.runs.length) convergence();

  /* ---- Figure 1: surfaces ---- */

  const WARM = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  function shade(t, light) {
    const at = Math.min(0.9999, Math.max(0, t)) * (WARM.length - 1), i = Math.floor(at), f = at - i;
    return `rgb(${WARM[i].map((c, k) => Math.round((c + (WARM[i + 1][k] - c) * f) * light)).join()})`;
  }

  function surface(figure) {
    const canvas = byId("surface"), select = byId("surface-loss");
    let turn = -0.9, tilt = 0.62, held = null;
    options(select, Object.keys(figure.losses), "metric");

    function draw() {
      const width = canvas.parentElement.clientWidth - 20, height = Math.min(440, Math.max(280, width * 0.6));
      const ratio = window.devicePixelRatio || 1;
      Object.assign(canvas, { width: width * ratio, height: height * ratio });
      canvas.style.height = `${height}px`;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      const size = Math.min(width * 0.54, height * 0.58);
      const [c, s, ct, st] = [Math.cos(turn), Math.sin(turn), Math.cos(tilt), Math.sin(tilt)];
      const project = (x, y, z) => {
        const [u, v] = [x * c - y * s, x * s + y * c];
        return [width / 2 + u * size, height * 0.52 + (v * st - (z - 0.5) * 0.8 * ct) * size, v * ct + z * st];
      };
      const z = figure.losses[select.value], n = z.length, at = (i) => i / (n - 1) - 0.5;
      const points = z.map((row, i) => row.map((value, j) => project(at(i), at(j), value)));
      floor(pen, project, figure.shifts);
      const values = z.flat(), low = Math.min(...values), high = Math.max(...values);
      const quads = [];
      for (let i = 0; i < n - 1; i++) {
        for (let j = 0; j < n - 1; j++) {
          const corners = [points[i][j], points[i + 1][j], points[i + 1][j + 1], points[i][j + 1]];
          const steep = Math.abs(z[i + 1][j] - z[i][j]) + Math.abs(z[i][j + 1] - z[i][j]);
          const mean = (z[i][j] + z[i + 1][j] + z[i][j + 1] + z[i + 1][j + 1]) / 4;
          const light = 0.65 + 0.35 / (1 + 6 * steep);
          quads.push([corners.reduce((sum, corner) => sum + corner[2], 0), corners, shade((mean - low) / (high - low || 1), light)]);
        }
      }
      quads.sort((a, b) => a[0] - b[0]);
      for (const [, corners, fill] of quads) {
        pen.beginPath();
        corners.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
        pen.closePath();
        pen.fillStyle = pen.strokeStyle = fill;
        pen.lineWidth = 0.6;
        pen.fill();
        pen.stroke();
      }
      canvas.setAttribute("aria-label", `${label("metric", select.value)} loss over the shifts of two predictions, between `
        + `${written(low, 2)} and ${written(high, 2)}. Turn it with the arrow keys.`);
    }

    function floor(pen, project, shifts) {
      const style = getComputedStyle(document.documentElement);
      pen.strokeStyle = style.getPropertyValue("--line");
      pen.fillStyle = style.getPropertyValue("--soft");
      pen.font = "12px system-ui, sans-serif";
      pen.lineWidth = 1;
      const path = (...corners) => {
        pen.beginPath();
        corners.forEach((corner, k) => { const [x, y] = project(...corner); if (k) pen.lineTo(x, y); else pen.moveTo(x, y); });
        pen.stroke();
      };
      for (let k = 0; k <= 4; k++) {
        path([k / 4 - 0.5, -0.5, 0], [k / 4 - 0.5, 0.5, 0]);
        path([-0.5, k / 4 - 0.5, 0], [0.5, k / 4 - 0.5, 0]);
      }
      const [back] = [[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]].sort((a, b) => project(...a, 0)[2] - project(...b, 0)[2]);
      path([...back, 0], [...back, 1]);
      const write = (text, x, y, z) => { const [u, v] = project(x, y, z); pen.fillText(text, u, v); };
      pen.textAlign = "center";
      [0, 0.5, 1].forEach((z) => write(z.toFixed(1), back[0] * 1.1, back[1] * 1.1, z));
      const reach = shifts[shifts.length - 1];
      const side = project(0, 0.68, 0)[2] > project(0, -0.68, 0)[2] ? 1 : -1;
      const other = project(0.68, 0, 0)[2] > project(-0.68, 0, 0)[2] ? 1 : -1;
      write("negative", 0, 0.68 * side, 0);
      [-reach, reach].forEach((x) => write(`${x > 0 ? "+" : "−"}${Math.abs(x)}`, x > 0 ? 0.45 : -0.45, 0.6 * side, 0));
      write("positive", 0.72 * other, 0, 0);
      [-reach, reach].forEach((x) => write(`${x > 0 ? "+" : "−"}${Math.abs(x)}`, 0.6 * other, x > 0 ? 0.45 : -0.45, 0));
    }

    const move = (dx, dy) => { turn += dx; tilt = Math.min(1.45, Math.max(0.1, tilt + dy)); draw(); };
    canvas.addEventListener("pointerdown", (event) => { held = [event.clientX, event.clientY]; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return;
      move((event.clientX - held[0]) * -0.01, (event.clientY - held[1]) * 0.01);
      held = [event.clientX, event.clientY];
    });
    ["pointerup", "pointercancel"].forEach((name) => canvas.addEventListener(name, () => { held = null; }));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.08], ArrowDown: [0, -0.08] }[event.key];
      if (by) { event.preventDefault(); move(...by); }
    });
    select.addEventListener("input", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    resized(canvas.parentElement, draw);
  }
  if (data.figure1) surface(data.figure1);

  /* ---- Figure 2: a walk down a surrogate ---- */

  function walk(figure) {
    const plot = byId("walk-plot"), slider = byId("walk-round");
    slider.max = figure.rounds.length - 1;
    slider.value = slider.max;

    function draw() {
      const now = Number(slider.value), alpha = figure.alpha[now];
      const width = Math.max(280, plot.clientWidth - 20), wide = width > 560;
      const svg = make("svg", { role: "img", "aria-label": `Round ${figure.rounds[now]}: alpha is ${alpha.toFixed(2)}` });
      const first = { left: 46, right: wide ? width * 0.42 : width - 24, top: 28, bottom: 210 };
      const second = wide ? { left: width * 0.5, right: width - 24, top: 28, bottom: 210 } : { left: 46, right: width - 24, top: 282, bottom: 464 };
      const xs = range(figure.x, 0.04), a = axes(svg, first, [Math.min(...figure.x, 0), xs[1]], [0, 1], { title: "Data, and the cut at 1 / alpha", bottom: "x", rows: [[0.25, "y = 0"], [0.75, "y = 1"]] });
      figure.x.forEach((value, i) => {
        const jitter = ((i * 7919) % 97) / 97;
        svg.append(make("circle", { cx: a.x(value), cy: a.y(figure.y[i] ? 0.58 + 0.36 * jitter : 0.06 + 0.36 * jitter), r: 2.4,
          fill: figure.y[i] ? "var(--c1)" : "var(--c3)", opacity: 0.65 }));
      });
      if (1 / alpha < xs[1]) svg.append(make("line", { class: "cross", x1: a.x(1 / alpha), x2: a.x(1 / alpha), y1: first.top, y2: first.bottom }));
      const range2 = [figure.alphas[0], figure.alphas[figure.alphas.length - 1]];
      const b = axes(svg, second, range2, [0, 0.65], { title: `Error rate, round ${figure.rounds[now]}`, bottom: "alpha" });
      const clipped = (values) => figure.alphas.map((u, i) => [u, Math.min(0.65, Math.max(0, values[i]))]);
      svg.append(
        make("path", { d: line(clipped(figure.true), b.x, b.y), stroke: "var(--c0)", "stroke-width": 2 }),
        make("path", { class: "surrogate", d: line(clipped(figure.surrogate[now]), b.x, b.y), stroke: "var(--c1)", "stroke-width": 2 }),
        make("line", { class: "cross", x1: b.x(alpha), x2: b.x(alpha), y1: second.top, y2: second.bottom }),
        make("text", { x: second.right, y: second.top + 4, "text-anchor": "end", style: "fill:var(--c0)" }, "true"),
        make("text", { x: second.right, y: second.top + 20, "text-anchor": "end", style: "fill:var(--c1)" }, "surrogate"));
      svg.setAttribute("viewBox", `0 0 ${width} ${second.bottom + 40}`);
      put(plot, svg);
      byId("walk-said").textContent = `Round ${figure.rounds[now]}: alpha = ${alpha.toFixed(2)}`;
      slider.setAttribute("aria-valuetext", byId("walk-said").textContent);
    }
    slider.addEventListener("input", draw);
    resized(plot, draw);
  }
  if (data.figure2) walk(data.figure2);
})();
