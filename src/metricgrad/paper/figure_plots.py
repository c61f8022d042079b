"""The paper's figures: arrays in, pictures out."""

from __future__ import annotations

import numpy as np

from metricgrad.metrics.registry import get_metric
from metricgrad.paper.figures import Figure1, Figure2, Figure3
from metricgrad.reporting.plots import Picture, plain

TRUE, LEARNED, POSITIVE, NEGATIVE = "#0891b2", "#c026d3", "#e11d48", "#64748b"


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
        plain(axes)
    figure.axes[0].legend(frameon=False)
    return figure
