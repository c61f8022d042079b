"""Other ways to fit additive models, beside EBM: METRICGRAD_DATA=... python -m studies.readable.designs

On development splits, whose seeds no comparison uses: what is known are the training rows, and models are judged on the
validation rows. Test rows are not looked at. Every table is stored as it ends; run again to continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from metricgrad import MetricClassifier
from metricgrad.evaluation.store import Store
from metricgrad.training.splits import Split, folds
from studies import pages
from studies.readable import rivals
from studies.readable.boosting import log_loss
from studies.readable.boosting import mean_of_folds as boosted
from studies.readable.cells import DESIGNS as RESULTS
from studies.readable.cells import METRICS
from studies.readable.run import FOLDS, LOG_LOSS, judged, rows_of
from studies.readable.smoothing import mean_of_folds as by_feature

FIRST_SEED = 951
"""No other experiment has used these seeds; first looks, by which bins and rates were chosen, were on 950."""
TABLES = (
    "graduation",
    "yeast",
    "solar_flare",
    "thoracic_surgery",
    "climate_simulation_crashes",
    "seismic_bumps",
    "wine_quality",
    "pc1",
    "abalone_binarized",
    "kc1",
    "pie_chart",
    "thyroid_disease",
    "sick_euthyroid",
    "page_blocks",
    "mammography",
    "jm1",
    "wilt",
    "club_loan",
)
"""Of the thirty, those with few rows and features."""
MEANS = {
    "ours + boosted": ("ours", "boosted"),
    "ours + by feature": ("ours", "by feature"),
    "by feature + boosted": ("by feature", "boosted"),
    "ours + by feature + boosted": ("ours", "by feature", "boosted"),
    "ours + ebm": ("ours", "ebm"),
}
SHARES = np.linspace(0, 1, 5)
"""Of boosted shapes in a mean whose shares are chosen."""
Floats = NDArray[np.float64]
Parts = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""Folds: rows to train on, and rows held out."""


class Found(NamedTuple):
    """Scores of the rows to be judged, and of those that the threshold is chosen on, which a model has not seen."""

    test: Floats
    tuning: Floats
    rows: NDArray[np.int64]


def ours(x: Floats, y: Floats, test: Floats, parts: Parts) -> tuple[Floats, Floats]:
    """Return scores of test rows by the mean of our additive models for log loss, and held-out scores of the others."""
    scores, tuning = np.zeros(len(test)), np.zeros(len(y))
    for _, out in parts:
        model = MetricClassifier(LOG_LOSS, "cross-entropy", "additive").fit(x, y, validation=out)
        tuning[out] = model.decision_function(x[out]) + model.threshold_
        scores += (model.decision_function(test) + model.threshold_) / len(parts)
    return scores, tuning


OF_FOLDS: Mapping[str, Callable[[Floats, Floats, Floats, Parts], tuple[Floats, Floats]]] = {
    "ours": ours,
    "boosted": boosted,
    "by feature": by_feature,
}


def components(x: Floats, y: Floats, test: Floats, seed: int) -> tuple[dict[str, Found], dict[str, float]]:
    """Fit every design, and EBM; return scores and CPU seconds."""
    found, seconds = {}, {}
    for name, fit in OF_FOLDS.items():
        begun = time.process_time()
        found[name] = Found(*fit(x, y, test, list(folds(y, FOLDS, seed))), np.arange(len(y)))
        seconds[name] = time.process_time() - begun
    begun, count = time.process_time(), len(y)
    parts = Split(np.arange(count), np.arange(0), np.arange(count, count + len(test)))
    other = rivals.ebm(np.vstack((x, test)), np.concatenate((y, np.zeros(len(test)))), parts, seed, 0)
    assert other.tuning is not None
    assert other.tuning_rows is not None
    found["ebm"] = Found(other.test, other.tuning, other.tuning_rows)
    return found, {**seconds, "ebm": time.process_time() - begun}


def mean_of(found: Mapping[str, Found], names: tuple[str, ...], shares: tuple[float, ...] | None = None) -> Found:
    """Return the mean of some designs; with EBM, thresholds are chosen on rows that it has held out."""
    parts, shares = [found[name] for name in names], shares or (1 / len(names),) * len(names)
    rows = min((part.rows for part in parts), key=len)
    test = sum(share * part.test for share, part in zip(shares, parts, strict=True))
    tuning = sum(share * part.tuning[np.isin(part.rows, rows)] for share, part in zip(shares, parts, strict=True))
    return Found(np.asarray(test), np.asarray(tuning), rows)


def shared(found: Mapping[str, Found], y: Floats) -> Found:
    """Return the mean of ours and boosted shapes with the shares that have the least held-out log loss."""
    each = [mean_of(found, ("ours", "boosted"), (1 - share, share)) for share in SHARES]
    return min(each, key=lambda one: log_loss(one.tuning, y))


def outcome(table: str, seed: int) -> dict[str, Any]:
    """Fit every design to a table and judge it, and the means of some."""
    X, labels, parts = rows_of(f"rt30/{table}", seed)
    known = np.sort(parts.train)
    x, y, test, truth = X[known], labels[known], X[parts.validation], labels[parts.validation]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, seconds = components(x, y, test, seed)
    found |= {name: mean_of(found, names) for name, names in MEANS.items()}
    found["ours + boosted, shares by log loss"] = shared(found, y)
    both = np.concatenate((y, truth))
    place = Split(np.arange(0), np.arange(0), np.arange(len(y), len(both)))
    losses = {
        name: {metric: judged(metric, rivals.Judged(*one), both, place) for metric in METRICS}
        | {"log loss": log_loss(one.test, truth)}
        for name, one in found.items()
    }
    return {"losses": losses, "cpu_seconds": seconds, "rows": len(both), "positives": int(truth.sum())}


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", default=",".join(TABLES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [] if asked.report else asked.tables.split(",")
    runs = [{"table": table, "seed": FIRST_SEED + seed} for seed in range(asked.seeds) for table in chosen]
    pages.run_missing(Store(asked.results), runs, lambda run: outcome(**run))


if __name__ == "__main__":
    main()
