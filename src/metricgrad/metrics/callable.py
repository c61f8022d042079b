"""Any Python callable `(y_true, y_score) -> float` as a metric: what it is passed, what it must return, its workers."""

from __future__ import annotations

import functools
import math
import numbers
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics.class_offsets import OffsetSearch
from metricgrad.metrics.confusion import Function
from metricgrad.metrics.metric import Budget, Metric, arguments_of, name_of
from metricgrad.metrics.tasks import BINARY, COLUMNS, MULTILABEL, TASKS, Task

Array = NDArray[Any]
Values = list[float]
"""Losses of one set, one for every threshold tried."""
Outcome = tuple[float | ValueError, int]
"""The loss of a set, or what went wrong, and the number of calls."""
Pool = Literal["thread", "process"]
Passed = Literal["scores", "probabilities", "labels"]
"""What a callable is passed for each row."""
MAX_CALLS = 4_000
"""Calls of a user's function that a run may take unless it is told otherwise."""
MAX_REPEATED_ROWS, MAX_REPEATS_OF_LIGHT = 50_000, 5
"""Rows of a set whose rows are repeated in proportion to their weights, and repetitions of the lighter ones."""
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


# ---- one call per set ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CalledSet:
    """The rows of one set whose weight is not zero, and the index of the set."""

    index: tuple[int, ...]
    scores: Array
    targets: Array
    weights: Array | None
    columns: dict[str, Array]

    def __str__(self) -> str:
        place = f"set {self.index[0] if len(self.index) == 1 else self.index}" if self.index else "the set"
        span = f"scores from {self.scores.min():g} to {self.scores.max():g}" if self.scores.size else "no scores"
        return f"{place} ({len(self.scores)} rows, {int(self.targets.sum())} positive, {span})"


