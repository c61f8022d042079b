"""The pictures of docs/when-it-helps.md: arrays and frames in, figures out."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.win.run import METRICS, RATES

COLOURS = {"linear": "#0891b2", "small": "#d97706", "mlp": "#c026d3"}
SAID = {"linear": "linear", "small": "30 units", "mlp": "100-30-10 units"}
LABELS = {
    "auc": "AUC",
    "average_precision": "AP",
    "f1": "F1",
    "mcc": "MCC",
    "error_rate": "error rate",
    "jaccard": "Jaccard",
    "partial_auc(0.05)": "pAUC@0.05",
    "precision_at(0.02)": "P@0.02",
}


def at(found: pd.DataFrame, **where: str) -> pd.DataFrame:
    """Return the cells of a dataset, a metric or a model."""
    for level, value in where.items():
        found = found[found.index.get_level_values(level) == value]
    return found


def draw_metrics(found: pd.DataFrame) -> Figure:
    """Draw every cell by metric and model, and the mean."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    for shift, model in zip((-0.25, 0, 0.25), RATES, strict=True):
        for place, metric in enumerate(METRICS):
            gain = at(found, metric=metric, model=model)["gain"] * 100
            x = place + shift + np.linspace(-0.06, 0.06, max(len(gain), 1))[: len(gain)]
            axes.plot(x, gain, "o", ms=3.5, alpha=0.45, color=COLOURS[model])
            axes.hlines(gain.mean(), place + shift - 0.1, place + shift + 0.1, color=COLOURS[model], lw=3)
        axes.plot([], [], color=COLOURS[model], lw=3, label=SAID[model])
    axes.axhline(0, color="#64748b", lw=1)
    axes.set_yscale("symlog", linthresh=10)
    axes.set_yticks([-100, -30, -10, -5, 0, 5, 10, 30, 100], ["-100", "-30", "-10", "-5", "0", "5", "10", "30", "100"])
    axes.set_xticks(range(len(METRICS)), [LABELS[metric] for metric in METRICS])
    axes.set_ylabel("loss saved against cross-entropy, %")
    axes.legend(frameon=False, title="model", ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_capacity(found: pd.DataFrame, shares: dict[str, float]) -> Figure:
    """Draw gain against capacity, a line for each dataset, and against the share of positives."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    models = [model for model in RATES if len(at(found, model=model))]
    for number, dataset in enumerate(sorted(shares, key=shares.__getitem__)):
        own = [at(found, dataset=dataset, model=model)["gain"].mean() * 100 for model in models]
        colour = f"C{number}"
        left.plot(range(len(models)), own, "o-", color=colour, label=dataset, lw=1.5, ms=4)
        right.plot([shares[dataset] * 100] * len(models), own, "o", color=colour, ms=5)
    left.set_xticks(range(len(models)), [SAID[model] for model in models])
    left.set_ylabel("mean loss saved over the eight metrics, %")
    left.set_title("by capacity of the model", fontsize=10)
    right.set_xscale("log")
    right.xaxis.set_major_formatter("{x:g}")
    right.set_xlabel("positives in the data, %")
    right.set_title("by prevalence (one dot for each model)", fontsize=10)
    left.legend(frameon=False, fontsize=8, ncols=2)
    for axes in (left, right):
        axes.axhline(0, color="#64748b", lw=1)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_sizes(found: pd.DataFrame, shares: dict[str, float]) -> Figure:
    """Draw gain against the most rows that were used, a line for each dataset."""
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
    axes.axhline(0, color="#64748b", lw=1)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_short_runs(found: list[dict]) -> Figure:
    """Draw gain against prevalence in the short runs, and how far their models rose over the start."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    prevalence = np.array([r["run"]["prevalence"] for r in found])
    saved = np.array(
        [max((r["cross_entropy"] - r["kept"]) / r["cross_entropy"], -1) if r["cross_entropy"] else 0 for r in found]
    )
    for model in RATES:
        own = np.array([r["run"]["model"] == model for r in found])
        left.plot(
            prevalence[own] * 100, saved[own] * 100, "o", ms=4, alpha=0.6, color=COLOURS[model], label=SAID[model]
        )
    left.set_xscale("log")
    left.xaxis.set_major_formatter("{x:g}")
    left.set_xlabel("positives, %")
    left.set_ylabel("loss saved against cross-entropy, %")
    left.axhline(0, color="#64748b", lw=1)
    left.legend(frameon=False, fontsize=8)
    for name, colour in (("last", "#94a3b8"), ("kept", "#0891b2")):
        error = np.array([r[f"{name}_error"] for r in found])
        z = np.divide([r[name] - r["start"] for r in found], error, out=np.zeros(len(found)), where=error > 0)
        right.hist(z.clip(-12, 12), bins=np.arange(-12, 12.5, 1), color=colour, alpha=0.7, label=f"{name} model")
    right.axvline(3, color="#e11d48", lw=1, ls="--")
    right.set_xlabel("rise of the loss over the start, in standard errors")
    right.set_ylabel("runs")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
