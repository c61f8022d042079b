"""Splits: seeded, stratified parts of a dataset, the same on every machine and with every version of NumPy.

Rows are shuffled by the raw 64-bit stream of PCG64, which NumPy promises never to change; the methods of its
`Generator` carry no such promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers of the three parts, each in ascending order; together they are every row once."""

    train: Indices
    validation: Indices
    test: Indices


def split(y: ArrayLike, seed: int, test: float = 0.2, validation: float = 0.2) -> Split:
    """Split rows into train, validation and test, with the classes of `y` in the same proportions in each.

    Parameters
    ----------
    y : array-like of shape (n,)
        The label of each row; any labels, two or more.
    seed : int
        Zero or more. The same seed and labels give the same split, everywhere.
    test : float
        Share of all rows that go to test; 0 for none.
    validation : float
        Share of what is left after test that goes to validation; 0 for none.

    Returns
    -------
    Split
        Index arrays `train`, `validation` and `test`. A class with at least a row for each part is in every part;
        a smaller one stays in train.

    Examples
    --------
    >>> import numpy as np
    >>> parts = split(np.arange(100) < 30, seed=0)
    >>> [len(rows) for rows in (parts.train, parts.validation, parts.test)]
    [64, 16, 20]
    >>> int((parts.test < 30).sum())
    6
    """
    classes = _checked_classes(y)
    _check_share("test", test)
    _check_share("validation", validation)
    parts: tuple[list[Indices], ...] = ([], [], [])
    for rows in _shuffled_classes(classes, seed):
        n_test, n_validation = _sizes(len(rows), test, validation)
        cuts = [len(rows) - n_test - n_validation, len(rows) - n_test]
        for part, chosen in zip(parts, np.split(rows, cuts), strict=True):
            part.append(chosen)
    train, held_out, tested = (np.sort(np.concatenate(part)) for part in parts)
    if not len(train) or (validation and not len(held_out)) or (test and not len(tested)):
        raise ValueError(
            f"y must have a class with enough rows for every part (test={test}, validation={validation}), "
            f"got class sizes {np.bincount(classes).tolist()[:10]}"
        )
    return Split(train, held_out, tested)


def folds(y: ArrayLike, k: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield `k` stratified pairs of index arrays, (train, validation); each row is validated exactly once.

    Parameters
    ----------
    y : array-like of shape (n,)
        The label of each row; any labels.
    k : int
        How many folds, from 2 to the number of rows. Folds differ by at most one row, in all and in each class.
    seed : int
        Zero or more. The same seed and labels give the same folds, everywhere.

    Yields
    ------
    (ndarray, ndarray)
        Row numbers to train on and to validate on, ascending.

    Examples
    --------
    >>> [validation.tolist() for train, validation in folds([0, 0, 1, 1], k=2, seed=0)]
    [[1, 3], [0, 2]]
    """
    classes = _checked_classes(y)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise TypeError(f"k must be an integer, got {k!r}")
    if not 2 <= k <= len(classes):
        raise ValueError(f"k must be from 2 to the number of rows, {len(classes)}, got {k}")
    # Dealing goes on from class to class without starting over, so that no fold collects all the remainders.
    dealt = np.concatenate(list(_shuffled_classes(classes, seed)))
    fold_of_row = np.empty(len(dealt), dtype=np.int64)
    fold_of_row[dealt] = np.arange(len(dealt)) % k
    return ((np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)) for fold in range(k))


def _shuffled_classes(classes: NDArray[np.intp], seed: int) -> Iterator[Indices]:
    """Yield the rows of each class in the order of their random keys."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    if seed < 0:
        raise ValueError(f"seed must be zero or more, got {seed}")
    keys = np.random.PCG64(int(seed)).random_raw(len(classes))
    order = np.argsort(keys, kind="stable")
    by_class = order[np.argsort(classes[order], kind="stable")].astype(np.int64)
    yield from np.split(by_class, np.cumsum(np.bincount(classes))[:-1])


def _sizes(n: int, test: float, validation: float) -> tuple[int, int]:
    """Return how many of a class's `n` rows go to test and to validation, at least one each where that can be."""
    least_test, least_validation = int(test > 0), int(validation > 0)
    if n < 1 + least_test + least_validation:
        return 0, 0
    n_test = min(max(int(n * test + 0.5), least_test), n - 1 - least_validation) if test else 0
    rest = n - n_test
    return n_test, min(max(int(rest * validation + 0.5), least_validation), rest - 1) if validation else 0


def _checked_classes(y: ArrayLike) -> NDArray[np.intp]:
    """Return the class number of each row."""
    labels: NDArray[Any] = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must have one dimension, got shape {labels.shape}")
    if not len(labels):
        raise ValueError("y must have at least one row, got none")
    if labels.dtype.kind in "fc" and np.isnan(labels).any():
        raise ValueError(f"y must not hold NaN, got {int(np.isnan(labels).sum())} of them")
    return np.unique(labels, return_inverse=True)[1]


def _check_share(name: str, share: float) -> None:
    """Refuse a share that is not a number in [0, 1)."""
    if isinstance(share, bool) or not isinstance(share, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, got {share!r}")
    if not 0 <= share < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, got {share}")
