"""G-mean, by which alarms on machines are judged: root of the shares of faults found and of calm hours left calm."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def g_mean(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    found, alarmed = (y_pred[y_true == k].mean() if (y_true == k).any() else 0.0 for k in (1, 0))
    return float(np.sqrt(found * (1 - alarmed)))


metric = black_box(g_mean, name="G-mean", higher_is_better=True, value_range=(0, 1), labels=True)
proxy = "balanced"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.1)
