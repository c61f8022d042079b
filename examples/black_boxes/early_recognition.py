"""BEDROC, by which virtual screening is judged: molecules count by exp(-20 * rank), for few are ever tested."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def bedroc(y_true: np.ndarray, y_score: np.ndarray, alpha: float = 20.0) -> float:
    weight = np.exp(-alpha * np.arange(len(y_true)) / len(y_true))
    found, actives = y_true[np.argsort(-y_score, kind="stable")], int(y_true.sum())
    if not 0 < actives < len(y_true):
        return 0.0
    worst, best = weight[::-1][:actives].sum(), weight[:actives].sum()
    return float((weight[found == 1].sum() - worst) / (best - worst))


metric = black_box(bedroc, name="BEDROC", higher_is_better=True, value_range=(0, 1))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.08)
