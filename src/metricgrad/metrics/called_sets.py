"""The calls of a user's function, one for each set: what it is passed, what it must return, in how many workers."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics.metric import Budget
from metricgrad.metrics.tasks import BINARY, COLUMNS, Task

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
