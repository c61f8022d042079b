"""Several classes, several labels: the learned loss against cross-entropy with decisions tuned on validation rows.

The same splits, model, steps and choice of checkpoint for both; test rows are looked at once. Every run is stored as it
is done; run again to continue.

    METRICGRAD_DATA=... python benchmarks/several.py [--datasets wine_white,yeast] [--seeds 5]
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from metricgrad import MetricClassifier, Recipe, get_metric
from metricgrad.labels import known_labels
from metricgrad.progress import work_bar
from metricgrad.results import Store
from metricgrad.splits import split

CLASSES = ("macro_f1", "multiclass_balanced_error", "multiclass_mcc", "cohen_kappa", "mean_iou", "macro_auc")
LABELS = (
    "label_macro_f1",
    "label_micro_f1",
    "sample_f1",
    "label_ranking_average_precision",
    "hamming",
    "label_map",
)
METRICS = {
    "letter": ("macro_f1", "mean_iou"),
    "wine_white": ("quadratic_kappa", *CLASSES),
    "dry_bean": CLASSES,
    "yeast": LABELS,
}
RIVAL, OURS = "cross-entropy", "sl-r"
FIRST_SEED = 200
RECIPE = Recipe(warmup=1_200, rounds=400, learning_rate=0.01)
"""For both, and for a linear model: as many steps of either half."""
RESULTS = Path(__file__).parents[1] / "results" / "several.jsonl"


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets: numbers of classes, or a column for every label."""
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / "extra" / f"{name}.parquet")
    targets = [column for column in frame if column.startswith("target")]
    y = frame.pop("target").to_numpy() if targets == ["target"] else frame[targets].to_numpy()
    return frame.drop(columns=targets, errors="ignore").to_numpy(np.float32), y


def outcome(dataset: str, metric: str, method: str, seed: int) -> dict[str, Any]:
    """Train one model, and judge it on the test rows."""
    X, y = load(dataset)
    whole = y.ndim == 1
    parts = split(y if whole else np.zeros(len(y), int), seed)
    training = np.concatenate((parts.train, parts.validation))
    model = MetricClassifier(metric, method, "linear", RECIPE, random_state=seed)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not faithful yet")  # stored below
        model.fit(X[training], y[training], validation=np.arange(len(parts.train), len(training)))
    judge = get_metric(metric)
    scores = model.decision_function(X[parts.test])
    loss = float(judge(scores, known_labels(y[parts.test], model.classes_, judge.task)))
    verdict = model.verdict_
    return {
        "loss": loss,
        "validation_loss": model.validation_loss_,
        "verdict": None
        if verdict is None
        else {"followed": verdict.followed, "gain": verdict.gain, "error": verdict.error},
        "faith": {"trust": model.history_[-1].trust, "cosine": model.history_[-1].cosine},
        "seconds": time.perf_counter() - begun,
    }


def cells(path: Path = RESULTS) -> pd.DataFrame:
    """Compare the two cell by cell over the seeds both have: losses, gain, difference and its standard error."""
    rows = [
        (r["run"]["dataset"], r["run"]["metric"], r["run"]["method"], r["run"]["seed"], r["loss"]) for r in Store(path)
    ]
    frame = pd.DataFrame(rows, columns=["dataset", "metric", "method", "seed", "loss"])
    both = frame.pivot_table(index=["dataset", "metric", "seed"], columns="method", values="loss").dropna()
    grouped = both.groupby(level=["dataset", "metric"], sort=False)
    difference = (both[RIVAL] - both[OURS]).groupby(level=["dataset", "metric"], sort=False)
    found = pd.DataFrame({"rival": grouped[RIVAL].mean(), "ours": grouped[OURS].mean()})
    return found.assign(
        gain=1 - found["ours"] / found["rival"],
        difference=difference.mean(),
        error=difference.sem(),
        seeds=difference.count(),
    )


def show(path: Path) -> None:
    """Print every cell."""
    table = Table(title=f"{OURS} against {RIVAL}, decisions of both tuned on validation rows: test loss")
    for name in ("dataset", "metric", RIVAL, OURS, "loss saved", "difference", "seeds"):
        table.add_column(name, justify="left" if name in ("dataset", "metric") else "right")
    found = cells(path)
    for (dataset, metric), row in found.iterrows():
        numbers = f"{row['rival']:.4f}", f"{row['ours']:.4f}", f"{row['gain']:+.1%}"
        table.add_row(
            dataset, metric, *numbers, f"{row['difference']:+.4f} ± {row['error']:.4f}", f"{row['seeds']:.0f}"
        )
    console = Console(width=120)
    console.print(table)
    worse = (found["difference"] < -found["error"].fillna(0) - 1e-12).sum()
    console.print(f"worse by more than one standard error: {worse} of {len(found)} cells")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", default=",".join(METRICS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="only show what is stored")
    asked = parser.parse_args()
    store = Store(asked.results)
    wanted = [
        {"dataset": dataset, "metric": get_metric(metric).name, "method": method, "model": "linear", "seed": seed}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for dataset in asked.datasets.split(",")
        for metric in METRICS[dataset]
        for method in (RIVAL, OURS)
    ]
    if not asked.report:
        command = shlex.join(["python", "benchmarks/several.py", *sys.argv[1:]])
        with work_bar() as report:
            for done, run in enumerate(wanted):
                if store.find(run) is None:
                    found = outcome(run["dataset"], run["metric"], run["method"], run["seed"])
                    store.add(run, {**found, "command": command})
                report("runs", done + 1, len(wanted))
    show(asked.results)


if __name__ == "__main__":
    main()
