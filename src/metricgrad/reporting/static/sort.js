/* Tables that sort. */

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
