"""Hours a fault runs unseen, in a series where every fifteenth calm hour may raise a false alarm, and no more."""

import numpy as np
from tables import clusters

from metricgrad import black_box

LONGEST = 12


def delay(y_true: np.ndarray, y_score: np.ndarray, fault: np.ndarray, hour: np.ndarray) -> float:
    calm = np.sort(y_score[y_true == 0])
    alarm = (y_score > calm[-1 - len(calm) // 15]) if len(calm) else np.ones(len(y_true), dtype=bool)
    faults = np.unique(fault[y_true == 1])
    return float(np.mean([hour[alarm & (fault == one)].min(initial=LONGEST) for one in faults])) if len(faults) else 0.0


metric = black_box(
    delay, higher_is_better=False, name="hours unseen", value_range=(0, LONGEST), columns=("fault", "hour")
)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    X, y = clusters(seed, rows, positives=0.1)
    ill, calm = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    fault, hour = np.zeros(rows), np.zeros(rows)
    fault[ill], hour[ill] = 1 + np.arange(len(ill)) // LONGEST, np.arange(len(ill)) % LONGEST
    shown = ((1 + hour[ill]) / LONGEST)[:, None]  # a fault begins small
    X[ill] = shown * X[ill] + (1 - shown) * X[np.random.default_rng(seed + 1).choice(calm, len(ill))]
    return X, y, {"fault": fault, "hour": hour}
