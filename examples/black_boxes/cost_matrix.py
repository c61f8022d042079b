"""Cost of maintenance a machine: a failure not foreseen costs 20, a needless visit 1, a foreseen failure 2."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def cost(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    missed, needless, foreseen = (y_true & ~y_pred & 1).sum(), (~y_true & y_pred & 1).sum(), (y_true & y_pred).sum()
    return float(20 * missed + needless + 2 * foreseen) / len(y_true)


metric = black_box(cost, higher_is_better=False, labels=True)
proxy = "balanced"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.08)
