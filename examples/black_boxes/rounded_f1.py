"""F1 as a leaderboard shows it, rounded to two decimals: flat nearly everywhere, so that no slope is to be found."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def rounded_f1(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return round(float(2 * (y_true * y_pred).sum() / max(1, y_true.sum() + y_pred.sum())), 2)


metric = black_box(rounded_f1, name="F1 (2 decimals)", higher_is_better=True, value_range=(0, 1), labels=True)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.1)
