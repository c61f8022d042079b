"""A function of scikit-learn as it is: Cohen's kappa, by which agreement with an expert is judged."""

import numpy as np
from sklearn.metrics import cohen_kappa_score
from tables import clusters

from metricgrad import black_box


def kappa(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float(cohen_kappa_score(y_true, y_pred)) if np.ptp(y_pred) else 0.0


metric = black_box(kappa, higher_is_better=True, value_range=(-1, 1), labels=True)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.15)
