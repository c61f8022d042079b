"""Rows with scores of a model and a metric: log-odds fitted without each row, losses of other scores, and calls.

What searches for a decision score (`plug_in.py`) and what weighs rows by the cost of an error (`row_gains.py`) start
from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.training.calibration import Calibration, calibrate

if TYPE_CHECKING:
    from typing_extensions import Self

Array = NDArray[Any]
Columns = Mapping[str, Any]
MAX_GROUPS = 10
"""Values of a column that may have an offset each."""
COSTLY_CALLS = 40
"""Scores that a black box is called on."""


@dataclass
class JudgedRows:
    """Rows with cross-fitted log-odds, and the metric to judge decision scores by."""

    metric: Metric
    judge: Metric
    scores: Array
    labels: Array
    targets: Tensor
    weights: Tensor | None
    columns: dict[str, Array]
    calibration: Calibration
    log_odds: Array
    calls_left: float

    @classmethod
    def of(cls, metric: Metric, scores: Any, y: Any, w: Any, columns: Columns | None, form: str) -> Self:
        """Check rows, calibrate their scores, and put the columns of the metric beside the targets."""
        scores, y = np.asarray(scores, float), np.asarray(y, float)
        if metric.task.outputs or metric.task.name not in ("binary", "columns"):
            raise ValueError(f"metric: expected one of two classes, got {metric.name!r} of {metric.task.name} targets")
        if columns is not None and metric.columns:
            absent = [name for name in metric.columns if name not in columns]
            if absent or y.ndim > 1:
                expected = f"{', '.join(metric.columns)}, and y of one axis"
                raise ValueError(f"columns: expected {expected}, got {', '.join(columns)} and {y.ndim}")
            y = np.column_stack((y, *(np.asarray(columns[name], float) for name in metric.columns)))
        labels = y[:, 0] if metric.columns else y
        known = {name: y[:, 1 + place] for place, name in enumerate(metric.columns)}
        weights = None if w is None else np.asarray(w, float)
        calibration, log_odds = calibrate(scores, labels, weights)
        return cls(
            metric,
            metric.trained(form),
            scores,
            labels,
            torch.from_numpy(y),
            None if weights is None else torch.from_numpy(weights),
            known,
            calibration,
            log_odds,
            COSTLY_CALLS if metric.costly else np.inf,
        )

    def loss(self, scores: Array) -> float:
        """Return the loss of scores of the rows, `(n,)`."""
        return float(self.losses(scores[None])[0])

    def losses(self, scores: Array) -> Array:
        """Return the losses of several scores of the rows, `(k, n)` -> `(k,)`; infinite where calls have run out."""
        found = np.full(len(scores), np.inf)
        for place, each in enumerate(scores):
            if self.calls_left > 0:
                self.calls_left -= 1
                found[place] = float(self.judge(torch.from_numpy(each), self.targets, self.weights))
        return found

    @property
    def amounts(self) -> list[str]:
        """Columns of amounts that differ, and are no groups."""
        return [name for name, each in self.columns.items() if name not in self.metric.groups and np.ptp(each) > 0]

    @property
    def group_columns(self) -> list[str]:
        """Columns of two to ten codes: of groups, or of a callable that may mean groups."""
        maybe = self.metric.groups if self.metric.groups or not self.metric.costly else self.columns
        counts = {name: len(np.unique(self.columns[name])) for name in maybe}
        whole = {name: bool((self.columns[name] % 1 == 0).all()) for name in maybe}
        return [name for name, count in counts.items() if 1 < count <= MAX_GROUPS and whole[name]]

    def row_facts(self) -> dict[str, Any]:
        """Return weights, columns and scores, as `row_gains` takes them."""
        w = np.ones(len(self.labels)) if self.weights is None else self.weights.numpy()
        return {"weights": w, "columns": self.columns, "scores": self.scores}

    def calls(self, scores: Array) -> Array:
        """Return which rows are called at the best threshold, or at the capacity: `(n,)`."""
        threshold = best_threshold(self.metric, scores, self.targets, self.weights) if self.metric.decides else 0.0
        return np.asarray(scores >= threshold)
