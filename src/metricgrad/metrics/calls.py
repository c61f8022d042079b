"""Somebody's function called once a set: what it is passed, what it must give, and how sets are mapped over workers."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics.tasks import BINARY, Task

Array = NDArray[Any]
Pool = Literal["thread", "process"]
Passed = Literal["scores", "probabilities", "labels"]
Outcome = float | ValueError


@dataclass(frozen=True)
class Rows:
    """The rows of one set that weigh anything, and where the set lies among the others."""

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
    """The function behind a black-box metric: `(scores, targets, weights)`, `(..., n)` -> `(...)`, a call a set."""

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

    def __call__(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of every set."""
        return self._mapped(self._loss, scores, targets, weights)

    def at_best(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the least loss of every set over a few thresholds."""
        return self._mapped(self._least_loss, scores, targets, weights)

    def _mapped(
        self, judge: Callable[[Rows], float], scores: Tensor, targets: Tensor, weights: Tensor | None
    ) -> Tensor:
        losses, sets = [], list(self._sets(scores, targets, weights))
        for outcome in self._outcomes(functools.partial(_attempt, judge), sets):
            if isinstance(outcome, ValueError):
                raise outcome
            losses.append(outcome)
        return torch.tensor(losses, dtype=torch.float64).reshape(scores.shape[: -self.task.axes]).to(scores)

    def _outcomes(self, attempt: Callable[[Rows], Outcome], sets: list[Rows]) -> Iterable[Outcome]:
        if self.workers is None or self.workers == 1:
            return map(attempt, sets)
        if self.pool == "thread":
            with ThreadPoolExecutor(self.workers) as threads:
                return list(threads.map(attempt, sets))
        # joblib keeps its processes for the next call, so that only the first pays for their start.
        processes = joblib.Parallel(n_jobs=self.workers, backend="loky", max_nbytes=None)
        return list(processes(joblib.delayed(attempt)(rows) for rows in sets))

    def _sets(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Iterator[Rows]:
        s, t = scores.detach().cpu().double().numpy(), targets.detach().cpu().double().numpy()
        w = None if weights is None else weights.detach().cpu().double().numpy()
        for index in np.ndindex(s.shape[: -self.task.axes]):
            present = slice(None) if w is None else w[index] > 0
            weighs = None if w is None else w[index][present]
            rows = Rows(index, s[index][present], *self._known(t[index][present], weighs))
            if weighs is not None:
                self._check_weights(rows, weighs)
            yield rows

    def _known(self, targets: Array, weights: Array | None) -> tuple[Array, Array | None, dict[str, Array]]:
        """Return targets as people have them, weights, and the columns by name."""
        columns = {name: targets[:, 1 + place] for place, name in enumerate(self.columns)}
        if self.columns:
            targets = targets[:, 0]
        if self.task.name == "multiclass":
            targets = targets.argmax(-1)
        return (targets if self.task.name in ("ranking", "regression") else targets.astype(np.int64)), weights, columns

    def _check_weights(self, rows: Rows, weights: Array) -> None:
        if self.takes_weights or not weights.size or np.ptp(weights) <= 1e-9 * weights.max():
            return
        raise ValueError(
            f"weights: expected equal weights, for metric {self.name!r} has no argument sample_weight, "
            f"got {weights.min():g} to {weights.max():g} in {rows}"
        )

    def _loss(self, rows: Rows) -> float:
        if self.passed == "scores":
            return self._judged(rows, rows.scores)
        one_class = self.task.name == "multiclass"
        if self.passed == "labels":
            return self._judged(rows, rows.scores.argmax(-1) if one_class else (rows.scores >= 0).astype(np.int64))
        scores = torch.from_numpy(rows.scores)
        return self._judged(rows, (scores.softmax(-1) if one_class else scores.sigmoid()).numpy())

    def _least_loss(self, rows: Rows) -> float:
        found = rows.scores[rows.targets == 1]
        levels = np.linspace(0, 1, self.candidates)
        cuts = np.quantile(found, levels, method="nearest") if found.size else []
        everything = rows.scores.min(initial=np.inf)
        return min(
            self._judged(rows, (rows.scores >= cut).astype(np.int64)) for cut in np.unique([*cuts, everything, np.inf])
        )

    def _judged(self, rows: Rows, passed: Array) -> float:
        """Return the loss, or raise what went wrong with which set; the callable gets copies, for it may sort them."""
        weighed = {"sample_weight": rows.weights.copy()} if self.takes_weights and rows.weights is not None else {}
        try:
            columns = {name: column.copy() for name, column in rows.columns.items()}
            value = self.fn(rows.targets.copy(), passed.copy(), **columns, **weighed)
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


def _attempt(judge: Callable[[Rows], float], rows: Rows) -> Outcome:
    """Return an error rather than raise it, so that of several workers the first set reports, as it does with one."""
    try:
        return judge(rows)
    except ValueError as error:
        return error
