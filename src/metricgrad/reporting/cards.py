"""Cards: what notebooks show of a model or a result, as HTML that fetches nothing and escapes everything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from metricgrad.reporting.markup import tag

STYLE = (
    ".metricgrad-card{font:14px/1.5 system-ui,sans-serif;border:1px solid #8886;border-radius:.6em;padding:.7em 1em;"
    "margin:.4em 0;max-width:48em}.metricgrad-card p{margin:.2em 0 .5em;font-weight:600;overflow-wrap:anywhere}"
    ".metricgrad-card dl{display:flex;flex-wrap:wrap;gap:.2em 2em;margin:0}"
    ".metricgrad-card dt{opacity:.7;font-size:.85em;font-weight:400}"
    ".metricgrad-card dd{margin:0;overflow-wrap:anywhere}"
    ".metricgrad-card svg{display:block;width:100%;max-width:26em;height:auto;margin-top:.6em;color:#0e7fa3}"
    ".metricgrad-card table{border-collapse:collapse;margin-top:.6em;font-variant-numeric:tabular-nums}"
    ".metricgrad-card th,.metricgrad-card td{text-align:right;padding:.15em .9em .15em 0;border-top:1px solid #8884}"
    ".metricgrad-card :is(th,td):first-child{text-align:left}"
)
WIDTH, HEIGHT, ROOM = 320, 56, 4
"""Pixels of a small line, and the room around it."""


def card(headline: str, facts: Mapping[str, str], *drawn: str) -> str:
    """Return a card: one sentence, facts by name, and markup below; texts are escaped here.

    >>> "<b>" in card("<b>F1</b>", {"threshold": "0.5"})
    False
    """
    listed = (tag("div", tag("dt", escape(name)), tag("dd", escape(text))) for name, text in facts.items())
    return tag("style", STYLE) + tag(
        "div", tag("p", escape(headline)), tag("dl", *listed), *drawn, class_="metricgrad-card"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table of texts, each escaped here; the first of a row is its name."""
    heads = "".join(tag("th", escape(text), scope="col") for text in head)
    body = (
        tag("tr", tag("th", escape(name), scope="row"), *(tag("td", escape(text)) for text in texts))
        for name, *texts in rows
    )
    return tag("table", tag("thead", tag("tr", heads)), tag("tbody", *body))


def small_line(points: Sequence[tuple[float, float]], kept: tuple[float, float] | None, title: str) -> str:
    """Return a line without axes through finite points, a dot on the one that was kept; nothing for under two."""
    known = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(known) < 2:
        return ""
    xs, ys = zip(*known, strict=True)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - min(xs)) / ((max(xs) - min(xs)) or 1)
        up = (y - min(ys)) / ((max(ys) - min(ys)) or 1)
        return ROOM + across * (WIDTH - 2 * ROOM), HEIGHT - ROOM - up * (HEIGHT - 2 * ROOM)

    path = "M" + "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in known)
    dot = dict(zip(("cx", "cy"), place(*kept), strict=True)) if kept else {}
    return tag(
        "svg",
        tag("title", escape(title)),
        tag("path", d=path, fill="none", stroke="currentColor", stroke_width="1.5"),
        tag("circle", **{name: f"{at:.1f}" for name, at in dot.items()}, r="3.5", fill="currentColor") if dot else "",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
    )
