"""The pictures of docs/deep.md: stored jobs in, figures out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from studies.deep.cells import CELLS, CROSS_ENTROPY, LOSSES, Cell, by_start, curve_of, losses_of, reach_of

OURS, RIVAL, INK = "#0891b2", "#64748b", "#0f172a"
COLOURS = {
    CROSS_ENTROPY: INK,
    "libauc-ap": "#d97706",
    "smooth-ap": "#b91c1c",
    "surrogate-ap": OURS,
    "surrogate-top": "#7c3aed",
}


def draw_differences(frame: pd.DataFrame) -> Figure:
    """Draw how far every loss is ahead of cross-entropy, seed by seed, by the first metrics of the tasks."""
    cells = [CELLS[number] for number in (0, 2, 3, 4, 5)]
    rows = [len(losses_of(frame, cell)) - 1 for cell in cells]
    figure = Figure(figsize=(5.8, 0.3 * sum(rows) + 0.75 * len(cells)), layout="constrained")
    for axes, cell in zip(figure.subplots(len(cells), 1, height_ratios=[n + 1 for n in rows]), cells, strict=True):
        _differences(axes, frame, cell)
    return figure


def _differences(axes: Axes, frame: pd.DataFrame, cell: Cell) -> None:
    plain = by_start(frame, cell, CROSS_ENTROPY)["chosen"]
    losses = [loss for loss in losses_of(frame, cell) if loss != CROSS_ENTROPY]
    for place, loss in enumerate(losses):
        gap = by_start(frame, cell, loss)["chosen"] - plain
        colour = OURS if loss == cell.own else RIVAL
        axes.plot(gap, [place] * len(gap), "o", ms=4, alpha=0.5, color=colour)
        axes.plot([gap.mean()] * 2, [place - 0.35, place + 0.35], color=colour, lw=3)
    axes.axvline(0, color=INK, lw=1)
    axes.set_yticks(range(len(losses)), [LOSSES[loss] for loss in losses])
    axes.set_ylim(len(losses) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(f"{cell.title}: ahead of cross-entropy by", loc="right", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def draw_curves(records: list[dict[str, Any]]) -> Figure:
    """Draw AP on validation rows of Fashion-MNIST step by step, from both starts."""
    figure = Figure(figsize=(5.8, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    steps = next(record for record in records if record["run"]["task"] == "fashion")["steps"]
    for axes, start in zip(panels, ("early", "late"), strict=True):
        for loss, colour in COLOURS.items():
            values = curve_of(records, CELLS[0], loss, start)
            axes.plot(np.linspace(0, steps["after"], len(values)), values, color=colour, label=LOSSES[loss])
        axes.set_title(f"{start} start ({steps[start]:,} steps)", loc="left", fontsize=10)
        axes.set_xlabel("steps by the loss")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("AP on validation rows")
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, frameon=False, loc="outside upper center", ncols=2)
    return figure


def draw_reach(records: list[dict[str, Any]]) -> Figure:
    """Draw where the gradients of the losses of membranes lie."""
    found = reach_of(records, "late")
    figure = Figure(figsize=(5.8, 0.34 * len(found) + 1), layout="constrained")
    axes = figure.subplots()
    near, sure = 100 * found["near"], 100 * found["surely wrong"]
    places = np.arange(len(found))
    axes.barh(places, near, color="#94a3b8", label="pixels near the decision")
    axes.barh(places, sure, left=near, color="#b91c1c", label="pixels surely wrong")
    axes.barh(places, 100 - near - sure, left=near + sure, color="#e2e8f0", label="pixels surely right")
    axes.set_yticks(places, [LOSSES[loss] for loss in found.index])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the gradient, %")
    figure.legend(frameon=False, loc="outside upper center", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def write(frame: pd.DataFrame, records: list[dict[str, Any]], folder: Path) -> None:
    """Write all pictures, the same bytes for the same results."""
    figures = {"differences": draw_differences(frame), "curves": draw_curves(records), "reach": draw_reach(records)}
    for name, figure in figures.items():
        with mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(folder / f"deep-{name}.svg", metadata={"Date": None})
