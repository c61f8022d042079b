"""The paper's figures from arrays, whole or, for pages, panel by panel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import numpy as np

from metricgrad.metrics.registry import get_metric
from metricgrad.paper.figures import Figure1, Figure2, Figure3
from metricgrad.reporting.plots import INK, LINE, PALETTE, SOFT, Picture, plain

TRUE, LEARNED, NEGATIVE, POSITIVE = PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[6]


def plot_figure1(arrays: Figure1) -> Picture:
    """Plot the paper's Figure 1: surfaces of the losses over two perturbed predictions."""
    figure = Picture(figsize=(3.2 * len(arrays.losses), 3.4), layout="constrained")
    negative, positive = np.meshgrid(arrays.shifts, arrays.shifts, indexing="ij")
    for i, (name, surface) in enumerate(arrays.losses.items(), 1):
        with mpl.rc_context({"grid.color": LINE}):  # axes of three dimensions take it when they are made
            axes: Any = figure.add_subplot(1, len(arrays.losses), i, projection="3d")
        axes.plot_surface(
            negative, positive, surface, cmap="viridis", rstride=1, cstride=1, lw=0, antialiased=False, rasterized=True
        )
        axes.set_title(f"{get_metric(name).label} loss", fontsize=10, fontweight="bold", color=INK)
        axes.set(xlabel="negative", ylabel="positive")
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.label.set(color=SOFT, fontsize=9)
            axis.set_pane_color((0, 0, 0, 0))
            axis.line.set_color(LINE)
        axes.tick_params(labelsize=8, colors=SOFT)
    return figure


def figure1_panels(arrays: Figure1) -> Iterator[tuple[str, Picture]]:
    """Yield every surface of Figure 1 with its metric."""
    for name, surface in arrays.losses.items():
        yield name, plot_figure1(replace(arrays, losses={name: surface}))


def plot_figure2(arrays: Figure2) -> Picture:
    """Plot the paper's Figure 2 as a strip: the data, then true and surrogate loss over alpha, round by round."""
    figure = Picture(figsize=(3.1 * (1 + len(arrays.rounds)), 2.9), layout="constrained")
    data, *panels = figure.subplots(1, 1 + len(arrays.rounds))
    _draw_data(data, arrays)
    for i, axes in enumerate(panels):
        _draw_round(axes, arrays, i)
    panels[0].set_ylabel("error rate")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def figure2_panels(arrays: Figure2) -> Iterator[Picture]:
    """Yield the data of Figure 2, then every round."""
    for i in range(-1, len(arrays.rounds)):
        figure = Picture(figsize=(4, 2.9), layout="constrained")
        axes = figure.subplots()
        if i < 0:
            _draw_data(axes, arrays)
        else:
            _draw_round(axes, arrays, i)
            axes.legend(frameon=False, fontsize=9, labelcolor=SOFT, loc="upper right")
        yield figure


def _draw_data(axes: Any, arrays: Figure2) -> None:
    """Draw the rows of Figure 2, jittered, and the cut at 1 / alpha that was learned."""
    plain(axes, "Data and learned cut", "x")
    height = np.random.default_rng(0).uniform(-0.35, 0.35, len(arrays.x))
    for label, colour in ((0, NEGATIVE), (1, POSITIVE)):
        own = arrays.y == label
        axes.scatter(arrays.x[own], label + height[own], s=9, color=colour, alpha=0.6, lw=0)
    axes.axvline(1 / arrays.alpha[-1], color=INK, ls="--", lw=1)
    axes.set(yticks=[0, 1], yticklabels=["y = 0", "y = 1"])


def _draw_round(axes: Any, arrays: Figure2, i: int) -> None:
    """Draw true and surrogate loss over alpha after one round, and where alpha is."""
    plain(axes, f"round {arrays.rounds[i]}: alpha = {arrays.alpha[i]:.2f}", "alpha")
    axes.plot(arrays.alphas, arrays.true, color=TRUE, lw=1.4, label="true")
    axes.plot(arrays.alphas, arrays.surrogate[i], color=LEARNED, lw=1.4, label="surrogate")
    axes.axvline(arrays.alpha[i], color=INK, ls="--", lw=1)
    axes.set(ylim=(-0.02, 0.62))


def plot_figure3(arrays: Figure3) -> Picture:
    """Plot the paper's Figure 3: surrogate loss, gap and true test loss against model steps, SL-S beside SL-R."""
    metric = get_metric(arrays.metric)
    panels = (
        ("surrogate loss, training sets", arrays.steps, arrays.surrogate),
        ("gap to the true loss, training sets", arrays.steps, arrays.gap),
        ("true loss, test rows", arrays.checks, arrays.test),
    )
    figure = Picture(figsize=(12, 3.3), layout="constrained")
    figure.suptitle(f"{metric.label} loss on {arrays.dataset}", fontsize=10)
    for axes, (title, steps, curves) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        plain(axes, title, "model steps")
        for (method, values), colour in zip(curves.items(), (TRUE, LEARNED), strict=True):
            axes.plot(steps, values, color=colour, label=method.upper(), lw=1.2)
        axes.set(ylim=(0, None))
    figure.axes[0].legend(frameon=False)
    return figure
