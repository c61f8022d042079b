"""Charts of a comparison: how each method does on the test rows of every split."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray

from metricgrad.evaluation.diagnostics import RECALLS, SHARES, Diagnosis
from metricgrad.evaluation.runs import method_label
from metricgrad.evaluation.statistics import Interval, Ranking
from metricgrad.metrics.metric import Metric
from metricgrad.reporting.plots import EVEN, INK, PALETTE, SOFT, Picture, add_tips, pen, plain
from metricgrad.reporting.terminal import visible

Array = NDArray[Any]
METHOD_NUMBERS = (0, 3, 4, 5, 6, 2, 1, 7)
"""Numbers in the palette of the methods of a comparison by their place, the one that is judged first."""
Diagnoses = Mapping[str, Sequence[Diagnosis]]
"""What some methods show, split by split."""
FAINT: dict[str, Any] = {"color": EVEN, "lw": 0.8, "zorder": 1, "alpha": 0.35}
DIAGONAL: dict[str, Any] = {"color": EVEN, "lw": 0.8, "zorder": 1, "ls": (0, (1.5, 3))}
SQUARE = (5.6, 4.2)
MAX_LETTERS = 24
"""Letters of a method's name beside a row; the rest is cut."""


def method_numbers(methods: Sequence[str]) -> dict[str, int]:
    """Return the number in the palette of every method, by its place."""
    return {method: METHOD_NUMBERS[i % len(METHOD_NUMBERS)] for i, method in enumerate(methods)}


# ---- rows ----------------------------------------------------------------------------------------------------------


def plot_metric(values: Mapping[str, Array], metric: Metric) -> Picture:
    """Plot the metric of every method: a dot for each split, a bar at the mean; dots of one split are joined."""
    figure, axes, rows = _row_axes(list(values), "Test rows: a dot for each split, a bar at the mean", metric.label)
    ends = np.tile(rows[:, None], len(next(iter(values.values()))))
    axes.plot(np.stack(list(values.values())), ends, **FAINT)
    for (name, own), row, number in zip(values.items(), rows, method_numbers([*values]).values(), strict=True):
        colour = pen(number)["color"]
        dots = axes.scatter(own, np.full(len(own), row), s=30, color=colour, alpha=0.45, lw=0, zorder=2)
        figure.mark(dots, "dots", name, tip=f"{name}: {', '.join(f'{value:.4f}' for value in own)}")
        digits = 3 if abs(own.mean()) < 10 else 1
        _row_mean(figure, axes, (own.mean(), row), name, colour, f"{own.mean():.{digits}f}")
    return figure


def plot_ahead(intervals: Mapping[str, Interval], metric: Metric, ours: str, numbers: Mapping[str, int]) -> Picture:
    """Plot how far a method is ahead of each baseline in the metric: the mean difference and its 95 % interval."""
    label = f"{metric.label} of {ours} minus that of the baseline"
    figure, axes, rows = _row_axes(list(intervals), "Mean difference and its 95 % interval", label)
    axes.axvline(0, color=EVEN, lw=0.8)
    sign = 1 if metric.higher_is_better else -1  # a gain in an error rate is on the left
    for (name, gain), row in zip(intervals.items(), rows, strict=True):
        colour, ends = pen(numbers[name])["color"], (sign * gain.low, sign * gain.high)
        (span,) = axes.plot(ends, [row, row], color=colour, lw=2.2, solid_capstyle="butt")
        figure.mark(span, "span", name, tip=f"{name}: {min(ends):+.4f} to {max(ends):+.4f}")
        _row_mean(figure, axes, (sign * gain.mean, row), name, colour, f"{sign * gain.mean:+.3f}")
    return figure


