"""Held-out rows: a share of the table, rows given by their numbers or as `(X, y)`, or the folds of cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import ArrayLike

from metricgrad.estimators.metric_estimator import Array, Trained, scores_in_double
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import Task
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.networks import Scorer
from metricgrad.training.splits import Split, class_numbers, folds, group_folds, group_part, split, split_at

FOLDS = 5
"""Of the cross-validated threshold."""
DEFAULT_FOLDS, MAX_FOLDED_ROWS = 5, 200_000
"""Folds where models compete, and rows from which on one split is evidence enough."""
MIN_ROWS_OF_NUMBERS = 50
"""Rows of numbers from which on there are folds."""


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
    rows, more = _row_count(X), _row_count(other_X)
    for name, given, count in (("y", y, rows), ("validation", other_y, more)):
        if _row_count(given) != count:
            raise ValueError(f"{name}: expected a target for each of {count} rows, got {_row_count(given)}")
    labels, others = np.asarray(y), np.asarray(other_y)
    if labels.shape[1:] != others.shape[1:] or (labels.dtype.kind in "OUS") != (others.dtype.kind in "OUS"):
        raise ValueError(
            f"validation: expected targets as in y, {labels.dtype} of shape {labels.shape}, got {others.dtype} of "
            f"shape {others.shape}"
        )
    both = None
    if weights is not None or held_out_weights is not None:
        parts = ((weights, rows, "sample_weight"), (held_out_weights, more, "validation"))
        both = np.concatenate([_checked_weights(given, count, name) for given, count, name in parts])
    return Joined(
        _stacked(X, other_X), np.concatenate((labels, others)), both, np.arange(rows, rows + more, dtype=np.int64)
    )


def joined_for(
    metric: Metric, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, validation: tuple[Any, ...]
) -> Joined:
    """Join validation rows to the training rows of a classifier, of the same classes."""
    if metric.columns:
        raise ValueError(
            f"validation: expected numbers of rows, because the metric {metric.name!r} must know "
            f"{', '.join(metric.columns)} of them too, got (X, y)"
        )
    found = joined(X, y, sample_weight, validation, validation[2] if len(validation) > 2 else None)
    unknown = np.setdiff1d(np.asarray(validation[1]), np.asarray(y)) if metric.task.classes else np.empty(0)
    if len(unknown):
        raise ValueError(f"validation: expected the classes of y, {np.unique(y)}, got {unknown[0]!r}")
    return found


class HoldOut(NamedTuple):
    """How rows are held out: by folds, or one share of them; the user's validation rows or groups, if given.

    `cv` is whether the threshold is cross-validated.
    """

    folds: int
    share: float
    seed: int
    cv: bool = False
    validation: ArrayLike | None = None
    groups: ArrayLike | None = None


def fold_count(
    given: int | None, metric: Metric, strata: Array, groups: ArrayLike | None = None, *, several: bool
) -> int:
    """Return the number of folds: as given, or else several where that is wanted and rows and metric allow it."""
    if given is not None:
        return int(given)
    smallest = min(
        int(np.bincount(class_numbers(strata)[1]).min()),
        len(strata) if groups is None else len(np.unique(np.asarray(groups))),
    )
    enough = smallest >= DEFAULT_FOLDS and (not metric.task.numbers or len(strata) >= MIN_ROWS_OF_NUMBERS)
    allowed = not metric.costly and len(strata) <= MAX_FOLDED_ROWS and enough
    return DEFAULT_FOLDS if several and allowed else 1


def held_out_parts(table: TrainingData, task: Task, how: HoldOut) -> list[Split]:
    """Return what is trained on and what is held out: one split, or every fold."""
    parts = [_one_split(table.strata, task, how)] if how.folds == 1 else _fold_splits(table.strata, how)
    for part in parts:
        _check_part(table, part, task, given=how.validation is not None)
    return parts


def _one_split(targets: Array, task: Task, how: HoldOut) -> Split:
    """Split rows as the user asks, or else at random."""
    validation = how.validation
    if validation is None and how.groups is None:
        if how.cv:
            check_folds(targets)
        return split(targets, how.seed, test=0.0, validation=how.share)
    if how.cv:
        raise ValueError("threshold: expected no 'cv' with given validation rows, because it makes its own folds")
    if validation is None:
        validation = group_part(np.asarray(how.groups), targets, how.seed, how.share)
    parts = split_at(validation, len(targets))
    if task.classes and len(np.unique(targets[parts.train])) < 2:
        raise ValueError("validation: expected to leave both classes to train on, got one class only")
    return parts


def _fold_splits(targets: Array, how: HoldOut) -> list[Split]:
    if how.validation is not None or how.cv:
        what = "threshold='cv'" if how.cv else "given validation rows"
        raise ValueError(f"folds: expected 1 with {what}, got {how.folds}")
    fewest = int(np.bincount(targets).min())
    if fewest < how.folds:
        raise ValueError(f"folds: expected at most {fewest}, the rows of the smallest class, got {how.folds}")
    pairs = folds(targets, how.folds, how.seed)
    if how.groups is not None:
        pairs = iter(group_folds(how.groups, targets, how.folds, how.seed))
    return [Split(train, held_out, np.empty(0, np.int64)) for train, held_out in pairs]


def _check_part(table: TrainingData, parts: Split, task: Task, *, given: bool) -> None:
    weights = table.weights
    if weights is not None and not (weights[parts.train].any() and weights[parts.validation].any()):
        raise ValueError("sample_weight: expected positive weights in training and validation rows, got only zeros")
    if task.classes and len(np.unique(table.targets[parts.validation])) < 2:
        why = "validation: " if given else "y: one class has a single row, so "
        warnings.warn(f"{why}the validation rows hold one class only", stacklevel=4)


def _row_count(values: Any) -> int:
    return int(values.shape[0]) if hasattr(values, "shape") else len(values)


def _checked_weights(given: Any, count: int, name: str) -> Array:
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


# ---- cross-validation ----------------------------------------------------------------------------------------------


def cross_validated(
    trained: Callable[[TrainingData, Array, Rows], Trained],
    rescaled: Callable[[Array], TrainingData],
    network: Scorer,
    table: TrainingData,
    metric: Metric,
    seed: int,
    share: float,
) -> float | None:
    """Choose where a network is cut: by standardised scores of five others, each of its own held-out fold.

    Parameters
    ----------
    trained : callable
        `(table, numbers of training rows, validation rows)` -> a model trained as the network was.
    rescaled : callable
        `(numbers of training rows)` -> the table, scaled by them.
    network : Scorer
        What the threshold is for.
    table : TrainingData
        All rows, scaled as the network takes them.
    metric : Metric
        What the threshold is best for.
    seed, share : int, float
        Of the folds, and how much of the others is kept for validation.

    Returns
    -------
    float or None
        None if the user stopped one of them.
    """
    scores, order = [], []
    for training, held_out in folds(table.targets, FOLDS, seed):
        inner = split(table.targets[training], seed, test=0.0, validation=share)
        own = rescaled(training[inner.train])
        other = trained(own, training[inner.train], own.rows(training[inner.validation]))
        if other.interrupted:
            return None
        unseen = scores_in_double(other.network, own.rows(held_out).x)
        scores.append((unseen - unseen.mean()) / unseen.std(correction=0).clamp(min=1e-12))
        order.append(held_out)
    pooled = table.rows(np.concatenate(order))
    cut = best_threshold(metric, torch.cat(scores), pooled.y, pooled.w)
    scored = scores_in_double(network, table.rows(np.arange(len(table.targets))).x)
    return float(scored.mean() + cut * scored.std(correction=0))


def check_folds(targets: Array) -> None:
    """Raise an error if there are too few rows to cross-validate."""
    sizes = np.bincount(targets)
    if sizes.min() < 2 or sizes.sum() < FOLDS:
        raise ValueError(
            f"threshold: expected at least 2 rows of each class and {FOLDS} in all for 'cv', got {sizes.tolist()}"
        )
