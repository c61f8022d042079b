"""Profit of a campaign that costs before its first letter: 15 a buyer, 2 a letter, 0.1 a customer to begin."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def profit(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    if not y_pred.any():
        return 0.0
    return float(15 * y_true[y_pred == 1].sum() - 2 * y_pred.sum()) / len(y_true) - 0.1


metric = black_box(profit, higher_is_better=True, labels=True)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.1)
