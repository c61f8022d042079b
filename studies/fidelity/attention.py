"""Do models train better by surrogates with attention? METRICGRAD_DATA=... python -m studies.fidelity.attention

What a surrogate gains over cross-entropy on validation rows, by the default surrogate and by the one with attention, of
models that differ in nothing else.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from metricgrad import MetricClassifier
from metricgrad.files import write_whole
from metricgrad.paper import datasets
from metricgrad.provenance import provenance
from metricgrad.training.networks import kind_of
from metricgrad.training.recipe import recipe_for
from metricgrad.training.splits import split
from studies.fidelity.direction_table import judged_sets
from studies.pages import RESULTS, command, markdown, parser_of, wrapped
from studies.tables import table, thirty_tables

STORED = RESULTS / "fidelity_attention.json"
CONFIGS = ("default", "attention")
TABLES = ("ijcnn1", "mammography", "a9a")
METRICS = ("f1", "mcc", "fnr_at_fpr(0.01)", "precision_at(0.02)", "recall_at_precision(0.9)")
MAX_ROWS = 20_000


def rows_of(name: str) -> tuple[Any, Any]:
    """Return the features and targets of a table of the thirty, or of the training rows of one of the paper."""
    if name in thirty_tables():
        return table(name)
    data = datasets.load_dataset(name)
    part = split(data.y, 0).train[:MAX_ROWS]
    return data.X[part], data.y[part]


def gain_of(name: str, metric: str, model: str, seed: int, config: str) -> dict[str, Any]:
    """Train a model for a metric, and return what that gained on validation rows, with its standard error."""
    recipe = replace(recipe_for("default", kind_of(model)), surrogate_config=config)
    fitted = MetricClassifier(metric, "sl-r", model, recipe, folds=1, random_state=seed).fit(*rows_of(name))
    verdict, last = fitted.verdict_, fitted.history_[-1]
    error = None if math.isnan(verdict.error) else verdict.error
    known = {"gain": verdict.gain, "error": error, "kept": verdict.followed, "trust": last.trust}
    return {"table": name, "metric": metric, "model": model, "seed": seed, "config": config, **known}


def directions(stored: dict[str, Any], default: dict[str, Any]) -> str:
    """Return the table of median cosine / 10 % quantile of both surrogates, on sets that both were measured on."""
    both = [judged_sets(each) for each in (default, stored)]
    keys = [pd.MultiIndex.from_frame(sets[["table", "model", "rows", "metric"]]) for sets in both]
    kept = [
        sets[sets["judged"].to_numpy() & own.isin(other)]
        for sets, own, other in zip(both, keys, keys[::-1], strict=True)
    ]
    cosines = [sets.groupby("metric", sort=False)["cosines"] for sets in kept]
    found = [(each.median(), each.quantile(0.1)) for each in cosines]
    rows = [
        [f"`{metric}`", *(f"{median[metric]:.2f} / {low[metric]:.2f}" for median, low in found), f"{count}"]
        for metric, count in cosines[1].count().items()
    ]
    return markdown(["metric", *CONFIGS, "sets"], rows)


def section(stored: dict[str, Any], default: dict[str, Any]) -> str:
    """Return the part of the page about surrogates with attention."""
    text = f"""## With attention over thresholds

`SurrogateLoss(metric, config="attention")` takes another network, for metrics at one threshold that a set chooses
itself ([decision 49](decisions/0049-attention-over-thresholds-of-the-set.md)). Median cosine / 10 % quantile on the
sets above that both were measured on:

{directions(stored, default)}

The direction is much nearer to that of the metric. Is training better by it? What a model gained over cross-entropy on
validation rows (`method="sl-r"`, `folds=1`, mean over seeds, at most {MAX_ROWS:,} rows; `python -m
studies.fidelity.attention`, {stored["runs"][-1]["made_by"]["date"]}):

{gains(stored)}

{spoken_for(stored)} So the default stays as it was, and attention is there for those who ask for it.
"""
    return wrapped(text)


def spoken_for(stored: dict[str, Any]) -> str:
    """Return in how many runs each was ahead, and the mean difference with its standard error."""
    gain = pairs(stored)
    ahead = gain["attention"] - gain["default"]
    error = ahead.std() / len(ahead) ** 0.5
    return (
        f"With attention it gained more in {(ahead > 0).sum()} of {len(ahead)} runs and less in {(ahead < 0).sum()}; "
        f"on average the difference is {ahead.mean():+.4f} (standard error {error:.4f})."
    )


def gains(stored: dict[str, Any]) -> str:
    """Return the table of mean gains by table, model and metric."""
    grouped = pairs(stored).groupby(level=["table", "model", "metric"], sort=False)
    seeds, mean = grouped.size(), grouped.mean()
    rows = [[*key, *(f"{line[config]:+.4f}" for config in CONFIGS), f"{seeds[key]}"] for key, line in mean.iterrows()]
    return markdown(["table", "model", "metric", *CONFIGS, "seeds"], rows, left=3)


def pairs(stored: dict[str, Any]) -> pd.DataFrame:
    """Return the gains of runs that were made by both surrogates, a column each."""
    runs = pd.DataFrame(stored["training"])
    names = ["table", "model", "metric", "seed"]
    return runs.pivot_table(index=names, columns="config", values="gain", sort=False).dropna()


def main() -> None:
    parser = parser_of(__doc__ or "", STORED)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--metrics", nargs="+", default=list(METRICS))
    parser.add_argument("--models", nargs="+", default=["linear"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    asked = parser.parse_args()
    if not asked.report:
        torch.set_num_threads(1)
        run_missing(asked.results, list(product(asked.tables, asked.metrics, asked.models, asked.seeds)))
    print(gains(json.loads(asked.results.read_text("utf-8"))))


def run_missing(path: Path, cells: list[tuple[str, str, str, int]]) -> None:
    """Train what is not stored yet; it is stored as it is found."""
    stored = json.loads(path.read_text("utf-8"))
    stored["runs"].append({"command": command(), "made_by": provenance()})
    names = ("table", "metric", "model", "seed", "config")
    known = {tuple(run[name] for name in names) for run in stored["training"]}
    for cell, config in product(cells, CONFIGS):
        if (*cell, config) not in known:
            stored["training"].append({"run": len(stored["runs"]) - 1, **gain_of(*cell, config)})
            write_whole(path, json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
