"""Return of audits, of which a random half is ever carried out: a metric that says something else at every call."""

import numpy as np
from tables import clusters

from metricgrad import black_box

DICE = np.random.default_rng(0)


def audited(y_true: np.ndarray, y_score: np.ndarray) -> float:
    chosen = np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 10)]
    chosen = chosen[DICE.random(len(chosen)) < 0.5]
    return float(8 * y_true[chosen].sum() - len(chosen)) / len(y_true)


metric = black_box(audited, name="return", higher_is_better=True)
proxy = "cross-entropy"
repeats = 100  # fresh rows are judged by the mean of so many calls


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.15)
