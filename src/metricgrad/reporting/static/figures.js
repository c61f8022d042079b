/* The figures of the paper, to turn and to walk through. */

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
