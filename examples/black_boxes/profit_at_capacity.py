"""Profit of a call centre that can call one customer in ten: a sale brings 12, a call costs 1."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
    called = np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 10)]
    return float(12 * y_true[called].sum() - len(called)) / len(y_true)


metric = black_box(profit, higher_is_better=True)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.15)
