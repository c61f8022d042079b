"""Figures of the terms of a readable model: a shape function a feature, its band, and where the rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.reporting.plots import EVEN, LINE, PALETTE, SOFT, Picture, plain

Floats = NDArray[np.float64]
MAX_BARS = 20
"""Levels of a category that are drawn."""


def plot_shape(
    feature: str,
    levels: list[str],
    contribution: Floats,
    *,
    places: Floats | None = None,
    share: Floats | None = None,
    band: tuple[Floats, Floats] | None = None,
) -> Picture:
    """Plot what the levels of a feature add to the score: a line over a number, or a bar a level.

    Parameters
    ----------
    feature : str
        Title.
    levels : list of str
        Names of the levels.
    contribution : ndarray of shape (levels,)
        What each adds to the score.
    places : ndarray of shape (levels,), optional
        Where the levels of a number lie; it is then drawn as a line.
    share : ndarray of shape (levels,), optional
        Share of the rows, drawn below.
    band : pair of ndarray of shape (levels,), optional
        Lower and upper end of the band.
    """
    figure = Picture(figsize=(5, 3))
    axes = plain(figure.subplots(), feature)
    figure.subplots_adjust(left=0.12, right=0.97, top=0.88, bottom=0.14 if places is not None else 0.3)
    axes.axhline(0, color=EVEN, lw=0.8)
    if places is None:
        _bars(figure, axes, levels, contribution, share, band)
        return figure
    if band is not None:
        axes.fill_between(places, *band, color=PALETTE[0], alpha=0.2, lw=0)
    (line,) = axes.plot(places, contribution, color=PALETTE[0], lw=1.8, marker="o", ms=3)
    figure.mark(line, "mean", feature)
    if share is not None and np.isfinite(share).all():
        _density(axes, places, share)
    return figure


def _density(axes: Any, places: Floats, share: Floats) -> None:
    """Draw the share of the rows of each level as a bar at the bottom; its width is that of the level."""
    middle = (places[1:] + places[:-1]) / 2
    edges = np.concatenate((places[:1], middle, places[-1:]))
    below = axes.twinx()
    below.bar(edges[:-1], share, np.diff(edges), align="edge", color=SOFT, alpha=0.18, edgecolor=LINE, lw=0.5)
    below.set_ylim(0, 4 * max(float(share.max()), 1e-9))
    below.set_axis_off()


def _bars(
    figure: Picture,
    axes: Any,
    levels: list[str],
    contribution: Floats,
    share: Floats | None,
    band: tuple[Floats, Floats] | None,
) -> None:
    shown = np.argsort(-np.abs(contribution), kind="stable")[:MAX_BARS]
    shown = shown[np.argsort(contribution[shown], kind="stable")]
    error = None if band is None else np.abs(np.stack([end[shown] for end in band]) - contribution[shown])
    bars = axes.bar(range(len(shown)), contribution[shown], color=PALETTE[0], alpha=0.75, yerr=error, ecolor=SOFT)
    for bar, place in zip(bars, shown, strict=True):
        known = share is not None and np.isfinite(share[place])
        rows = f", {share[place]:.1%} of the rows" if known and share is not None else ""
        figure.mark(bar, "dot", tip=f"{levels[place]}: {contribution[place]:+.3f}{rows}")
    axes.set_xticks(range(len(shown)), [_short(levels[place]) for place in shown], rotation=30, ha="right", fontsize=8)


def _short(text: str) -> str:
    return text if len(text) <= 18 else f"{text[:17]}…"
