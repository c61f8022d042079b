"""Rounds as plain numbers, for whatever keeps track of them: TensorBoard, MLflow, W&B or a function of yours."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from metricgrad.training.trainer import Round


def scalars(done: Round) -> dict[str, float]:
    """Return what a round measured by name, without what it did not; `done.steps` is the step to log it at.

    Parameters
    ----------
    done : Round
        What a `MetricClassifier(callback=...)` is called with.

    Returns
    -------
    dict
        Finite numbers: `loss` and `seconds` always, `validation` where validation rows were looked at, `gap` and
        `trust` of a surrogate.

    Examples
    --------
    Any logger takes them in a line. MLflow: `callback=lambda done: mlflow.log_metrics(scalars(done), done.steps)`;
    W&B: `callback=lambda done: run.log(scalars(done), step=done.steps)`.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from metricgrad import MetricClassifier, Recipe
    >>> kept = []
    >>> model = MetricClassifier(
    ...     model="linear", recipe=Recipe(warmup=3, rounds=0), callback=lambda done: kept.append(scalars(done))
    ... )
    >>> _ = model.fit(*load_breast_cancer(return_X_y=True))
    >>> [sorted(numbers) for numbers in kept]
    [['loss', 'seconds', 'validation']]
    """
    measured = {field.name: getattr(done, field.name) for field in fields(done)}
    return {name: value for name, value in measured.items() if isinstance(value, float) and math.isfinite(value)}