def _row_axes(names: Sequence[str], title: str, bottom: str) -> tuple[Picture, Any, Array]:
    """Return a figure with a row for each name, the first on top, and where the rows are."""
    layout = ConstrainedLayoutEngine(w_pad=0.2)  # room for the larger letters of small screens
    figure = Picture(figsize=(5.6, 1.0 + 0.36 * len(names)), layout=layout)
    axes, rows = plain(figure.subplots(), bottom=bottom), np.arange(len(names))[::-1]
    cut = [visible(name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…") for name in names]
    axes.set(yticks=rows, yticklabels=cut, ylim=(-0.6, rows[0] + 0.6))
    figure.suptitle(title, x=0.03, ha="left", fontsize=9, fontweight="bold")
    for name, label in zip(names, axes.get_yticklabels(), strict=True):
        figure.mark(label, "row", name)
    return figure, axes, rows


def _row_mean(figure: Picture, axes: Any, at: tuple[float, float], name: str, colour: str, text: str) -> None:
    x, row = at
    (bar,) = axes.plot([x, x], [row - 0.26, row + 0.26], color=colour, lw=3, zorder=3, solid_capstyle="butt")
    figure.mark(bar, "mean", name)
    shown = axes.annotate(text, (1.02, row), xycoords=axes.get_yaxis_transform(), va="center", fontsize=9, color=SOFT)
    figure.mark(shown, "row", name)


# ---- curves --------------------------------------------------------------------------------------------------------


def plot_roc(shown: Diagnoses) -> Picture:
    """Plot ROC curves: recall against the false-alarm rate, thin for a split, thick for the mean."""
    figure, axes = _square("Recall", "false-alarm rate", xlim=(0, 1), ylim=(0, 1.01))
    axes.plot([0, 1], [0, 1], **DIAGONAL)
    return _curves(figure, shown, SHARES, lambda one: one.roc)


def plot_precision_recall(shown: Diagnoses) -> Picture:
    """Plot precision against recall, thin for a split, thick for the mean."""
    figure, _ = _square("Precision", "recall", xlim=(0, 1), ylim=(0, 1.01))
    return _curves(figure, shown, RECALLS, lambda one: one.precision)


def plot_threshold(shown: Diagnoses, metric: Metric) -> Picture:
    """Plot the metric against the share of rows called positive; dots are the thresholds chosen on validation rows."""
    if not metric.thresholded:
        raise ValueError(f"metric: expected one that depends on a threshold, got {metric.name!r}")
    most = max(one.called for own in shown.values() for one in own)
    figure, axes = _square(metric.label, "share of rows called positive", xlim=(0, min(1, 3 * most) or 1))
    for (name, own), number in zip(shown.items(), method_numbers([*shown]).values(), strict=True):
        x, y = [d.called for d in own], [metric.value(d.loss) for d in own]
        figure.mark(axes.scatter(x, y, s=26, color=pen(number)["color"], alpha=0.85, lw=0, zorder=3), "dots", name)
    return _curves(figure, shown, SHARES, lambda one: metric.value(one.losses))


def plot_calibration(shown: Diagnoses) -> Picture:
    """Plot the share of positives against the probability that scores would be as log-odds, in ten groups of rows."""
    figure, axes = _square("Share of positives", "score taken as a probability", xlim=(0, 1), ylim=(0, 1.01))
    axes.plot([0, 1], [0, 1], **DIAGONAL)
    for (name, own), number in zip(shown.items(), method_numbers([*shown]).values(), strict=True):
        for one in own:
            (line,) = axes.plot(one.predicted, one.observed, color=pen(number)["color"], alpha=0.22, lw=0.8)
            figure.mark(line, "run", name)
        predicted, observed = (np.array([getattr(one, side) for one in own]) for side in ("predicted", "observed"))
        full = np.isfinite(predicted).all(0)
        means = predicted[:, full].mean(0), observed[:, full].mean(0)
        (line,) = axes.plot(*means, **pen(number), lw=1.8, marker="o", ms=3, label=name)
        figure.mark(line, "mean", name)
    axes.legend(frameon=False)
    return figure


def plot_fidelity(pairs: Mapping[str, Array], metric: Metric, numbers: Mapping[str, int]) -> Picture:
    """Plot fresh sets as dots: their true loss, and the loss that the surrogate predicts; arrays are (2, sets)."""
    figure, axes = _square("Loss predicted by the surrogate", f"true {metric.label} loss of a set")
    every = np.concatenate(list(pairs.values()), axis=1)
    axes.plot([every.min(), every.max()], [every.min(), every.max()], **DIAGONAL)
    for name, (true, learned) in pairs.items():
        dots = axes.scatter(true, learned, s=9, color=pen(numbers[name])["color"], alpha=0.45, lw=0)
        figure.mark(dots, "dots", name)
    return figure


def _square(title: str, bottom: str, **limits: Any) -> tuple[Picture, Any]:
    figure = Picture(figsize=SQUARE, layout="constrained")
    axes = plain(figure.subplots(), title, bottom)
    axes.set(**limits)
    return figure, axes


def _curves(figure: Picture, shown: Diagnoses, grid: Array, of: Callable[[Diagnosis], Array]) -> Picture:
    (axes,), means = figure.axes, {}
    for (name, own), number in zip(shown.items(), method_numbers([*shown]).values(), strict=True):
        lines = np.stack([of(one) for one in own])
        for thin in axes.plot(grid, lines.T, color=pen(number)["color"], alpha=0.22, lw=0.8):
            figure.mark(thin, "run", name)
        means[name] = lines.mean(0)
        (mean,) = axes.plot(grid, means[name], **pen(number), lw=1.8, label=name)
        figure.mark(mean, "mean", name)
    axes.legend(frameon=False)
    add_tips(figure, axes, axes.get_xlabel(), grid, {n: (f"{y:.3f}" for y in mean) for n, mean in means.items()})
    return figure


# ---- ranks ---------------------------------------------------------------------------------------------------------


def plot_ranks(ranking: Ranking) -> Picture:
    """Plot a critical-difference diagram: methods at their mean ranks, bars over those not significantly different."""
    methods, bars = list(ranking.ranks), len(ranking.cliques)
    half = math.ceil(len(methods) / 2)
    figure = Picture(figsize=(5.4, 0.75 + 0.27 * half + 0.12 * bars), layout="constrained")
    axes: Any = figure.subplots()
    axes.spines[["left", "right", "bottom"]].set_visible(False)
    axes.spines["top"].set_color(EVEN)
    axes.xaxis.tick_top()
    axes.tick_params(labelsize=9, colors=SOFT, color=EVEN)
    margin, first = 0.55 * (len(methods) - 1), 0.6 + 0.42 * bars
    axes.set(xlim=(1, len(methods)), ylim=(first + half - 0.5, 0), xticks=range(1, len(methods) + 1), yticks=[])
    for i, method in enumerate(methods):
        left, rank = i < half, ranking.ranks[method]
        y, end = first + (i if left else len(methods) - 1 - i), 1 - margin / 6 if left else len(methods) + margin / 6
        words = [visible(method_label(method)), f"{rank:.2f}"]
        (line,) = axes.plot([rank, rank, end], [0, y, y], color=EVEN, lw=1, clip_on=False)
        figure.mark(line, "method", method)
        side = {"ha": "right", "xytext": (-4, 0)} if left else {"ha": "left", "xytext": (4, 0)}
        text = " ".join(words if left else words[::-1])
        axes.annotate(
            text,
            (end, y),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
            annotation_clip=False,
            **side,
        )
    for i, clique in enumerate(ranking.cliques):
        ends, reach = (ranking.ranks[clique[0]], ranking.ranks[clique[-1]]), 0.02 * (len(methods) - 1)
        span = (ends[0] - reach, ends[1] + reach)
        (bar,) = axes.plot(span, [0.45 + 0.42 * i] * 2, color=PALETTE[0], lw=4, solid_capstyle="round", clip_on=False)
        figure.mark(bar, "clique", tip=", ".join(map(method_label, clique)))
    return figure


def ranks_in_words(ranking: Ranking) -> str:
    """Return the diagram in words."""
    ranks = ", ".join(f"{method_label(method)} {rank:.2f}" for method, rank in ranking.ranks.items())
    alike = "; ".join(", ".join(map(method_label, clique)) for clique in ranking.cliques)
    return f"Mean ranks over {ranking.cells} cells: {ranks}. Not significantly different: {alike or 'none'}."
