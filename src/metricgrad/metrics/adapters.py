"""Metrics of other packages as callables `(y_true, y_score) -> float`: of torchmetrics, and scorers of scikit-learn."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from metricgrad.metrics.calls import Array, Passed

ASKS: dict[str, Passed] = {"predict": "labels", "predict_proba": "probabilities", "decision_function": "scores"}
"""What a scorer is to be passed, by the method of an estimator it calls."""


@dataclass(frozen=True)
class Torchmetrics:
    """A torchmetrics object as a callable that keeps nothing from call to call."""

    metric: Any

    def __call__(self, y_true: Array, y_score: Array) -> Any:
        """Judge one set by a fresh copy, for the object gathers what it sees and threads may share it."""
        metric = deepcopy(self.metric)
        metric.reset()
        metric.update(torch.from_numpy(y_score), torch.from_numpy(y_true))
        return metric.compute()


@dataclass(frozen=True)
class SklearnScorer:
    """A scorer `(estimator, X, y) -> float` as a callable: the predictions are handed over as X."""

    scorer: Any

    def __call__(self, y_true: Array, y_score: Array) -> Any:
        """Judge one set."""
        return self.scorer(StandIn(), y_score[:, None], y_true)

    @property
    def passed(self) -> Passed:
        """What the scorer judges, learned by letting it judge four rows."""
        stand_in = StandIn()
        try:
            self.scorer(stand_in, np.array([[0.0], [1.0], [0.0], [1.0]]), np.array([0, 1, 1, 0]))
        except Exception as error:
            raise ValueError(f"metric: the scorer cannot be called: {type(error).__name__}: {error}") from error
        asked = {ASKS[method] for method in stand_in.asked}
        if len(asked) != 1:
            raise ValueError(f"metric: expected a scorer that asks for one kind of prediction, got {sorted(asked)}")
        return asked.pop()


@dataclass
class StandIn:
    """What a scorer takes for a fitted classifier of two classes: it predicts what it is given."""

    asked: list[str] = field(default_factory=list)
    classes_ = np.array([0, 1])

    def predict(self, X: Array) -> Array:
        """Return the labels given."""
        self.asked.append("predict")
        return X[:, 0].astype(np.int64)

    def predict_proba(self, X: Array) -> Array:
        """Return the probabilities given, of either class."""
        self.asked.append("predict_proba")
        return np.hstack((1 - X, X))

    def decision_function(self, X: Array) -> Array:
        """Return the scores given."""
        self.asked.append("decision_function")
        return X[:, 0]

    def __sklearn_tags__(self) -> Any:
        """Say that it is a classifier."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags("classifier", TargetTags(required=True), classifier_tags=ClassifierTags())
