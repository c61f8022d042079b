"""Customs with a budget: a look at a fifth of all parcels finds half, opening the first quarter of those finds all."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def seized(y_true: np.ndarray, y_score: np.ndarray) -> float:
    order = np.argsort(-y_score, kind="stable")
    looked = max(1, len(order) // 5)
    opened = max(1, looked // 4)
    found = y_true[order[:opened]].sum() + 0.5 * y_true[order[opened:looked]].sum()
    return float(found / y_true.sum()) if y_true.any() else 0.0


metric = black_box(seized, name="share seized", higher_is_better=True, value_range=(0, 1))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.1)
