"""A metric as a record: its loss, how people know it, and the checks every call of it goes through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricgrad.metrics import binary_formulas as formulas
from metricgrad.metrics.binary_formulas import Function
from metricgrad.metrics.confusion import PART, counting_dtype
from metricgrad.metrics.tasks import BINARY, Task


@dataclass(frozen=True)
class Metric:
    """A true loss by name, and how people know it.

    Parameters
    ----------
    name : str
        What `get_metric` finds it by.
    function : callable
        `(scores, targets, weights) -> loss`, `(..., n)` -> `(...)`; called with checked input.
    label : str
        How people write it: `F1`.
    explanation : str
        One sentence.
    known_as : (float, float)
        The value people know when the loss is 0, and when it is 1: `(1, 0)` for F1, `(0, 1)` for an error rate.
    thresholded : bool
        Whether the loss depends on where scores are cut.
    counts : callable, optional
        For a thresholded metric of confusion counts, or of the counts of every class: the loss from the counts. It
        makes the search of a threshold, or of offsets, exact.
    best_function : callable, optional
        For a thresholded metric without confusion counts: the loss at the best threshold, or offsets, it can find.
    takes_weights : bool
        Whether rows may weigh differently.
    bounded : bool
        Whether the loss is known to lie in [0, 1].
    costly : bool
        Whether every set costs a call of somebody's function, so that it is asked sparingly.
    task : Task
        What is predicted: which shapes scores and targets have, and what targets may be.
    view : str, optional
        How a surrogate looks at a set, by its name in `views.py`; as suits the task if not given.
    columns : tuple of str
        What the metric looks at beside labels and scores: names of columns of the targets.
    top_rows : bool
        Whether at the best threshold the loss depends on the few rows of the highest scores alone, as of precision.

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

    @torch.no_grad()
    def __call__(self, scores: Any, targets: Any, weights: Any = None) -> Tensor:
        """Return the loss of every set, `(..., n)` -> `(...)`, in the dtype of the scores."""
        scores, targets, weights = checked_sets(scores, targets, weights, self.task)
        return self.function(scores, targets, weights).to(scores.dtype)

    @property
    def higher_is_better(self) -> bool:
        """Whether people want the value they know to be high."""
        return self.known_as[0] > self.known_as[1]

    @property
    def best(self) -> Metric:
        """The same metric at the best threshold, or offsets, of the set itself; one that needs none is its own."""
        if not self.thresholded:
            return self
        counted = partial(formulas.at_best, counts=self.counts) if self.counts else None
        function = self.best_function or counted
        if function is None:
            raise ValueError(f"metric: {self.name!r} has no best-threshold form: no counts, no best_function")
        cut = "offsets" if self.task.outputs else "threshold"
        return replace(
            self,
            name=f"best_{self.name}",
            function=function,
            label=f"best {self.label}",
            explanation=f"{self.explanation.rstrip('.')}, at the best {cut} of the set itself.",
            thresholded=False,
            counts=None,
            best_function=None,
        )

    def trained(self, form: str) -> Metric:
        """Return the form a surrogate imitates: at the best threshold of each set, or at zero.

        What decides between several outputs is tuned only afterwards: the search is long, and each has a bias to learn.
        """
        return self.best if form == "best" and not self.task.outputs else self

    def value(self, loss: Any) -> Any:
        """Turn a loss into the value people know; the only place where the sign flips."""
        at_zero, at_one = self.known_as
        return at_zero + (at_one - at_zero) * loss

    def shown(self, loss: Any) -> str:
        """Write a loss as people know it: `F1 0.6900`."""
        return f"{self.label} {float(self.value(loss)):.4f}"


def checked_sets(
    scores: Any, targets: Any, weights: Any = None, task: Task = BINARY
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return tensors of one shape and device, or raise an error that names the argument, the expectation, the value."""
    scores = _tensor("scores", scores)
    if scores.ndim == 0:
        raise ValueError("scores: expected at least one axis, the rows of a set on the last, got a single number")
    if scores.ndim < task.axes:
        raise ValueError(f"scores: expected rows and outputs, (..., n, c), got the shape {tuple(scores.shape)}")
    if not scores.is_floating_point():
        scores = scores.to(counting_dtype(scores))
    targets = task.coded(_tensor("targets", targets), scores)
    columns = targets.shape[-1:] if task.several and not task.outputs else ()
    targets = _spread("targets", targets, torch.Size((*scores.shape, *columns)), scores.device)
    if not bool(scores.sum().isfinite()) and not bool(scores.isfinite().all()):  # a sum needs no room
        raise ValueError(f"scores: expected finite numbers, got {_first(scores, ~scores.isfinite())}")
    doubtful = targets.split(PART) if targets.dtype != torch.bool or task.several else ()
    if any(bool(task.invalid(part).any()) for part in doubtful):
        raise ValueError(f"targets: expected {task.expected}, got {_first(targets, task.invalid(targets))}")
    if weights is not None:
        weights = _spread("weights", _tensor("weights", weights), task.rows(scores).shape, scores.device)
        wrong = ~(weights >= 0) | ~weights.isfinite()
        if bool(wrong.any()):
            raise ValueError(f"weights: expected finite numbers of at least 0, got {_first(weights, wrong)}")
    return scores, targets, weights


def _tensor(name: str, values: Any) -> Tensor:
    """Turn what people hold rows in (lists, arrays, series) into a tensor; a tensor stays as it is."""
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
        except ValueError:
            raise ValueError(f"{name}: expected sets of equal length, got a ragged {type(values).__name__}") from None
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected real numbers, got {array.dtype} from {type(values).__name__}")
        # A copy, for torch takes no array that is reversed, read-only (as pandas gives) or of another byte order.
        plain = {"b": np.bool_, "i": np.int64, "u": np.float64}.get(array.dtype.kind, array.dtype.newbyteorder("="))
        values = torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.itemsize > 8 else plain))
    tensor: Tensor = values
    if tensor.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {tensor.dtype}")
    return tensor


def _spread(name: str, values: Tensor, shape: torch.Size, device: torch.device) -> Tensor:
    values = values.to(device)
    if values.shape == shape:
        return values
    # Leading axes may spread; rows may not, for a column beside a row would silently become sets of one row each.
    if values.shape[-1:] == shape[-1:] and values.ndim <= len(shape):
        try:
            return values.expand(shape)
        except RuntimeError:
            pass
    expected, got = tuple(shape), tuple(values.shape)
    raise ValueError(f"{name}: expected the shape of scores {expected}, or its last axes, got {got}")


def _first(values: Tensor, wrong: Tensor) -> str:
    where = tuple(int(i) for i in wrong.nonzero()[0])
    return f"{values[where].item()} at index {where if len(where) > 1 else where[0]}"


def whole_number(name: str, value: Any) -> int:
    """Return a setting that counts something, or raise an error that quotes it."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not 1 <= number <= 1e6 or number != int(number):
        raise ValueError(f"{name}: expected a whole number from 1 to 1000000, got {value!r}")
    return int(number)
