"""Pictures: arrays and histories in, matplotlib figures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from metricgrad.experiments import Figure2
from metricgrad.metrics import Metric
from metricgrad.trainer import Round

TRUE, LEARNED, POSITIVE, NEGATIVE = "#0891b2", "#c026d3", "#e11d48", "#64748b"
COLOURS = ("#475569", "#c026d3", "#0891b2", "#d97706")


def plot_convergence(histories: Mapping[str, Sequence[Round]], metric: Metric) -> Figure:
    """Draw the metric on validation rows against model steps for some runs, and the surrogate's gap below it."""
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    for (name, history), colour in zip(histories.items(), COLOURS * len(histories), strict=False):
        steps, losses = _checked(history)
        above.plot(steps, metric.value(losses), color=colour, label=name, lw=1.6)
        chosen = int(np.argmin(losses))
        above.plot(steps[chosen], metric.value(losses[chosen]), "o", color=colour, ms=6)
        gaps = np.array([r.gap for r in history])
        if np.isfinite(gaps).any():
            below.plot(_steps(history), gaps, color=colour, lw=1)
    warm = [step for history in histories.values() for step in _steps(history, "warm-up")[-1:]]
    for axes in (above, below):
        if warm:
            axes.axvline(warm[0], color="#94a3b8", ls=":", lw=1)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    above.set_ylabel(f"validation {metric.label}")
    above.set_title("The dot is the checkpoint kept; the dotted line ends the cross-entropy warm-up", fontsize=9)
    above.legend(frameon=False)
    below.set_ylabel("gap")
    below.set_xlabel("model steps")
    return figure


def _steps(history: Sequence[Round], phase: str | None = None) -> list[int]:
    """Return the model steps done at the end of every round."""
    warm = max((r.number for r in history if r.phase == "warm-up"), default=0)
    late = [r for r in history if r.phase == "rounds"]
    a_round = 3 if not late else max(1, _steps_a_round(history))
    steps = [r.number if r.phase == "warm-up" else warm + r.number * a_round for r in history]
    return [s for s, r in zip(steps, history, strict=True) if phase in (None, r.phase)]


def _steps_a_round(history: Sequence[Round]) -> int:
    early = [r.number for r in history if r.phase == "warm-up"]
    return early[0] if early else 1


def _checked(history: Sequence[Round]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(s, r.validation) for s, r in zip(_steps(history), history, strict=True) if r.validation == r.validation]
    return np.array([s for s, _ in pairs]), np.array([v for _, v in pairs])


def plot_figure2(arrays: Figure2) -> Figure:
    """Draw the paper's Figure 2 as a strip: the data, then true and surrogate loss over alpha, round by round."""
    figure = Figure(figsize=(3.1 * (1 + len(arrays.rounds)), 2.9), layout="constrained")
    data, *panels = figure.subplots(1, 1 + len(arrays.rounds))
    height = np.random.RandomState(0).uniform(-0.35, 0.35, len(arrays.x))
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