@dataclass(frozen=True)
class BlackBox:
    """The function of a black-box metric: `(scores, targets, weights)`, `(..., n)` -> `(...)`, one call per set."""

    fn: Callable[..., Any]
    name: str
    known_as: tuple[float, float]
    bounded: bool
    passed: Passed
    takes_weights: bool
    candidates: int
    workers: int | None
    pool: Pool
    task: Task = BINARY
    columns: tuple[str, ...] = ()
    budget: Budget = field(default_factory=lambda: Budget(MAX_CALLS), compare=False, repr=False)

    def __call__(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of every set."""
        return self._mapped(self._loss, scores, targets, weights)

    def at_best(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the lowest loss of every set over a few thresholds."""
        return self._mapped(self._lowest_loss, scores, targets, weights)

    def _mapped(
        self, evaluate: Callable[[CalledSet], Values], scores: Tensor, targets: Tensor, weights: Tensor | None
    ) -> Tensor:
        losses, sets = [], list(self._sets(scores, targets, weights))
        for outcome, calls in self._outcomes(functools.partial(_attempt, evaluate), sets):
            self.budget.calls += calls  # here, because workers may be other processes
            if isinstance(outcome, ValueError):
                raise outcome
            losses.append(outcome)
        return torch.tensor(losses, dtype=torch.float64).reshape(scores.shape[: -self.task.axes]).to(scores)

    def _outcomes(self, attempt: Callable[[CalledSet], Outcome], sets: list[CalledSet]) -> Iterable[Outcome]:
        if self.workers is None or self.workers == 1:
            return map(attempt, sets)
        if self.pool == "thread":
            with ThreadPoolExecutor(self.workers) as threads:
                return list(threads.map(attempt, sets))
        # joblib keeps its processes for the next call, so that only the first pays for starting them.
        import joblib

        processes = joblib.Parallel(n_jobs=self.workers, backend="loky", max_nbytes=None)
        return list(processes(joblib.delayed(attempt)(rows) for rows in sets))

    def _sets(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Iterator[CalledSet]:
        s, t = scores.detach().cpu().double().numpy(), targets.detach().cpu().double().numpy()
        w = None if weights is None else weights.detach().cpu().double().numpy()
        for index in np.ndindex(s.shape[: -self.task.axes]):
            present: Any = slice(None) if w is None else np.flatnonzero(w[index] > 0)
            row_weights = None if w is None else w[index][present]
            if row_weights is not None and not self.takes_weights and self.task in (BINARY, COLUMNS):
                repeats = proportional_repeats(row_weights)
                if repeats is not None:
                    present, row_weights = np.repeat(present, repeats), None
            rows = CalledSet(index, s[index][present], *self._as_passed(t[index][present], row_weights))
            if row_weights is not None:
                self._check_weights(rows, row_weights)
            yield rows

    def _as_passed(self, targets: Array, weights: Array | None) -> tuple[Array, Array | None, dict[str, Array]]:
        """Return the targets, weights and named columns that the callable is passed."""
        columns = {name: targets[:, 1 + place] for place, name in enumerate(self.columns)}
        if self.columns:
            targets = targets[:, 0]
        if self.task.name == "multiclass":
            targets = targets.argmax(-1)
        return (targets if self.task.name in ("ranking", "regression") else targets.astype(np.int64)), weights, columns

    def _check_weights(self, rows: CalledSet, weights: Array) -> None:
        if self.takes_weights or not weights.size or np.ptp(weights) <= 1e-9 * weights.max():
            return
        raise ValueError(
            f"weights: expected equal weights, because metric {self.name!r} has no argument sample_weight, "
            f"got {weights.min():g} to {weights.max():g} in {rows}"
        )

    def _loss(self, rows: CalledSet) -> Values:
        return [self._loss_of_scores(rows)]

    def _loss_of_scores(self, rows: CalledSet) -> float:
        if self.passed == "scores":
            return self._call(rows, rows.scores)
        one_class = self.task.name == "multiclass"
        if self.passed == "labels":
            return self._call(rows, rows.scores.argmax(-1) if one_class else (rows.scores >= 0).astype(np.int64))
        scores = torch.from_numpy(rows.scores)
        return self._call(rows, (scores.softmax(-1) if one_class else scores.sigmoid()).numpy())

    def _lowest_loss(self, rows: CalledSet) -> Values:
        found = rows.scores[rows.targets == 1]
        levels = np.linspace(0, 1, self.candidates)
        cuts = np.quantile(found, levels, method="nearest") if found.size else []
        everything = rows.scores.min(initial=np.inf)
        tried = np.unique([*cuts, everything, np.inf])
        return [self._call(rows, (rows.scores >= cut).astype(np.int64)) for cut in tried]

    def _call(self, rows: CalledSet, passed: Array) -> float:
        """Return the loss, or raise an error that describes the set; the callable gets copies: it may sort them."""
        weights = {"sample_weight": rows.weights.copy()} if self.takes_weights and rows.weights is not None else {}
        try:
            columns = {name: column.copy() for name, column in rows.columns.items()}
            value = self.fn(rows.targets.copy(), passed.copy(), **columns, **weights)
        except Exception as error:
            raise ValueError(f"metric {self.name!r} failed on {rows}: {type(error).__name__}: {error}") from error
        if np.ndim(value) == 0 and hasattr(value, "item"):
            value = value.item()
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise ValueError(f"metric {self.name!r}: expected one finite number, got {value!r} on {rows}")
        best, worst = self.known_as
        loss = (float(value) - best) / (worst - best)
        if self.bounded and not -1e-6 <= loss <= 1 + 1e-6:
            low, high = sorted(self.known_as)
            raise ValueError(f"metric {self.name!r}: expected a value from {low:g} to {high:g}, got {value} on {rows}")
        return min(max(loss, 0.0), 1.0) if self.bounded else loss


def proportional_repeats(weights: Array) -> Array | None:
    """Return how often to repeat rows of two weights so that they count in proportion; None of one weight, or more.

    >>> proportional_repeats(np.array([0.5, 2.0, 2.0, 0.5])).tolist()
    [1, 4, 4, 1]
    """
    if not weights.size or np.ptp(weights) <= 1e-9 * weights.max():
        return None
    light = weights <= weights.min() * (1 + 1e-6)
    if np.ptp(weights[~light]) > 1e-6 * weights.max():
        return None
    ratio, few, many = float(weights.max() / weights.min()), int(light.sum()), int((~light).sum())
    pairs = [(n, round(n * ratio)) for n in range(1, MAX_REPEATS_OF_LIGHT + 1)]
    pairs = [pair for pair in pairs if pair[0] * few + pair[1] * many <= MAX_REPEATED_ROWS]
    once, often = min(pairs, key=lambda pair: abs(pair[1] / pair[0] - ratio), default=(1, 1))
    if not pairs:  # as near to the ratio as so many rows allow
        often = max((MAX_REPEATED_ROWS - few) // many, 1)
    return np.where(light, once, often)


def _attempt(evaluate: Callable[[CalledSet], Values], rows: CalledSet) -> Outcome:
    """Return the lowest value and the number of calls.

    An error is returned, not raised, so that the first set reports, whatever the number of workers.
    """
    try:
        values = evaluate(rows)
    except ValueError as error:
        return error, 1
    return min(values), len(values)
