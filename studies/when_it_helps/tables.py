"""The tables of docs/when-it-helps.md: frames and records in, Markdown out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from pathlib import Path

import pandas as pd

from metricgrad.evaluation.records import Record, read_records
from metricgrad.evaluation.statistics import holm
from metricgrad.evaluation.store import Store
from metricgrad.training.networks import TREES as BOOSTED
from studies.pages import count_range, listed, markdown, spelt
from studies.win.gains import BASELINE, CELL, MAX_ROWS, MODELS, OURS, PUBLISHED, gains, losses, signed_rank
from studies.win.run import METRICS

MODEL_LABELS = {"linear": "linear", "small": "30 units", "mlp": "100-30-10 units"}
METRIC_LABELS = {
    "auc": "AUC",
    "average_precision": "AP",
    "f1": "F1",
    "mcc": "MCC",
    "error_rate": "error rate",
    "jaccard": "Jaccard",
    "partial_auc(0.05)": "pAUC@0.05",
    "precision_at(0.02)": "P@0.02",
}
MIN_RARE_ROWS = 10
"""With fewer test rows of the rarer class a cell of the table of sizes is noise."""


# ---- frames --------------------------------------------------------------------------------------------------------


def at(found: pd.DataFrame, **where: str) -> pd.DataFrame:
    """Return the cells of a dataset, a metric or a model."""
    for level, value in where.items():
        found = found[found.index.get_level_values(level) == value]
    return found


def models_of(found: pd.DataFrame) -> list[str]:
    """Return the models with cells, small ones first."""
    return [model for model in MODELS if len(at(found, model=model))]


def hand_made(frame: pd.DataFrame) -> list[str]:
    """Return the baselines that train the same network on a hand-made loss."""
    return [name for name in frame if name not in (OURS, BOOSTED, PUBLISHED)]


def in_hindsight(frame: pd.DataFrame) -> pd.Series:
    """Return what the best hand-made loss of each cell saves, chosen by its test loss: an upper bound for them.

    Only seeds that all of them have finished count: on a seed of its own a loss could be better or worse by luck.
    """
    means = frame[hand_made(frame)].dropna().groupby(level=CELL).mean()
    return ((means[BASELINE] - means.min(axis=1)) / means[BASELINE].where(means[BASELINE] > 0)).fillna(0.0)


def size_gains(results: Path, sizes: Path) -> pd.DataFrame:
    """Return the gains of the linear model for every number of rows, that of the main results included.

    Only cells and seeds that are stored at every size count, so that sizes can be compared.
    """
    stored = sorted({record.setting.rows for record in read_records(sizes)})
    frames = {rows: losses(sizes, rows) for rows in stored} | {MAX_ROWS: losses(results)}
    both = {rows: at(frame, model="linear")[[OURS, BASELINE]].dropna() for rows, frame in frames.items()}
    shared = reduce(pd.Index.intersection, (frame.index for frame in both.values()))
    return pd.concat({rows: gains(frame.loc[shared]) for rows, frame in both.items()}, names=["rows"])


def rare_rows(records: Iterable[Record]) -> dict[tuple[str, int], int]:
    """Return the number of test rows of the rarer class, by dataset and number of rows used."""
    shares = ((r, min(r.kept["positive_share"], 1 - r.kept["positive_share"])) for r in records)
    return {(r.dataset, r.setting.rows): round(r.kept["rows"]["test"] * share) for r, share in shares}


# ---- words ---------------------------------------------------------------------------------------------------------


def seed_counts(found: pd.DataFrame) -> str:
    """Return the number of seeds of the cells, by model unless it is the same for all."""
    if found["seeds"].nunique() == 1:
        return f"{spelt(int(found['seeds'].iloc[0]))} seeds"
    by_model = [f"{MODEL_LABELS[model]} {count_range(at(found, model=model)['seeds'])}" for model in models_of(found)]
    return f"seeds: {', '.join(by_model)}"


def clearly(cells: pd.DataFrame) -> str:
    """Return in how many cells SL-R is better and worse by more than one standard error; one seed has none."""
    better, bad = (int((sign * cells["difference"] > cells["error"] + 1e-12).sum()) for sign in (1, -1))
    return f"{better} : {bad}"


def provenance(*paths: Path) -> str:
    """Return versions, commits and dates of stored records."""
    made = [record["made_by"] for path in paths for record in Store(path)]
    version, commit, date = (list(dict.fromkeys(m[name] for m in made)) for name in ("metricgrad", "commit", "date"))
    some = "commit" if len(commit) == 1 else "commits"
    return f"Version {listed(version)}, {some} {listed(commit)}, {listed(sorted(date))}."


# ---- tables --------------------------------------------------------------------------------------------------------


def gain_table(found: pd.DataFrame) -> str:
    """Write the mean gain by metric and model, and its p value."""
    models, rows = models_of(found), []
    for metric in (*METRICS, "all"):
        cells = found if metric == "all" else at(found, metric=metric)
        means = [f"{at(cells, model=model)['gain'].mean():+.1%}" for model in models]
        mean, p = f"**{cells['gain'].mean():+.1%}**", f"{signed_rank(cells['gain']):.2g}"
        rows.append([METRIC_LABELS.get(metric, metric), *means, mean, p])
    return markdown(["metric", *(MODEL_LABELS[model] for model in models), "all", "p"], rows)


def dataset_table(found: pd.DataFrame, shares: dict[str, float]) -> str:
    """Write the mean gain by dataset and model, rare positives first."""
    models, rows = models_of(found), []
    for dataset in sorted(shares, key=shares.__getitem__):
        means = [f"{at(found, dataset=dataset, model=model)['gain'].mean():+.1%}" for model in models]
        rows.append([dataset, f"{shares[dataset]:.2%}", *means])
    return markdown(["dataset", "positives", *(MODEL_LABELS[model] for model in models)], rows)


def baseline_table(frame: pd.DataFrame) -> str:
    """Write the gain of SL-R over every baseline, over the cells both have."""
    against = {name: gains(frame, name) for name in frame.columns.drop(OURS)}
    tests = dict(zip(against, holm([signed_rank(cells["gain"]) for cells in against.values()]), strict=True))
    labels = {BASELINE: f"**{BASELINE}**", PUBLISHED: "SL as published", BOOSTED: "LightGBM (another kind of model)"}
    models, rows = models_of(gains(frame)), []
    for name, cells in sorted(against.items(), key=lambda pair: -pair[1]["gain"].mean()):
        by_model = [at(cells, model=model)["gain"] for model in models]
        means = [f"{gain.mean():+.1%}" if len(gain) else "" for gain in by_model]
        counts = [clearly(cells), str(len(cells)), count_range(cells["seeds"])]
        rows.append([labels.get(name, name), *means, *counts, f"{tests[name]:.2g}"])
    heads = [MODEL_LABELS[model] for model in models]
    return markdown(["baseline", *heads, "clearly better : worse", "cells", "seeds", "p (Holm)"], rows)


def size_table(found: pd.DataFrame, rare: dict[tuple[str, int], int], shares: dict[str, float]) -> str:
    """Write the mean gain by dataset and number of rows, in brackets where there are too few test rows.

    The mean is that of the datasets which have enough of them at every size.
    """
    sizes = sorted(set(found.index.get_level_values("rows")))
    means = found["gain"].groupby(level=["dataset", "rows"]).mean()
    datasets = means.index.get_level_values("dataset")
    lines, counted = [], []
    for dataset in sorted(set(datasets), key=shares.__getitem__):
        few = [rare[dataset, rows] < MIN_RARE_ROWS for rows in sizes]
        shown = [f"{means[dataset, rows]:+.1%}" for rows in sizes]
        lines.append([dataset, *(f"({text})" if too_few else text for text, too_few in zip(shown, few, strict=True))])
        counted += [] if any(few) else [dataset]
    enough = means[datasets.isin(counted)].groupby(level="rows").mean()
    lines += [["**mean**", *(f"**{enough[rows]:+.1%}**" for rows in sizes)]] if counted else []
    return markdown(["dataset", *(f"{rows:,} rows" for rows in sizes)], lines)


def fidelity_table(records: Iterable[Record]) -> str:
    """Write how faithful the surrogates were at the end of training, by metric."""
    rows = [
        (r.metric, r.kept["faith"]["trust"], r.kept["faith"]["cosine"])
        for r in records
        if r.method == OURS and r.setting.recipe == "default-0.1" and r.kept.get("faith")
    ]
    frame = pd.DataFrame(rows, columns=["metric", "trust", "cosine"]).astype({"trust": float, "cosine": float})
    lines = []
    for metric in METRICS:
        own = frame[frame["metric"] == metric]
        quantiles = [f"{own[name].median():.2f} ({own[name].quantile(0.1):.2f})" for name in ("trust", "cosine")]
        lines.append([METRIC_LABELS[metric], *quantiles, str(len(own))])
    return markdown(["metric", "Spearman, median (10 %)", "cosine, median (10 %)", "runs"], lines)
