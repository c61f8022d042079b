"""A metric as a record: its loss, how its value is shown, and the settings of its family."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Function, at_best
from metricgrad.metrics.sets import checked_sets
from metricgrad.metrics.tasks import BINARY, Task


@dataclass
class Budget:
    """How many calls of a user's function a run of training may take, and how many were made since it exists."""

    max_calls: int
    calls: int = 0


@dataclass(frozen=True)
class Metric:
    """A true loss with a name, and how its value is shown.

    Parameters
    ----------
    name : str
        The name `get_metric` finds it by.
    function : callable
        `(scores, targets, weights) -> loss`, `(..., n)` -> `(...)`; called with checked input.
    label : str
        How it is shown: `F1`.
    explanation : str
        One sentence.
    known_as : (float, float)
        The value shown when the loss is 0, and when it is 1: `(1, 0)` for F1, `(0, 1)` for an error rate.
    thresholded : bool
        Whether the loss depends on a threshold.
    counts : callable, optional
        For a thresholded metric of confusion counts, or of the counts of every class: the loss from the counts. It
        makes the search for a threshold, or for offsets, exact.
    decided_loss : callable, optional
        For a metric of sums over rows, with columns or groups: the loss of rows whose calls are decided, `decided.py`.
        It makes the search for a threshold exact too.
    best_function : callable, optional
        For a thresholded metric without confusion counts: the loss at the best threshold, or offsets, found.
    budget : Budget, optional
        Of a costly metric: the calls made so far, which all its forms share, and the most that a run may take.
    stand_in : Metric, optional
        For a costly metric: an emulator of it, which takes no calls. It proposes the few thresholds at which a metric
        of labels is worth calling, and replaces it where rows are resampled.
    decision : callable, optional
        For a metric of the whole ranking that belongs to one threshold, such as recall at a precision: the loss of
        confusion counts that is lowest there.
    takes_weights : bool
        Whether rows may weigh differently.
    bounded : bool
        Whether the loss is known to lie in [0, 1].
    costly : bool
        Whether every set costs a call of a user's function, so that calls are kept few.
    task : Task
        What is predicted: the shapes of scores and targets, and which targets are valid.
    view : str, optional
        How a surrogate sees a set, a name in `views.py`; by default that of the task.
    columns : tuple of str
        Names of the columns of the targets, after the label, that the metric needs.
    groups : tuple of str
        Those of the columns that hold codes of groups, 0, 1, 2 ..., rather than amounts.
    column_sizes : tuple of float
        A typical amount of each column, or the number of groups; random sets are drawn like this. 1 if not known.
    known_later : bool
        Whether the columns are known only after a row is decided, so that no rule may decide by them.
    top_rows : bool
        Whether at the best threshold the loss depends only on the few rows of the highest scores, as for precision.

    Examples
    --------
    >>> from metricgrad import get_metric
    >>> f1 = get_metric("f1")
    >>> loss = f1(torch.tensor([0.3, -0.2, 1.5, -1.0]), torch.tensor([1, 1, 0, 0]))
    >>> loss
    tensor(0.5000)
    >>> f1.shown(loss)
    'F1 0.5000'
    >>> f1.best(torch.tensor([0.3, -0.2, 1.5, -1.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.2000)
    """

    name: str
    function: Function = field(repr=False)
    label: str = field(repr=False)
    explanation: str = field(default="", repr=False)
    known_as: tuple[float, float] = field(default=(1.0, 0.0), repr=False)
    thresholded: bool = field(default=False, repr=False)
    counts: Callable[[Any], Tensor] | None = field(default=None, repr=False)
    best_function: Function | None = field(default=None, repr=False)
    takes_weights: bool = field(default=True, repr=False)
    bounded: bool = field(default=True, repr=False)
    costly: bool = field(default=False, repr=False)
    task: Task = field(default=BINARY, repr=False)
    view: str | None = field(default=None, repr=False)
    columns: tuple[str, ...] = field(default=(), repr=False)
    top_rows: bool = field(default=False, repr=False)
    decision: Callable[[Any], Tensor] | None = field(default=None, repr=False)
    budget: Budget | None = field(default=None, repr=False, compare=False)
    stand_in: Metric | None = field(default=None, repr=False, compare=False)
    decided_loss: Callable[[Any], Tensor] | None = field(default=None, repr=False)
    groups: tuple[str, ...] = field(default=(), repr=False)
    column_sizes: tuple[float, ...] = field(default=(), repr=False)
    known_later: bool = field(default=False, repr=False)

    @torch.no_grad()
    def __call__(self, scores: Any, targets: Any, weights: Any = None) -> Tensor:
        """Return the loss of every set, `(..., n)` -> `(...)`, in the dtype of the scores.

        Parameters
        ----------
        scores : array-like of shape (..., n) or (..., n, c)
            Raw scores, the rows of a set on the last axis.
        targets : array-like
            0 and 1 in the shape of the scores, or as the task of the metric has them.
        weights : array-like of shape (..., n), optional
            How much each row counts.

        Returns
        -------
        Tensor of shape (...)
        """
        scores, targets, weights = checked_sets(scores, targets, weights, self.task)
        return self.function(scores, targets, weights).to(scores.dtype)

    @property
    def higher_is_better(self) -> bool:
        """Whether a high value is good."""
        return self.known_as[0] > self.known_as[1]

    @property
    def calls(self) -> int:
        """How often the user's function has been called so far, by this metric and its other forms; 0 if built in."""
        return self.budget.calls if self.budget else 0

    @property
    def repeats_rows(self) -> bool:
        """Whether rows of two weights are repeated in proportion, because the user's function takes no weights."""
        return self.costly and not self.takes_weights and self.task.name in ("binary", "columns")

    @property
    def decides(self) -> bool:
        """Whether a threshold, or offsets, belong to it: it depends on them, or is reached at one threshold."""
        return self.thresholded or self.decision is not None

    @property
    def best(self) -> Metric:
        """The same metric at the best threshold, or offsets, of each set; itself if it does not depend on one."""
        if not self.thresholded:
            return self
        counted = partial(at_best, counts=self.counts) if self.counts else None
        function = self.best_function or counted
        if function is None:
            raise ValueError(f"metric: {self.name!r} has no best-threshold form: no counts, no best_function")
        choice = "offsets" if self.task.outputs else "threshold"
        return replace(
            self,
            name=f"best_{self.name}",
            function=function,
            label=f"best {self.label}",
            explanation=f"{self.explanation.rstrip('.')}, at the best {choice} of the set itself.",
            thresholded=False,
            counts=None,
            decided_loss=None,
            best_function=None,
            stand_in=self.stand_in.best if self.stand_in else None,
        )

    def trained(self, form: str) -> Metric:
        """Return the form that a surrogate imitates: at the best threshold of each set, or at zero.

        Offsets of several outputs are tuned only after training: the search is slow, and each output has a bias.

        Parameters
        ----------
        form : {"best", "zero"}
            Which of the two.

        Returns
        -------
        Metric
        """
        return self.best if form == "best" and not self.task.outputs else self

    def check_losses(self, losses: Tensor) -> None:
        """Raise a ValueError if a loss is not finite, or outside the bounds that the metric claims."""
        valid = losses == losses.clamp(-1e-6, 1 + 1e-6) if self.bounded else losses.isfinite()
        if not bool(valid.all()):
            expected = "a loss from 0 to 1" if self.bounded else "a finite loss"
            raise ValueError(f"metric: expected {expected} from {self.name!r}, got {losses[~valid][0].item()}")

    def value(self, loss: Any) -> Any:
        """Turn a loss into the value shown; the only place where the sign flips.

        Parameters
        ----------
        loss : float, ndarray or Tensor
            Losses, as calling the metric returns them.

        Returns
        -------
        float, ndarray or Tensor
            1 - loss for F1, the loss itself for an error rate.
        """
        at_zero, at_one = self.known_as
        return at_zero + (at_one - at_zero) * loss

    def shown(self, loss: Any) -> str:
        """Write a loss as label and value: `F1 0.6900`.

        Parameters
        ----------
        loss : float or Tensor
            One loss.

        Returns
        -------
        str
        """
        return f"{self.label} {float(self.value(loss)):.4f}"


