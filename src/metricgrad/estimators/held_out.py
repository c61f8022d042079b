"""Validation rows given as `(X, y)`: joined to the training rows, as one table."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


class Joined(NamedTuple):
    """Features, targets and weights of all rows, and the indices of the validation rows, which come last."""

    X: Any
    y: Array
    weights: Array | None
    validation: Array


def is_table(validation: Any) -> bool:
    """Whether validation rows are given as `(X, y)` or `(X, y, ...)`, and not by their indices.

    >>> is_table(([[0.5], [1.5]], [0, 1])), is_table([3, 1]), is_table((3, 1))
    (True, False, False)
    """
    if not isinstance(validation, (tuple, list)) or not 2 <= len(validation) <= 3:
        return False
    return getattr(validation[0], "ndim", None) == 2 or np.ndim(validation[0]) == 2


def joined(
    X: Any, y: ArrayLike, weights: ArrayLike | None, held_out: tuple[Any, ...], held_out_weights: Any = None
) -> Joined:
    """Append validation rows `(X, y, ...)` to the training rows; missing weights are 1 if the others have some.

    >>> joined([[1.0]], [0], None, ([[2.0], [3.0]], [1, 0])).validation.tolist()
    [1, 2]
    """
    other_X, other_y = held_out[:2]
    rows, more = _rows(X), _rows(other_X)
    for name, given, count in (("y", y, rows), ("validation", other_y, more)):
        if _rows(given) != count:
            raise ValueError(f"{name}: expected a target for each of {count} rows, got {_rows(given)}")
    labels, others = np.asarray(y), np.asarray(other_y)
    if labels.shape[1:] != others.shape[1:] or (labels.dtype.kind in "OUS") != (others.dtype.kind in "OUS"):
        raise ValueError(
            f"validation: expected targets as in y, {labels.dtype} of shape {labels.shape}, got {others.dtype} of "
            f"shape {others.shape}"
        )
    both = None
    if weights is not None or held_out_weights is not None:
        parts = ((weights, rows, "sample_weight"), (held_out_weights, more, "validation"))
        both = np.concatenate([_weights(given, count, name) for given, count, name in parts])
    return Joined(
        _stacked(X, other_X), np.concatenate((labels, others)), both, np.arange(rows, rows + more, dtype=np.int64)
    )


def _rows(values: Any) -> int:
    return int(values.shape[0]) if hasattr(values, "shape") else len(values)


def _weights(given: Any, count: int, name: str) -> Array:
    found = np.ones(count) if given is None else np.asarray(given, np.float64)
    if found.shape != (count,):
        raise ValueError(f"{name}: expected a weight for each of {count} rows, got shape {found.shape}")
    return found


def _stacked(X: Any, other: Any) -> Any:
    """Append rows of features; a data frame keeps the names of its columns."""
    X, other = (each.to_pandas() if hasattr(each, "to_pandas") else each for each in (X, other))
    names, others = (list(each.columns) if isinstance(each, pd.DataFrame) else None for each in (X, other))
    width, found = (each.shape[1] if hasattr(each, "shape") else np.shape(each)[1] for each in (X, other))
    if width != found or (names is not None and others is not None and names != others):
        got = f"{found} features" if width != found or others is None else f"the columns {others}"
        raise ValueError(f"validation: expected the {width} features of X, got {got}")
    if scipy.sparse.issparse(X) or scipy.sparse.issparse(other):
        return scipy.sparse.vstack([scipy.sparse.csr_matrix(each) for each in (X, other)], format="csr")
    if names is None:
        return np.concatenate((np.asarray(X), np.asarray(other)))
    more = other if others is not None else pd.DataFrame(np.asarray(other), columns=names)
    return pd.concat([X, more], ignore_index=True)
