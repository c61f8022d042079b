/* Charts: series are shown or hidden everywhere at once, and values shown where one points. */

all("[data-picks] input").forEach((box) => box.addEventListener("input", () => {
  all("[data-picks] input").filter((other) => other.value === box.value).forEach((other) => { other.checked = box.checked; });
  all(".plot [data-series]").filter((mark) => mark.dataset.series === box.value)
    .forEach((mark) => mark.toggleAttribute("hidden", !box.checked));
}));

all(".plot").forEach((plot) => {
  const tip = plot.appendChild(make("div", { class: "tip", hidden: "" })), svg = plot.querySelector("svg");
  const marks = all("svg title", plot).map((title) => {
    const mark = title.parentElement;
    mark.tip = title.textContent;
    title.remove(); /* the browser would show it as well */
    return mark;
  });
  let at = -1;
  const show = (mark) => {
    marks.forEach((other) => other.classList.toggle("here", other === mark));
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.tip;
    const [area, box] = [plot.getBoundingClientRect(), mark.getBoundingClientRect()];
    const left = box.left - area.left, right = area.right - box.right;
    Object.assign(tip.style, left < right ? { left: `${left + box.width + 8}px`, right: "" } : { left: "", right: `${right + box.width + 8}px` });
  };
  plot.addEventListener("pointerover", (event) => show(marks.find((mark) => mark.contains(event.target))));
  plot.addEventListener("pointerleave", () => show());
  svg.addEventListener("blur", () => show());
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !marks.length) return;
    event.preventDefault();
    at = Math.min(marks.length - 1, Math.max(0, at + by));
    show(marks[at]);
  });
});