def integer_setting(name: str, value: Any) -> int:
    """Return the setting of a metric that counts something, or raise an error that quotes it."""
    number = _real(value)
    if isinstance(value, bool) or not 1 <= number <= 1e6 or number != int(number):
        raise ValueError(f"{name}: expected an integer from 1 to 1000000, got {value!r}")
    return int(number)


def number_setting(name: str, value: Any, low: float, high: float) -> float:
    """Return the setting of a metric that is a number above `low` and at most `high`, or raise an error."""
    number = _real(value)
    if isinstance(value, bool) or not low < number <= high:
        raise ValueError(f"{name}: expected a number above {low:g} and at most {high:g}, got {value!r}")
    return number


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def loss_name(loss: Callable[..., Tensor]) -> str:
    """Return the name of the metric of a formula: `f1` for `f1_loss`."""
    return loss.__name__.removesuffix("_loss")


def short(number: float) -> str:
    """Write a number in the fewest digits that parse to it."""
    return repr(number).removesuffix(".0")


# ---- callables -----------------------------------------------------------------------------------------------------


def arguments_of(fn: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments of a callable."""
    try:
        return tuple(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return ()


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a callable, of its class if it is an object."""
    inner = fn.func if isinstance(fn, partial) else fn
    return str(getattr(inner, "__name__", type(inner).__name__))
