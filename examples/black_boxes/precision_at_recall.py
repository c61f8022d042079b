"""Documents a court has to see: how clean the pile is that holds eight in ten of them, for every page is read."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def precision_at_recall(y_true: np.ndarray, y_score: np.ndarray) -> float:
    if not y_true.any():
        return 0.0
    found = np.cumsum(y_true[np.argsort(-y_score, kind="stable")])
    pile = 1 + int(np.argmax(found >= 0.8 * found[-1]))
    return float(found[pile - 1] / pile)


metric = black_box(precision_at_recall, higher_is_better=True, value_range=(0, 1))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.15)
