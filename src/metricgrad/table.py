"""A table of rows on its way to a model: checked weights, equal rows merged, features scaled, parts as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from metricgrad.trainer import Rows

Array = NDArray[Any]
MERGED_ROWS, MERGED_CELLS = 10_000, 10_000_000
"""Up to which size equal rows are looked for; more of them are no longer told apart by a split of the rows anyway."""


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

    Repeating a row and weighing it are then the same thing to the bit, and no row can be on both sides of a split.
    """
    if X.shape[0] > MERGED_ROWS or X.shape[0] * X.shape[1] > MERGED_CELLS:
        return X, targets, weights
    weights = np.ones(len(targets)) if weights is None else weights
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    table = np.column_stack((dense, targets))[weights > 0]
    unique, where = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(where.ravel(), weights[weights > 0], minlength=len(unique))
    features = np.ascontiguousarray(unique[:, :-1], dtype=X.dtype)
    kept = scipy.sparse.csr_matrix(features) if scipy.sparse.issparse(X) else features
    return kept, unique[:, -1].astype(np.int8), None if np.ptp(total) == 0 else total


def centre_and_scale(X: Any, weights: Array | None) -> tuple[Array, Array]:
    """Return the weighted mean and standard deviation of every feature; sparse ones keep their zeros: centre 0.

    A feature that does not vary keeps its scale.
    """
    share = np.full(X.shape[0], 1 / X.shape[0]) if weights is None else weights / weights.sum()
    mean = np.asarray(share @ X, np.float64).ravel()
    if scipy.sparse.issparse(X):
        variance = np.asarray(share @ X.multiply(X)).ravel() - mean**2
        blur, centre = 1e-7, np.zeros_like(mean)
    else:
        variance = share @ np.square(X - mean)
        blur, centre = 1e-12, mean
    spread = np.sqrt(np.maximum(variance, 0))
    return centre, np.where(spread > blur * np.abs(mean), spread, 1.0)


def scaled(X: Any, centre: Array, scale: Array) -> Array:
    """Return dense features, centred and scaled in double and then rounded to single: `(rows, features)`."""
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    return np.asarray((dense - centre) / scale, np.float32, order="C")
