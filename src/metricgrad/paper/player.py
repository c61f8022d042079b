"""Figure 2 to play with: a reader moves alpha and steps through the rounds, over frames that are computed before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from metricgrad.files import write_whole
from metricgrad.paper.figures import LEARNED, TRUE, Figure2, draw_data, figure2
from metricgrad.reporting.html import render_page
from metricgrad.reporting.plots import INK, SOFT, Picture, inline_svg, plain

Array = NDArray[Any]
LAST_ROUND, FRAME_EVERY = 120, 2
POINTS = 100
"""Points of a curve over alpha on the page."""
BELOW = 0.87
"""Where the vertical lines end, as a share of the axes: below the legend."""
SCRIPTS = ("page.js", "player.js")
TITLE = "A one-parameter model on its surrogate"


class Player(NamedTuple):
    """The two panels as SVG, and as JSON the curves and how they lie in the panels."""

    data: Markup
    losses: Markup
    frames: str
    last: int


def frame_rounds(last: int = LAST_ROUND) -> tuple[int, ...]:
    """Return the rounds that the page steps through."""
    return tuple(range(0, last + 1, FRAME_EVERY))


def player(arrays: Figure2) -> Player:
    """Draw the panels of Figure 2 for a page, with the first frame in them."""
    first = replace(arrays, alpha=arrays.alpha[:1])
    data, losses = Picture(figsize=(4.4, 3.1)), Picture(figsize=(4.4, 3.1))
    of_data, of_losses = _room(data), _room(losses)
    data.mark(draw_data(of_data, first, "Data and the cut of your alpha"), "cut")
    of_data.set_xlim(-0.6, 4.2)
    _draw_losses(losses, of_losses, arrays)
    frames = {
        "alphas": _short(_thinned(arrays.alphas), 4),
        "true": _short(_thinned(arrays.true), 4),
        "rounds": list(arrays.rounds),
        "alpha": _short(arrays.alpha, 4),
        "surrogate": [_short(_thinned(curve), 4) for curve in arrays.surrogate],
        "data": _placed(data, of_data),
        "losses": _placed(losses, of_losses),
    }
    return Player(
        inline_svg(data, "player-data", "Figure 2, rows of both classes and the cut at 1 / alpha"),
        inline_svg(losses, "player-losses", "Figure 2, true and surrogate loss over alpha", legend=True),
        json.dumps(frames, separators=(",", ":")),
        len(arrays.rounds) - 1,
    )


def write_player(path: Path, arrays: Figure2 | None = None, seed: int = 0) -> None:
    """Write a page of its own with Figure 2 to play with."""
    played = player(figure2(frame_rounds(), seed) if arrays is None else arrays)
    text = render_page(
        "figure2.html", f"metricgrad: {TITLE.lower()}", styles=("style.css", "report.css"), scripts=SCRIPTS,
        heading=TITLE, player=played,
    )  # fmt: skip
    write_whole(path, text)


def _room(figure: Picture) -> Any:
    """Return axes at a fixed place, so that the page knows where a value lies."""
    axes = figure.subplots()
    figure.subplots_adjust(left=0.13, right=0.97, top=0.9, bottom=0.16)
    return axes


def _draw_losses(figure: Picture, axes: Any, arrays: Figure2) -> None:
    plain(axes, "Error rate: true and surrogate", "alpha")
    axes.plot(arrays.alphas, arrays.true, color=TRUE, lw=1.6, label="true")
    (curve,) = axes.plot(arrays.alphas, arrays.surrogate[0], color=LEARNED, lw=1.6, label="surrogate")
    here = axes.axvline(arrays.alpha[0], color=SOFT, ls="--", lw=1.2, label="its alpha", ymax=BELOW)
    yours = axes.axvline(arrays.alpha[0], color=INK, lw=1.2, label="yours", ymax=BELOW)
    for artist, kind in ((curve, "learned"), (here, "here"), (yours, "yours")):
        figure.mark(artist, kind)
    axes.set(xlim=(arrays.alphas[0], arrays.alphas[-1]), ylim=(-0.02, 0.72))
    axes.legend(
        frameon=False, fontsize=9, labelcolor=SOFT, loc="upper center", ncols=4, columnspacing=1.2, handlelength=1.4
    )


def _placed(figure: Picture, axes: Any) -> list[float]:
    """Return how a point (x, y) lies in the SVG: at `(a + b x, c + d y)` points."""
    height = figure.get_figheight() * 72
    corners = axes.transData.transform([(0, 0), (1, 1)]) * 72 / figure.dpi
    (left, bottom), (right, top) = corners
    return _short(np.array([left, right - left, height - bottom, bottom - top]), 3)


def _thinned(curve: Array) -> Array:
    chosen = np.linspace(0, len(curve) - 1, min(POINTS, len(curve))).round().astype(int)
    return np.asarray(curve[chosen])


def _short(values: Array, digits: int) -> list[float]:
    return [round(float(value), digits) for value in values]
