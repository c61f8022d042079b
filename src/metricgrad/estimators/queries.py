"""Queries: which rows of a table belong together, by sizes of consecutive queries or by a name in every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]


def queries_of(rows: int, group: ArrayLike | None = None, qid: ArrayLike | None = None) -> list[Indices]:
    """Return the row numbers of every query, queries in the order in which they come.

    Parameters
    ----------
    rows : int
        Of the table.
    group : array-like of shape (queries,)
        Sizes of consecutive queries, as LightGBM takes them.
    qid : array-like of shape (rows,)
        The query of every row, by any name; its rows need not lie together.

    Examples
    --------
    >>> [query.tolist() for query in queries_of(5, group=[2, 3])]
    [[0, 1], [2, 3, 4]]
    >>> [query.tolist() for query in queries_of(5, qid=["b", "a", "b", "b", "a"])]
    [[0, 2, 3], [1, 4]]
    """
    if (group is None) == (qid is None):
        got = "neither" if group is None else "both"
        raise ValueError(f"group, qid: expected one of them, to say which rows are a query, got {got}")
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
    """Return the row numbers of queries side by side, -1 where one is shorter: `(queries, longest)`.

    >>> members([np.array([4, 5]), np.array([0])]).tolist()
    [[4, 5], [0, -1]]
    """
    side_by_side = np.full((len(queries), max(len(query) for query in queries)), -1)
    for place, query in zip(side_by_side, queries, strict=True):
        place[: len(query)] = query
    return side_by_side


def whole_queries(queries: list[Indices], chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which queries some rows are, `(rows,)` -> `(queries,)`, or say which query they cut through."""
    shares = np.array([chosen[query].mean() for query in queries])
    cut = (shares > 0) & (shares < 1)
    if cut.any():
        number = int(np.argmax(cut))
        found, size = int(chosen[queries[number]].sum()), len(queries[number])
        raise ValueError(f"validation: expected whole queries, got {found} of the {size} rows of query {number}")
    return np.asarray(shares == 1)


def _checked_sizes(group: ArrayLike, rows: int) -> Indices:
    sizes: NDArray[Any] = np.asarray(group)
    whole = sizes.ndim == 1 and sizes.dtype.kind in "iuf" and len(sizes) and (sizes == np.floor(sizes)).all()
    if not whole or not (sizes >= 1).all():
        raise ValueError(f"group: expected sizes of queries, whole numbers of at least 1, got {group!r}")
    if sizes.sum() != rows:
        raise ValueError(f"group: expected sizes that add up to {rows} rows, got {int(sizes.sum())}")
    return sizes.astype(np.int64)
