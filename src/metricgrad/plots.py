"""Pictures: arrays and histories in, matplotlib figures out."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from metricgrad.diagnosis import RECALLS, SHARES, Diagnosis
from metricgrad.figures import Figure1, Figure2, Figure3
from metricgrad.metrics import Metric, get_metric
from metricgrad.trainer import Round

Array = NDArray[Any]
TRUE, LEARNED, POSITIVE, NEGATIVE = "#0891b2", "#c026d3", "#e11d48", "#64748b"
COLOURS = ("#475569", "#c026d3", "#0891b2", "#d97706")
"""Of runs that are compared as they come."""
METHOD_COLOURS = ("#0e7fa3", "#475569", "#2f7d32", "#7c3aed", "#c26a04", "#be123c", "#b3289f", "#857a00")
"""Of the methods of a contest, the one that is judged first."""
Shown = Mapping[str, Sequence[Diagnosis]]
"""What some methods show, split by split."""


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
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
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


def plot_figure1(arrays: Figure1) -> Picture:
    """Draw the paper's Figure 1: surfaces of the losses over two perturbed predictions."""
    figure = Picture(figsize=(3.2 * len(arrays.losses), 3.4), layout="constrained")
    negative, positive = np.meshgrid(arrays.shifts, arrays.shifts, indexing="ij")
    for i, (name, surface) in enumerate(arrays.losses.items(), 1):
        axes = figure.add_subplot(1, len(arrays.losses), i, projection="3d")
        axes.plot_surface(negative, positive, surface, cmap="viridis", rstride=2, cstride=2, lw=0, antialiased=False)
        axes.set(xlabel="negative", ylabel="positive", title=f"{get_metric(name).label} loss")
    return figure


def plot_figure2(arrays: Figure2) -> Picture:
    """Draw the paper's Figure 2 as a strip: the data, then true and surrogate loss over alpha, round by round."""
    figure = Picture(figsize=(3.1 * (1 + len(arrays.rounds)), 2.9), layout="constrained")
    data, *panels = figure.subplots(1, 1 + len(arrays.rounds))
    height = np.random.default_rng(0).uniform(-0.35, 0.35, len(arrays.x))
    for label, colour in ((0, NEGATIVE), (1, POSITIVE)):
        own = arrays.y == label
        data.scatter(arrays.x[own], label + height[own], s=9, color=colour, alpha=0.6, lw=0)
    data.axvline(1 / arrays.alpha[-1], color="black", ls="--", lw=1)
    data.set(xlabel="x", yticks=[0, 1], yticklabels=["y = 0", "y = 1"], title="data and learned cut")
    for axes, done, alpha, surrogate in zip(panels, arrays.rounds, arrays.alpha, arrays.surrogate, strict=True):
        axes.plot(arrays.alphas, arrays.true, color=TRUE, lw=1.4, label="true")
        axes.plot(arrays.alphas, surrogate, color=LEARNED, lw=1.4, label="surrogate")
        axes.axvline(alpha, color="black", ls="--", lw=1)
        axes.set(xlabel="alpha", ylim=(-0.02, 0.62), title=f"round {done}: alpha = {alpha:.2f}")
    panels[0].set_ylabel("error rate")
    panels[0].legend(frameon=False, fontsize=8)
    for axes in (data, *panels):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_figure3(arrays: Figure3) -> Picture:
    """Draw the paper's Figure 3: surrogate loss, gap and true test loss against model steps, SL-S beside SL-R."""
    metric = get_metric(arrays.metric)
    panels = (
        ("surrogate loss, training sets", arrays.steps, arrays.surrogate),
        ("gap to the true loss, training sets", arrays.steps, arrays.gap),
        ("true loss, test rows", arrays.checks, arrays.test),
    )
    figure = Picture(figsize=(12, 3.3), layout="constrained")
    figure.suptitle(f"{metric.label} loss on {arrays.dataset}", fontsize=10)
    for axes, (title, steps, curves) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for (method, values), colour in zip(curves.items(), (TRUE, LEARNED), strict=True):
            axes.plot(steps, values, color=colour, label=method.upper(), lw=1.2)
        axes.set(xlabel="model steps", title=title, ylim=(0, None))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False)
    return figure


# ---- contests ------------------------------------------------------------------------------------------------------


def plot_metric(values: Mapping[str, Array], metric: Metric) -> Picture:
    """Draw the metric of every method: a dot for each split, a bar at the mean; dots of one split are joined."""
    figure = Picture(figsize=(7.5, 1 + 0.55 * len(values)), layout="constrained")
    axes = _plain(figure.subplots())
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
    axes = _plain(figure.subplots())
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
    axes = _plain(figure.subplots())
    for (name, own), colour in zip(shown.items(), METHOD_COLOURS * len(shown), strict=False):
        lines = np.stack([of(one) for one in own])
        axes.plot(grid, lines.T, color=colour, alpha=0.2, lw=0.8)
        axes.plot(grid, lines.mean(0), color=colour, lw=1.8, label=name)
    axes.legend(frameon=False)
    return figure


def _plain(axes: Any) -> Any:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
