"""Mean least cost while nobody knows what a miss will cost, 2 to 30 false alarms; in the spirit of the H measure."""

import numpy as np
from tables import clusters

from metricgrad import black_box

RATIOS = np.array([2, 4, 8, 15, 30])[:, None]


def cost(y_true: np.ndarray, y_score: np.ndarray) -> float:
    found = np.concatenate(([0], np.cumsum(y_true[np.argsort(-y_score, kind="stable")])))
    alarms, missed = np.arange(len(found)) - found, y_true.sum() - found
    least = (RATIOS * missed + alarms).min(-1) / (1 + RATIOS[:, 0])
    return float(least.mean() / len(y_true))


metric = black_box(cost, higher_is_better=False, name="mean cost")
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.15)
