"""Methods of numbers on one split: regressors by strategy, and LightGBM, each with its best constant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.estimators.number_competition import AUTO, METHODS
from metricgrad.estimators.regressor import MetricRegressor
from metricgrad.evaluation.comparison_result import Trial
from metricgrad.metrics.registry import Metric
from metricgrad.training.networks import TREES
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import Split

Array = NDArray[Any]
NUMBER_METHODS = (*METHODS, TREES)
NUMBER_BASELINES = ("mse", "usual", TREES)
"""Squared error above all, then the best of the usual losses, and trees by the loss of their own that is best; all with
their best constant."""


def run_numbers(
    X: Array,
    targets: Array,
    weights: Array | None,
    columns: Array | None,
    parts: Split,
    *,
    metric: Metric,
    methods: Sequence[str],
    model: Any,
    recipe: Recipe | str,
    seed: int,
) -> list[Trial]:
    """Train every method on the training rows, choose on validation rows, and judge on test rows.

    `X` are encoded features, `(rows, features)`, `columns` those of the metric, `(rows, columns)`.
    """
    judged = targets if columns is None else np.column_stack((targets, columns))
    test = parts.test
    known = np.concatenate((parts.train, parts.validation))
    validation = np.arange(len(parts.train), len(known))
    own = None if columns is None else dict(zip(metric.columns, columns[known].T, strict=True))
    trials = []
    for method in methods:
        begun = time.perf_counter()
        strategies, kind = ("hand-made", TREES) if method == TREES else (method, model)
        regressor = MetricRegressor(metric, strategies, kind, recipe, random_state=seed)
        own_weights = None if weights is None else weights[known]
        regressor.fit(X[known], targets[known], own_weights, validation, own)
        loss = float(metric(regressor.predict(X[test]), judged[test], None if weights is None else weights[test]))
        seconds, history = time.perf_counter() - begun, tuple(regressor.history_)
        verdict = regressor.verdict_ if method == AUTO else None
        trials.append(Trial(seed, method, float("nan"), seconds, None, True, history, test_loss=loss, verdict=verdict))
    return trials
