"""Recall first, then precision: a screening has to find nine in ten, and only then may it think of false alarms."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def recall_then_precision(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    recall = y_pred[y_true == 1].mean() if y_true.any() else 0.0
    precision = y_true[y_pred == 1].mean() if y_pred.any() else 0.0
    return float(0.5 * recall / 0.9 if recall < 0.9 else 0.5 + 0.5 * precision)


metric = black_box(recall_then_precision, higher_is_better=True, value_range=(0, 1), labels=True)
proxy = "balanced"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.15)
