"""Write docs/when-it-helps.md and its pictures from results/win, results/collapse.jsonl and results/ablations.jsonl.

python benchmarks/when_it_helps.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from metricgrad.ranking import holm
from metricgrad.records import FILE, read_records
from metricgrad.results import Store
from win import BOOSTED, CELL, METRICS, PUBLISHED, RATES, RESULTS, RIVAL, certain, gains, losses, signed_rank, worse

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "when-it-helps.md"
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"
COLLAPSE = ROOT / "results" / "collapse.jsonl"
SIZES = ROOT / "results" / "sizes"
TOP = ("average_precision", "f1", "partial_auc(0.05)", "precision_at(0.02)")
"""Metrics that look at the top of the ranking, or at F1."""
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


def markdown(head: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Write a table; all columns but the first ones are numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def at(found: pd.DataFrame, **where: str) -> pd.DataFrame:
    """Return the cells of a dataset, a metric or a model."""
    for level, value in where.items():
        found = found[found.index.get_level_values(level) == value]
    return found


def gain_table(found: pd.DataFrame) -> str:
    """Write the mean gain by metric and model, and how sure it is."""
    models = [model for model in RATES if len(at(found, model=model))]
    rows = []
    for metric in METRICS:
        cells = at(found, metric=metric)
        means = [f"{at(cells, model=model)['gain'].mean():+.1%}" for model in models]
        rows.append([LABELS[metric], *means, f"**{cells['gain'].mean():+.1%}**", f"{signed_rank(cells['gain']):.2g}"])
    means = [f"{at(found, model=model)['gain'].mean():+.1%}" for model in models]
    rows.append(["all", *means, f"**{found['gain'].mean():+.1%}**", f"{signed_rank(found['gain']):.2g}"])
    return markdown(["metric", *(SAID[model] for model in models), "all", "p"], rows)


def dataset_table(found: pd.DataFrame, shares: dict[str, float]) -> str:
    """Write the mean gain by dataset and model, rare positives first."""
    models = [model for model in RATES if len(at(found, model=model))]
    rows = []
    for dataset in sorted(shares, key=shares.__getitem__):
        means = [f"{at(found, dataset=dataset, model=model)['gain'].mean():+.1%}" for model in models]
        rows.append([dataset, f"{shares[dataset]:.2%}", *means])
    return markdown(["dataset", "positives", *(SAID[model] for model in models)], rows)


def rival_table(frame: pd.DataFrame) -> str:
    """Write how SL-R fares against every rival, over the cells both have."""
    against = {rival: gains(frame, rival) for rival in frame.columns.drop("sl-r")}
    tests = holm([signed_rank(cells["gain"]) for cells in against.values()])
    rows = []
    for (rival, cells), p in sorted(
        zip(against.items(), tests, strict=True), key=lambda pair: -pair[0][1]["gain"].mean()
    ):
        by_model = [at(cells, model=model)["gain"] for model in RATES]
        means = [f"{gain.mean():+.1%}" if len(gain) else "" for gain in by_model]
        better, bad = (int((sign * cells["difference"] > cells["error"]).sum()) for sign in (1, -1))
        name = {RIVAL: f"**{RIVAL}**", PUBLISHED: "SL as published", BOOSTED: "LightGBM (another kind of model)"}
        rows.append([name.get(rival, rival), *means, f"{better} : {bad}", str(len(cells)), f"{p:.2g}"])
    head = ["rival", *(SAID[model] for model in RATES), "clearly better : worse", "cells", "p (Holm)"]
    return markdown(head, rows)


def hand_made(frame: pd.DataFrame) -> list[str]:
    """Return the rivals that train the same network along a loss made by hand."""
    return [name for name in frame if name not in ("sl-r", BOOSTED, PUBLISHED)]


def in_hindsight(frame: pd.DataFrame) -> pd.Series:
    """Return what the best of all hand-made losses saves in each cell, chosen by its test loss: a bound for them.

    Only seeds that all of them have finished count: on a seed of its own a loss would be better or worse by luck.
    """
    means = frame[hand_made(frame)].dropna().groupby(level=CELL).mean()
    return ((means[RIVAL] - means.min(axis=1)) / means[RIVAL].where(means[RIVAL] > 0)).fillna(0.0)


# ---- pictures ------------------------------------------------------------------------------------------------------


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
    right.set_xlabel("positives in the data, %")
    right.set_title("by prevalence (one dot for each model)", fontsize=10)
    left.legend(frameon=False, fontsize=8, ncols=2)
    for axes in (left, right):
        axes.axhline(0, color="#64748b", lw=1)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def size_gains(folder: Path) -> pd.DataFrame:
    """Return the mean gain of every dataset, number of rows and metric."""
    rows = [
        (r.dataset, r.metric, r.kept["run"]["rows"], r.seed, r.method, r.loss("honest", r.metric))
        for r in read_records(folder)
    ]
    frame = pd.DataFrame(rows, columns=["dataset", "metric", "model", "seed", "method", "loss"])
    return gains(frame.pivot_table(index=["dataset", "metric", "model", "seed"], columns="method", values="loss"))


def draw_sizes(found: pd.DataFrame) -> Figure:
    """Draw gain against the number of rows, a line for each dataset."""
    figure = Figure(figsize=(5.5, 3.6), layout="constrained")
    axes = figure.subplots()
    means = found["gain"].groupby(level=["dataset", "model"]).mean() * 100
    for dataset, own in means.groupby(level="dataset"):
        axes.plot(own.index.get_level_values("model"), own, "o-", label=dataset, lw=1.5, ms=4)
    axes.set_xscale("log")
    axes.set_xlabel("rows of the table (training, validation and test)")
    axes.set_ylabel("mean loss saved, %")
    axes.axhline(0, color="#64748b", lw=1)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_short_runs(found: list[dict]) -> Figure:
    """Draw gain against prevalence in the short runs, where nothing but the prevalence of made-up tables differs."""
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


# ---- the page ------------------------------------------------------------------------------------------------------


def faith_table(folder: Path) -> str:
    """Write how faithful the surrogates were at the end of training, by metric."""
    rows = [
        (r.metric, r.kept["faith"]["trust"], r.kept["faith"]["cosine"])
        for r in read_records(folder)
        if r.method == "sl-r" and r.setting.recipe == "default" and r.kept.get("faith")
    ]
    frame = pd.DataFrame(rows, columns=["metric", "trust", "cosine"]).astype({"trust": float, "cosine": float})
    lines = []
    for metric in METRICS:
        own = frame[frame["metric"] == metric]
        quantiles = [f"{own[name].median():.2f} ({own[name].quantile(0.1):.2f})" for name in ("trust", "cosine")]
        lines.append([LABELS[metric], *quantiles, str(len(own))])
    return markdown(["metric", "Spearman, median (10 %)", "cosine, median (10 %)", "runs"], lines)


def page() -> str:
    """Write the page; every number on it comes from the results."""
    frame, records = losses(RESULTS), read_records(RESULTS)
    found = gains(frame)
    shares = {r.dataset: float(r.kept["positive_share"]) for r in records}
    newest = list(Store(RESULTS / FILE))[-1]["made_by"]
    bad, (surely, surely_not) = worse(found), certain(found)
    top = found[found.index.get_level_values("metric").isin(TOP)]
    limited = top[top.index.get_level_values("model").isin(("linear", "small"))]
    kept = [r.kept["verdict"]["followed"] for r in records if r.method == "sl-r" and r.setting.recipe == "default"]
    seeds = found["seeds"].groupby(level="model").agg(["min", "max"])
    said = ", ".join(f"{SAID[m]} {int(seeds.loc[m, 'min'])}" for m in RATES if m in seeds.index)
    short = list(Store(COLLAPSE))
    rises = {name: np.array([r[name] - r["start"] for r in short]) for name in ("kept", "last")}
    over = {
        name: int((rise > 3 * np.array([r[f"{name}_error"] for r in short]) + 1e-12).sum())
        for name, rise in rises.items()
    }
    bound = in_hindsight(frame)
    possible = bound[bound.index.isin(limited.index)]
    by_model = {model: at(limited, model=model)["gain"].mean() for model in ("linear", "small")}
    best = found["gain"].groupby(level=["dataset", "model"]).mean().sort_values(ascending=False).head(6)
    top_cells = ", ".join(f"{d} ({SAID[m]}) {g:+.0%}" for (d, m), g in best.items())
    worst = (
        "none"
        if bad.empty
        else ", ".join(f"{d}/{LABELS[m]}/{SAID[k]} {bad.loc[(d, m, k), 'gain']:+.1%}" for d, m, k in bad.index)
    )
    of_sizes = SIZE_TEXT if (SIZES / FILE).is_file() else ""
    return TEXT.format(
        overall=f"{found['gain'].mean():+.1%}",
        p=f"{signed_rank(found['gain']):.1g}",
        cells=len(found),
        linear=f"{by_model['linear']:+.1%}",
        small=f"{by_model['small']:+.1%}",
        limited=f"{limited['gain'].mean():+.1%}",
        possible=f"{possible.mean():+.1%}",
        nothing=f"{(possible < 0.02).mean():.0%}",
        bad=len(bad),
        share=f"{1 - len(bad) / len(found):.1%}",
        worst=worst,
        surely=surely,
        surely_not=surely_not,
        followed=f"{np.mean(kept):.0%}",
        gains=gain_table(found),
        datasets=dataset_table(found, shares),
        rivals=rival_table(frame),
        faith=faith_table(RESULTS),
        seeds=said,
        top_cells=top_cells,
        short=len(short),
        kept_over=over["kept"],
        last_over=over["last"],
        sizes=of_sizes,
        version=newest["metricgrad"],
        commit=newest["commit"],
        date=newest["date"],
    )


SIZE_TEXT = """
![Gain against the number of rows](images/when-sizes.png)

