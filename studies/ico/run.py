"""Table 5 of ICO (Kumar et al. 2021): METRICGRAD_DATA=... python -m studies.ico.run [--seeds 5] [--models linear]

Area under the precision-recall curve for recalls from 0.95 to 1, linear models, rows split 50/25/25 into training,
validation and test, five seeds, as published. Checkpoints are chosen on validation rows, test rows are judged once.
With five folds, training and validation rows are one part: each model leaves a fifth out for validation, and scores in
units of their spread are averaged. As it comes, strategies compete on five folds. To see what a linear model can reach
at all, random changes of its weights that raise the true metric on the known rows are kept; and a search from many
starts (`search.py`) fits the known rows as closely as it can. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from metricgrad import MetricClassifier
from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from metricgrad.training.splits import folds
from studies import pages
from studies.ico.search import search

Array = NDArray[Any]
RESULTS = pages.RESULTS / "ico.jsonl"
METRIC = "pr_auc(0.95,1)"
DATASETS = ("ijcnn1", "letter", "adult")
FOLDED = "sl-r, 5 folds"
AS_IT_COMES, SEARCH = "auto", "search of known rows"
METHODS = ("sl-r", "cross-entropy", FOLDED, AS_IT_COMES, SEARCH)
ADDITIVE = ("sl-r", "cross-entropy")
"""The methods of additive models."""
IJCNN1_ROWS = 49_990
"""Training rows of the collection that the dataset comes from, which the published table uses."""
COMMONEST_LETTER = 20
FOLDS = 5
TRIALS = 1_000
"""Changes of the weights that are tried to see what is left to gain on the known rows."""
FIRST_SEED = 1_500
"""No earlier look has used these seeds."""


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets of a dataset: `(rows, features)` and `(rows,)`."""
    folder = Path(os.environ["METRICGRAD_DATA"])
    path = {"ijcnn1": "ijcnn1.parquet", "letter": "extra/letter.parquet", "adult": "a9a.parquet"}[name]
    frame = pd.read_parquet(folder / path)
    if name == "ijcnn1":
        frame = frame.iloc[:IJCNN1_ROWS]
    y = frame["target"].to_numpy()
    return frame.drop(columns="target").to_numpy(np.float32), (y == COMMONEST_LETTER if name == "letter" else y == 1)


def carry_out(run: dict[str, Any]) -> dict[str, Any]:
    """Train one model, and judge it on training and on test rows."""
    X, y = rows_of(run["dataset"])
    seed = FIRST_SEED + run["seed"]
    known, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=seed, stratify=y)
    begun = time.process_time()
    scores, outcome = TRAINED.get(run["method"], single)(run, X, y, known, seed)
    values = {
        "cpu_seconds": time.process_time() - begun,
        "known": value(scores[known], y[known]),
        "test": value(scores[test], y[test]),
    }
    if run["model"] == "linear" and run["method"] == "sl-r":
        values["searched"] = searched(scores[known], X[known], y[known], TRIALS, seed)
    return {**values, **outcome, "positives": int(y[test].sum())}


def single(run: dict[str, Any], X: Array, y: Array, known: Array, seed: int) -> tuple[Array, dict[str, Any]]:
    """Return the scores of all rows by one model, and whether it followed the metric."""
    model = MetricClassifier(
        METRIC, method=run["method"], model=run["model"], validation_fraction=1 / 3, random_state=seed
    ).fit(X[known], y[known])
    return model.decision_function(X), {"kept": float(model.verdict_.followed)}


def folded(run: dict[str, Any], X: Array, y: Array, known: Array, seed: int) -> tuple[Array, dict[str, Any]]:
    """Return the mean score of all rows by models of five folds, and the share of them that followed the metric."""
    total, kept = np.zeros(len(y)), 0.0
    for _, held_out in folds(y[known], FOLDS, seed):
        model = MetricClassifier(METRIC, "sl-r", model=run["model"], random_state=seed)
        scores = model.fit(X[known], y[known], validation=held_out).decision_function(X)
        total += scores / scores[known].std() / FOLDS
        kept += model.verdict_.followed / FOLDS
    return total, {"kept": kept}


def as_it_comes(run: dict[str, Any], X: Array, y: Array, known: Array, seed: int) -> tuple[Array, dict[str, Any]]:
    """Return the scores of all rows by the estimator as it comes, and the strategy that won on its folds."""
    model = MetricClassifier(METRIC, model=run["model"], random_state=seed).fit(X[known], y[known])
    won = str(model.leaderboard()["methods"][0])
    return model.decision_function(X), {"kept": float(model.verdict_.followed), "methods": won}


def fitted_to_known(run: dict[str, Any], X: Array, y: Array, known: Array, seed: int) -> tuple[Array, dict[str, Any]]:
    """Return the scores of all rows by the best linear model of the known rows, and what each start led to."""
    reached = search(X[known], y[known], seed)
    return X @ reached.weights, {"kept": 1.0, "starts": reached.starts}


TRAINED = {FOLDED: folded, AS_IT_COMES: as_it_comes, SEARCH: fitted_to_known}
"""How models are trained by method; all others are single models of one loss."""


def value(scores: Any, y: Any) -> float:
    """Return the metric in percent."""
    metric = get_metric(METRIC)
    return 100 * float(metric.value(metric(scores, y)))


def searched(scores: Array, X: Array, y: Array, trials: int, seed: int) -> float:
    """Return the metric on rows once random changes of two weights at a time no longer raise it much.

    Steps grow after a gain and shrink after a miss. Scores are those of a linear model of these features.
    """
    rng, spread = np.random.default_rng(seed), X.std(0)
    Z = (X - X.mean(0))[:, spread > 0] / spread[spread > 0]
    now = scores / scores.std()
    best, step = value(now, y), 0.05
    for _ in range(trials):
        which = rng.integers(Z.shape[1], size=2)
        tried = now + Z[:, which] @ (step * rng.normal(size=2))
        found = value(tried, y)
        if found > best:
            best, now, step = found, tried, step * 1.2
        else:
            step = max(step * 0.99, 0.003)
    return best


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default="linear,additive")
    parser.add_argument("--methods", default=",".join(METHODS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"dataset": name, "model": model, "method": method, "seed": seed}
        for model in asked.models.split(",")
        for seed in range(asked.seeds)
        for name in asked.datasets.split(",")
        for method in asked.methods.split(",")
        if model == "linear" or method in ADDITIVE
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, carry_out)
    for record in store:
        run = record["run"]
        print(f"{run['dataset']:>8} {run['model']:>8} {run['method']:>14} {run['seed']}: {record['test']:.2f}")


if __name__ == "__main__":
    main()
