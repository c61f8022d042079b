"""What the readable models lost and how long they took, from results/readable, and one model against another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from metricgrad import get_metric
from studies.pages import RESULTS as FOLDER

RESULTS, DESIGNS = FOLDER / "readable.jsonl", FOLDER / "readable_designs.jsonl"
METRICS = ("f1", "average_precision", "recall_at_precision(0.9)", "ks", "partial_auc(0.05)")
LOG_LOSS = "log loss"
FIRST_SEED = 800
"""No other experiment has used these seeds."""
OURS, OURS_FOR_LOG_LOSS, FOLDED = "additive", "additive for log loss", "additive for log loss, 5 folds"
BY_FEATURE_AND_BOOSTED = "smooth and boosted for log loss, 5 folds"
EBM, EBM_PAIRS = "ebm, no pairs", "ebm"
COMPETING = "additive, competing"
PAIRS, PAIRS_FOR_LOG_LOSS = "additive, 10 pairs", "additive for log loss, 10 pairs"
MODELS = {
    OURS: "additive, for the metric",
    COMPETING: "additive, the default: strategies compete on five folds",
    PAIRS: "additive, 10 pairs, for the metric",
    "linear": "linear, for the metric",
    OURS_FOR_LOG_LOSS: "additive, for log loss",
    FOLDED: "additive, for log loss, mean of five folds",
    BY_FEATURE_AND_BOOSTED: "smooth and boosted, for log loss, mean of five folds (of the study only)",
    PAIRS_FOR_LOG_LOSS: "additive, 10 pairs, for log loss",
    EBM: "EBM without pairs",
    EBM_PAIRS: "EBM, its default pairs",
    "optimal bins": "optimal bins (optbinning), logistic regression",
    "logistic regression": "logistic regression",
}
FOR_A_METRIC = (OURS, COMPETING, PAIRS, "linear")
"""Models that are fitted once for each metric."""


def losses(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return test losses, a row for each table, seed and metric (log loss too), a column for each model."""
    rows = []
    for record in records:
        run = record["run"]
        each = dict(record["losses"])
        if "metric" not in run:
            each[LOG_LOSS] = record["log_loss"]
        rows += [(run["table"], run["seed"], metric, run["model"], loss) for metric, loss in each.items()]
    frame = pd.DataFrame(rows, columns=["table", "seed", "metric", "model", "loss"])
    return frame.pivot_table(index=["table", "seed", "metric"], columns="model", values="loss")


def seconds(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return CPU seconds a fit, the mean over seeds and metrics: a row for each table, a column for each model."""
    rows = [(record["run"]["table"], record["run"]["model"], record["cpu_seconds"]) for record in records]
    return pd.DataFrame(rows, columns=["table", "model", "time"]).pivot_table("time", "table", "model")


def saved(own: Any, other: Any) -> Any:
    """Return the share of the larger loss that the own model saves, from -1 to 1; 0 where neither loses anything."""
    own, other = np.asarray(own, float), np.asarray(other, float)
    larger = np.maximum(own, other)
    return np.divide(other - own, larger, out=np.zeros_like(larger), where=larger > 0)


def cells(found: pd.DataFrame, own: str, other: str) -> pd.DataFrame:
    """Compare two models over the seeds both have: a row for each table and metric.

    Columns: mean losses `own` and `other`, the share `saved`, and seeds.
    """
    if not {own, other} <= set(found.columns):
        none = pd.MultiIndex.from_tuples([], names=["table", "metric"])
        return pd.DataFrame(columns=["own", "other", "seeds", "saved"], index=none, dtype=float)
    both = found[[own, other]].dropna().set_axis(["own", "other"], axis=1)
    grouped = both.groupby(level=["table", "metric"])
    mean = grouped.mean().assign(seeds=grouped["own"].count())
    return mean.assign(saved=saved(mean["own"], mean["other"]))


def ahead(found: pd.DataFrame) -> float:
    """Return the share of cells in which the own model loses less; where both lose the same, half a cell."""
    better, same = (found["own"] < found["other"]).mean(), (found["own"] == found["other"]).mean()
    return float(better + same / 2)


def at(found: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the cells of a metric."""
    return found[found.index.get_level_values("metric") == metric]


def label(metric: str) -> str:
    """Return the name of a metric as it is shown."""
    return metric if metric == LOG_LOSS else get_metric(metric).label
