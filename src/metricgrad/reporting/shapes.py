"""Figures of the terms of a readable model: a shape function a feature, its band, and where the rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.ticker import Locator
from numpy.typing import NDArray

from metricgrad.reporting.plots import EVEN, LINE, PALETTE, SOFT, Picture, plain

Floats = NDArray[np.float64]
FACTORS = (
    (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100),
    (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5),
    (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5),
)
"""Factors that an axis of logarithms shows, the coarsest of which at least three are in view."""
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
    log: bool = False,
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
    log : bool
        Whether contributions are logarithms of factors, which the axis then shows.
    """
    figure = Picture(figsize=(5, 3))
    axes = plain(figure.subplots(), feature)
    figure.subplots_adjust(left=0.12, right=0.97, top=0.88, bottom=0.14 if places is not None else 0.3)
    axes.axhline(0, color=EVEN, lw=0.8)
    if log:
        show_factors(axes)
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


class FactorLocator(Locator):
    """Ticks at round factors on an axis of their logarithms."""

    def __call__(self) -> list[float]:
        """Return the ticks in view."""
        assert self.axis is not None
        return self.tick_values(*self.axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> list[float]:
        """Return the ticks between two values: of the coarsest grid that has three.

        >>> [round(float(np.exp(tick)), 1) for tick in FactorLocator().tick_values(-0.4, 0.2)]
        [0.7, 0.8, 0.9, 1.0, 1.1, 1.2]
        """
        low, high = sorted((vmin, vmax))
        found = [[float(np.log(each)) for each in grid if low <= np.log(each) <= high] for grid in FACTORS]
        return next((ticks for ticks in found if len(ticks) >= 3), found[-1])


def show_factors(axes: Any) -> None:
    """Show logarithms on the y axis as the factors they stand for."""
    axes.yaxis.set_major_locator(FactorLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"×{np.exp(value):.3g}")


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
