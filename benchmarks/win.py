"""Does it win? SL-R against every rival with the same splits, steps, restarts and choice of checkpoint on validation.

Honest protocol, at most 60,000 rows of a dataset (drawn by the seed, classes in proportion), eight metrics, three
models, five seeds. Every run is stored as its fleet is done; run again to continue.

    METRICGRAD_DATA=... python benchmarks/win.py [--models linear,small,mlp] [--seeds 5] [--jobs 2]
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.stats import wilcoxon

from metricgrad.experiments import BOOSTED, Run
from metricgrad.progress import work_bar
from metricgrad.ranking import holm
from metricgrad.records import FILE, read_records
from metricgrad.reproduce import Plan, carry_out
from metricgrad.results import Store

DATASETS = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")
METRICS = (
    "auc",
    "average_precision",
    "f1",
    "mcc",
    "error_rate",
    "jaccard",
    "partial_auc(0.05)",
    "precision_at(0.02)",
)
RIVAL = "cross-entropy"
RIVALS = (
    RIVAL,
    "balanced",
    "focal",
    "cost-sensitive",
    "soft-f1",
    "soft-jaccard",
    "lovasz-softmax",
    "pairwise",
    "global-objectives",
    "aucm",
)
PUBLISHED = "sl-published"
METHODS = ("sl-r", *RIVALS, PUBLISHED, BOOSTED)
AS_PUBLISHED = (
    ("check_every", 50),
    ("clip", None),
    ("rounds", 2_000),
    ("standardise", True),
    ("surrogate_rate", 1e-3),
)
"""The published recipe in as many model steps as the others take: its own steps of 1e-5 would not get anywhere."""
FIRST_SEED = 100
"""Seeds no other experiment has used."""
RATES = {"linear": 0.01, "small": 0.003, "mlp": 0.001}
"""Of the model's optimizer, for every method: what cross-entropy does well with."""
ROWS = 60_000
RESULTS = Path(__file__).parents[1] / "results" / "win"


def runs_of(models: list[str], seeds: int, datasets: list[str], methods: list[str]) -> list[Run]:
    """Return every run: the surrogate and its rivals on each model, and trees once."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for dataset in datasets:
            for model in models:
                rate = (("learning_rate", RATES[model]),) if RATES[model] != 0.001 else ()
                how = {"model": model, "rows": ROWS}
                for by in methods:
                    if by == PUBLISHED:
                        published = tuple(sorted((*AS_PUBLISHED, ("learning_rate", RATES[model]))))
                        found += [
                            Run(dataset, m, "sl-r", seed, recipe="paper", changes=published, **how) for m in METRICS
                        ]
                    elif by != BOOSTED:
                        found += [Run(dataset, m, by, seed, changes=rate, **how) for m in METRICS]
            if BOOSTED in methods:
                found += [Run(dataset, m, BOOSTED, seed, rows=ROWS) for m in METRICS]
    return found


def losses(folder: Path) -> pd.DataFrame:
    """Return the test loss of every run: a row for each dataset, metric, model and seed, a column for each method."""
    rows = [
        (
            r.dataset,
            r.metric,
            r.setting.model,
            r.seed,
            PUBLISHED if r.setting.recipe == "paper" else r.method,
            r.loss("honest", r.metric),
        )
        for r in read_records(folder)
    ]
    frame = pd.DataFrame(rows, columns=["dataset", "metric", "model", "seed", "method", "loss"])
    return frame.pivot_table(index=["dataset", "metric", "model", "seed"], columns="method", values="loss")


def gains(frame: pd.DataFrame, rival: str = RIVAL) -> pd.DataFrame:
    """Return for each cell how much less SL-R loses than a rival, as a share, and the standard error over seeds."""
    both = frame[["sl-r", rival]].dropna()
    cells = both.groupby(level=["dataset", "metric", "model"])
    mean, difference = cells.mean(), (both[rival] - both["sl-r"]).groupby(level=["dataset", "metric", "model"])
    return pd.DataFrame(
        {
            "rival": mean[rival],
            "ours": mean["sl-r"],
            "gain": 1 - mean["sl-r"] / mean[rival].clip(lower=1e-9),
            "difference": difference.mean(),
            "error": difference.sem(),
            "seeds": difference.count(),
        }
    )


def show(folder: Path) -> None:
    """Print gain and tests by model and metric, against cross-entropy and against every rival."""
    frame = losses(folder)
    found = gains(frame)
    table = Table(title=f"SL-R against {RIVAL} + exact threshold: mean relative loss reduction (cells)")
    table.add_column("metric")
    models = list(dict.fromkeys(found.index.get_level_values("model")))
    for model in (*models, "all"):
        table.add_column(model, justify="right")
    for metric in dict.fromkeys(found.index.get_level_values("metric")):
        of_metric = found.xs(metric, level="metric")
        shown = [of_metric.xs(model, level="model")["gain"] for model in models if model in of_metric.index.unique(1)]
        table.add_row(metric, *(f"{g.mean():+.1%} ({len(g)})" for g in shown), f"{of_metric['gain'].mean():+.1%}")
    Console(width=120).print(table)
    worse = found["difference"] < -found["error"].fillna(0)
    Console().print(f"worse by more than one standard error: {int(worse.sum())} of {len(found)} cells")
    tests = {}
    for rival in frame.columns.drop("sl-r"):
        against = gains(frame, rival)
        if len(against) > 1 and np.any(against["gain"] != 0):
            tests[rival] = (against["gain"].mean(), wilcoxon(against["gain"]).pvalue, len(against))
    for (rival, (gain, _, cells)), p in zip(tests.items(), holm([p for _, p, _ in tests.values()]), strict=True):
        Console().print(f"against {rival}: {gain:+.2%} over {cells} cells, Wilcoxon p after Holm {p:.2g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="linear,small,mlp")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="only show what is stored")
    asked = parser.parse_args()
    if not asked.report:
        runs = tuple(runs_of(asked.models.split(","), asked.seeds, asked.datasets.split(","), asked.methods.split(",")))
        command = shlex.join(["python", "benchmarks/win.py", *sys.argv[1:]])
        with work_bar() as report:
            plan = Plan(runs, ("honest",), DATASETS)
            for done, total in carry_out(
                plan, Store(asked.results / FILE), command=command, n_jobs=asked.jobs, brief=True
            ):
                report("runs", done, total)
    show(asked.results)


if __name__ == "__main__":
    main()
