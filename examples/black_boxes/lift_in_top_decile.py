"""Lift of the top decile, by which campaigns are planned: how much denser in buyers the best-scored tenth is."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def lift(y_true: np.ndarray, y_score: np.ndarray) -> float:
    top = np.argsort(-y_score, kind="stable")[: -(-len(y_score) // 10)]
    return float(y_true[top].mean() / y_true.mean()) if y_true.any() else 0.0


metric = black_box(lift, higher_is_better=True, value_range=(0, 10))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.2)
