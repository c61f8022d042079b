"""Claims paid without a look: how many of the good ones can be, if nine in ten of those paid have to be good."""

import numpy as np
from sklearn.metrics import precision_recall_curve
from tables import clusters

from metricgrad import black_box


def recall_at_precision(y_true: np.ndarray, y_score: np.ndarray) -> float:
    if not y_true.any():
        return 0.0
    precision, recall, _ = precision_recall_curve(y_true, y_score)
    return float(recall[precision >= 0.9].max())


metric = black_box(recall_at_precision, higher_is_better=True, value_range=(0, 1))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.4)
