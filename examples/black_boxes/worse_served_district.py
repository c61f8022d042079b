"""Help for one household in five: the share of the needy that is reached, in whichever of two districts it is lower."""

import numpy as np
from tables import clusters

from metricgrad import black_box


def reached(y_true: np.ndarray, y_score: np.ndarray, district: np.ndarray) -> float:
    helped = np.zeros(len(y_true))
    helped[np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 5)]] = 1
    needy = [(y_true == 1) & (district == place) for place in (0, 1)]
    return min(float(helped[some].mean()) if some.any() else 0.0 for some in needy)


metric = black_box(reached, name="share reached", higher_is_better=True, value_range=(0, 1), columns=("district",))
proxy = "cross-entropy"


def data(seed: int, rows: int):
    X, y = clusters(seed, rows, positives=0.2)
    rng = np.random.default_rng(seed + 1)
    district = (X[:, 0] + rng.normal(size=rows) > 1).astype(float)
    X[:, 1:4] *= np.where(district == 1, 0.3, 1.0)[:, None]  # less is known of the second district
    return np.column_stack((X, district)), y, {"district": district}
