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

// There too, a cell with much text stays wide enough to be read in a few lines: tables are scrolled sideways anyway.
addEventListener("load", () => {
  for (const cell of document.querySelectorAll("article td")) {
    if (innerWidth < 768 && cell.textContent.length > 50) cell.style.minWidth = "15em";
  }
});
