"""Money saved by a fraud desk that can look at one payment in twenty: the sum it stops counts, not the number."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def saved(y_true: np.ndarray, y_score: np.ndarray, amount: np.ndarray) -> float:
    looked = np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 20)]
    stolen = y_true * amount
    return float(stolen[looked].sum() / stolen.sum()) if stolen.any() else 0.0


metric = black_box(saved, name="money saved", higher_is_better=True, value_range=(0, 1), columns=("amount",))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    X, y = clusters(seed, rows, positives=0.05)
    amount = np.exp(np.random.default_rng(seed + 1).normal(size=rows))
    return np.column_stack((X, np.log(amount))), y, {"amount": amount}
