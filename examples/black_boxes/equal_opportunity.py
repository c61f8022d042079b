"""F1 of inviting the best-scored fifth, less the gap of equal opportunity: the good are to be found in either group."""

import numpy as np
from sklearn.metrics import f1_score
from tables import clusters

from metricgrad import black_box


def fair_f1(y_true: np.ndarray, y_score: np.ndarray, group: np.ndarray) -> float:
    invited = np.zeros(len(y_true), dtype=int)
    invited[np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 5)]] = 1
    good = [invited[(y_true == 1) & (group == one)] for one in (0, 1)]
    gap = abs(good[0].mean() - good[1].mean()) if all(map(len, good)) else 0.0
    return float(f1_score(y_true, invited, zero_division=0) - gap)


metric = black_box(fair_f1, name="fair F1", higher_is_better=True, value_range=(-1, 1), columns=("group",))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    X, y = clusters(seed, rows, positives=0.2)
    group = (X[:, 0] + np.random.default_rng(seed + 1).normal(size=rows) > 1).astype(float)
    X[:, 1:4] *= np.where(group == 1, 0.3, 1.0)[:, None]  # less is known of the second group
    return np.column_stack((X, group)), y, {"group": group}
