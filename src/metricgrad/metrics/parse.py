"""What a metric may be written as: a name, an expression, one of scikit-learn's, or a function in a user's file."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from sklearn import metrics

from metricgrad.metrics.callable import as_metric, as_passed, borrow, direction_of, passed_to
from metricgrad.metrics.calls import Passed
from metricgrad.metrics.expressions import expression_metric, is_expression
from metricgrad.metrics.registry import SKLEARN_NAMES, Metric, check_length, get_metric

SKLEARN = "sklearn.metrics."
EXTREMES: dict[Passed, tuple[float, float]] = {
    "labels": (0.0, 1.0),
    "probabilities": (0.01, 0.99),
    "scores": (-1.0, 1.0),
}
"""What a function is passed of a row that is surely negative, and of one that is surely positive."""
SHARES = (0.05, 0.3, 0.5, 0.8)
"""Of positives, in sets of which a function is asked which way is better."""


def read_metric(spec: Any, run_code: bool = False) -> Metric:
    """Take a metric in any form, as text too.

    Parameters
    ----------
    spec : str, Metric, torchmetrics object, scorer or callable
        `"f1"`; `"1 - (5*tp - fp)/(5*(tp+fn))"`, an expression; `"sklearn.metrics.cohen_kappa_score"`;
        `"my_metrics.py:profit"`, in a file: a function `(y_true, y_pred)` or `(y_true, y_score)`, a scorer, a
        torchmetrics object or a `Metric`. A function is passed labels if its second argument is called `y_pred`. Which
        way is better is told by an attribute `higher_is_better`, by a name that ends in `_score`, `_loss` or `_error`,
        or else by comparing sets in which all is right with sets in which all is wrong.
    run_code : bool
        Whether a file may be run. Only what a user asks for on the command line is, never what a model folder names.

    Returns
    -------
    Metric
    """
    if not isinstance(spec, str):
        return as_metric(spec)
    check_length(spec)
    if ".py:" in spec:
        if not run_code:
            raise ValueError(f"metric: expected one that needs no code run, got {spec!r}; give the metric itself")
        return _of_file(spec)
    if spec.startswith(SKLEARN):
        return _of_sklearn(spec)
    return expression_metric(spec) if is_expression(spec) else get_metric(spec)


def _of_sklearn(spec: str) -> Metric:
    name = spec.removeprefix(SKLEARN)
    if name in SKLEARN_NAMES:
        return get_metric(SKLEARN_NAMES[name])
    function = getattr(metrics, name, None) if name in metrics.__all__ else None
    arguments = list(inspect.signature(function).parameters)[:2] if inspect.isfunction(function) else []
    if function is None or len(arguments) < 2 or arguments[0] not in ("y_true", "y1"):
        raise ValueError(f"metric: expected a function (y_true, ...) of {SKLEARN[:-1]}, got {spec!r}")
    return _called(function, spec)


def _of_file(spec: str) -> Metric:
    path, _, name = spec.rpartition(":")
    if not Path(path).is_file():
        raise ValueError(f"metric: expected a file of Python, got {path!r}, which is not there")
    module_spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"metric: expected a file of Python, got {path!r}")
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"metric: {path} cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if isinstance(found, Metric):
        return found
    if not callable(found):
        there = [other for other, value in vars(module).items() if _own(value, module) or isinstance(value, Metric)]
        raise ValueError(f"metric: expected a function in {path}, got {name!r}; there are {', '.join(there) or 'none'}")
    return borrow(found, spec) or _called(found, spec)


def _own(value: Any, module: ModuleType) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _called(function: Callable[..., Any], spec: str) -> Metric:
    """Make a metric of a function by the names it goes by."""
    name = str(getattr(function, "__name__", spec))
    passed, higher = passed_to(function), getattr(function, "higher_is_better", None)
    if higher is None:
        higher = direction_of(name)
    if higher is None:
        higher = _by_trial(function, name, EXTREMES[passed])
    return as_passed(function, passed, bool(higher), name, spec)


def _by_trial(function: Callable[..., Any], name: str, said: tuple[float, float]) -> bool:
    """Say whether sets in which all is right have the higher value than sets in which all is wrong."""
    found = set()
    for share in SHARES:
        y = (np.arange(200) < 200 * share).astype(np.int64)
        right, wrong = np.array(said)[y], np.array(said)[1 - y]
        if said == (0.0, 1.0):
            right, wrong = right.astype(np.int64), wrong.astype(np.int64)
        try:
            best, worst = float(function(y, right)), float(function(y, wrong))
        except Exception as error:
            raise ValueError(f"metric: {name} cannot be called: {type(error).__name__}: {error}") from error
        found.add(best > worst if best != worst else None)
    if found not in ({True}, {False}):
        raise ValueError(
            f"metric: expected to know which way is better, got {name!r}, which does not tell sets in which all is "
            f"right from sets in which all is wrong; give it an attribute, {name}.higher_is_better = True or False"
        )
    return found == {True}
