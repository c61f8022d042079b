"""Splits: seeded, stratified parts of a dataset, the same on every machine and with every version of NumPy.

Rows are shuffled by the raw 64-bit stream of PCG64, which NumPy promises never to change; the methods of its
`Generator` carry no such promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]
MAX_ATTEMPTS = 100
"""Choices of groups to try until every class is on both sides."""


@dataclass(frozen=True, eq=False)
class Split:
    """Row indices of the three parts, each in ascending order; together they are every row once."""

    train: Indices
    validation: Indices
    test: Indices


def split(
    y: ArrayLike, seed: int, test: float = 0.2, validation: float = 0.2, groups: ArrayLike | None = None
) -> Split:
    """Split rows by labels `y`, `(n,)`, into train, validation and test, with the same share of each class in each.

    `test` is the share of all rows, `validation` that of the others; 0 for none. The same seed and labels give the same
    split everywhere. A class with a row for each part is in every part, a smaller one stays in train. With `groups`,
    `(n,)`, groups are never divided, and classes are in proportion only by chance; see `group_part`.

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
    if groups is not None:
        return _split_groups(np.asarray(groups), classes, seed, test, validation)
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


def _split_groups(groups: NDArray[Any], classes: NDArray[np.intp], seed: int, test: float, validation: float) -> Split:
    """Split rows by whole groups, first into test and the others, then those into validation and train."""
    rows, none = np.arange(len(classes)), np.empty(0, np.int64)
    tested = group_part(groups, classes, seed, test) if test else none
    rest = np.setdiff1d(rows, tested)
    held_out = rest[group_part(groups[rest], classes[rest], seed, validation)] if validation else none
    return Split(np.setdiff1d(rest, held_out), held_out, tested)


def split_at(validation: ArrayLike, n: int) -> Split:
    """Split `n` rows into the given ones, by index or as a mask, which go to validation, and the others.

    >>> split_at([3, 1], 4).train.tolist(), split_at([False, True, True], 3).validation.tolist()
    ([0, 2], [1, 2])
    """
    named: NDArray[Any] = np.asarray(validation)
    if named.dtype == bool and named.shape == (n,):
        named = np.flatnonzero(named)
    held_out = np.zeros(n, bool)
    known = named.ndim == 1 and named.dtype.kind in "iu" and bool(((named >= 0) & (named < n)).all())
    held_out[named if known else []] = True
    if not known or held_out.sum() < len(named):
        got = f"{named.dtype} of shape {named.shape}"
        raise ValueError(f"validation must be the numbers of some of {n} rows, once each, or True for them, got {got}")
    if not 0 < len(named) < n:
        raise ValueError(f"validation must be some of {n} rows and not all, got {len(named)}")
    return Split(np.flatnonzero(~held_out), np.flatnonzero(held_out), np.empty(0, np.int64))


def group_part(groups: ArrayLike, y: ArrayLike, seed: int, share: float = 0.2) -> Indices:
    """Return the rows, ascending, of randomly chosen groups that together are about a share of all rows.

    `groups`, `(n,)`, may be customers, households or machines. Every class of `y`, `(n,)`, is on both sides if some
    choice of groups allows it.

    >>> group_part(["a", "a", "b", "b", "c", "c"], [0, 1, 0, 1, 0, 1], seed=0, share=0.3).tolist()
    [4, 5]
    """
    classes, group = _checked_classes(y), _checked_classes(groups)
    _check_share("share", share)
    if len(group) != len(classes):
        raise ValueError(f"groups must have one for each of {len(classes)} rows, got {len(group)}")
    if group.max() < 1:
        raise ValueError("groups must be two at least, got one")
    sizes = np.bincount(group)
    everything = np.bincount(classes)
    for attempt in range(MAX_ATTEMPTS):
        order = np.argsort(np.random.PCG64([int(seed), attempt]).random_raw(len(sizes)), kind="stable")
        # The number of groups that comes nearest to the share: at least one, and not all.
        count = 1 + int(np.abs(np.cumsum(sizes[order])[:-1] - share * len(group)).argmin())
        chosen = np.isin(group, order[:count])
        there = np.bincount(classes[chosen], minlength=len(everything))
        if ((there > 0) & (there < everything)).all():
            break
    return np.flatnonzero(chosen)


