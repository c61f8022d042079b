"""Methods of numbers on one split: regressors by strategy, and LightGBM, each with its best constant."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.estimators.regressor import METHODS, MetricRegressor
from metricgrad.evaluation.comparison_result import Trial
from metricgrad.metrics.constants import best_constant
from metricgrad.metrics.registry import Metric
from metricgrad.training.history import Round
from metricgrad.training.networks import TREES
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import Split
from metricgrad.training.trees import EARLY_STOPPING, LEARNING_RATE, MAX_TREES

Array = NDArray[Any]
NUMBER_METHODS = (*METHODS, TREES)
NUMBER_BASELINES = ("mse", "usual", TREES)
"""Squared error above all, then the best of the usual losses, and trees; all with their best constant."""


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
        history: tuple[Round, ...] = ()
        if method == TREES:
            predictions = _by_trees(X, targets, weights, parts, metric, judged, seed)
        else:
            regressor = MetricRegressor(metric, method, model, recipe, random_state=seed, folds=1)
            own_weights = None if weights is None else weights[known]
            regressor.fit(X[known], targets[known], own_weights, validation, own)
            predictions, history = regressor.predict(X[test]), tuple(regressor.history_)
        loss = float(metric(predictions, judged[test], None if weights is None else weights[test]))
        seconds = time.perf_counter() - begun
        trials.append(Trial(seed, method, float("nan"), seconds, None, True, history, test_loss=loss))
    return trials


def _by_trees(
    X: Array, targets: Array, weights: Array | None, parts: Split, metric: Metric, judged: Array, seed: int
) -> Array:
    """Return predictions of the test rows by trees of squared error, moved by the constant best on validation rows."""
    import lightgbm

    train, kept = parts.train, parts.validation
    own = {name: None if weights is None else weights[part] for name, part in (("train", train), ("kept", kept))}
    grown = lightgbm.Dataset(X[train], targets[train], weight=own["train"])
    held_out = lightgbm.Dataset(X[kept], targets[kept], grown, own["kept"])
    parameters = {
        "objective": "regression",
        "learning_rate": LEARNING_RATE,
        "num_threads": 1,
        "seed": seed,
        "deterministic": True,
        "verbosity": -1,
    }
    stop = lightgbm.early_stopping(EARLY_STOPPING, verbose=False)
    trees = lightgbm.train(parameters, grown, MAX_TREES, [held_out], callbacks=[stop])
    constant = best_constant(metric, np.asarray(trees.predict(X[kept])), judged[kept], own["kept"])
    return constant.apply(np.asarray(trees.predict(X[parts.test])))
