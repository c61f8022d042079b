"""Readable models against each other: METRICGRAD_DATA=... python -m studies.readable.run [--seeds 3] [--models ...]

Additive and linear models trained for the metric, against EBM, optimal bins and logistic regression, which aim at log
loss, on thirty tables and on the paper's datasets (at most 20,000 rows, drawn by the seed). All have the same rows:
64 % to train on, 16 % for validation, 20 % to be judged on once. The threshold of F1 is the best of validation
rows. EBM gets training and validation rows, for its own early stopping, and its threshold is the best of its out-of-bag
scores. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import os
import time
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import softplus

from metricgrad import MetricClassifier, additive, best_threshold, get_metric
from metricgrad.evaluation.store import Store
from metricgrad.metrics.metric import Metric
from metricgrad.training.splits import Split, folds, split
from studies import pages
from studies.readable import boosting, page, rivals, smoothing
from studies.readable.cells import BY_FEATURE_AND_BOOSTED, COMPETING, FIRST_SEED, FOLDED, FOR_A_METRIC, METRICS, RESULTS
from studies.win.run import DATASETS

MAX_ROWS, FOLDS = 20_000, 5
OWN = {
    "additive": ("additive", "sl-r"),
    "additive, 10 pairs": (additive(interactions=10), "sl-r"),
    "linear": ("linear", "sl-r"),
}
"""Fitted once for each metric."""
AT_ONCE = {
    "additive for log loss": ("additive", "cross-entropy"),
    "additive for log loss, 10 pairs": (additive(interactions=10), "cross-entropy"),
}
OTHERS = {
    "ebm, no pairs": partial(rivals.ebm, interactions=0),
    "ebm": partial(rivals.ebm, interactions="3x"),
    "optimal bins": rivals.optimal_bins,
    "logistic regression": rivals.logistic_regression,
}
"""Fitted once, and judged by every metric."""


def log_loss(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean log loss of scores that are logits, by which models for it are selected."""
    each = softplus((1 - 2 * targets) * scores)
    return each.mean(-1) if weights is None else (weights * each).sum(-1) / weights.sum(-1)


LOG_LOSS = Metric(
    "log_loss", log_loss, "log loss", "Mean of minus the log of the probability of the class.", bounded=False
)


def tables() -> list[str]:
    """Return the tables, smaller ones first."""
    folder = Path(os.environ["METRICGRAD_DATA"])
    thirty = sorted((folder / "rt30").glob("*.parquet"), key=lambda path: path.stat().st_size)
    return [f"rt30/{path.stem}" for path in thirty] + list(DATASETS)


@lru_cache(maxsize=2)
def rows_of(table: str, seed: int) -> tuple[np.ndarray, np.ndarray, Split]:
    """Return features, targets and the split of a table, of at most `MAX_ROWS` rows."""
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / f"{table}.parquet")
    y = frame["target"].to_numpy()
    if len(y) > MAX_ROWS:
        frame = frame.iloc[split(y, seed, test=MAX_ROWS / len(y), validation=0).test]
        y = frame["target"].to_numpy()
    X = frame.drop(columns=["target", "fold"], errors="ignore").to_numpy(float)
    return X, y.astype(float), split(y, seed)


def outcome(table: str, model: str, seed: int, metric: str | None = None) -> dict[str, Any]:
    """Fit a model, and judge it on the test rows by a metric, or by all and log loss."""
    X, y, parts = rows_of(table, seed)
    begun = time.process_time()
    if model in OTHERS:
        found = OTHERS[model](X, y, parts, seed)
    elif model == COMPETING:
        found = competing(X, y, parts, seed, metric)
    elif model == FOLDED:
        found = folded(X, y, parts, seed)
    elif model == BY_FEATURE_AND_BOOSTED:
        found = smooth_and_boosted(X, y, parts, seed)
    else:
        found = own(X, y, parts, seed, *{**OWN, **AT_ONCE}[model], metric or LOG_LOSS)
    seconds = time.process_time() - begun
    losses = {name: judged(name, found, y, parts) for name in ([metric] if metric else METRICS)}
    margin = (2 * y[parts.test] - 1) * found.test
    return {
        "losses": losses,
        "log_loss": float(np.logaddexp(0, -margin).mean()),
        "cpu_seconds": seconds,
        "rows": len(y),
        "positives": int(y[parts.test].sum()),
    }


