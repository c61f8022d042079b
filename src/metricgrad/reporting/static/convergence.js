/* Training: what every method did, step by step. */

const PANELS = [
  { key: "v", title: data.titles?.validation ?? "True validation loss", height: 210 },
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
      return `${label("method", method)}: ${data.titles?.kept ?? "least true validation loss"} ${written(mean)}`;
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
