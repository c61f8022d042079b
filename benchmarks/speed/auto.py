"""The price of the default, all strategies on five folds: python -m benchmarks.speed.auto

Fits for F1 on a synthetic table of 20,000 x 30, one thread, in processor time: linear and additive models beside
LightGBM (200 trees) on five folds, with the threshold of the pooled held-out scores; networks beside cross-entropy by
the same folds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

from benchmarks.speed.measuring import claim, in_turns, middle, parser_of, ratio, say, self_timed, store
from benchmarks.speed.user_contestants import TREES, Data, made_up
from metricgrad import MetricClassifier, best_threshold

FOLDS = 5
OVER_TREES, OVER_CROSS_ENTROPY = 5.0, 6.0
SOLVED, NETWORKS = ("linear", "additive"), ("small", "mlp")
FIVE = f"{TREES}, five folds"


def trees(data: Data) -> None:
    """Grow LightGBM's trees on every fold, and choose the threshold on the pooled scores of the rows left out."""
    from lightgbm import LGBMClassifier

    scores = np.empty(len(data.y))
    for train, kept in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data.X, data.y):
        model = LGBMClassifier(n_estimators=200, n_jobs=1, verbosity=-1, random_state=0)
        model.fit(data.X[train], data.y[train])
        scores[kept] = model.booster_.predict(data.X[kept], raw_score=True, num_threads=1)
    best_threshold("f1", scores, data.y)


def ours(model: str, method: str, data: Data) -> None:
    """Fit a classifier on as many folds."""
    MetricClassifier("f1", method, model, folds=FOLDS, random_state=0).fit(data.X, data.y)


def timed(name: str, fit: Callable[[Data], None], data: Data) -> float:
    """Return the processor time of a fit."""
    say(name)
    begun = time.process_time()
    fit(data)
    return time.process_time() - begun


def main() -> int:
    parser = parser_of(__doc__, repeats=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = made_up()
    fits: dict[str, Callable[[Data], None]] = {FIVE: trees}
    fits |= {f"auto: {model}": partial(ours, model, "auto") for model in (*SOLVED, *NETWORKS)}
    fits |= {f"cross-entropy: {model}": partial(ours, model, "cross-entropy") for model in NETWORKS}
    ready: dict[str, Callable[[], float]] = {name: partial(timed, name, fit, data) for name, fit in fits.items()}
    times = in_turns(ready, asked.repeats, timed=self_timed, warm=False, what="fits")
    beside = {f"auto: {model}": (FIVE, OVER_TREES) for model in SOLVED}
    beside |= {f"auto: {model}": (f"cross-entropy: {model}", OVER_CROSS_ENTROPY) for model in NETWORKS}
    over: dict[str, Any] = {name: ratio(times[name], times[other]) for name, (other, _) in beside.items()}
    claims = [
        claim(f"default fit for F1 on five folds, {name[6:]}, times as long as {other}", over[name], at_most=bar)
        for name, (other, bar) in beside.items()
    ]
    return 1 if store("auto", claims, asked.folder, seconds=middle(times), over=over) else 0


if __name__ == "__main__":
    raise SystemExit(main())