*The linear model on tables cut to fewer rows, mean over the metrics of the top; three seeds.*
"""

TEXT = """# When should I use this?

**Use it when your model is limited and your metric looks at the top of the ranking or at a threshold.** Linear models
and small networks cannot be right everywhere; the metric tells them where to be right. **Do not expect much where
cross-entropy already finds what the metric wants**: a large network on easy data, or a linear model on data that are
nearly logistic (a9a, porto). You lose nothing but time by trying: the default trains cross-entropy beside the
surrogate, and keeps it unless the surrogate's model wins on validation rows by more than a standard error.

Measured on eight datasets, eight metrics and three models, against **cross-entropy + exact threshold** with the same
network, splits, steps, restarts and choice of checkpoint; {cells} cells of dataset, metric and model (seeds: {seeds}):

- Mean loss saved: **{overall}** (Wilcoxon over cells, p = {p}). On F1 and the metrics of the top of the ranking (AP,
  pAUC, P@0.02): linear **{linear}**, 30 units **{small}**, together {limited}. How much could be had? The best of all
  ten hand-made losses, chosen for every cell in hindsight by its test loss over the seeds that all have, saves
  {possible} there, and less than 2 % in {nothing} of these cells: on most of these data there is nothing to be
  had from the loss.
- Never worse: in **{share}** of the cells SL-R is not worse by more than one standard error over seeds; the {bad} that
  are: {worst}.
