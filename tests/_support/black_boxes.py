"""Black boxes that tests of emulators and of their calls share, and sets to call them on."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets

FIRST_CALLS = 2 * GROUP_SIZE
"""By which a metric is known in the cache."""
SETS = BroadSets()(30, GROUP_SIZE, 300, torch.Generator().manual_seed(7))


class Counted:
    """F1 of labels, plus what dice say; counts its calls."""

    __name__ = "counted"

    def __init__(self, dice: float = 0.0) -> None:
        self.calls, self.dice, self.rng = 0, dice, np.random.default_rng(0)

    def __call__(self, y_true: np.ndarray, y_pred: np.ndarray) -> float:
        self.calls += 1
        found = 2 * (y_true * y_pred).sum() / max(1, y_true.sum() + y_pred.sum())
        return float(found + self.dice * self.rng.normal())


def of_scores(y_true: np.ndarray, y_score: np.ndarray) -> float:
    """Share of positives in the first tenth, and half of the area under the curve of scikit-learn."""
    first = np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 10)]
    return float(y_true[first].mean() + roc_auc_score(y_true, y_score) / 2)
