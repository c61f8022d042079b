"""A table of rows on its way to a model: checked weights, equal rows merged, features scaled, parts as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor
from torch.nn.functional import one_hot

Array = NDArray[Any]
MERGED_ROWS, MERGED_CELLS = 10_000, 10_000_000
"""Up to which size equal rows are looked for; more of them are no longer told apart by a split of the rows anyway."""
MOST_EQUAL = 4
"""Rows for each distinct one above which nothing is merged: a table of few cells needs its rows for the split."""
CHUNK = 65_536
DRAWN_CELLS = 10_000_000
"""Above which size rows are scaled as they are drawn; below, a copy of all is cheap and drawing from it faster."""


class Rows(NamedTuple):
    """Features `(rows, features)`, targets `(rows,)` or `(rows, t)` and, if any, weights `(rows,)`.

    Where rows come in sets of their own, such as queries, `members` has the row indices of each: `(groups, size)`, -1
    pads.
    """

    x: Tensor
    y: Tensor
    w: Tensor | None = None
    members: Tensor | None = None

    def in_sets(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores, targets and weights as a metric judges them: all rows as one set, or in their own sets."""
        if self.members is None:
            return scores, self.y, self.w
        places, present = self.members.clamp(min=0), (self.members >= 0).to(scores.dtype)
        return scores[places], self.y[places], present if self.w is None else present * self.w[places]


@dataclass(frozen=True)
class Table:
    """Features `(rows, features)` as they came, what centres and scales them, targets and weights `(rows,)`.

    Targets may be numbers of several `classes`, or have a column for each of several labels; `columns` are what the
    metric must know of the rows beside them, `(rows, columns)`.
    """

    X: Any
    centre: Array
    scale: Array
    targets: Array
    weights: Array | None
    classes: int = 0
    columns: Array | None = None

    def rows(self, part: Array) -> Rows:
        """Return some rows as tensors, scaled."""
        return self._labelled(torch.from_numpy(scaled(self.X, self.centre, self.scale, part)), part)

    def drawn(self, part: Array, set_size: int) -> Rows:
        """Return some rows to draw sets from; those of a large table are scaled as they are drawn."""
        large = self.X.shape[0] * self.X.shape[1] > DRAWN_CELLS and len(part) > set_size
        if not large or scipy.sparse.issparse(self.X):
            return self.rows(part)
        return self._labelled(cast(Tensor, Drawn(self.X, part, self.centre, self.scale)), part)

    def _labelled(self, x: Tensor, part: Array) -> Rows:
        """Return rows with targets as the metric takes them."""
        w = None if self.weights is None else torch.as_tensor(self.weights[part], dtype=torch.float32)
        y = torch.as_tensor(self.targets[part])
        y = one_hot(y.long(), self.classes).float() if self.classes else y.float()
        if self.columns is not None:
            y = torch.cat((y.unsqueeze(-1), torch.as_tensor(self.columns[part], dtype=torch.float32)), -1)
        return Rows(x, y, w)

    @property
    def strata(self) -> Array:
        """What rows are to be split by: their class; by nothing where they have several labels."""
        return self.targets if self.targets.ndim == 1 else np.zeros(len(self.targets), np.int8)


class Drawn:
    """Rows of a large table in the place of a tensor that is only asked for some of them: no copy of all is made."""

    def __init__(self, X: Array, part: Array, centre: Array, scale: Array) -> None:
        self.X, self.part, self.centre, self.scale = X, part, centre, scale
        self.shape = (len(part), X.shape[1])

    def __getitem__(self, some: Tensor | slice) -> Tensor:
        """Return some rows, scaled as `scaled` does it to the bit: `(...)` -> `(..., features)`."""
        places = self.part[some if isinstance(some, slice) else some.numpy()]
        return torch.from_numpy(((_dense(self.X[places]) - self.centre) / self.scale).astype(np.float32))


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
    return kept, unique[:, -1].astype(targets.dtype), None if np.ptp(total) == 0 else total


def centre_and_scale(X: Any, weights: Array | None, part: Array | None = None) -> tuple[Array, Array]:
    """Return the weighted mean and standard deviation of every feature, over all rows or the numbers of some.

    Sparse features keep their zeros: centre 0. A feature that does not vary keeps its scale. Sums run over chunks of
    rows, in units of the largest value of each feature: no copy of the table is made, and no square overflows.
    """
    part = np.arange(X.shape[0]) if part is None else part
    share = np.full(len(part), 1 / len(part)) if weights is None else weights[part] / weights[part].sum()
    largest = _largest(X, part)
    mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in chunks(len(part)):
        mean += share[rows] @ _dense(X[part[rows]], largest)
    for rows in chunks(len(part)):
        away = _dense(X[part[rows]], largest)
        away -= mean
        square += share[rows] @ np.square(away, out=away)
    spread, blur = np.sqrt(square), 1e-7 if X.dtype == np.float32 else 1e-12
    scale = np.where(spread > blur * np.abs(mean), spread * largest, 1.0)
    return (np.zeros_like(mean) if scipy.sparse.issparse(X) else mean * largest), scale


def scaled(X: Any, centre: Array, scale: Array, part: Array | None = None) -> Array:
    """Return dense features of all rows or some, centred and scaled in double, then rounded to single."""
    whole = np.empty((X.shape[0] if part is None else len(part), X.shape[1]), np.float32)
    for rows in chunks(len(whole)):
        values = _dense(X[rows if part is None else part[rows]])
        values -= centre
        values /= scale
        whole[rows] = values
    return whole


def chunks(rows: int) -> Iterator[slice]:
    """Yield slices that cover some rows."""
    yield from (slice(start, start + CHUNK) for start in range(0, rows, CHUNK))


def _dense(X: Any, unit: Array | float = 1.0) -> Array:
    """Return a dense copy in double, in units of something; in place, since copies of a chunk add up."""
    dense = np.array(X.toarray() if scipy.sparse.issparse(X) else X, np.float64)
    dense /= unit
    return dense


def _largest(X: Any, part: Array) -> Array:
    """Return the largest absolute value of every feature in some rows; one where it is zero."""
    largest = np.zeros(X.shape[1])
    for rows in chunks(len(part)):
        some = X[part[rows]]
        ends = (some.max(axis=0), -some.min(axis=0))
        for end in ends:
            largest = np.maximum(largest, end.toarray().ravel() if scipy.sparse.issparse(end) else end)
    return np.where(largest > 0, largest, 1.0)
