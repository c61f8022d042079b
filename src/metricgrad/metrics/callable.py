"""Any Python callable `(y_true, y_score) -> float` as a metric: its arguments, checked, and its limit of calls."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from metricgrad.metrics.called_sets import MAX_CALLS, BlackBox, Passed, Pool
from metricgrad.metrics.class_offsets import OffsetSearch
from metricgrad.metrics.confusion import Function
from metricgrad.metrics.metric import Budget, Metric, arguments_of, name_of
from metricgrad.metrics.tasks import COLUMNS, MULTILABEL, TASKS, Task

MIN_CALLS = 100
"""Fewer would not even do for looking at validation rows."""


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
    max_calls: int = MAX_CALLS,
) -> Metric:
    """Make a metric of any callable, called once per set.

    Parameters
    ----------
    fn : callable
        `(y_true, y_score) -> float`, in the order of scikit-learn: two numpy arrays `(n,)`, the first of 0 and 1. If
        it has an argument `sample_weight`, rows may weigh differently; if not, rows of weight zero are left out and
        the others have to weigh the same; rows of two weights, as in stratified sets, are repeated in proportion.
    higher_is_better : bool
        Whether a high value is good, as for a profit, or bad, as for a cost. It has no default: a model trained the
        wrong way round looks as if it had learned nothing.
    name, label : str, optional
        The name of the metric, and how it is shown; by default the name of the callable.
    value_range : (float, float), optional
        The lowest and the highest possible value. The best one is mapped to loss 0 and the worst to loss 1; without
        it the loss is the value, or the value negated, and unbounded.
    labels : bool
        Whether to pass the labels `scores >= 0`, 0 or 1, in place of scores. `Metric.best` is then the lowest loss at
        `candidates` thresholds.
    probabilities : bool
        Whether to pass the sigmoid of scores, as `sklearn.metrics.log_loss` needs, in place of scores.
    candidates : int
        How many thresholds `Metric.best` tries per set: quantiles of the scores of its positives, because a lower
        threshold pays only where it finds one more of them. Calling nothing and everything positive are tried too, so
        the best form costs up to `candidates + 2` calls per set. For several classes or labels, this many offsets of
        each are tried in turn, until none improves.
    workers : int, optional
        How many sets to evaluate in parallel; the result is the same.
    pool : "thread" or "process"
        The kind of workers. Threads help if the callable releases the GIL, as much of numpy does; processes always
        help, cost more to start, and need a callable that can be pickled.
    columns : sequence of str
        What else the callable needs of the rows, such as an amount or a group: it is passed these arrays by name,
        `fn(y_true, y_score, amount=...)`. Targets then have a column for each after the label, of numbers of at least
        0: `(..., n, 1 + columns)`.
    task : {"binary", "multiclass", "multilabel", "ranking", "regression"}
        What is predicted. Several outputs are passed as `(n, c)`, or as labels: the class of the highest score, or
        `scores >= 0` for each label. True classes are passed as integers, `(n,)`.
    max_calls : int
        How many calls a run of training may take, looks at validation rows included; `Metric.calls` counts them. Where
        a call takes seconds, 300 are enough for most metrics. Looks come first: fitting the surrogate and refining it
        share what they leave.

    Returns
    -------
    Metric
        It raises a ValueError that describes the set if the callable raises, or returns no finite number.

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
        raise ValueError("probabilities: expected False where labels is True: a callable is passed one of the two")
    predicted = _task(task, columns)
    _check_calls(candidates, workers, max_calls)
    _check_pool(pool, fn)
    name = name or name_of(fn)
    known_as = _known_as(value_range, higher_is_better)
    passed: Passed = "labels" if labels else "probabilities" if probabilities else "scores"
    box = BlackBox(
        fn,
        name,
        known_as,
        bounded=value_range is not None,
        passed=passed,
        takes_weights="sample_weight" in arguments_of(fn),
        candidates=candidates,
        workers=workers,
        pool=pool,
        task=predicted,
        columns=tuple(columns),
        budget=Budget(max_calls),
    )
    return Metric(
        name,
        box,
        label or name,
        f"{name_of(fn)} of {passed}.",
        known_as,
        thresholded=labels,
        best_function=_best_of(box) if labels else None,
        takes_weights=box.takes_weights,
        bounded=box.bounded,
        costly=True,
        task=predicted,
        columns=tuple(columns),
        budget=box.budget,
    )


def with_max_calls(metric: Metric, max_calls: int | None = None) -> Metric:
    """Return a black box that counts its calls from zero, with another limit if one is given; any other as it is.

    For black boxes that `black_box` did not make, such as scorers, and for runs that are counted one by one.
    """
    if not isinstance(metric.function, BlackBox):
        return metric
    limit = metric.function.budget.max_calls if max_calls is None else max_calls
    _check_calls(metric.function.candidates, metric.function.workers, limit)
    box = replace(metric.function, budget=Budget(limit))
    return replace(metric, function=box, best_function=_best_of(box) if metric.thresholded else None, budget=box.budget)


def _best_of(box: BlackBox) -> Function:
    """Return the lowest loss over a few thresholds, or over a few offsets of each class or label."""
    if box.task.outputs:
        return OffsetSearch(box, box.task == MULTILABEL, trials=box.candidates).lowest_loss
    return box.at_best


# ---- checks of the arguments --------------------------------------------------------------------------------------


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
        raise ValueError(f"columns: expected names that are valid arguments, got {columns!r}")
    allowed = [name for name in TASKS if name not in ("columns", "censored")]
    if task not in allowed:
        raise ValueError(f"task: expected one of {', '.join(allowed)}, got {task!r}")
    if columns and task != "binary":
        raise ValueError(f"columns: expected none where the task is {task!r}, got {columns!r}")
    return COLUMNS if columns else TASKS[task]


def _check_calls(candidates: Any, workers: Any, max_calls: Any) -> None:
    if not isinstance(max_calls, int) or max_calls < MIN_CALLS:
        raise ValueError(f"max_calls: expected an integer of at least {MIN_CALLS}, got {max_calls!r}")
    if not isinstance(candidates, int) or candidates < 1:
        raise ValueError(f"candidates: expected an integer of at least 1, got {candidates!r}")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers: expected an integer of at least 1, or None, got {workers!r}")


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
