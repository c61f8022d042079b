"""Columns that leak the target: in a real table they mostly were filled in later than it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from metricgrad.tabular.cells import Floats, words
from metricgrad.tabular.encoding import MIN_LEVEL_ROWS, PARTS, values
from metricgrad.tabular.schema import Column
from metricgrad.tabular.target import AnyTarget, NumberTarget

LEAK_AUC = 0.999
"""AUC of a single column, or its rank correlation with numbers, above which it is reported."""
MIN_LEAK_ROWS = 20
"""Rows of each class below which a column may separate them by chance."""
MAX_LEAK_CLASSES = 20
"""Classes up to which each of them is looked for in a column."""
PROBED_ROWS = 5_000
"""Rows looked at first; only columns that stand out among them are looked at in full."""


def leak_warnings(frame: pd.DataFrame, columns: tuple[Column, ...], target: AnyTarget, targets: Floats) -> list[str]:
    """Return a warning for every column that predicts the target almost alone.

    Of two classes, or each label, one of another AUC than 0.5; of several classes, one that has it for every class; of
    numbers, one of the same order.
    """
    columns = tuple(column for column in columns if column.kind in ("category", *PARTS))
    if isinstance(target, NumberTarget):
        found, measure = leaking_numbers(frame, columns, targets), "rank correlation"
    elif target.kind == "classes":
        found, measure = _leaking_classes(frame, columns, targets), "AUC of every class"
    else:
        each = targets.T if targets.ndim > 1 else [targets]
        found = list(dict.fromkeys(leak for own in each for leak in leaking_columns(frame, columns, own)))
        measure = "AUC"
    return [
        f"{name!r} alone predicts the target ({measure} {size:.4f}): ignore it if it is filled in later than the target"
        for name, size in found
    ]


def _leaking_classes(frame: pd.DataFrame, columns: tuple[Column, ...], codes: Floats) -> list[tuple[str, float]]:
    """Return the columns that tell every class from the others."""
    if codes.max() >= MAX_LEAK_CLASSES:
        return []
    found = {column.name: 1.0 for column in columns}
    for code in range(int(codes.max()) + 1):
        left = tuple(column for column in columns if column.name in found)
        leaks = dict(leaking_columns(frame, left, (codes == code).astype(float)))
        found = {name: min(found[name], auc) for name, auc in leaks.items()}
    return list(found.items())


def leaking_numbers(frame: pd.DataFrame, columns: tuple[Column, ...], targets: Floats) -> list[tuple[str, float]]:
    """Return the names of columns of numbers or dates in the order of the target, or its opposite, and how nearly."""
    if len(np.unique(targets)) < MIN_LEAK_ROWS:
        return []
    some, found = np.arange(0, len(targets), -(-len(targets) // PROBED_ROWS)), []
    for column in columns:
        if column.kind in ("number", "date"):
            cells = frame[column.name]
            if _rank_correlation(values(column, cells.iloc[some]), targets[some]) > LEAK_AUC - 0.01:
                size = _rank_correlation(values(column, cells), targets)
                found += [(column.name, size)] if size > LEAK_AUC else []
    return found


def _rank_correlation(cells: Floats, targets: Floats) -> float:
    there = np.isfinite(cells)
    if there.sum() < MIN_LEAK_ROWS or not np.ptp(cells[there]) or not np.ptp(targets[there]):
        return 0.0
    return float(abs(np.corrcoef(rankdata(cells[there]), rankdata(targets[there]))[0, 1]))


def leaking_columns(frame: pd.DataFrame, columns: tuple[Column, ...], targets: Floats) -> list[tuple[str, float]]:
    """Return the names of columns that predict the target almost alone, and the AUC of each, in either direction.

    In a real table this mostly means that they were filled in later than the target. A column of categories ranks by
    the share of positives in each level; of any other column, both its values and its missing cells are tried.
    """
    if min(targets.sum(), (1 - targets).sum()) < MIN_LEAK_ROWS:
        return []
    some = np.arange(0, len(targets), -(-len(targets) // PROBED_ROWS))
    found = []
    for column in columns:
        cells = frame[column.name]
        if column_auc(column, cells.iloc[some], targets[some]) > LEAK_AUC - 0.01:
            auc = column_auc(column, cells, targets)
            if auc > LEAK_AUC:
                found.append((column.name, auc))
    return found


def column_auc(column: Column, cells: pd.Series[Any], targets: Floats) -> float:
    """Return the AUC of one column, in either direction."""
    if column.kind == "category":
        return _auc(_level_means(words(cells), targets), targets)
    found = values(column, cells)
    gaps = np.isnan(found)
    if not gaps.any():
        return _auc(found, targets)
    middle = 0.0 if gaps.all() else np.median(found[~gaps])
    return max(_auc(np.where(gaps, middle, found), targets), _auc(gaps, targets))


def _level_means(levels: NDArray[Any], targets: Floats) -> Floats:
    """Return the share of positives in each row's level; rare levels get the overall share, as they fit themselves."""
    codes = pd.factorize(levels, use_na_sentinel=False)[0]
    count, found = np.bincount(codes), np.bincount(codes, targets)
    return np.asarray(np.where(count < MIN_LEVEL_ROWS, targets.mean(), found / count)[codes])


def _auc(scores: NDArray[Any], targets: Floats) -> float:
    positives = targets.sum()
    negatives = len(targets) - positives
    if not positives or not negatives:
        return 0.5
    above = rankdata(scores)[targets == 1].sum() - positives * (positives + 1) / 2
    area = above / (positives * negatives)
    return float(max(area, 1 - area))
