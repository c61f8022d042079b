"""HTML from jinja2 templates, always escaped: pages of one file that fetch nothing, and cards for notebooks."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from metricgrad._version import __version__

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
ENVIRONMENT = Environment(
    loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
NOTEBOOK_COLOURS = "--ink:currentColor;--soft:#7a828e;--line:#8884;--even:#8888;--c0:#0e7fa3"
"""Colours of drawings in a notebook, which has no style sheet of ours; they can be seen on light and on dark."""
SPARKLINE_WIDTH, SPARKLINE_HEIGHT, SPARKLINE_MARGIN = 320, 56, 4
"""Size of a sparkline and the margin around it, in pixels."""


def render(template: str, /, **context: Any) -> Markup:
    """Render a template; every text in `context` is escaped unless it is `Markup`."""
    return Markup(ENVIRONMENT.get_template(template).render(**context))


def render_page(
    template: str,
    /,
    title: str,
    *,
    styles: Iterable[str] = ("style.css",),
    scripts: Iterable[str] = (),
    **context: Any,
) -> str:
    """Render a page that extends `page.html`, with our style sheets and scripts inside.

    Its content security policy allows the one inline script by its digest, and no request at all.
    """
    code = "\n".join(_static(name) for name in scripts)
    code = f'"use strict";\n(() => {{\n{code}}})();\n' if code else ""
    style = "".join(_static(name) for name in styles)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    page = {"style": Markup(style), "script": Markup(code), "digest": digest, "version": __version__}
    return str(render(template, title=title, page=page, **context))


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


# ---- notebooks -----------------------------------------------------------------------------------------------------


def card(
    headline: str,
    facts: Mapping[str, str],
    *,
    head: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    drawn: Markup | str = "",
) -> str:
    """Return a card for notebooks: a sentence, facts by name, a table (if it has a head) and a drawing.

    >>> "<b>" in card("<b>F1</b>", {"threshold": "0.5"})
    False
    """
    shown = {"headline": headline, "facts": facts, "head": head, "rows": rows, "drawn": drawn}
    return str(render("card.html", colours=NOTEBOOK_COLOURS, **shown))


def sparkline(points: Sequence[tuple[float, float]], kept: tuple[float, float] | None, title: str) -> Markup:
    """Return a line without axes through the finite points, with a dot at `kept`; nothing for fewer than two."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(finite) < 2:
        return Markup("")
    xs, ys = zip(*finite, strict=True)

    def place(x: float, y: float) -> tuple[float, float]:
        right = (x - min(xs)) / ((max(xs) - min(xs)) or 1)
        up = (y - min(ys)) / ((max(ys) - min(ys)) or 1)
        width, height = SPARKLINE_WIDTH - 2 * SPARKLINE_MARGIN, SPARKLINE_HEIGHT - 2 * SPARKLINE_MARGIN
        return SPARKLINE_MARGIN + right * width, SPARKLINE_HEIGHT - SPARKLINE_MARGIN - up * height

    path = "M" + "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in finite)
    size = (SPARKLINE_WIDTH, SPARKLINE_HEIGHT)
    return render("sparkline.html", title=title, path=path, dot=place(*kept) if kept else None, size=size)


def progress_bar(label: str, completed: int, total: int, note: str) -> Markup:
    """Return a progress bar with a label before it and a note behind it."""
    return render("progress.html", label=label, completed=completed, total=total, note=note)
