"""Pictures: a figure that notebooks show by themselves, and the course of training runs."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

if TYPE_CHECKING:
    from metricgrad.metrics.metric import Metric
    from metricgrad.training.trainer import Round

Array = NDArray[Any]
COLOURS = ("#475569", "#c026d3", "#0891b2", "#d97706")
"""Of runs that are compared as they come."""


class Picture(Figure):
    """A figure that notebooks show by themselves, whether or not pyplot was ever imported."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def plot_convergence(histories: Mapping[str, Sequence[Round]], metric: Metric) -> Picture:
    """Draw the metric on validation rows against model steps for some runs, and the surrogate's gap below it."""
    figure = Picture(figsize=(8, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for (name, history), colour in zip(histories.items(), COLOURS * len(histories), strict=False):
        steps, losses = _checked(history)
        above.plot(steps, metric.value(losses), color=colour, label=name, lw=1.6)
        if len(losses):  # training may have been stopped before the first look at validation rows
            chosen = int(np.argmin(losses))
            above.plot(steps[chosen], metric.value(losses[chosen]), "o", color=colour, ms=6)
        gaps = np.array([r.gap for r in history])
        if np.isfinite(gaps).any():
            below.plot([r.steps for r in history], gaps, color=colour, lw=1)
    warm = [r.steps for history in histories.values() for r in history if r.phase == "warm-up"]
    for axes in (above, below):
        if warm:
            axes.axvline(max(warm), color="#94a3b8", ls=":", lw=1)
        plain(axes)
    above.set_ylabel(f"validation {metric.label}")
    above.set_title("A dot is the best checkpoint of a run; the dotted line ends the cross-entropy warm-up", fontsize=9)
    above.legend(frameon=False)
    below.set_ylabel("gap")
    below.set_xlabel("model steps")
    return figure


def _checked(history: Sequence[Round]) -> tuple[Array, Array]:
    """Return model steps and true validation losses of the rounds that were checked."""
    checked = [r for r in history if not math.isnan(r.validation)]
    return np.array([r.steps for r in checked]), np.array([r.validation for r in checked])


def plain(axes: Any) -> Any:
    """Give axes a faint grid and no box; return them."""
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
