"""Models that compete against LightGBM and single models: METRICGRAD_DATA=... python -m studies.auto.run

The thirty tables of Abdelhamid and Desai (2024) with the five folds of that study, and the datasets of the paper, of
which some rows are drawn. Folds, choice and threshold are those of `MetricClassifier`, from the rows that are not for
the test. Where models may be mixed, what a fit comes to without that is judged beside it, from the same models. Every
run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import os
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricgrad import MetricClassifier, get_metric
from metricgrad.estimators.competing import COMPETING
from metricgrad.estimators.competition import Competition
from metricgrad.evaluation.store import Store
from metricgrad.paper.datasets import load_dataset
from metricgrad.training.splits import split
from studies import pages
from studies.auto import page

MAX_ROWS = 12_000
"""Rows of a dataset of the paper, a fifth of them for the test."""
SEED = 200
HOW: dict[str, dict[str, Any]] = {
    "lightgbm": {"model": "lightgbm", "method": "sl-r"},
    "lightgbm, five folds": {"model": "lightgbm", "method": "sl-r", "folds": 5},
    "mlp": {"model": "mlp", "method": "sl-r"},
    "readable, sl-r alone": {"model": "readable", "method": "sl-r"},
    "auto, sl-r alone": {"model": "auto", "method": "sl-r"},
    "readable": {"model": "readable"},
    "auto": {"model": "auto"},
}
"""Trees know only the usual loss, whatever the method."""


@lru_cache(maxsize=1)
def table(dataset: str, fold: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, targets, and which rows are for the test."""
    if dataset in page.PAPER:
        data = load_dataset(dataset)
        y = np.asarray(data.y).astype(int)
        drawn = np.random.default_rng(SEED + fold).permutation(len(y))[:MAX_ROWS]
        X, y = data.X[drawn], y[drawn]
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        return X, y, np.isin(np.arange(len(y)), split(y, SEED + fold).test)
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / "rt30" / f"{dataset}.parquet")
    X = frame.drop(columns=["target", "fold"]).to_numpy(float)
    return X, frame["target"].to_numpy().astype(int), (frame["fold"] == fold).to_numpy()


class Classifier(MetricClassifier):
    """An estimator that keeps its competition, to be fitted again without training."""

    found: Competition | None = None

    def _compete(self, *arguments: Any, **options: Any) -> Competition:
        self.found = self.found or super()._compete(*arguments, **options)
        return self.found

    def fit_one(self, X: np.ndarray, y: np.ndarray) -> Classifier:
        """Fit what is chosen where models are not mixed."""
        assert self.found is not None
        self.found = self.found.among(self.found.candidates)
        return self.fit(X, y)


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Fit a model and judge it on the test rows."""
    X, y, test = table(run["dataset"], run["fold"])
    known, judge = (X[~test], y[~test]), get_metric(run["metric"])

    def judged(model: Classifier) -> dict[str, Any]:
        kept = ("model", "methods", "behind", "standard_error", "folds", "value")
        results = [{k: line[k] for k in kept} for line in model.results_]
        loss = float(judge(model._decision(X[test]), y[test]))
        return {"loss": loss, "validation": model.validation_loss_, "results": results}

    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Classifier(run["metric"], random_state=SEED, **HOW[run["model"]]).fit(*known)
        found = judged(model) | {"cpu": time.process_time() - begun}
        return {**found, "one model": judged(model.fit_one(*known))} if model.found and model.found.mixes else found


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--models", default=",".join(name for name in HOW if "," not in name) + ";lightgbm, five folds")
    parser.add_argument("--metrics", default=",".join(page.METRICS))
    parser.add_argument("--tables", help="names, separated by commas; by default all")
    parser.add_argument("--folds", type=int, default=5, help="of the thirty tables, F1; other metrics have one")
    asked = parser.parse_args()
    models = [name for part in asked.models.split(";") for name in ([part] if part in HOW else part.split(","))]
    tables = sorted(path.stem for path in (Path(os.environ["METRICGRAD_DATA"]) / "rt30").glob("*.parquet"))
    places = [(name, fold) for fold in range(asked.folds) for name in (*tables, *(page.PAPER if not fold else ()))]
    wanted = asked.tables.split(",") if asked.tables else [*tables, *page.PAPER]
    runs = [
        {"dataset": name, "fold": fold, "metric": metric, "model": model, **_competing(model)}
        for name, fold in places
        for metric in asked.metrics.split(",")
        for model in models
        if name in wanted and (not fold or (metric == "f1" and model != "mlp"))
    ]
    if not asked.report:
        pages.run_missing(Store(asked.results), runs, outcome)
    if asked.results == page.RESULTS:
        page.main()


def _competing(model: str) -> dict[str, str]:
    kind = HOW[model]["model"]
    if kind not in COMPETING:
        return {}
    return {"candidates": ", ".join((*COMPETING[kind], *(["mixtures"] if kind == "auto" else [])))}


if __name__ == "__main__":
    main()
