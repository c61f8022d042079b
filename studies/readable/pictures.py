"""The pictures of docs/readable.md: losses and records in, figures out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.readable.cells import EBM, METRICS, MODELS, OURS, at, cells, label

COLOURS = {"additive": "#0891b2", "ebm, no pairs": "#d97706", "ebm": "#b91c1c", "linear": "#64748b"}


def draw_gains(found: pd.DataFrame) -> Figure:
    """Draw the loss saved against EBM in every cell, by metric, and the mean."""
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    axes, both = figure.subplots(), cells(found, OURS, EBM)
    for place, metric in enumerate(METRICS):
        gain = 100 * at(both, metric)["saved"].sort_values()
        axes.plot(place + np.linspace(-0.25, 0.25, len(gain)), gain, "o", ms=4, alpha=0.6, color=COLOURS["additive"])
        axes.hlines(gain.mean(), place - 0.3, place + 0.3, color="#0f172a", lw=2.5)
    axes.axhline(0, color="#64748b", lw=1)
    axes.set_xticks(range(len(METRICS)), [label(metric) for metric in METRICS])
    axes.set_ylabel("loss saved against EBM\nwithout pairs, %")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_losses(found: pd.DataFrame) -> Figure:
    """Draw the loss of our model against that of EBM in every cell."""
    figure = Figure(figsize=(5.2, 4.8), layout="constrained")
    axes, both = figure.subplots(), cells(found, OURS, EBM)
    for number, metric in enumerate(METRICS):
        some = at(both, metric)
        axes.plot(some["other"], some["own"], "o", ms=4, alpha=0.7, color=f"C{number}", label=label(metric))
    axes.plot([0, 1], [0, 1], color="#64748b", lw=1)
    axes.set_xlabel("loss of EBM without pairs")
    axes.set_ylabel("loss of the additive model for the metric")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_time(records: list[dict[str, Any]]) -> Figure:
    """Draw CPU seconds of a fit against rows, by model."""
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    rows = [(r["run"]["table"], r["run"]["model"], r["rows"], r["cpu_seconds"]) for r in records]
    times = pd.DataFrame(rows, columns=["table", "model", "rows", "time"]).groupby(["model", "table"]).mean()
    for model, colour in COLOURS.items():
        if model in times.index.get_level_values("model"):
            some = times.loc[model]
            axes.plot(some["rows"], some["time"], "o", ms=4, alpha=0.7, color=colour, label=MODELS[model])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("rows")
    axes.set_ylabel("CPU seconds a fit")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def write(found: pd.DataFrame, records: list[dict[str, Any]], folder: Path) -> None:
    """Write all pictures, the same bytes for the same results."""
    figures = {"gains": draw_gains(found), "losses": draw_losses(found), "time": draw_time(records)}
    for name, figure in figures.items():
        with mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(folder / f"readable-{name}.svg", metadata={"Date": None})
