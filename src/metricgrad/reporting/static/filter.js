/* Tables that filter. */

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

/* Of several charts, the one that fits every select is shown. */
all("[data-chooser]").forEach((chooser) => {
  const selects = all("select", chooser), charts = all(".chosen", chooser);
  const fits = (chart) => selects.every((select) => chart.getAttribute(`data-choice-${select.name}`) === select.value);
  const choose = () => {
    charts.forEach((chart) => { chart.hidden = !fits(chart); });
    chooser.querySelector("[data-nothing]").hidden = charts.some(fits);
  };
  selects.forEach((select) => select.addEventListener("input", choose));
  choose();
});
