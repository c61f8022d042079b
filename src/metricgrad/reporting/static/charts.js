/* Charts of a contest: curves with the splits behind their mean, and rows of values; one choice of methods for all. */

const hiddenMethods = new Set(), redraws = [];
const shownOnly = (entries) => entries.filter(({ k }) => !hiddenMethods.has(k));
const signed = (x, digits) => (x > 0 ? "+" : x < 0 ? "−" : "") + Math.abs(x).toFixed(digits);

function methodPicks(node) {
  node.replaceChildren(...data.methods.map((method) => {
    const box = make("input", { type: "checkbox", value: method });
    box.checked = !hiddenMethods.has(method);
    box.style.setProperty("--swatch", colour(method));
    box.addEventListener("change", () => {
      hiddenMethods[box.checked ? "delete" : "add"](method);
      all("[data-picks]").forEach(methodPicks);
      redraws.forEach((draw) => draw());
      byPick(node, method).focus();
    });
    return make("label", {}, box, swatch(method), label("method", method));
  }));
}
const byPick = (node, method) => all("input", node).find((box) => box.value === method);

/* ---- curves ---- */

function curves(plot, spec) {
  const tip = plot.querySelector(".tip");
  const pen = (k) => ({ stroke: colour(k), "stroke-dasharray": dash(k), "data-method": k });
  const points = ({ x, y }) => (x || spec.grid).map((u, i) => [u, y[i]]);

  function draw() {
    const width = Math.max(280, plot.clientWidth - 20), height = Math.min(380, Math.max(260, width * 0.8));
    const box = { left: 52, right: width - 16, top: 30, bottom: height - 44 };
    const svg = make("svg", { role: "img", "aria-label": spec.said, tabindex: "0", viewBox: `0 0 ${width} ${height}` });
    const { x, y } = axes(svg, box, spec.xs, spec.ys, { title: spec.y, bottom: spec.x });
    const clip = ([u, v]) => v !== null && u >= spec.xs[0] && u <= spec.xs[1];
    if (spec.diagonal) {
      const [low, high] = [Math.max(spec.xs[0], spec.ys[0]), Math.min(spec.xs[1], spec.ys[1])];
      svg.append(make("line", { class: "axis", "stroke-dasharray": "2 4", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }));
    }
    for (const { k, lines, mean } of shownOnly(spec.of)) {
      lines.forEach((own) => svg.append(make("path", {
        class: "split", ...pen(k), "stroke-dasharray": "", opacity: 0.22, d: line(points(own).filter(clip), x, y) })));
      if (mean) svg.append(make("path", { class: "mean", ...pen(k), "stroke-width": 2, d: line(points(mean).filter(clip), x, y) }));
    }
    for (const { k, x: u, y: v } of shownOnly(spec.dots || [])) {
      svg.append(make("circle", { class: "dot", "data-method": k, cx: x(u), cy: y(v), r: spec.small ? 2.4 : 4.5, fill: colour(k),
        opacity: spec.small ? 0.45 : 0.85 }));
    }
    const cross = make("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
    svg.append(cross);
    put(plot, svg);
    if (shownOnly(spec.of).some(({ mean }) => mean)) watch(svg, cross, box, x, width);
  }

  function watch(svg, cross, box, x, width) {
    let at = spec.xs[0];
    const hide = () => { tip.hidden = true; cross.setAttribute("visibility", "hidden"); };
    const show = (u) => {
      at = Math.min(spec.xs[1], Math.max(spec.xs[0], u));
      const rows = shownOnly(spec.of).filter(({ mean }) => mean).map(({ k, mean }) => [k, nearest(points(mean), at)]);
      cross.setAttribute("x1", x(at)); cross.setAttribute("x2", x(at)); cross.setAttribute("visibility", "visible");
      tip.replaceChildren(make("table", {},
        make("thead", {}, make("tr", {}, make("th", {}, spec.x), make("th", {}, written(at, 3)))),
        make("tbody", {}, ...rows.map(([k, v]) => make("tr", {},
          make("th", { style: `color:${colour(k)}` }, label("method", k)), make("td", {}, written(v, 3)))))));
      tip.hidden = false;
      const pixels = (x(at) / width) * svg.clientWidth, flip = pixels > svg.clientWidth / 2;
      tip.style.top = "2.4rem";
      tip.style.left = flip ? "" : `${pixels + 20}px`;
      tip.style.right = flip ? `${svg.clientWidth - pixels + 20}px` : "";
    };
    const toValue = scale([box.left, box.right], spec.xs);
    svg.addEventListener("pointermove", (event) => {
      const area = svg.getBoundingClientRect();
      show(toValue(((event.clientX - area.left) / area.width) * width));
    });
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      show(at + (by * (spec.xs[1] - spec.xs[0])) / 50);
    });
  }

  const nearest = (known, u) => known.reduce((best, p) => (Math.abs(p[0] - u) < Math.abs(best[0] - u) ? p : best))[1];
  return draw;
}

/* ---- rows of values ---- */

function rowsOf(plot, spec) {
  return function draw() {
    const entries = shownOnly(spec.of), step = 38, top = 30;
    const width = Math.max(280, plot.clientWidth - 20), bottom = top + step * entries.length;
    const names = entries.map(({ k }) => label("method", k));
    const left = Math.min(150, 24 + 7 * Math.max(4, ...names.map((name) => name.length)));
    const box = { left, right: width - 56, top, bottom };
    const svg = make("svg", { role: "img", "aria-label": spec.said, viewBox: `0 0 ${width} ${bottom + 42}` });
    const middle = (i) => entries.length - i - 0.5;
    const { x, y } = axes(svg, box, spec.xs, [0, Math.max(1, entries.length)], {
      title: "", bottom: spec.x, rows: names.map((name, i) => [middle(i), name]) });
    svg.append(make("text", { class: "head", x: 8, y: 18 }, spec.y));
    if (spec.zero) svg.append(make("line", { class: "axis", x1: x(0), x2: x(0), y1: top, y2: bottom }));
    entries.forEach(({ k, values, mean, low, high }, i) => {
      const at = y(middle(i)), ink = { stroke: colour(k), "data-method": k };
      if (low !== undefined) svg.append(make("line", { class: "span", ...ink, "stroke-width": 3, x1: x(low), x2: x(high), y1: at, y2: at }));
      (values || []).forEach((u) => svg.append(make("circle", { class: "dot", cx: x(u), cy: at, r: 4, fill: colour(k), opacity: 0.4 })));
      svg.append(make("line", { class: "mean", ...ink, "stroke-width": 4, x1: x(mean), x2: x(mean), y1: at - 9, y2: at + 9 }),
        make("text", { x: box.right + 8, y: at + 4 }, spec.zero ? signed(mean, spec.digits) : written(mean, spec.digits)));
    });
    put(plot, svg);
  };
}

all("[data-picks]").forEach(methodPicks);
all("[data-chart]").forEach((plot) => {
  const spec = data.charts[plot.dataset.chart];
  const draw = (spec.rows ? rowsOf : curves)(plot, spec);
  redraws.push(draw);
  draw();
  resized(plot, draw);
});
