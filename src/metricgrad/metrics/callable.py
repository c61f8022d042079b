"""Any Python callable `(y_true, y_score) -> float` as a metric: a business rule, a scorer, a torchmetrics object."""

from __future__ import annotations

import functools
import inspect
import math
import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from metricgrad.metrics.adapters import SklearnScorer, Torchmetrics
from metricgrad.metrics.binary_formulas import Function
from metricgrad.metrics.calls import BlackBox, Passed, Pool
from metricgrad.metrics.class_offsets import Decision
from metricgrad.metrics.registry import SKLEARN_NAMES, Metric, get_metric
from metricgrad.metrics.tasks import COLUMNS, MULTILABEL, TASKS, Task

OF_PROBABILITIES = ("log_loss", "brier_score_loss", "d2_log_loss_score", "d2_brier_score")
"""Functions of scikit-learn that judge probabilities."""
OF_LABELS = ("y_pred", "y2", "labels", "predicted")
"""Names of a second argument that takes labels."""


def black_box(
    fn: Callable[..., Any],
    *,
    higher_is_better: bool,
    name: str | None = None,
    label: str | None = None,
    value_range: tuple[float, float] | None = None,
    labels: bool = False,
    probabilities: bool = False,
    candidates: int = 16,
    workers: int | None = None,
    pool: Pool = "thread",
    columns: Sequence[str] = (),
    task: str = "binary",
) -> Metric:
    """Make a metric of any callable, called once a set.

    Parameters
    ----------
    fn : callable
        `(y_true, y_score) -> float`, in the order of scikit-learn: two numpy arrays `(n,)`, the first of 0 and 1. If
        it has an argument `sample_weight`, rows may weigh differently; if not, rows of weight zero are left out and
        the others have to weigh the same.
    higher_is_better : bool
        Whether a high value is good, as of a profit, or bad, as of a cost. It has no default: a model trained the wrong
        way round looks as if it had learned nothing.
    name, label : str, optional
        What the metric is called, and how people write it; from the name of the callable if not given.
    value_range : (float, float), optional
        The lowest and the highest value there is. It maps the best value to loss 0 and the worst to loss 1; without
        it the loss is the value, or the value negated, and nothing is known of its bounds.
    labels : bool
        Whether to pass what `scores >= 0` says, 0 or 1, in place of scores. `Metric.best` is then the least loss at
        `candidates` thresholds.
    probabilities : bool
        Whether to pass the sigmoid of scores, as `sklearn.metrics.log_loss` needs, in place of scores.
    candidates : int
        How many thresholds `Metric.best` tries a set: quantiles of the scores of its positives, for a lower threshold
        pays only where it finds one more of them. Calling nothing and everything positive are tried too, so the best
        form costs up to `candidates + 2` calls a set. Of several classes or labels, so many offsets of each are tried
        in turn, until none improves.
    workers : int, optional
        How many sets to judge at a time; the result is the same.
    pool : "thread" or "process"
        What the workers are. Threads help if the callable leaves Python's lock, as much of numpy does; processes help
        always, cost more to start, and need a callable that can be pickled.
    columns : sequence of str
        What else the callable must know of the rows, such as an amount or a group: it is passed these arrays by name,
        `fn(y_true, y_score, amount=...)`. Targets then have a column for each after the label, of numbers of at least
        0: `(..., n, 1 + columns)`.
    task : {"binary", "multiclass", "multilabel", "ranking", "regression"}
        What is predicted. Several outputs are passed as `(n, c)`, or as labels: the class of the highest score, or
        what `scores >= 0` says of each label. True classes are passed as numbers, `(n,)`.

    Returns
    -------
    Metric
        It raises a ValueError that describes the set on which the callable raised, or gave no finite number.

    Examples
    --------
    >>> import torch
    >>> def profit(y_true, y_pred):
    ...     return 10 * y_true[y_pred == 1].sum() - y_pred.sum()
    >>> metric = black_box(profit, higher_is_better=True, labels=True)
    >>> scores, targets = torch.tensor([0.3, -0.2, 1.5, -1.0]), torch.tensor([1, 1, 0, 0])
    >>> metric.shown(metric(scores, targets))
    'profit 8.0000'
    >>> metric.best.shown(metric.best(scores, targets))
    'best profit 17.0000'
    """
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"fn: expected a callable (y_true, y_score) -> float, got {fn!r}")
    if not isinstance(higher_is_better, bool):
        raise TypeError(f"higher_is_better: expected True or False, got {higher_is_better!r}")
    if labels and probabilities:
        raise ValueError("probabilities: expected False where labels is True, for a callable is passed one of the two")
    predicted = _task(task, columns)
    _check_counts(candidates, workers)
    _check_pool(pool, fn)
    name = name or _name_of(fn)
    known_as = _known_as(value_range, higher_is_better)
    passed: Passed = "labels" if labels else "probabilities" if probabilities else "scores"
    how = candidates, workers, pool, predicted, tuple(columns)
    box = BlackBox(fn, name, known_as, value_range is not None, passed, "sample_weight" in _arguments(fn), *how)
    return Metric(
        name,
        box,
        label or name,
        f"What {_name_of(fn)} says of {passed}.",
        known_as,
        thresholded=labels,
        best_function=_best_of(box) if labels else None,
        takes_weights=box.takes_weights,
        bounded=box.bounded,
        costly=True,
        task=predicted,
        columns=tuple(columns),
    )


def _best_of(box: BlackBox) -> Function:
    """Return the loss at the best of a few thresholds, or of a few offsets of each class or label."""
    return Decision(box, box.task == MULTILABEL, trials=box.candidates).least if box.task.outputs else box.at_best


