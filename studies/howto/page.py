"""Pictures and numbers of the how-to pages from results/howto.json: python -m studies.howto.page"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
import numpy as np

from metricgrad.reporting.plots import EVEN, LINE, SOFT, Picture, pen, plain
from studies.howto.run import RESULTS, TRAINED, USUAL
from studies.pages import DOCS, in_place

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


def cost_text(record: dict[str, Any]) -> str:
    """Return the profit of both models, and how many rows they call."""
    (share, profit), (usual_share, usual) = (record["cost"]["curves"][name]["chosen"] for name in (TRAINED, USUAL))
    return (
        f"On unseen rows the profit is {profit:.2f} a row, with {100 * share:.1f} % of the rows called; by the usual "
        f"loss, at its best threshold, it is {usual:.2f}, with {100 * usual_share:.1f} %."
    )


def numbers_text(record: dict[str, Any]) -> str:
    """Return how many unseen prices are within ten percent by both models."""
    within, usual = (record["numbers"]["errors"][name]["within"] for name in (TRAINED, USUAL))
    return (
        f"Of the unseen prices {100 * within:.1f} % are within 10 %; by squared error with its constant "
        f"{100 * usual:.1f} %."
    )


def groups_text(record: dict[str, Any]) -> str:
    """Return F1 and the difference of recall of both models."""
    (f1, gap), (usual, usual_gap) = (record["groups"]["curves"][name]["chosen"] for name in (TRAINED, USUAL))
    return (
        f"On unseen rows F1 is {f1:.3f} and the recalls of the groups differ by {gap:.3f}; by logistic regression, cut "
        f"where F1 is best, F1 is {usual:.3f} and they differ by {usual_gap:.3f}."
    )


TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {"costs": cost_text, "numbers": numbers_text, "groups": groups_text}
"""What is written on each page, between the marks `measured`."""


def main(results: Path = RESULTS, folder: Path = DOCS / "images", pages: Path = DOCS / "howto") -> None:
    record = json.loads(results.read_text("utf-8"))
    for name, text in TEXTS.items():
        page = pages / f"{name}.md"
        lines = fill(text(record), 120)
        page.write_text(in_place(page.read_text("utf-8"), "measured", lines), "utf-8")
    for name, draw in PICTURES.items():
        with mpl.rc_context({"svg.hashsalt": name}):
            draw(record).savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