- With a paired t test over seeds and Holm's correction over all cells, {surely} are surely better and {surely_not}
  surely worse.
- The guard kept the surrogate's model in {followed} of the runs, cross-entropy's in the others.
- Most is gained on {top_cells}.

## By metric and model

Mean share of the loss of cross-entropy + exact threshold that SL-R saves, over datasets; p by Wilcoxon over cells.

{gains}

![Gain by metric and model](images/when-metrics.png)

*A dot is a dataset, a bar the mean; the scale is linear up to 10 % and logarithmic beyond.*

## By dataset, capacity, prevalence and size

{datasets}

![Gain by capacity and prevalence](images/when-capacity.png)
{sizes}
## Against every rival

Mean share of the rival's loss that SL-R saves (at least -100 %), over the cells that both have; "clearly" is by more
than one standard error over seeds. Every rival has the same splits, warm-up, steps, restart and choice of checkpoint
and threshold on validation rows; cost-sensitive tries six weights. SL as published has the paper's surrogate, sets of
100 rows, half of them positive, and ten refining steps a round, in as many model steps and at our learning rate.

{rivals}

A hand-made loss made for the very metric can be as good as a learned one or better: try `soft-f1` for F1 before you
conclude anything. And if a tree ensemble is an option, try it first: on tables the family of models often matters more
than any loss.

## Can the surrogates be trusted?

On fresh sets of the model at the end of training: Spearman correlation of surrogate and metric, and the cosine between
the surrogate's gradient and that of the smoothed metric, found by probing. `history_` of an estimator has both at every
check, and a warning says so when they are too low to follow. Where a model already gets the top right (P@0.02), sets
hardly differ, and a correlation says little.

{faith}

## Does it ever collapse?

{short} short runs on made-up tables, prevalence 0.002 to 0.5, sets of 50 to 2,000 rows, every built-in metric, three
models, each with its own seed. Compared with where the rounds began, on 20,000 fresh rows, **{kept_over}** of the
models kept are worse by more than three standard errors, and {last_over} of the very last ones, which no guard has
looked at.

![Short runs: gain by prevalence, and rise over the start](images/when-short-runs.png)

## How it was measured

`python benchmarks/win.py` (at most 60,000 rows of a dataset, drawn by the seed, classes in proportion; seeds from 100
on; honest protocol: features standardised on training rows, checkpoint and threshold chosen on validation rows, test
rows looked at once), `python benchmarks/collapse.py`, and this page by `python benchmarks/when_it_helps.py`. Every run
is stored, in `results/win` and `results/collapse.jsonl`. Version {version}, commit {commit}, {date}. What was tried on
the way is in [decision 13](decisions/0013-cross-entropy-competes.md) and
[decision 14](decisions/0014-anchor-less.md).
"""


def draw() -> None:
    """Draw the pictures of the page."""
    found = gains(losses(RESULTS))
    shares = {r.dataset: float(r.kept["positive_share"]) for r in read_records(RESULTS)}
    pictures = {
        "when-metrics": draw_metrics(found),
        "when-capacity": draw_capacity(found, shares),
        "when-short-runs": draw_short_runs(list(Store(COLLAPSE))),
    }
    if (SIZES / FILE).is_file():
        pictures["when-sizes"] = draw_sizes(size_gains(SIZES))
    for name, picture in pictures.items():
        picture.savefig(IMAGES / f"{name}.png", dpi=130)


def in_readme(text: str, found: pd.DataFrame) -> str:
    """Return the README with the table of gains in its place."""
    before, rest = text.split("<!-- win -->\n")
    _, after = rest.split("<!-- /win -->")
    return f"{before}<!-- win -->\n\n{gain_table(found)}\n\n<!-- /win -->{after}"


if __name__ == "__main__":
    draw()
    PAGE.write_text(page())
    README.write_text(in_readme(README.read_text(), gains(losses(RESULTS))))
    print(f"wrote {PAGE.relative_to(ROOT)}, its pictures, and the table of README.md")
