"""Several classes or labels, against cross-entropy: METRICGRAD_DATA=... python -m studies.targets.run

Both have the same splits, model, steps and choice of checkpoint, and decisions tuned on validation rows; test rows are
used once. Every run is stored as it ends; run again to continue. Writes its part of docs/targets.md at the end.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricgrad import MetricClassifier, get_metric
from metricgrad.estimators.labels import known_labels
from metricgrad.evaluation.store import Store
from metricgrad.training.recipe import get_recipe
from metricgrad.training.splits import split
from studies import pages
from studies.targets import page

RECIPE = get_recipe("default-0.1", warmup=1_200, rounds=400, learning_rate=0.01)
"""For both methods and a linear model, with as many steps before the rounds as in them."""


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets: numbers of classes, or a column for every label."""
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / "extra" / f"{name}.parquet")
    targets = [column for column in frame if column.startswith("target")]
    y = frame.pop("target").to_numpy() if targets == ["target"] else frame[targets].to_numpy()
    return frame.drop(columns=targets, errors="ignore").to_numpy(np.float32), y


def outcome(dataset: str, metric: str, method: str, model: str, seed: int) -> dict[str, Any]:
    """Train one model, and judge it on the test rows."""
    X, y = load(dataset)
    whole = y.ndim == 1
    parts = split(y if whole else np.zeros(len(y), int), seed)
    training = np.concatenate((parts.train, parts.validation))
    fitted = MetricClassifier(metric, method, model, RECIPE, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not faithful yet")  # stored below
        fitted.fit(X[training], y[training], validation=np.arange(len(parts.train), len(training)))
    judge = get_metric(metric)
    scores = fitted.decision_function(X[parts.test])
    loss = float(judge(scores, known_labels(y[parts.test], fitted.classes_, judge.task)))
    verdict = fitted.verdict_
    return {
        "loss": loss,
        "validation_loss": fitted.validation_loss_,
        "verdict": None
        if verdict is None
        else {"followed": verdict.followed, "gain": verdict.gain, "error": verdict.error},
        "faith": {"trust": fitted.history_[-1].trust, "cosine": fitted.history_[-1].cosine},
    }


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--datasets", default=",".join(page.METRICS))
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    runs = [
        {"dataset": dataset, "metric": get_metric(metric).name, "method": method, "model": "linear", "seed": seed}
        for seed in range(page.FIRST_SEED, page.FIRST_SEED + asked.seeds)
        for dataset in asked.datasets.split(",")
        for metric in page.METRICS[dataset]
        for method in (page.BASELINE, page.OURS)
    ]
    pages.run_missing(Store(asked.results), [] if asked.report else runs, lambda run: outcome(**run))
    print(page.part(asked.results))
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
