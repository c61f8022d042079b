"""Plain functions `(y_true, y_pred, ...)` as metrics: which are of numbers, and which ask for columns of the rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.called_sets import BlackBox
from metricgrad.metrics.metric import Metric, name_of

NUMBER_FUNCTIONS = (
    "d2_absolute_error_score",
    "d2_pinball_score",
    "d2_tweedie_score",
    "explained_variance_score",
    "max_error",
    "mean_gamma_deviance",
    "mean_pinball_loss",
    "mean_poisson_deviance",
    "mean_squared_log_error",
    "mean_tweedie_deviance",
    "median_absolute_error",
    "root_mean_squared_log_error",
)
"""Functions of scikit-learn that are of numbers, but those that are built in."""
TRIAL_ROWS = 200


def is_sklearn_function(fn: Any) -> bool:
    """Whether a callable is a function of `sklearn.metrics`."""
    return str(getattr(fn, "__module__", "")).startswith("sklearn.metrics")


def function_of_numbers(fn: Callable[..., Any], name: str | None, higher_is_better: bool) -> Metric:
    """Return a function `(y_true, y_pred)` of numbers as a metric."""
    label = name_of(fn)
    return black_box(fn, name=name or label, label=label, higher_is_better=higher_is_better, task="regression")


def as_numbers(metric: Metric) -> Metric:
    """Return a function of a user's own, which may be of classes or of numbers, as one of numbers; others as they are.

    Examples
    --------
    >>> def median_error(y_true, y_pred):
    ...     return float(np.median(abs(y_true - y_pred)))
    >>> as_numbers(black_box(median_error, higher_is_better=False)).task.name
    'regression'
    """
    box = metric.function
    if not isinstance(box, BlackBox) or metric.task.name != "binary":
        return metric
    fn = box.fn
    if not inspect.isroutine(getattr(fn, "func", fn)) or is_sklearn_function(fn):
        return metric
    return black_box(
        fn,
        name=metric.name,
        label=metric.label,
        higher_is_better=metric.higher_is_better,
        workers=box.workers,
        pool=box.pool,
        task="regression",
        max_calls=box.budget.max_calls,
    )


def asked_columns(fn: Any) -> tuple[str, ...]:
    """Return the arguments that a function needs beside targets and predictions: columns of the rows.

    >>> asked_columns(lambda y_true, y_pred, amount, sample_weight=None: 0.0)
    ('amount',)
    """
    if not inspect.isroutine(fn) or is_sklearn_function(fn):
        return ()
    try:
        arguments = list(inspect.signature(fn).parameters.values())[2:]
    except (TypeError, ValueError):  # some functions written in C have no signature
        return ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(each.name for each in arguments if each.kind in named and each.default is each.empty)


def trial_columns(fn: Any, scale: float) -> dict[str, Any]:
    """Return amounts of 1 to 5, times a scale, for every column that a function asks for, in another order for each."""
    place = np.arange(TRIAL_ROWS)
    return {name: scale * (1.0 + (place * (7 + 4 * number)) % 5) for number, name in enumerate(asked_columns(fn))}


def number_trial(fn: Callable[..., Any]) -> tuple[list[float], list[float]]:
    """Return the values of numbers predicted well and badly, at several sizes of the numbers."""
    rng = np.random.default_rng(0)
    found: tuple[list[float], list[float]] = [], []
    for scale in (1.0, 100.0, 1e4):
        y = scale * rng.uniform(1, 2, TRIAL_ROWS)
        for values, predicted in zip(found, (y, y[::-1].copy()), strict=True):
            values.append(float(fn(y, predicted)))
    return found
