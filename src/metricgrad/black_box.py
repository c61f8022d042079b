"""Any Python callable `(y_true, y_score) -> float` as a metric: a business rule, scikit-learn's, torchmetrics'."""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics import Metric, get_metric

Array = NDArray[Any]
Pool = Literal["thread", "process"]
Passed = Literal["scores", "probabilities", "labels"]
Outcome = float | ValueError


def black_box(
    fn: Callable[..., Any],
    *,
    name: str | None = None,
    label: str | None = None,
    higher_is_better: bool = False,
    value_range: tuple[float, float] | None = None,
    labels: bool = False,
    probabilities: bool = False,
    candidates: int = 16,
    workers: int | None = None,
    pool: Pool = "thread",
) -> Metric:
    """Make a metric of any callable, called once a set.

    Parameters
    ----------
    fn : callable
        `(y_true, y_score) -> float`, in the order of scikit-learn: two numpy arrays `(n,)`, the first of 0 and 1. If
        it has an argument `sample_weight`, rows may weigh differently; if not, rows of weight zero are left out and
        the others have to weigh the same.
    name, label : str, optional
        What the metric is called, and how people write it; from the name of the callable if not given.
    higher_is_better : bool
        Whether people want its value to be high.
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
        form costs up to `candidates + 2` calls a set.
    workers : int, optional
        How many sets to judge at a time; the result is the same.
    pool : "thread" or "process"
        What the workers are. Threads help if the callable leaves Python's lock, as much of numpy does; processes help
        always, cost more to start, and need a callable that can be pickled.

    Returns
    -------
    Metric
        It raises a ValueError that describes the set on which the callable raised, or gave no finite number.

    Examples
    --------
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
    if labels and probabilities:
        raise ValueError("probabilities: expected False where labels is True, for a callable is passed one of the two")
    _check_counts(candidates, workers)
    _check_pool(pool, fn)
    name = name or _name_of(fn)
    known_as = _known_as(value_range, higher_is_better)
    passed: Passed = "labels" if labels else "probabilities" if probabilities else "scores"
    box = BlackBox(fn, name, known_as, value_range is not None, passed, _takes_weights(fn), candidates, workers, pool)
    return Metric(
        name,
        box,
        label or name,
        f"What {_name_of(fn)} says of {passed}.",
        known_as,
        thresholded=labels,
        best_function=box.at_best if labels else None,
        takes_weights=box.takes_weights,
        bounded=box.bounded,
        costly=True,
    )


def as_metric(spec: Any) -> Metric:
    """Take a metric in any form: a name, a `Metric`, a torchmetrics object, or a callable `(y_true, y_score) -> float`.

    Of a callable, the name has to say which way is better, as in scikit-learn: `..._score`, `..._loss`, `..._error`.

    A torchmetrics object with a threshold is passed labels of `scores >= 0`, any other the sigmoid of scores; the
    object itself is left as it is.

    >>> as_metric("mcr")
    Metric(name='error_rate')
    """
    if isinstance(spec, Metric):
        return spec
    if isinstance(spec, str):
        return get_metric(spec)
    if not isinstance(spec, type):
        if all(callable(getattr(spec, method, None)) for method in ("update", "compute", "reset")):
            return _of_torchmetrics(spec)
        if callable(spec):
            return black_box(spec, higher_is_better=_direction(spec))
    raise TypeError(f"metric: expected a name, a Metric, a torchmetrics object or a callable, got {spec!r}")


def _direction(fn: Callable[..., Any]) -> bool:
    """Tell from its name whether people want the value of a bare callable to be high, as scikit-learn names them."""
    name = _name_of(fn)
    if name.endswith("_score"):
        return True
    if name.endswith(("_loss", "_error")):
        return False
    raise ValueError(
        f"metric: expected to know which way is better, got the callable {name!r}, whose name ends neither in _score "
        "nor in _loss or _error; say black_box(fn, higher_is_better=...)"
    )


def _of_torchmetrics(spec: Any) -> Metric:
    higher_is_better = getattr(spec, "higher_is_better", None)
    name = type(spec).__name__
    if higher_is_better is None:
        raise ValueError(f"metric: expected a torchmetrics object with higher_is_better, got {name} without")
    labels = hasattr(spec, "threshold")
    fn = Torchmetrics(deepcopy(spec))
    return black_box(fn, name=name, higher_is_better=higher_is_better, labels=labels, probabilities=not labels)


@dataclass(frozen=True)
class Torchmetrics:
    """A torchmetrics object as a callable `(y_true, y_score) -> float` that keeps nothing from call to call."""

    metric: Any

    def __call__(self, y_true: Array, y_score: Array) -> Any:
        """Judge one set by a fresh copy, for the object gathers what it sees and threads may share it."""
        metric = deepcopy(self.metric)
        metric.reset()
        metric.update(torch.from_numpy(y_score), torch.from_numpy(y_true))
        return metric.compute()


# ---- one call a set ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The rows of one set that weigh anything, and where the set lies among the others."""

    index: tuple[int, ...]
    scores: Array
    targets: Array
    weights: Array | None

    def __str__(self) -> str:
        place = f"set {self.index[0] if len(self.index) == 1 else self.index}" if self.index else "the set"
        span = f"scores from {self.scores.min():g} to {self.scores.max():g}" if self.scores.size else "no scores"
        return f"{place} ({self.scores.size} rows, {int(self.targets.sum())} positive, {span})"


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
        return torch.tensor(losses, dtype=torch.float64).reshape(scores.shape[:-1]).to(scores)

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
        s, t = scores.detach().cpu().double().numpy(), targets.detach().cpu().long().numpy()
        w = None if weights is None else weights.detach().cpu().double().numpy()
        for index in np.ndindex(s.shape[:-1]):
            if w is None:
                yield Rows(index, s[index], t[index], None)
                continue
            present = w[index] > 0
            rows = Rows(index, s[index][present], t[index][present], w[index][present])
            self._check_weights(rows, w[index][present])
            yield rows

    def _check_weights(self, rows: Rows, weights: Array) -> None:
        if self.takes_weights or not weights.size or np.ptp(weights) <= 1e-9 * weights.max():
            return
        raise ValueError(
            f"weights: expected equal weights, for metric {self.name!r} has no argument sample_weight, "
            f"got {weights.min():g} to {weights.max():g} in {rows}"
        )

    def _loss(self, rows: Rows) -> float:
        if self.passed == "labels":
            return self._judged(rows, (rows.scores >= 0).astype(np.int64))
        if self.passed == "probabilities":
            return self._judged(rows, torch.from_numpy(rows.scores).sigmoid().numpy())
        return self._judged(rows, rows.scores)

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
            value = self.fn(rows.targets.copy(), passed.copy(), **weighed)
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


def _takes_weights(fn: Callable[..., Any]) -> bool:
    try:
        return "sample_weight" in inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some callables written in C do not say what they take
        return False


def _name_of(fn: Callable[..., Any]) -> str:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(inner, "__name__", type(inner).__name__))
