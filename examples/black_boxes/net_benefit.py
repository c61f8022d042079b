"""Net benefit of a decision curve, for a clinic that would treat nine healthy patients to treat one ill one."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def net_benefit(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    treated = y_pred == 1
    return float(y_true[treated].sum() - (1 - y_true[treated]).sum() / 9) / len(y_true)


metric = black_box(net_benefit, name="net benefit", higher_is_better=True, labels=True)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.12)
