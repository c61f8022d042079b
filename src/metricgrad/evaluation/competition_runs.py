"""The default of `MetricClassifier` on one split: strategies compete on folds of the rows that are not tested."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.evaluation.comparison_result import Trial
from metricgrad.evaluation.diagnostics import diagnose
from metricgrad.evaluation.user_table import UserTable
from metricgrad.metrics.registry import Metric
from metricgrad.training.methods import AUTO
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import Split

Array = NDArray[Any]


def run_competition(
    X: Any, table: UserTable, parts: Split, *, metric: Metric, model: Any, recipe: Recipe, seed: int
) -> Trial:
    """Fit on the training and validation rows, `X` being encoded features, and judge on test rows.

    Rows split by time keep their validation rows; others have folds, of whole groups where there are groups.
    """
    begun = time.perf_counter()
    known, test = np.concatenate((parts.train, parts.validation)), parts.test
    validation = np.arange(len(parts.train), len(known)) if table.times is not None else None
    weights, groups = ((None if each is None else each[known]) for each in (table.weights, table.groups))
    found = MetricClassifier(metric, AUTO, model, recipe, random_state=seed)
    found.fit(X[known], table.targets[known], weights, validation, _named(metric, table.columns, known), groups)
    scores = torch.from_numpy(found._decision(X[test], _named(metric, table.columns, test)))
    judged = table.targets if table.columns is None else np.column_stack((table.targets, table.columns))
    own = judged[test], None if table.weights is None else table.weights[test]
    followed = found.verdict_ is None or found.verdict_.followed
    seconds, history = time.perf_counter() - begun, tuple(found.history_)
    if metric.task.outputs:
        loss = float(metric(scores, *own))
        return Trial(seed, AUTO, float("nan"), seconds, None, followed, history, test_loss=loss, verdict=found.verdict_)
    judgement = diagnose(metric, scores, own[0], 0.0, own[1])
    return Trial(seed, AUTO, 0.0, seconds, judgement, followed, history, verdict=found.verdict_)


def _named(metric: Metric, columns: Array | None, rows: Array) -> dict[str, Array] | None:
    """Return the columns of some rows by the names that the metric has for them."""
    return None if columns is None else dict(zip(metric.columns, columns[rows].T, strict=True))
