"""The checks of sets: scores, targets and weights as tensors of one shape, and errors that quote what is invalid."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricgrad.metrics.confusion import ROWS_PER_PART, counting_dtype
from metricgrad.metrics.tasks import BINARY, Task


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
