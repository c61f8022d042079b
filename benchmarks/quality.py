"""Does it really learn? SL-R and SL-S against cross-entropy + exact threshold, same network, steps and restarts.

Honest protocol: features standardised on the training rows, checkpoint and threshold chosen on validation rows, test
rows looked at once. Every run is stored as it finishes; run again to continue.

    METRICGRAD_DATA=... python benchmarks/quality.py [--seeds 3] [--jobs 2]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

from metricgrad import MetricClassifier, datasets, get_metric
from metricgrad.recipe import get_recipe
from metricgrad.results import Store
from metricgrad.splits import split

DATASETS = ("ijcnn1", "a9a", "codrna", "covtype")
METRICS = ("f1", "average_precision", "auc")
METHODS = {"cross-entropy": 1.0, "sl-r": 1.05, "sl-s": 1.25}
RESULTS = Path(__file__).parents[1] / "results" / "quality.jsonl"


def run_one(run: dict, path: Path) -> None:
    torch.set_num_threads(1)
    data = datasets.load(run["dataset"])
    parts = split(data.y, run["seed"])
    known = np.concatenate((parts.train, parts.validation))
    begun = time.perf_counter()
    recipe = get_recipe(run["recipe"], **{k: v for k, v in run.items() if k == "learning_rate"})
    model = MetricClassifier(
        run["metric"], method=run["method"], model=run["model"], recipe=recipe, random_state=run["seed"]
    )
    model.fit(data.X[known], data.y[known])
    loss = get_metric(run["metric"])(model.decision_function(data.X[parts.test]), data.y[parts.test])
    checked = [
        [r.phase, r.number, r.validation, r.gap, r.trust] for r in model.history_ if r.validation == r.validation
    ]
    outcome = {
        "test_loss": float(loss),
        "validation_loss": model.validation_loss_,
        "seconds": time.perf_counter() - begun,
        "subset": data.subset,
        "history": checked,
        "command": f"python benchmarks/quality.py {' '.join(sys.argv[1:])}".strip(),
    }
    Store(path).add(run, outcome)


def report(path: Path) -> None:
    frame = Store(path).frame()
    if frame.empty:
        return
    table = Table(title="Test loss, mean over seeds; in brackets the ratio to cross-entropy + exact threshold")
    for heading in ("model", "dataset", "metric", "seeds", *METHODS):
        table.add_column(heading, justify="left" if heading in ("model", "dataset", "metric") else "right")
    met = True
    for (kind, name, metric), cell in frame.groupby(["run.model", "run.dataset", "run.metric"], sort=False):
        losses = cell.pivot_table(index="run.seed", columns="run.method", values="test_loss").dropna()
        if losses.empty or "cross-entropy" not in losses:
            continue
        means = losses.mean()
        cells = []
        for method, bar in METHODS.items():
            if method not in means:
                cells.append("-")
                continue
            ratio = means[method] / means["cross-entropy"]
            met &= ratio <= bar
            cells.append(f"{means[method]:.4f} ({ratio:.3f}{'' if ratio <= bar else ' !'})")
        table.add_row(kind, name, metric, str(len(losses)), *cells)
    Console(width=120).print(table)
    Console().print(f"bars {METHODS}: {'all met' if met else 'not all met'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--metrics", default=",".join(METRICS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--learning-rate", type=float, help="instead of the recipe's, for every method")
    parser.add_argument("--report", action="store_true", help="only show what is stored")
    asked = parser.parse_args()
    changes = {} if asked.learning_rate is None else {"learning_rate": asked.learning_rate}
    runs = [
        {
            "dataset": d,
            "metric": m,
            "method": method,
            "model": asked.model,
            "recipe": "default",
            "seed": seed,
            **changes,
        }
        for seed in range(asked.seeds)
        for d in asked.datasets.split(",")
        for m in asked.metrics.split(",")
        for method in asked.methods.split(",")
    ]
    store = Store(asked.results)
    todo = [] if asked.report else [run for run in runs if store.find(run) is None]
    Parallel(n_jobs=asked.jobs, verbose=5)(delayed(run_one)(run, asked.results) for run in todo)
    report(asked.results)


if __name__ == "__main__":
    main()
