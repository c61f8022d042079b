"""Do models train better by surrogates with attention? METRICGRAD_DATA=... python -m studies.fidelity.attention

What a surrogate gains over cross-entropy on validation rows, by the default surrogate and by the one with attention, of
models that differ in nothing else.
"""

from __future__ import annotations

import json
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
from studies.pages import RESULTS, command, markdown, parser_of
from studies.tables import table, thirty_tables

STORED = RESULTS / "fidelity_attention.json"
CONFIGS = ("default", "attention")
TABLES = ("ijcnn1", "mammography", "a9a")
METRICS = ("f1", "fnr_at_fpr(0.01)", "precision_at(0.02)")
MAX_ROWS = 20_000


def rows_of(name: str) -> tuple[Any, Any]:
    """Return the features and targets of a table of the thirty, or of the training rows of one of the paper."""
    if name in thirty_tables():
        return table(name)
    data = datasets.load(name)
    part = split(data.y, 0).train[:MAX_ROWS]
    return data.X[part], data.y[part]


def gain_of(name: str, metric: str, model: str, seed: int, config: str) -> dict[str, Any]:
    """Train a model for a metric, and return what that gained on validation rows, with its standard error."""
    recipe = replace(recipe_for("default", kind_of(model)), surrogate_config=config)
    fitted = MetricClassifier(metric, "sl-r", model, recipe, folds=1, random_state=seed).fit(*rows_of(name))
    verdict, last = fitted.verdict_, fitted.history_[-1]
    known = {"gain": verdict.gain, "error": verdict.error, "kept": verdict.followed, "trust": last.trust}
    return {"table": name, "metric": metric, "model": model, "seed": seed, "config": config, **known}


def gains(stored: dict[str, Any]) -> str:
    """Return the table of mean gains by table, model and metric."""
    runs = pd.DataFrame(stored["training"])
    mean = runs.pivot_table(index=["table", "model", "metric"], columns="config", values="gain", sort=False)
    rows = [[*key, *(f"{line[config]:+.4f}" for config in CONFIGS)] for key, line in mean.iterrows()]
    return markdown(["table", "model", "metric", *CONFIGS], rows, left=3)


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
