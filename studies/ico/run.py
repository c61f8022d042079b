"""Table 5 of ICO (Kumar et al. 2021): METRICGRAD_DATA=... python -m studies.ico.run [--seeds 5] [--models linear]

Area under the precision-recall curve for recalls from 0.95 to 1, linear models, rows split 50/25/25 into training,
validation and test, five seeds, as published. Checkpoints are chosen on validation rows, test rows are judged once.
Every run is stored as it ends; run again to continue.
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
from sklearn.model_selection import train_test_split

from metricgrad import MetricClassifier
from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from studies import pages

RESULTS = pages.RESULTS / "ico.jsonl"
METRIC = "pr_auc(0.95,1)"
DATASETS = ("ijcnn1", "letter", "adult")
METHODS = ("sl-r", "cross-entropy")
IJCNN1_ROWS = 49_990
"""Training rows of the collection that the dataset comes from, which the published table uses."""
COMMONEST_LETTER = 20
FIRST_SEED = 500


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
    model = MetricClassifier(
        METRIC, method=run["method"], model=run["model"], validation_fraction=1 / 3, random_state=seed
    ).fit(X[known], y[known])
    seconds = time.process_time() - begun
    metric = get_metric(METRIC)
    values = {
        part: 100 * float(metric.value(metric(model.decision_function(X[rows]), y[rows])))
        for part, rows in (("known", known), ("test", test))
    }
    kept = model.verdict_.followed if model.verdict_ is not None else None
    return {**values, "cpu_seconds": seconds, "kept": kept, "positives": int(y[test].sum())}


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default="linear,additive")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"dataset": name, "model": model, "method": method, "seed": seed}
        for model in asked.models.split(",")
        for seed in range(asked.seeds)
        for name in asked.datasets.split(",")
        for method in METHODS
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, carry_out)
    for record in store:
        run = record["run"]
        print(f"{run['dataset']:>8} {run['model']:>8} {run['method']:>14} {run['seed']}: {record['test']:.2f}")


if __name__ == "__main__":
    main()