def latest_part(times: ArrayLike, share: float = 0.2) -> Indices:
    """Return the latest rows, about a share of all; rows of the same time stay together.

    >>> latest_part([2020, 2023, 2021, 2022, 2023], share=0.4).tolist()
    [1, 4]
    """
    when: NDArray[Any] = np.asarray(times)
    _check_share("share", share)
    moments, counts = np.unique(when, return_counts=True)
    if when.ndim != 1 or len(moments) < 2 or (when.dtype.kind == "f" and np.isnan(when).any()):
        raise ValueError(f"times must be one for each row, two different ones at least and no NaN, got {when!r}")
    count = 1 + int(np.abs(np.cumsum(counts[::-1])[:-1] - share * len(when)).argmin())
    return np.flatnonzero(when >= moments[-count])


def folds(y: ArrayLike, k: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield `k` stratified pairs of row indices, (train, validation); each row is in validation exactly once.

    Folds differ by at most one row, in total and in each class of `y`, `(n,)`. The same seed and labels give the same
    folds everywhere.

    >>> [validation.tolist() for train, validation in folds([0, 0, 1, 1], k=2, seed=0)]
    [[1, 3], [0, 2]]
    """
    classes = _checked_classes(y)
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
        raise TypeError(f"k must be an integer, got {k!r}")
    if not 2 <= k <= len(classes):
        raise ValueError(f"k must be from 2 to the number of rows, {len(classes)}, got {k}")
    # Rows are dealt out from class to class without starting over, so that no fold collects all the remainders.
    dealt = np.concatenate(list(_shuffled_classes(classes, seed)))
    fold_of_row = np.empty(len(dealt), dtype=np.int64)
    fold_of_row[dealt] = np.arange(len(dealt)) % k
    return ((np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)) for fold in range(k))


def group_folds(groups: ArrayLike, y: ArrayLike, k: int, seed: int) -> list[tuple[Indices, Indices]]:
    """Return `k` pairs of row indices, (train, validation), that divide no group; each row is in validation once.

    Groups, in random order, go to the fold that has the fewest rows of their rarest class, then the fewest rows.

    >>> [validation.tolist() for train, validation in group_folds(["a", "a", "b", "b"], [0, 1, 0, 1], k=2, seed=0)]
    [[0, 1], [2, 3]]
    """
    classes, group = _checked_classes(y), _checked_classes(groups)
    if len(group) != len(classes):
        raise ValueError(f"groups must have one for each of {len(classes)} rows, got {len(group)}")
    if not 2 <= k <= group.max() + 1:
        raise ValueError(f"k must be from 2 to the number of groups, {group.max() + 1}, got {k}")
    counts = np.zeros((group.max() + 1, classes.max() + 1))
    np.add.at(counts, (group, classes), 1)
    rarest = int(np.bincount(classes).argmin())
    fold_of_group, filled = np.zeros(len(counts), np.int64), np.zeros((k, counts.shape[1]))
    order = np.argsort(np.random.PCG64([int(seed), k]).random_raw(len(counts)), kind="stable")
    for number in order[np.argsort(-counts[order].sum(1), kind="stable")]:  # large ones first
        fold = min(range(k), key=lambda one: (filled[one, rarest] if counts[number, rarest] else 0, filled[one].sum()))
        fold_of_group[number] = fold
        filled[fold] += counts[number]
    fold_of_row = fold_of_group[group]
    return [(np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)) for fold in range(k)]


def _shuffled_classes(classes: NDArray[np.intp], seed: int) -> Iterator[Indices]:
    """Yield the rows of each class in the order of their random keys."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    if seed < 0:
        raise ValueError(f"seed must be zero or more, got {seed}")
    keys = np.random.PCG64(int(seed)).random_raw(len(classes))
    order = np.argsort(keys, kind="stable")
    few = classes[order].astype(np.min_scalar_type(classes.max()))  # short integers are sorted in linear time
    by_class = order[np.argsort(few, kind="stable")].astype(np.int64)
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
    return class_numbers(labels)[1]


def class_numbers(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct labels in order, and the number of each row's: `np.unique`, but numbers in linear time.

    >>> [found.tolist() for found in class_numbers(np.array([7.0, 3.0, 7.0]))]
    [[3.0, 7.0], [1, 0, 1]]
    """
    if labels.dtype.kind not in "biuf":
        return np.unique(labels, return_inverse=True)
    numbers, classes = pd.factorize(labels, sort=True)
    return np.asarray(classes, labels.dtype), np.asarray(numbers)


def _check_share(name: str, share: float) -> None:
    """Refuse a share that is not a number in [0, 1)."""
    if isinstance(share, bool) or not isinstance(share, (int, float, np.number)):
        raise TypeError(f"{name} must be a number, got {share!r}")
    if not 0 <= share < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, got {share}")
