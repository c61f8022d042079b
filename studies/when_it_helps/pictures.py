"""The pictures of docs/when-it-helps.md: frames and records in, figures out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from studies.when_it_helps.tables import METRIC_LABELS, MODEL_LABELS, at, models_of
from studies.win.gains import MODELS
from studies.win.run import METRICS

COLOURS = {"linear": "#0891b2", "small": "#d97706", "mlp": "#c026d3"}
GREY = "#64748b"


def draw_metrics(found: pd.DataFrame) -> Figure:
    """Draw every cell by metric and model, and the mean."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    for shift, model in zip((-0.25, 0, 0.25), MODELS, strict=True):
        for place, metric in enumerate(METRICS):
            gain = at(found, metric=metric, model=model)["gain"] * 100
            x = place + shift + np.linspace(-0.06, 0.06, max(len(gain), 1))[: len(gain)]
            axes.plot(x, gain, "o", ms=3.5, alpha=0.45, color=COLOURS[model])
            axes.hlines(gain.mean(), place + shift - 0.1, place + shift + 0.1, color=COLOURS[model], lw=3)
        axes.plot([], [], color=COLOURS[model], lw=3, label=MODEL_LABELS[model])
    _finish(axes, zero=True)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_yticks([-100, -30, -10, -5, 0, 5, 10, 30, 100], ["-100", "-30", "-10", "-5", "0", "5", "10", "30", "100"])
    axes.set_xticks(range(len(METRICS)), [METRIC_LABELS[metric] for metric in METRICS])
    axes.set_ylabel("loss saved against cross-entropy, %")
    axes.legend(frameon=False, title="model", ncols=3)
    return figure


def draw_capacity(found: pd.DataFrame, shares: dict[str, float]) -> Figure:
    """Draw gain against capacity, a line for each dataset, and against the share of positives."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    models = models_of(found)
    for number, dataset in enumerate(sorted(shares, key=shares.__getitem__)):
        own = [at(found, dataset=dataset, model=model)["gain"].mean() * 100 for model in models]
        left.plot(range(len(models)), own, "o-", color=f"C{number}", label=dataset, lw=1.5, ms=4)
        right.plot([shares[dataset] * 100] * len(models), own, "o", color=f"C{number}", ms=5)
    left.set_xticks(range(len(models)), [MODEL_LABELS[model] for model in models])
    left.set_ylabel("mean loss saved over the eight metrics, %")
    left.set_title("by capacity of the model", fontsize=10)
    _percent_axis(right, "positives in the data, %")
    right.set_title("by prevalence (one dot for each model)", fontsize=10)
    left.legend(frameon=False, fontsize=8, ncols=2)
    _finish(left, right, zero=True)
    return figure


def draw_sizes(found: pd.DataFrame, shares: dict[str, float]) -> Figure:
    """Draw gain against the number of rows used, a line for each dataset."""
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    means = found["gain"].groupby(level=["dataset", "rows"]).mean() * 100
    sizes = sorted(set(means.index.get_level_values("rows")))
    for number, dataset in enumerate(sorted(shares, key=shares.__getitem__)):
        own = means[means.index.get_level_values("dataset") == dataset]
        if len(own):
            axes.plot(own.index.get_level_values("rows"), own, "o-", color=f"C{number}", label=dataset, lw=1.5, ms=4)
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{rows:,}" for rows in sizes])
    axes.minorticks_off()
    axes.set_xlabel("rows used at most (training, validation and test)")
    axes.set_ylabel("mean loss saved, %")
    _finish(axes, zero=True)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_short_runs(found: list[dict[str, Any]]) -> Figure:
    """Draw gain against prevalence in the short runs, and how far their losses rose over the start."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    frame = pd.DataFrame([{**r["run"], **r} for r in found])
    plain = frame["cross_entropy"]
    saved = ((plain - frame["kept"]) / plain.where(plain > 0)).clip(lower=-1).fillna(0)
    for model in MODELS:
        own = frame["model"] == model
        x, y = frame["prevalence"][own] * 100, saved[own] * 100
        left.plot(x, y, "o", ms=4, alpha=0.6, color=COLOURS[model], label=MODEL_LABELS[model])
    _percent_axis(left, "positives, %")
    left.set_ylabel("loss saved against cross-entropy, %")
    _finish(left, zero=True)
    for name, colour in (("last", "#94a3b8"), ("kept", "#0891b2")):
        error, rise = frame[f"{name}_error"].to_numpy(), (frame[name] - frame["start"]).to_numpy()
        z = np.divide(rise, error, out=np.zeros(len(frame)), where=error > 0)
        right.hist(z.clip(-12, 12), bins=np.arange(-12, 12.5, 1), color=colour, alpha=0.7, label=f"{name} model")
    right.axvline(3, color="#e11d48", lw=1, ls="--")
    right.set_xlabel("rise of the loss over the start, in standard errors")
    right.set_ylabel("runs")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    _finish(right)
    return figure


def _percent_axis(axes: Axes, label: str) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(label)


def _finish(*all_axes: Axes, zero: bool = False) -> None:
    """Remove the frame at the top and right, and draw the line at zero."""
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        if zero:
            axes.axhline(0, color=GREY, lw=1)
