"""Several classes, several labels: the learned loss against cross-entropy with decisions tuned on validation rows.

The same splits, model, steps and choice of checkpoint for both; test rows are looked at once. Every run is stored as it
is done; run again to continue.

    METRICGRAD_DATA=... python benchmarks/several.py [--datasets wine_white,yeast] [--seeds 5] [--report]

Writes its part of docs/targets.md from what is stored in the end.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from metricgrad import MetricClassifier, Recipe, get_metric
from metricgrad.estimators.labels import known_labels
from metricgrad.evaluation.store import Store
from metricgrad.paper.rendering import Grid, Word, as_markdown, as_rich
from metricgrad.reporting.progress import work_bar
from metricgrad.training.splits import split
from studies.common import command, in_place, parser_of

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
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "several.jsonl"
PAGE = ROOT / "docs" / "targets.md"


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


def cells(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Compare the two cell by cell over the seeds both have: losses, difference, its standard error, and who was kept.

    Positive is better than the rival.
    """
    rows = [
        {**record["run"], "loss": record["loss"], "kept": (record["verdict"] or {}).get("followed", False)}
        for record in records
        if record["run"]["metric"] in METRICS[record["run"]["dataset"]]
    ]
    both = pd.DataFrame(rows).pivot_table(
        index=["dataset", "metric", "seed"], columns="method", values=["loss", "kept"], sort=False
    )
    both = both.dropna()
    of_cells = both["loss"].assign(saved=both["loss"][RIVAL] - both["loss"][OURS], kept=both["kept"][OURS])
    grouped = of_cells.groupby(level=["dataset", "metric"], sort=False)
    found = grouped.mean().rename(columns={RIVAL: "rival", OURS: "ours", "saved": "difference"})
    return found.assign(error=grouped["saved"].sem().fillna(0.0), seeds=grouped["saved"].count())


def grid(path: Path = RESULTS) -> Grid:
    """Show every cell."""
    records = list(Store(path))
    found, rows = cells(records), []
    for (dataset, name), row in found.iterrows():
        metric = get_metric(name)
        sure = row["difference"] > row["error"] + 1e-12
        rows.append(
            (
                Word(dataset),
                Word(metric.label),
                *(Word(f"{metric.value(row[method]):.4f}") for method in ("rival", "ours")),
                Word(f"{row['difference']:+.4f} ± {row['error']:.4f}", bold=bool(sure)),
                Word(f"{row['kept'] * row['seeds']:.0f} of {row['seeds']:.0f}"),
            )
        )
    worse = found[found["difference"] < -found["error"] - 1e-12]
    better = int((found["difference"] > found["error"] + 1e-12).sum())
    where = (
        f": {', '.join(f'{dataset} {get_metric(name).label}' for dataset, name in worse.index)}" if len(worse) else ""
    )
    seeds = (
        f"{found['seeds'].min():.0f} to {found['seeds'].max():.0f}"
        if found["seeds"].nunique() > 1
        else f"{found['seeds'].max():.0f}"
    )
    made = sorted({f"metricgrad {r['made_by']['metricgrad']}, {r['made_by']['date']}" for r in records})
    return Grid(
        "The learned loss against cross-entropy, decisions of both tuned on validation rows: value on test rows",
        ("data", "metric", RIVAL, "metricgrad", "loss saved", "learned one kept"),
        tuple(rows),
        (
            f"Better by more than a standard error in {better} of {len(found)} cells (bold), worse by more than one in "
            f"{len(worse)}{where}. Where the learned model was not surely better on validation rows, that of "
            "cross-entropy was kept, and the difference is nothing.",
            "Where a single seed differs, the mean is off by exactly one standard error, and is counted neither way.",
            f"A linear model, the same splits and steps for both; seeds of a cell: {seeds}, from {FIRST_SEED} on; "
            f"{records[-1]['command']}, {'; '.join(made)}.",
        ),
        left=2,
    )


def main() -> None:
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--datasets", default=",".join(METRICS))
    parser.add_argument("--seeds", type=int, default=5)
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
        with work_bar() as report:
            for done, run in enumerate(wanted):
                if store.find(run) is None:
                    found = outcome(run["dataset"], run["metric"], run["method"], run["seed"])
                    store.add(run, {**found, "command": command()})
                report("runs", done + 1, len(wanted))
    shown = grid(asked.results)
    Console(width=120).print(as_rich(shown))
    if asked.results == RESULTS:
        PAGE.write_text(in_place(PAGE.read_text("utf-8"), "several", as_markdown(shown)), "utf-8")


if __name__ == "__main__":
    main()
