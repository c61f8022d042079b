"""Rows on their way to a model: checked weights, duplicates merged, features standardised, parts as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor
from torch.nn.functional import one_hot

from metricgrad.training.splits import Indices, Split

Array = NDArray[Any]
MAX_MERGE_ROWS, MAX_MERGE_CELLS = 10_000, 10_000_000
"""Size up to which duplicate rows are merged; in larger tables the split hardly depends on them."""
MAX_DUPLICATES = 4
"""Rows per distinct row above which nothing is merged: a table of few distinct rows needs all of them for the split."""
ROWS_AT_ONCE = 65_536
"""Rows scored or summed up at a time where there may be many."""
CELLS_AT_ONCE = 1 << 20
"""Cells standardised at a time: in double precision they fit the processor's cache, and take little memory."""
LAZY_CELLS = 10_000_000
"""Size above which rows are standardised as they are drawn; below, a copy is cheap and drawing from it is faster."""
LAZY_VALIDATION_CELLS = 40_000_000
"""Size above which validation rows, all of which are scored at every check, are standardised each time."""


class Rows(NamedTuple):
    """Features `(rows, features)`, targets `(rows,)` or `(rows, t)` and, if any, weights `(rows,)`.

    Where rows come in sets, such as queries, `members` has the row indices of each, padded by -1: `(sets, size)`.
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


class Parts(NamedTuple):
    """The rows of a split, standardised on the training rows."""

    train: Rows
    validation: Rows
    test: Rows


@dataclass(frozen=True, eq=False)
class Scaler:
    """Standardises features: subtracts `centre` and divides by `scale`, `(features,)` each.

    Examples
    --------
    >>> scaler = Scaler.fit(np.array([[1.0], [3.0], [9.0]]), rows=np.array([0, 1]))
    >>> scaler.transform(np.array([[5.0]])).tolist()
    [[3.0]]
    """

    centre: Array
    scale: Array

    @classmethod
    def fit(
        cls, X: Any, rows: Array | None = None, weights: Array | None = None, *, standardise: bool = True
    ) -> Scaler:
        """Learn the weighted mean and standard deviation of every feature from some rows, by default all.

        Sparse features keep their zeros: centre 0. A constant feature keeps its scale. Sums run over chunks of rows,
        in units of the largest value of each feature: the table is not copied, and no square overflows. Without
        `standardise`, features stay as they are.
        """
        if not standardise:
            return cls(np.zeros(X.shape[1]), np.ones(X.shape[1]))
        rows = np.arange(X.shape[0]) if rows is None else rows
        share = np.full(len(rows), 1 / len(rows)) if weights is None else weights[rows] / weights[rows].sum()
        largest = _largest(X, rows)
        mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        for chunk in chunks(len(rows)):
            mean += share[chunk] @ _dense(_some(X, rows[chunk]), largest)
        for chunk in chunks(len(rows)):
            deviation = _dense(_some(X, rows[chunk]), largest)
            deviation -= mean
            square += share[chunk] @ np.square(deviation, out=deviation)
        spread, rounding = np.sqrt(square), 1e-7 if X.dtype == np.float32 else 1e-12
        scale = np.where(spread > rounding * np.abs(mean), spread * largest, 1.0)
        return cls(np.zeros_like(mean) if scipy.sparse.issparse(X) else mean * largest, scale)

    def transform(self, X: Any, rows: Array | None = None) -> Array:
        """Return dense features of some rows, by default all, computed in double precision and rounded to single."""
        out = np.empty((X.shape[0] if rows is None else len(rows), X.shape[1]), np.float32)
        for chunk in chunks(len(out), max(CELLS_AT_ONCE // max(X.shape[1], 1), 1)):
            values = _dense(X[chunk] if rows is None else _some(X, rows[chunk]))
            values -= self.centre
            values /= self.scale
            out[chunk] = values
        return out


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features `(rows, features)` as given, targets, weights `(rows,)` and the scaler of the features.

    Targets are classes or, with a column each, several labels, `(rows, labels)`. With `classes`, they become one
    column per class. `columns`, `(rows, columns)`, hold what the metric needs beside them. `class_weights`,
    `(classes,)`, multiply the weights of rows that are trained on, not of those that a model is judged by.
    """

    X: Any
    targets: Array
    weights: Array | None = None
    classes: int = 0
    columns: Array | None = None
    scaler: Scaler | None = None
    class_weights: Array | None = None

    def standardised(self, rows: Array, standardise: bool = True) -> TrainingData:
        """Return the data with a scaler fitted on some rows."""
        return replace(self, scaler=Scaler.fit(self.X, rows, self.weights, standardise=standardise))

    def split(self, places: Split, standardise: bool) -> Parts:
        """Return the rows of a split as tensors, standardised on its training rows."""
        data = self.standardised(places.train, standardise)
        return Parts(*(data.rows(part) for part in (places.train, places.validation, places.test)))

    def rows(self, part: Array) -> Rows:
        """Return some rows as tensors, standardised."""
        return self._labelled(torch.from_numpy(self._fitted.transform(self.X, part)), part)

    def lazy_rows(self, part: Array, set_size: int) -> Rows:
        """Return some rows to draw sets from; those of a large table are standardised as they are drawn."""
        large = self.X.shape[0] * self.X.shape[1] > LAZY_CELLS and len(part) > set_size
        data = self.class_weighted()
        return data._lazy_rows(part) if large else data.rows(part)

    def class_weighted(self) -> TrainingData:
        """Return the data with weights that have been multiplied by those of the classes."""
        if self.class_weights is None:
            return self
        factors = self.class_weights[self.targets.astype(int)]
        return replace(self, weights=factors if self.weights is None else factors * self.weights, class_weights=None)

    def validation_rows(self, part: Array) -> Rows:
        """Return some rows to score in parts; very many are standardised as they are scored."""
        large = len(part) * self.X.shape[1] > LAZY_VALIDATION_CELLS
        return self._lazy_rows(part) if large else self.rows(part)

    def _lazy_rows(self, part: Array) -> Rows:
        if scipy.sparse.issparse(self.X):
            return self.rows(part)
        return self._labelled(cast(Tensor, LazyFeatures(self.X, part, self._fitted)), part)

    def _labelled(self, x: Tensor, part: Array) -> Rows:
        w = None if self.weights is None else torch.as_tensor(self.weights[part], dtype=torch.float32)
        return Rows(x, self.labels(part), w)

    def labels(self, part: Array, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the targets of some rows as the metric takes them."""
        y = torch.as_tensor(self.targets[part])
        y = (one_hot(y.long(), self.classes) if self.classes else y).to(dtype)
        if self.columns is not None:
            y = torch.cat((y.unsqueeze(-1), torch.as_tensor(self.columns[part], dtype=dtype)), -1)
        return y

    @property
    def _fitted(self) -> Scaler:
        return self.scaler or Scaler.fit(self.X, standardise=False)

    @property
    def strata(self) -> Array:
        """What to stratify a split by: the class; nothing where rows have several labels."""
        return self.targets if self.targets.ndim == 1 else np.zeros(len(self.targets), np.int8)


class LazyFeatures:
    """Stands in for a tensor of features of a large table: rows are standardised when indexed, nothing is copied."""

    def __init__(self, X: Array, part: Array, scaler: Scaler) -> None:
        self.X, self.part, self.scaler = X, part, scaler
        self.shape, self.ndim = (len(part), X.shape[1]), 2

    def __len__(self) -> int:
        return len(self.part)

    def split(self, rows: int) -> Iterator[Tensor]:
        """Yield all rows, some at a time."""
        yield from (self[part] for part in chunks(len(self.part), rows))

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        """Return some rows, bit for bit those of `Scaler.transform`: `(...)` -> `(..., features)`."""
        places = self.part[index if isinstance(index, slice) else index.numpy()]
        return torch.from_numpy(self.scaler.transform(self.X, places.ravel())).view(*places.shape, -1)


def check_weights(sample_weight: ArrayLike, X: Any) -> Array:
    """Check weights, `(rows,)`, and return them in double precision."""
    if not np.asarray(sample_weight).any():
        raise ValueError("sample_weight: expected at least one positive weight, got only zeros")
    return np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))


def merge_duplicates(X: Any, targets: Array, weights: Array | None) -> tuple[Any, Array, Array | None]:
    """Merge equal rows of a small table, add up their weights, and drop rows of weight zero.

    Repeating a row and weighting it are then equal to the bit, and no row can be on both sides of a split. A table of
    few distinct rows (such as three yes-or-no columns) is left as it is.
    """
    if X.shape[0] > MAX_MERGE_ROWS or X.shape[0] * X.shape[1] > MAX_MERGE_CELLS:
        return X, targets, weights
    weights = np.ones(len(targets)) if weights is None else weights
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    table = np.column_stack((dense, targets))[weights > 0]
    unique, inverse = np.unique(table, axis=0, return_inverse=True)
    if len(table) > MAX_DUPLICATES * len(unique):
        return X, targets, weights
    total = np.bincount(inverse.ravel(), weights[weights > 0], minlength=len(unique))
    features = np.ascontiguousarray(unique[:, :-1], dtype=X.dtype)
    kept = scipy.sparse.csr_matrix(features) if scipy.sparse.issparse(X) else features
    return kept, unique[:, -1].astype(targets.dtype), None if np.ptp(total) == 0 else total


def chunks(rows: int, at_once: int = ROWS_AT_ONCE) -> Iterator[slice]:
    """Yield slices that cover some rows."""
    yield from (slice(start, start + at_once) for start in range(0, rows, at_once))


def _some(X: Any, rows: Array) -> Any:
    """Return some rows of a table; one that lies in memory column by column is read so, in a third of the time."""
    by_column = isinstance(X, np.ndarray) and X.flags.f_contiguous and not X.flags.c_contiguous
    return X.T.take(rows, axis=1).T if by_column else X[rows]


def _dense(X: Any, unit: Array | float = 1.0) -> Array:
    """Return a dense copy in double precision, divided by a unit; in place, to make one copy of a chunk only."""
    dense = np.array(X.toarray() if scipy.sparse.issparse(X) else X, np.float64)
    dense /= unit
    return dense


def _largest(X: Any, rows: Array) -> Array:
    """Return the largest absolute value of every feature in some rows; one where it is zero."""
    largest = np.zeros(X.shape[1])
    for chunk in chunks(len(rows)):
        some = _some(X, rows[chunk])
        for extreme in (some.max(axis=0), -some.min(axis=0)):
            largest = np.maximum(largest, extreme.toarray().ravel() if scipy.sparse.issparse(extreme) else extreme)
    return np.where(largest > 0, largest, 1.0)


# ---- queries -------------------------------------------------------------------------------------------------------


def queries_of(rows: int, group: ArrayLike | None = None, qid: ArrayLike | None = None) -> list[Indices]:
    """Return the row indices of every query, queries in the order of their first rows.

    Queries are given by `group`, sizes of consecutive queries as LightGBM takes them, `(queries,)`, or by `qid`, any id
    in every row, `(rows,)`.

    >>> [query.tolist() for query in queries_of(5, group=[2, 3])]
    [[0, 1], [2, 3, 4]]
    >>> [query.tolist() for query in queries_of(5, qid=["b", "a", "b", "b", "a"])]
    [[0, 2, 3], [1, 4]]
    """
    if (group is None) == (qid is None):
        got = "neither" if group is None else "both"
        raise ValueError(f"group, qid: expected one of them, to define which rows are a query, got {got}")
    if group is not None:
        sizes = _checked_sizes(group, rows)
        return np.split(np.arange(rows), np.cumsum(sizes)[:-1])
    names: NDArray[Any] = np.asarray(qid)
    if names.shape != (rows,):
        raise ValueError(f"qid: expected one for each of {rows} rows, got shape {names.shape}")
    numbers, known = pd.factorize(names)
    if (numbers < 0).any():
        raise ValueError(f"qid: expected a query in every row, got none in row {int(np.argmax(numbers < 0))}")
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers, minlength=len(known)))[:-1])


def members(queries: list[Indices]) -> Indices:
    """Return the row indices of queries side by side, padded by -1: `(queries, longest)`.

    >>> members([np.array([4, 5]), np.array([0])]).tolist()
    [[4, 5], [0, -1]]
    """
    side_by_side = np.full((len(queries), max(len(query) for query in queries)), -1)
    for place, query in zip(side_by_side, queries, strict=True):
        place[: len(query)] = query
    return side_by_side


def _checked_sizes(group: ArrayLike, rows: int) -> Indices:
    sizes: NDArray[Any] = np.asarray(group)
    integers = sizes.ndim == 1 and sizes.dtype.kind in "iuf" and len(sizes) and (sizes == np.floor(sizes)).all()
    if not integers or not (sizes >= 1).all():
        raise ValueError(f"group: expected sizes of queries, integers of at least 1, got {group!r}")
    if sizes.sum() != rows:
        raise ValueError(f"group: expected sizes that add up to {rows} rows, got {int(sizes.sum())}")
    return sizes.astype(np.int64)
