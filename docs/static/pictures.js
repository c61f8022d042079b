// On a narrow screen a wide picture keeps a width at which its text can be read, and is scrolled sideways.
addEventListener("load", () => {
  for (const picture of document.querySelectorAll("article img")) {
    const width = Math.min(picture.naturalWidth, 640);
    if (picture.clientWidth && picture.clientWidth < 0.55 * width) {
      picture.style.width = `${width}px`;
      picture.style.maxWidth = "none";
      picture.parentElement.style.overflowX = "auto";
    }
  }
});

// There too, a table of text becomes a list: a block for every row, and in it a line for every cell with its heading.
// Tables of numbers are scrolled sideways, beside a first column that stays in sight. On a wide screen the cells of a
// table that is too wide are broken into lines.
addEventListener("load", () => {
  if (innerWidth >= 768) {
    for (const table of document.querySelectorAll("article .table-wrapper"))
      table.classList.toggle("broken", table.scrollWidth > table.clientWidth);
    return;
  }
  for (const table of document.querySelectorAll("article table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    const rows = [...table.querySelectorAll("tbody tr")];
    const long = rows.filter((row) => [...row.cells].slice(1).some((cell) => cell.textContent.length > 40));
    if (!heads.length || 3 * long.length < rows.length) {
      for (const row of rows) if (row.cells[0].textContent.length > 25) row.cells[0].style.minWidth = "10em";
      continue;
    }
    table.classList.add("stacked");
    for (const row of rows) {
      [...row.cells].forEach((cell, place) => {
        cell.dataset.heading = heads[place] ?? "";
        cell.hidden = !cell.textContent.trim();
      });
    }
  }
});
