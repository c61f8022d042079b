/* What every script of a page shares: its data, elements, colours, axes. Text goes in as text, never as markup. */

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
  return [low < 0 ? low - room : Math.max(0, low - room), high + room];
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