def own(
    X: np.ndarray, y: np.ndarray, parts: Split, seed: int, model: Any, method: str, metric: str | Metric
) -> rivals.Judged:
    """Fit one of our models to training rows, selected on validation rows."""
    known = np.concatenate((parts.train, parts.validation))
    held_out = np.arange(len(parts.train), len(known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MetricClassifier(metric, method=method, model=model, random_state=seed)
        fitted.fit(X[known], y[known], validation=held_out)
    test, tuning = (fitted.decision_function(X[rows]) + fitted.threshold_ for rows in (parts.test, parts.validation))
    return rivals.Judged(test, tuning, parts.validation)


def competing(X: np.ndarray, y: np.ndarray, parts: Split, seed: int, metric: str | None) -> rivals.Judged:
    """Fit an additive model as it comes to training and validation rows: folds, strategy and threshold are its own."""
    known = np.sort(np.concatenate((parts.train, parts.validation)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MetricClassifier(metric, model="additive", random_state=seed).fit(X[known], y[known])
    return rivals.Judged(fitted.decision_function(X[parts.test]))


def folded(X: np.ndarray, y: np.ndarray, parts: Split, seed: int) -> rivals.Judged:
    """Average five additive models for log loss, as EBM averages bags, trained on folds of the rows that are known.

    The threshold is chosen on the scores of rows that a fold left out.
    """
    known = np.sort(np.concatenate((parts.train, parts.validation)))
    test, tuning = np.zeros(len(parts.test)), np.zeros(len(known))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, held_out in folds(y[known], FOLDS, seed):
            fitted = MetricClassifier(LOG_LOSS, "cross-entropy", "additive", random_state=seed)
            fitted.fit(X[known], y[known], validation=held_out)
            tuning[held_out] = fitted.decision_function(X[known][held_out]) + fitted.threshold_
            test += (fitted.decision_function(X[parts.test]) + fitted.threshold_) / FOLDS
    return rivals.Judged(test, tuning, known)


def smooth_and_boosted(X: np.ndarray, y: np.ndarray, parts: Split, seed: int) -> rivals.Judged:
    """Average additive models with a penalty for every feature, and boosted shapes, each the mean of five folds."""
    known = np.sort(np.concatenate((parts.train, parts.validation)))
    cut = list(folds(y[known], FOLDS, seed))
    each = [fit(X[known], y[known], X[parts.test], cut) for fit in (smoothing.mean_of_folds, boosting.mean_of_folds)]
    test, tuning = (np.mean(both, 0) for both in zip(*each, strict=True))
    return rivals.Judged(test, tuning, known)


def judged(metric: str, found: rivals.Judged, y: np.ndarray, parts: Split) -> float:
    """Return the loss of the test rows, at the best threshold of the tuning rows where the metric has one."""
    judge = get_metric(metric)
    test, cut = torch.as_tensor(found.test), 0.0
    if judge.thresholded and found.tuning is not None:
        cut = best_threshold(judge, torch.as_tensor(found.tuning), torch.as_tensor(y[found.tuning_rows]))
    return float(judge(test - cut, torch.as_tensor(y[parts.test])))


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--models",
        default=";".join((*OTHERS, *AT_ONCE, FOLDED, BY_FEATURE_AND_BOOSTED, *OWN, COMPETING)),
        help="names, separated by semicolons",
    )
    parser.add_argument("--tables", default="")
    parser.add_argument("--metrics", default=";".join(METRICS), help="of models for a metric, separated by semicolons")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = asked.tables.split(",") if asked.tables else [] if asked.report else tables()
    runs = [
        {"table": table, "model": model, "seed": FIRST_SEED + seed, **({"metric": metric} if metric else {})}
        for model in asked.models.split(";")
        for seed in range(asked.seeds)
        for table in chosen
        for metric in (asked.metrics.split(";") if model in FOR_A_METRIC else [None])
    ]
    pages.run_missing(Store(asked.results), runs, lambda run: outcome(**run))
    if asked.results == RESULTS:
        page.main()


if __name__ == "__main__":
    main()
