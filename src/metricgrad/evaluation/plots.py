"""Pictures of a comparison: what each method shows on the test rows of every split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.evaluation.diagnostics import RECALLS, SHARES, Diagnosis
from metricgrad.metrics.metric import Metric
from metricgrad.reporting.plots import Picture, plain

Array = NDArray[Any]
METHOD_COLOURS = ("#0e7fa3", "#475569", "#2f7d32", "#7c3aed", "#c26a04", "#be123c", "#b3289f", "#857a00")
"""Of the methods of a contest, the one that is judged first."""
Shown = Mapping[str, Sequence[Diagnosis]]
"""What some methods show, split by split."""


def plot_metric(values: Mapping[str, Array], metric: Metric) -> Picture:
    """Draw the metric of every method: a dot for each split, a bar at the mean; dots of one split are joined."""
    figure = Picture(figsize=(7.5, 1 + 0.55 * len(values)), layout="constrained")
    axes = plain(figure.subplots())
    rows = np.arange(len(values))[::-1]
    axes.plot(np.stack(list(values.values())), np.tile(rows[:, None], len(next(iter(values.values())))), **_FAINT)
    for row, own, colour in zip(rows, values.values(), METHOD_COLOURS * len(values), strict=False):
        axes.scatter(own, np.full(len(own), row), s=26, color=colour, alpha=0.55, lw=0, zorder=2)
        axes.plot([own.mean()] * 2, [row - 0.28, row + 0.28], color=colour, lw=3, zorder=3)
    axes.set(yticks=rows, yticklabels=list(values), xlabel=f"{metric.label}, test rows", ylim=(-0.6, rows[0] + 0.6))
    return figure


def plot_roc(shown: Shown) -> Picture:
    """Draw ROC curves: recall against the false-alarm rate, thin for a split, thick for the mean."""
    figure = _curves(shown, SHARES, lambda one: one.roc)
    figure.axes[0].plot([0, 1], [0, 1], **_FAINT)
    figure.axes[0].set(xlabel="false-alarm rate", ylabel="recall", xlim=(0, 1), ylim=(0, 1.01))
    return figure


def plot_precision_recall(shown: Shown) -> Picture:
    """Draw precision against recall, thin for a split, thick for the mean."""
    figure = _curves(shown, RECALLS, lambda one: one.precision)
    figure.axes[0].set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.01))
    return figure


def plot_threshold(shown: Shown, metric: Metric) -> Picture:
    """Draw the metric against the share of rows called positive; dots are the thresholds chosen on validation rows."""
    if not metric.thresholded:
        raise ValueError(f"metric: expected one that depends on a threshold, got {metric.name!r}")
    figure = _curves(shown, SHARES, lambda one: metric.value(one.losses))
    axes = figure.axes[0]
    for own, colour in zip(shown.values(), METHOD_COLOURS * len(shown), strict=False):
        axes.scatter([d.called for d in own], [metric.value(d.loss) for d in own], s=30, color=colour, zorder=3)
    most = max(one.called for own in shown.values() for one in own)
    axes.set(xlabel="share of rows called positive", ylabel=metric.label, xlim=(0, min(1, 3 * most)))
    return figure


def plot_calibration(shown: Shown) -> Picture:
    """Draw the share of positives against the probability that scores would be as log-odds, in ten groups of rows."""
    figure = Picture(figsize=(5.6, 4.6), layout="constrained")
    axes = plain(figure.subplots())
    axes.plot([0, 1], [0, 1], **_FAINT)
    for (name, own), colour in zip(shown.items(), METHOD_COLOURS * len(shown), strict=False):
        for one in own:
            axes.plot(one.predicted, one.observed, color=colour, alpha=0.2, lw=0.8)
        means = (np.nanmean([getattr(d, side) for d in own], axis=0) for side in ("predicted", "observed"))
        axes.plot(*means, "o-", color=colour, lw=1.8, ms=4, label=name)
    axes.set(xlabel="score taken as a probability", ylabel="share of positives", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    return figure


_FAINT: dict[str, Any] = {"color": "#94a3b8", "lw": 0.8, "zorder": 1, "alpha": 0.6}


def _curves(shown: Shown, grid: Array, of: Callable[[Diagnosis], Array]) -> Picture:
    figure = Picture(figsize=(5.6, 4.6), layout="constrained")
    axes = plain(figure.subplots())
    for (name, own), colour in zip(shown.items(), METHOD_COLOURS * len(shown), strict=False):
        lines = np.stack([of(one) for one in own])
        axes.plot(grid, lines.T, color=colour, alpha=0.2, lw=0.8)
        axes.plot(grid, lines.mean(0), color=colour, lw=1.8, label=name)
    axes.legend(frameon=False)
    return figure
