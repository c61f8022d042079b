"""A table of rows on its way to a model: checked weights, equal rows merged, features scaled, parts as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from metricgrad.guard import Rows

Array = NDArray[Any]
MERGED_ROWS, MERGED_CELLS = 10_000, 10_000_000
"""Up to which size equal rows are looked for; more of them are no longer told apart by a split of the rows anyway."""
MOST_EQUAL = 4
"""Rows for each distinct one above which nothing is merged: a table of few cells needs its rows for the split."""
CHUNK = 65_536


@dataclass(frozen=True)
class Table:
    """Scaled features `(rows, features)`, targets and, if any, weights `(rows,)`."""

    x: Array
    targets: Array
    weights: Array | None

    def rows(self, part: Array) -> Rows:
        """Return some rows as tensors."""
        w = None if self.weights is None else torch.as_tensor(self.weights[part], dtype=torch.float32)
        return Rows(torch.as_tensor(self.x[part]), torch.as_tensor(self.targets[part], dtype=torch.float32), w)


def checked_weights(sample_weight: ArrayLike, X: Any) -> Array:
    """Return weights as doubles, or say what is wrong with them."""
    if not np.asarray(sample_weight).any():
        raise ValueError("sample_weight: expected at least one positive weight, got only zeros")
    return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))


def merged(X: Any, targets: Array, weights: Array | None) -> tuple[Any, Array, Array | None]:
    """Merge equal rows of a small table and add up their weights, dropping those of weight zero.

    Repeating a row and weighing it are then the same thing to the bit, and no row can be on both sides of a split. A
    table in which most rows have many equals (few cells, such as three yes-or-no columns) is left as it is.
    """
    if X.shape[0] > MERGED_ROWS or X.shape[0] * X.shape[1] > MERGED_CELLS:
        return X, targets, weights
    weights = np.ones(len(targets)) if weights is None else weights
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    table = np.column_stack((dense, targets))[weights > 0]
    unique, where = np.unique(table, axis=0, return_inverse=True)
    if len(table) > MOST_EQUAL * len(unique):
        return X, targets, weights
    total = np.bincount(where.ravel(), weights[weights > 0], minlength=len(unique))
    features = np.ascontiguousarray(unique[:, :-1], dtype=X.dtype)
    kept = scipy.sparse.csr_matrix(features) if scipy.sparse.issparse(X) else features
    return kept, unique[:, -1].astype(np.int8), None if np.ptp(total) == 0 else total


def centre_and_scale(X: Any, weights: Array | None) -> tuple[Array, Array]:
    """Return the weighted mean and standard deviation of every feature; sparse ones keep their zeros: centre 0.

    A feature that does not vary keeps its scale. Sums run over chunks of rows, in units of the largest value of each
    feature: no copy of the table is made, and no square overflows.
    """
    share = np.full(X.shape[0], 1 / X.shape[0]) if weights is None else weights / weights.sum()
    largest = _largest(X)
    mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in chunks(X.shape[0]):
        mean += share[rows] @ _dense(X[rows], largest)
    for rows in chunks(X.shape[0]):
        square += share[rows] @ np.square(_dense(X[rows], largest) - mean)
    spread, blur = np.sqrt(square), 1e-7 if X.dtype == np.float32 else 1e-12
    scale = np.where(spread > blur * np.abs(mean), spread * largest, 1.0)
    return (np.zeros_like(mean) if scipy.sparse.issparse(X) else mean * largest), scale


def scaled(X: Any, centre: Array, scale: Array) -> Array:
    """Return dense features, centred and scaled in double and then rounded to single: `(rows, features)`."""
    whole = np.empty(X.shape, np.float32)
    for rows in chunks(X.shape[0]):
        whole[rows] = (_dense(X[rows]) - centre) / scale
    return whole


def chunks(rows: int) -> Iterator[slice]:
    """Yield slices that cover some rows."""
    yield from (slice(start, start + CHUNK) for start in range(0, rows, CHUNK))


def _dense(X: Any, unit: Array | float = 1.0) -> Array:
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, np.float64) / unit


def _largest(X: Any) -> Array:
    """Return the largest absolute value of every feature; one where it is zero."""
    if scipy.sparse.issparse(X):
        largest = np.maximum(X.max(axis=0).toarray(), -X.min(axis=0).toarray()).ravel()
    else:
        largest = np.maximum(X.max(axis=0), -X.min(axis=0))
    return np.where(largest > 0, largest, 1.0).astype(np.float64)