def as_metric(spec: Any) -> Metric:
    """Take a metric in any form: a name, a `Metric`, an object of another package, or a function of scikit-learn.

    Any other callable has to say which way is better: `black_box(fn, higher_is_better=True)`, or by an attribute
    `fn.higher_is_better`.

    A torchmetrics object with a threshold is passed labels of `scores >= 0`, any other the sigmoid of scores; the
    object itself is left as it is. A scorer of scikit-learn, which is any callable whose first argument is called
    `estimator`, is handed an estimator of two classes that predicts what is to be judged, and high is good.

    >>> as_metric("mcr")
    Metric(name='error_rate')
    """
    if isinstance(spec, Metric):
        return spec
    if isinstance(spec, str):
        return get_metric(spec)
    if callable(spec) and not isinstance(spec, type):
        return borrow(spec) or _of_function(spec)
    raise TypeError(f"metric: expected a name, a Metric, a torchmetrics object, a scorer or a callable, got {spec!r}")


def _of_function(fn: Callable[..., Any]) -> Metric:
    """Return the metric of a function of scikit-learn, or of a callable that says which way is better."""
    name, higher = _name_of(fn), getattr(fn, "higher_is_better", None)
    if str(getattr(fn, "__module__", "")).startswith("sklearn.metrics"):
        if name in SKLEARN_NAMES:
            return get_metric(SKLEARN_NAMES[name])
        higher = direction_of(name)
    if higher is None:
        raise ValueError(
            f"metric: expected to know which way is better, got the callable {name!r}; wrap it: "
            f"black_box({name}, higher_is_better=True), or False if low values are good"
        )
    return as_passed(fn, passed_to(fn), higher, name)


def direction_of(name: str) -> bool | None:
    """Return whether a high value is good by the end of a name, as scikit-learn names its functions; None if unknown.

    >>> direction_of("roc_auc_score"), direction_of("hamming_loss"), direction_of("profit")
    (True, False, None)
    """
    if name.endswith("_score"):
        return True
    return False if name.endswith(("_loss", "_error")) else None


def passed_to(fn: Callable[..., Any]) -> Passed:
    """Return what a function expects of a model, by its name and that of its second argument."""
    second = next(iter(_arguments(fn)[1:]), None)
    if _name_of(fn) in OF_PROBABILITIES or second in ("y_proba", "y_prob"):
        return "probabilities"
    return "labels" if second in OF_LABELS else "scores"


def borrow(spec: Any, name: str | None = None) -> Metric | None:
    """Return the metric of a torchmetrics object or of a scorer, under its own name or another; None for others."""
    if all(callable(getattr(spec, method, None)) for method in ("update", "compute", "reset")):
        return _of_torchmetrics(spec, name)
    return _of_scorer(spec, name) if next(iter(_arguments(spec)), None) == "estimator" else None


def _of_torchmetrics(spec: Any, name: str | None) -> Metric:
    higher_is_better, label = getattr(spec, "higher_is_better", None), type(spec).__name__
    if higher_is_better is None:
        raise ValueError(f"metric: expected a torchmetrics object with higher_is_better, got {label} without")
    passed: Passed = "labels" if hasattr(spec, "threshold") else "probabilities"
    return as_passed(Torchmetrics(deepcopy(spec)), passed, bool(higher_is_better), label, name)


def _of_scorer(spec: Callable[..., Any], name: str | None) -> Metric:
    scorer = SklearnScorer(spec)
    return as_passed(scorer, scorer.passed, True, _name_of(getattr(spec, "_score_func", spec)), name)


def as_passed(fn: Callable[..., Any], passed: Passed, higher: bool, label: str, name: str | None = None) -> Metric:
    """Make a metric of a callable that is passed labels, probabilities or scores."""
    labels, probabilities = passed == "labels", passed == "probabilities"
    return black_box(
        fn, name=name or label, label=label, higher_is_better=higher, labels=labels, probabilities=probabilities
    )


# ---- what the arguments have to be ---------------------------------------------------------------------------------


def _known_as(value_range: Any, higher_is_better: bool) -> tuple[float, float]:
    if value_range is None:
        return (0.0, -1.0) if higher_is_better else (0.0, 1.0)
    try:
        low, high = (float(bound) for bound in value_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"value_range: expected two finite numbers, the lower first, got {value_range!r}")
    return (high, low) if higher_is_better else (low, high)


def _task(task: Any, columns: Any) -> Task:
    if isinstance(columns, str) or not all(isinstance(name, str) and name.isidentifier() for name in columns):
        raise ValueError(f"columns: expected names that an argument can have, got {columns!r}")
    allowed = [name for name in TASKS if name != "columns"]
    if task not in allowed:
        raise ValueError(f"task: expected one of {', '.join(allowed)}, got {task!r}")
    if columns and task != "binary":
        raise ValueError(f"columns: expected none where the task is {task!r}, got {columns!r}")
    return COLUMNS if columns else TASKS[task]


def _check_counts(candidates: Any, workers: Any) -> None:
    if not isinstance(candidates, int) or candidates < 1:
        raise ValueError(f"candidates: expected a whole number of at least 1, got {candidates!r}")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers: expected a whole number of at least 1, or None, got {workers!r}")


def _check_pool(pool: Any, fn: Callable[..., Any]) -> None:
    if pool not in ("thread", "process"):
        raise ValueError(f"pool: expected 'thread' or 'process', got {pool!r}")
    if pool == "process":
        try:
            pickle.dumps(fn)
        except Exception as error:
            raise ValueError(
                f"fn: expected a callable that can be pickled where pool is 'process', such as a function at the top "
                f"of a module, got {fn!r}"
            ) from error


def _arguments(fn: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # some callables written in C do not say what they take
        return ()


def _name_of(fn: Callable[..., Any]) -> str:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(inner, "__name__", type(inner).__name__))
