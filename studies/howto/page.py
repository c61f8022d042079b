"""Draw the pictures of the how-to pages from results/howto.json: python -m studies.howto.page"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from metricgrad.reporting.plots import EVEN, LINE, SOFT, Picture, pen, plain
from studies.howto.run import RESULTS, TRAINED, USUAL
from studies.pages import DOCS

PENS = {TRAINED: {**pen(0), "lw": 2}, USUAL: {**pen(3), "lw": 2, "linestyle": (0, (4.5, 1.8))}}
SIZE = (5.0, 3.2)


def axes_of(title: str, bottom: str) -> tuple[Picture, Any]:
    """Return a figure and its axes."""
    figure = Picture(figsize=SIZE, layout="constrained")
    return figure, plain(figure.subplots(), title, bottom)


def finished(figure: Picture, axes: Any) -> Picture:
    """Add a legend below, where it covers no line."""
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9, labelcolor=SOFT
    )
    return figure


def draw_cost(record: dict[str, Any]) -> Picture:
    """Draw the profit by the share of rows that is called; dots are the thresholds chosen in training."""
    found = record["cost"]
    figure, axes = axes_of("Profit a row, unseen rows", "% of the rows called; dots: as chosen in training")
    axes.axhline(0, color=EVEN, lw=0.8)
    for name, own in found["curves"].items():
        share, profit = own["chosen"]
        axes.plot(100 * np.array(found["share"]), own["profit"], label=f"{name}: {profit:.2f}", **PENS[name])
        axes.plot(100 * share, profit, "o", color=PENS[name]["color"])
    return finished(figure, axes)


def draw_numbers(record: dict[str, Any]) -> Picture:
    """Draw the relative errors of both models."""
    found = record["numbers"]
    edges = 100 * np.array(found["edges"])
    figure, axes = axes_of("Unseen prices by relative error", "error in %; within 10 % is shaded")
    axes.axvspan(-10, 10, color=LINE, lw=0)
    for name, own in found["errors"].items():
        axes.stairs(own["counts"], edges, label=f"{name}: {100 * own['within']:.1f} % within", **PENS[name])
    return finished(figure, axes)


def draw_groups(record: dict[str, Any]) -> Picture:
    """Draw F1 against the difference between the groups, along the threshold; dots are the thresholds chosen."""
    figure, axes = axes_of("F1, unseen rows", "difference of recall between groups; dots: as chosen in training")
    for name, own in record["groups"]["curves"].items():
        f1, gap = own["chosen"]
        axes.plot(own["gap"], own["f1"], label=f"{name}: F1 {f1:.3f}, difference {gap:.3f}", **PENS[name])
        axes.plot(gap, f1, "o", color=PENS[name]["color"])
    return finished(figure, axes)


PICTURES: dict[str, Callable[[dict[str, Any]], Picture]] = {
    "howto-cost": draw_cost,
    "howto-numbers": draw_numbers,
    "howto-groups": draw_groups,
}


def main(results: Path = RESULTS, folder: Path = DOCS / "images") -> None:
    record = json.loads(results.read_text("utf-8"))
    for name, draw in PICTURES.items():
        with mpl.rc_context({"svg.hashsalt": name}):
            draw(record).savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
