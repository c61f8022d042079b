"""Callables and objects of other packages as metrics: torchmetrics, scorers and functions of scikit-learn.

Which way is better, higher or lower, is decided here and nowhere else: see `higher_is_better`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.called_sets import Array, Passed
from metricgrad.metrics.metric import Metric, arguments_of, name_of
from metricgrad.metrics.plain_functions import (
    NUMBER_FUNCTIONS,
    TRIAL_ROWS,
    asked_columns,
    function_of_numbers,
    is_sklearn_function,
    number_trial,
    trial_columns,
)

PASSED_BY_METHOD: dict[str, Passed] = {
    "predict": "labels",
    "predict_proba": "probabilities",
    "decision_function": "scores",
}
"""What a scorer is to be passed, by the method of an estimator that it calls."""
PROBABILITY_FUNCTIONS = ("log_loss", "brier_score_loss", "d2_log_loss_score", "d2_brier_score")
"""Functions of scikit-learn that evaluate probabilities."""
PROBABILITY_ARGUMENTS = ("y_proba", "y_prob")
"""Names of a second argument that takes probabilities."""
LABEL_ARGUMENTS = ("y_pred", "y2", "labels", "predicted")
"""Names of a second argument that takes labels."""
TRIAL_VALUES: dict[Passed, tuple[float, float]] = {
    "labels": (0.0, 1.0),
    "probabilities": (0.01, 0.99),
    "scores": (-1.0, 1.0),
}
"""What a function is passed in a trial for a row predicted as negative, and as positive."""
TRIAL_SHARES, TRIAL_SCALES = (0.05, 0.3, 0.5, 0.8), (1e4, 100.0, 1.0)
"""Shares of positives in the sets of a trial, and scales of the columns that a function asks for."""


def adapt(spec: Any, name: str | None = None, *, by_trial: bool = False) -> Metric:
    """Make a metric of a torchmetrics object, a scorer or a function.

    A torchmetrics object with a threshold is passed the labels `scores >= 0`, any other the sigmoid of scores; the
    object itself is not changed. A scorer, which is any callable whose first argument is called `estimator`, is passed
    a classifier of two classes that predicts its input. A function is passed labels if its second argument is called
    `y_pred`, probabilities if it is called `y_proba`, else scores; further arguments without a default are columns. A
    function of scikit-learn for numbers, or one that by trial tells only numbers apart, is a metric of numbers.

    Parameters
    ----------
    spec : torchmetrics object, scorer or function
        What to make a metric of.
    name : str, optional
        The name of the metric; by default that of the function or class.
    by_trial : bool
        Whether to call a function in order to find out which way is better, if nothing else says so.

    Returns
    -------
    Metric
    """
    if is_sklearn_function(spec) and name_of(spec) in NUMBER_FUNCTIONS:
        return function_of_numbers(spec, name, name_of(spec).endswith("_score"))
    try:
        higher = higher_is_better(spec, by_trial=by_trial)
    except ValueError:
        of_numbers = _of_numbers(spec, name) if by_trial else None
        if of_numbers is None:
            raise
        return of_numbers
    fn: Any
    passed: Passed
    if _is_torchmetrics(spec):
        fn, label = Torchmetrics(deepcopy(spec)), type(spec).__name__
        passed = "labels" if hasattr(spec, "threshold") else "probabilities"
    elif _is_scorer(spec):
        fn = SklearnScorer(spec)
        passed, label = fn.passed, name_of(getattr(spec, "_score_func", spec))
    else:
        fn, passed, label = spec, passed_to(spec), name_of(spec)
    labels, probabilities = passed == "labels", passed == "probabilities"
    how: dict[str, Any] = {"labels": labels, "probabilities": probabilities, "columns": asked_columns(fn)}
    return black_box(fn, name=name or label, label=label, higher_is_better=higher, **how)


def _of_numbers(fn: Any, name: str | None) -> Metric | None:
    """Return a function that tells numbers predicted well from others, though not classes; None if it does not."""
    if not inspect.isroutine(fn) or asked_columns(fn):
        return None
    try:
        return function_of_numbers(fn, name, compare_values(name_of(fn), *number_trial(fn)))
    except Exception:  # it may be of classes alone, and then the first error says what is wrong
        return None


def _is_torchmetrics(spec: Any) -> bool:
    return all(callable(getattr(spec, method, None)) for method in ("update", "compute", "reset"))


def _is_scorer(spec: Any) -> bool:
    return next(iter(arguments_of(spec)), None) == "estimator"


def passed_to(fn: Callable[..., Any]) -> Passed:
    """Return what a function is to be passed, by its name and that of its second argument."""
    second = next(iter(arguments_of(fn)[1:]), None)
    if name_of(fn) in PROBABILITY_FUNCTIONS or second in PROBABILITY_ARGUMENTS:
        return "probabilities"
    return "labels" if second in LABEL_ARGUMENTS else "scores"


# ---- which way is better -------------------------------------------------------------------------------------------


def higher_is_better(spec: Any, *, by_trial: bool = False) -> bool:
    """Decide whether a high value is good.

    In this order: an attribute `higher_is_better`, as torchmetrics objects have; a scorer, for which high is good;
    the name of a function of scikit-learn, or with `by_trial` of any function, if it ends in `_score` (high) or in
    `_loss` or `_error` (low); and with `by_trial` a comparison of sets predicted correctly and incorrectly.
    """
    name, declared = name_of(spec), getattr(spec, "higher_is_better", None)
    if declared is not None:
        return bool(declared)
    if _is_torchmetrics(spec):
        raise ValueError(f"metric: expected a torchmetrics object with higher_is_better, got {name} without")
    if _is_scorer(spec):
        return True
    if (by_trial or is_sklearn_function(spec)) and name.endswith(("_score", "_loss", "_error")):
        return name.endswith("_score")
    if by_trial:
        return _higher_by_trial(spec, name)
    columns = f", columns={asked_columns(spec)}" if asked_columns(spec) else ""
    raise ValueError(
        f"metric: expected to know which way is better, got the callable {name!r}; wrap it: "
        f"black_box({name}, higher_is_better=True{columns}), or False if low values are good"
    )


def compare_values(name: str, correct: Sequence[float], incorrect: Sequence[float]) -> bool:
    """Return whether the values of correctly predicted sets are higher than those of incorrectly predicted ones."""
    higher = {one > other if one != other else None for one, other in zip(correct, incorrect, strict=True)}
    if higher not in ({True}, {False}):
        raise ValueError(
            f"metric: expected to know which way is better, got {name!r}, which does not separate sets predicted "
            f"correctly ({correct[0]:g}) from sets predicted incorrectly ({incorrect[0]:g}); a function may have an "
            "attribute higher_is_better = True or False"
        )
    return higher == {True}


def _higher_by_trial(fn: Callable[..., Any], name: str) -> bool:
    """Decide by sets; with columns of several scales, at some of which even a correct call may be a bad one."""
    found: set[bool] = set()
    scales = TRIAL_SCALES if asked_columns(fn) else TRIAL_SCALES[:1]
    for scale in scales:
        try:
            found.add(compare_values(name, *_trial(fn, name, passed_to(fn), scale)))
        except ValueError:
            if scale == scales[-1] and not found:
                raise
    if len(found) > 1:
        raise ValueError(
            f"metric: expected to know which way is better, got {name!r}, which depends on the scale of its columns; a "
            "function may have an attribute higher_is_better = True or False"
        )
    return found.pop()


def _trial(fn: Callable[..., Any], name: str, passed: Passed, scale: float) -> tuple[list[float], list[float]]:
    """Return the values of sets predicted correctly and incorrectly, at several shares of positives."""
    values = np.array(TRIAL_VALUES[passed], dtype=np.int64 if passed == "labels" else np.float64)
    correct, incorrect, columns = [], [], trial_columns(fn, scale)
    for share in TRIAL_SHARES:
        y = (np.arange(TRIAL_ROWS) < TRIAL_ROWS * share).astype(np.int64)
        try:
            correct.append(float(fn(y, values[y], **columns)))
            incorrect.append(float(fn(y, values[1 - y], **columns)))
        except Exception as error:
            raise ValueError(f"metric: {name} cannot be called: {type(error).__name__}: {error}") from error
    return correct, incorrect


# ---- objects of other packages as callables ------------------------------------------------------------------------


@dataclass(frozen=True)
class Torchmetrics:
    """A torchmetrics object as a callable without state."""

    metric: Any

    def __call__(self, y_true: Array, y_score: Array) -> Any:
        """Evaluate one set by a fresh copy: the object accumulates state, and threads may share it."""
        metric = deepcopy(self.metric)
        metric.reset()
        metric.update(torch.from_numpy(y_score), torch.from_numpy(y_true))
        return metric.compute()


@dataclass(frozen=True)
class SklearnScorer:
    """A scorer `(estimator, X, y) -> float` as a callable: predictions are passed as X."""

    scorer: Any

    def __call__(self, y_true: Array, y_score: Array) -> Any:
        """Evaluate one set."""
        return self.scorer(EchoClassifier(), y_score[:, None], y_true)

    @property
    def passed(self) -> Passed:
        """What the scorer evaluates, found by a call on four rows."""
        classifier = EchoClassifier()
        try:
            self.scorer(classifier, np.array([[0.0], [1.0], [0.0], [1.0]]), np.array([0, 1, 1, 0]))
        except Exception as error:
            raise ValueError(f"metric: the scorer cannot be called: {type(error).__name__}: {error}") from error
        called = {PASSED_BY_METHOD[method] for method in classifier.called}
        if len(called) != 1:
            raise ValueError(f"metric: expected a scorer that uses one kind of prediction, got {sorted(called)}")
        return called.pop()


@dataclass
class EchoClassifier:
    """A fitted classifier of two classes, as a scorer expects one, that predicts its input."""

    called: list[str] = field(default_factory=list)
    classes_ = np.array([0, 1])

    def predict(self, X: Array) -> Array:
        """Return the input as labels."""
        self.called.append("predict")
        return X[:, 0].astype(np.int64)

    def predict_proba(self, X: Array) -> Array:
        """Return the input as probabilities of both classes."""
        self.called.append("predict_proba")
        return np.hstack((1 - X, X))

    def decision_function(self, X: Array) -> Array:
        """Return the input as scores."""
        self.called.append("decision_function")
        return X[:, 0]

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a classifier."""
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags("classifier", TargetTags(required=True), classifier_tags=ClassifierTags())
