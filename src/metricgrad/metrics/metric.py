"""A metric as a record: its loss, how its value is shown, and the checks that every call goes through."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricgrad.metrics.confusion import ROWS_PER_PART, Function, at_best, counting_dtype
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


def checked_sets(
    scores: Any, targets: Any, weights: Any = None, task: Task = BINARY
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return tensors of one shape and device; errors name the argument, what was expected, and the value."""
    scores = _tensor("scores", scores)
    if scores.ndim == 0:
        raise ValueError("scores: expected at least one axis, the rows of a set on the last, got a single number")
    if scores.ndim < task.axes:
        raise ValueError(f"scores: expected rows and outputs, (..., n, c), got the shape {tuple(scores.shape)}")
    if not scores.is_floating_point():
        scores = scores.to(counting_dtype(scores))
    targets = task.coded(_tensor("targets", targets), scores)
    columns = targets.shape[-1:] if task.several and not task.outputs else ()
    targets = _broadcast("targets", targets, torch.Size((*scores.shape, *columns)), scores.device)
    if not bool(scores.sum().isfinite()) and not bool(scores.isfinite().all()):  # a sum needs no memory
        raise ValueError(f"scores: expected finite numbers, got {_first(scores, ~scores.isfinite())}")
    unchecked = targets.split(ROWS_PER_PART) if targets.dtype != torch.bool or task.several else ()
    if any(bool(task.invalid(part).any()) for part in unchecked):
        raise ValueError(f"targets: expected {task.expected}, got {_first(targets, task.invalid(targets))}")
    if weights is not None:
        weights = _broadcast("weights", _tensor("weights", weights), task.rows(scores).shape, scores.device)
        invalid = ~(weights >= 0) | ~weights.isfinite()
        if bool(invalid.any()):
            raise ValueError(f"weights: expected finite numbers of at least 0, got {_first(weights, invalid)}")
    return scores, targets, weights


def broadcast_sets(
    scores: Tensor, targets: Tensor, weights: Tensor | None, task: Task = BINARY
) -> tuple[Tensor, Tensor]:
    """Return targets and weights in the shape of scores that carry a gradient; no value leaves its device."""
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor):
        raise TypeError(f"scores, targets: expected tensors, got {type(scores).__name__}, {type(targets).__name__}")
    if not scores.is_floating_point() or scores.ndim < task.axes:
        form = "(..., n, c)" if task.outputs else "(..., n)"
        raise ValueError(f"scores: expected real numbers, {form}, got {scores.dtype} of shape {tuple(scores.shape)}")
    if scores.shape[-1] == 1:
        raise ValueError(
            f"scores: expected the rows of a set on the last axis, (..., n), got the shape {tuple(scores.shape)}; "
            "the output of a model with one unit is model(x)[..., 0]"
        )
    targets, rows = task.coded(targets, scores), task.rows(scores)
    weights = torch.ones_like(rows) if weights is None else weights
    columns = targets.shape[-1:] if task.several and not task.outputs else ()
    full = torch.Size((*scores.shape, *columns))
    for name, tensor, shape in (("targets", targets, full), ("weights", weights, rows.shape)):
        if tensor.ndim == 0 or tensor.shape != shape[-tensor.ndim :]:
            raise ValueError(f"{name}: expected the shape of scores, {tuple(shape)}, got {tuple(tensor.shape)}")
    # On other devices looking at the values would block, so there they are checked only by `refine`.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_values(targets, weights, task)
    return targets.expand(full), weights.expand_as(rows)


def _check_values(targets: Tensor, weights: Tensor, task: Task = BINARY) -> None:
    """Raise a ValueError if a target is invalid, or a weight negative or not a number."""
    invalid = task.invalid(targets)
    if bool(invalid.any()):
        raise ValueError(f"targets: expected {task.expected}, got {targets[invalid][0].item()}")
    negative = ~(weights >= 0)
    if bool(negative.any()):
        raise ValueError(f"weights: expected numbers of at least 0, got {weights[negative][0].item()}")


def _tensor(name: str, values: Any) -> Tensor:
    """Return lists, arrays or series as a tensor; a tensor stays as it is."""
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
        except ValueError:
            raise ValueError(f"{name}: expected sets of equal length, got a ragged {type(values).__name__}") from None
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected real numbers, got {array.dtype} from {type(values).__name__}")
        # A copy: torch takes no array that is reversed, read-only (as pandas gives) or of another byte order.
        plain = {"b": np.bool_, "i": np.int64, "u": np.float64}.get(array.dtype.kind, array.dtype.newbyteorder("="))
        values = torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.itemsize > 8 else plain))
    tensor: Tensor = values
    if tensor.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {tensor.dtype}")
    return tensor


def _broadcast(name: str, values: Tensor, shape: torch.Size, device: torch.device) -> Tensor:
    values = values.to(device)
    if values.shape == shape:
        return values
    # Leading axes may broadcast, rows may not: a column beside a row would silently become sets of one row each.
    if values.shape[-1:] == shape[-1:] and values.ndim <= len(shape):
        try:
            return values.expand(shape)
        except RuntimeError:
            pass
    expected, got = tuple(shape), tuple(values.shape)
    raise ValueError(f"{name}: expected the shape of scores {expected}, or its last axes, got {got}")


def _first(values: Tensor, invalid: Tensor) -> str:
    where = tuple(int(i) for i in invalid.nonzero()[0])
    return f"{values[where].item()} at index {where if len(where) > 1 else where[0]}"


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
