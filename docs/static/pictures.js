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
