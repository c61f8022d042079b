"""Inputs of a user's own module: pictures, sequences, several inputs, or a Dataset of torch, as rows of a table.

A table is what can be checked, split and drawn from, so inputs of any shape become one, and `Shaped` gives them their
shapes again before the module sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, SequentialSampler, default_collate

MAX_INTEGER = 2**24
"""Up to which single precision holds every integer."""


class Inputs(NamedTuple):
    """Shape of every input of a row, and whether it consists of integers, such as the numbers of words."""

    shapes: tuple[tuple[int, ...], ...]
    integers: tuple[bool, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of cells of every input."""
        return [int(np.prod(shape)) for shape in self.shapes]

    @property
    def is_table(self) -> bool:
        """Whether this is a table of numbers, which needs no module of the user's own."""
        return len(self.shapes) == 1 and len(self.shapes[0]) == 1 and not self.integers[0]


class Shaped(nn.Module):
    """A module that gets its inputs in their shapes, from rows of a table: `(n, cells)` -> what the module returns."""

    def __init__(self, module: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.module, self.inputs = module, inputs

    def forward(self, x: Tensor) -> Any:
        """Call the module."""
        parts = zip(x.split(self.inputs.sizes, -1), self.inputs.shapes, self.inputs.integers, strict=True)
        shaped = [(part.reshape(len(x), *shape), integers) for part, shape, integers in parts]
        return self.module(*(part.long() if integers else part for part, integers in shaped))


def shaped_spec(model: Any, inputs: Inputs | None) -> Any:
    """Return a model of the user's, a module or a factory, as one of rows; a factory gets the shapes."""
    if inputs is None:
        return model
    if isinstance(model, nn.Module):
        return Shaped(deepcopy(model), inputs)
    make: Callable[..., Any] = model

    def build(_: int) -> Any:
        built = make(inputs.shapes[0] if len(inputs.shapes) == 1 else inputs.shapes)
        return Shaped(built, inputs) if isinstance(built, nn.Module) else built

    return build


def is_own(model: Any) -> bool:
    """Whether a model is a module or a factory of the user's own."""
    return isinstance(model, nn.Module) or (callable(model) and getattr(model, "name", None) != "additive")


def read_rows(model: Any, X: Any, y: Any, validation: Any = None) -> tuple[Any, Any, Any, Inputs | None]:
    """Return features, targets and validation rows as tables, and the inputs if they have other shapes.

    What is no Dataset and no array of more than two axes for a module of the user's stays as it is.
    """
    if isinstance(X, (Dataset, DataLoader)):
        if y is not None:
            raise ValueError(f"y: expected None because X is a {type(X).__name__} with targets in it, got {type(y)}")
        *tensors, y = collected(X)
        y = _targets(y)
    elif is_own(model) and getattr(X, "ndim", 2) > 2:
        tensors = [torch.as_tensor(X)]
    else:
        return X, y, validation, None
    if not tensors:
        raise ValueError("X: expected a Dataset of tuples of inputs and a target, got no inputs")
    inputs = inputs_of(tensors)
    if inputs.is_table:
        return tensors[0].numpy(), y, _read_validation(validation, None), None
    if not is_own(model):
        got = ", ".join(map(str, inputs.shapes))
        raise ValueError(f"X: expected numbers in one row for the model {model!r}, got inputs of the shapes {got}")
    return flat(tensors, inputs), y, _read_validation(validation, inputs), inputs


def _read_validation(validation: Any, inputs: Inputs | None) -> Any:
    """Return validation rows, `(X, y)` or a Dataset, as tables."""
    if isinstance(validation, (Dataset, DataLoader)):
        *tensors, y = collected(validation)
        return (tensors[0].numpy() if inputs is None else flat(tensors, inputs)), _targets(y)
    if isinstance(validation, tuple) and inputs is not None:
        return (as_table(validation[0], inputs), *validation[1:])
    return validation


def as_table(X: Any, inputs: Inputs | None) -> Any:
    """Return what is to be predicted as a table; targets in a Dataset are left out."""
    if isinstance(X, (Dataset, DataLoader)):
        _check_order(X)
        tensors = collected(X)
        count = 1 if inputs is None else len(inputs.shapes)
        return tensors[0].numpy() if inputs is None else flat(tensors[:count], inputs)
    return X if inputs is None or getattr(X, "ndim", 2) == 2 else flat([torch.as_tensor(X)], inputs)


def _targets(y: Tensor) -> np.ndarray[Any, Any]:
    """Return targets as an array; those in one column, as losses of torch want them, in none."""
    return np.asarray(y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)


def _check_order(X: Any) -> None:
    if isinstance(X, DataLoader) and not isinstance(X.sampler, SequentialSampler):
        raise ValueError("X: expected a DataLoader that does not shuffle, since predictions are in its order, got one")


def collected(X: Any) -> list[Tensor]:
    """Return all that a Dataset or a DataLoader has, a tensor for each place of its tuples."""
    if isinstance(X, DataLoader):
        batches = list(X)
    else:
        rows = [X[place] for place in range(len(X))] if hasattr(X, "__len__") else list(X)
        batches = [default_collate(rows)] if rows else []
    if not batches:
        raise ValueError(f"X: expected at least one row, got an empty {type(X).__name__}")
    tuples = [batch if isinstance(batch, (list, tuple)) else [batch] for batch in batches]
    for cell in tuples[0]:
        if not isinstance(cell, Tensor):
            raise TypeError(f"X: expected tuples of tensors or numbers from the {type(X).__name__}, got {type(cell)}")
    return [torch.cat([each[place] for each in tuples]).detach().cpu() for place in range(len(tuples[0]))]


def inputs_of(tensors: Sequence[Tensor]) -> Inputs:
    """Return the shapes of inputs, `(rows, ...)` each, and which consist of integers."""
    shapes = tuple(tuple(tensor.shape[1:]) for tensor in tensors)
    return Inputs(shapes, tuple(_counts(tensor) for tensor in tensors))


def _counts(tensor: Tensor) -> bool:
    """Whether a tensor holds integers; bytes are the brightness of pictures."""
    return not tensor.is_floating_point() and tensor.dtype not in (torch.bool, torch.uint8)


def flat(tensors: Sequence[Tensor], inputs: Inputs) -> np.ndarray[Any, Any]:
    """Return inputs, `(rows, ...)` each, as one table: `(rows, cells)`; raise if they have other shapes."""
    found = inputs_of(tensors).shapes
    if found != inputs.shapes:
        expected, got = (", ".join(map(str, shapes)) for shapes in (inputs.shapes, found))
        raise ValueError(f"X: expected inputs of the shapes {expected}, got {got}")
    for tensor in tensors:
        if _counts(tensor) and tensor.numel() and int(tensor.abs().max()) > MAX_INTEGER:
            raise ValueError(f"X: expected integers of at most {MAX_INTEGER:,}, got {int(tensor.abs().max()):,}")
    precise = any(tensor.dtype == torch.float64 for tensor in tensors)
    dtype = torch.float64 if precise else torch.float32
    return torch.cat([tensor.detach().cpu().to(dtype).flatten(1) for tensor in tensors], 1).numpy()
