"""Kolmogorov-Smirnov statistic, by which banks accept a scorecard: the widest gap between bad and good customers."""

import numpy as np
from scipy.stats import ks_2samp
from tables import clusters

from metricgrad import black_box


def ks(y_true: np.ndarray, y_score: np.ndarray) -> float:
    bad, good = y_score[y_true == 1], y_score[y_true == 0]
    return float(ks_2samp(bad, good, method="asymp").statistic) if len(bad) and len(good) else 0.0


metric = black_box(ks, name="KS", higher_is_better=True, value_range=(0, 1))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.2)
