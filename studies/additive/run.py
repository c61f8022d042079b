"""Additive against linear models on thirty tables: METRICGRAD_DATA=... python -m studies.additive.run

Both are trained by cross-entropy to its minimum, with the ridge chosen on validation rows, where F1 also gets its exact
threshold; test rows are used once. Every run is stored as it ends; run again to continue. Writes its part of
docs/additive.md at the end.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize

from metricgrad import additive, best_threshold, get_metric
from metricgrad.evaluation.store import Store
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.networks import build_model
from metricgrad.training.splits import split
from studies import pages
from studies.additive import page

RIDGES = np.logspace(0.5, -6, 14)
PATIENCE = 4
"""Ridges without a gain after which no smaller one is tried."""
SPECS = {"linear": "linear", "additive": "additive", "additive, 5 pairs": additive(interactions=5)}


class Scores(NamedTuple):
    """Scores of validation and test rows, their rows, and the ridge and number of columns of the model."""

    validation: torch.Tensor
    test: torch.Tensor
    parts: tuple[Rows, Rows]
    ridge: float
    columns: int


def minimum(columns: np.ndarray, y: np.ndarray, penalty: np.ndarray, ridge: float, start: np.ndarray) -> np.ndarray:
    """Return weights, scaled by the root of their penalty, and the bias at the minimum of cross-entropy and ridge."""
    scaled, sign = columns / np.sqrt(penalty), 2 * y - 1

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (scaled @ v[:-1] + v[-1])
        slope = -sign * np.exp(-np.logaddexp(0, margin)) / len(y)
        value = np.logaddexp(0, -margin).mean() + ridge / 2 * v[:-1] @ v[:-1]
        return value, np.append(scaled.T @ slope + ridge * v[:-1], slope.sum())

    options = {"maxiter": 200, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-7}
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)


@lru_cache(maxsize=1)
def scores(dataset: str, model: str, seed: int) -> Scores:
    """Train a model at every ridge, and return the scores of the best by cross-entropy on validation rows."""
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / "rt30" / f"{dataset}.parquet")
    y = frame["target"].to_numpy()
    train, validation, test = TrainingData(frame.drop(columns=["target", "fold"]).to_numpy(float), y).split(
        split(y, seed), standardise=True
    )
    network = build_model(SPECS[model], train.x.shape[1]).double()
    network.prepare(train.x, None, train.y)
    own = network.additive
    with torch.no_grad():
        parts = [
            (part.x.double() if own is None else own.design(part.x.double())).numpy()
            for part in (train, validation, test)
        ]
    penalty = np.ones(parts[0].shape[1]) if own is None else own.penalty.numpy()
    found, least, worse, start = (parts[1][:, 0], parts[2][:, 0], 0.0), np.inf, 0, np.zeros(len(penalty) + 1)
    for ridge in RIDGES:
        start = minimum(parts[0], train.y.double().numpy(), penalty, ridge, start)
        seen, unseen = (part @ (start[:-1] / np.sqrt(penalty)) + start[-1] for part in parts[1:])
        loss = float(np.logaddexp(0, (1 - 2 * validation.y.numpy()) * seen).mean())
        worse = 0 if loss < least else worse + 1
        if loss < least:
            found, least = (seen, unseen, float(ridge)), loss
        if worse == PATIENCE:
            break
    return Scores(torch.as_tensor(found[0]), torch.as_tensor(found[1]), (validation, test), found[2], len(penalty))


def outcome(dataset: str, metric: str, model: str, seed: int) -> dict[str, Any]:
    """Judge a model on the test rows, at the best threshold of the validation rows."""
    found, judge = scores(dataset, model, seed), get_metric(metric)
    cut = best_threshold(judge, found.validation, found.parts[0].y) if judge.thresholded else 0.0
    return {"loss": float(judge(found.test - cut, found.parts[1].y)), "ridge": found.ridge, "columns": found.columns}


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    tables = [] if asked.report else sorted((Path(os.environ["METRICGRAD_DATA"]) / "rt30").glob("*.parquet"))
    runs = [
        {"dataset": table.stem, "metric": metric, "model": model, "seed": seed}
        for seed in range(page.FIRST_SEED, page.FIRST_SEED + asked.seeds)
        for table in tables
        for model in SPECS
        for metric in page.METRICS
    ]
    with torch.random.fork_rng(devices=[]):
        pages.run_missing(Store(asked.results), runs, lambda run: outcome(**run))
    print(page.part(asked.results))
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
