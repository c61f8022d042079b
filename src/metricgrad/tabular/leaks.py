"""Leaks: columns that alone tell the target, which in a real table mostly means that they were filled in later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from metricgrad.tabular.cells import words
from metricgrad.tabular.encoding import SEEN, values
from metricgrad.tabular.schema import Column

SUSPECT = 0.999
"""AUC of one column alone above which it is named."""
ENOUGH = 20
"""Rows of each class below which a column may tell them apart by chance."""
GLANCE = 5_000
"""Rows looked at first; only columns that stand out among them are looked at whole."""


def leaking(frame: pd.DataFrame, columns: tuple[Column, ...], targets: NDArray[np.float64]) -> list[tuple[str, float]]:
    """Return names of suspect columns and the AUC of each alone, whichever way it points.

    A column of categories ranks by the share of positives in each level; for any other, where cells are missing
    counts as well as what they say.
    """
    if min(targets.sum(), (1 - targets).sum()) < ENOUGH:
        return []
    some = np.arange(0, len(targets), -(-len(targets) // GLANCE))
    found = []
    for column in columns:
        cells = frame[column.name]
        if alone(column, cells.iloc[some], targets[some]) > SUSPECT - 0.01:
            auc = alone(column, cells, targets)
            if auc > SUSPECT:
                found.append((column.name, auc))
    return found


def alone(column: Column, cells: pd.Series[Any], targets: NDArray[np.float64]) -> float:
    """Return the AUC of one column, whichever way it points."""
    if column.kind == "category":
        return _auc(_shares(words(cells), targets), targets)
    said = values(column, cells)
    gaps = np.isnan(said)
    if not gaps.any():
        return _auc(said, targets)
    middle = 0.0 if gaps.all() else np.median(said[~gaps])
    return max(_auc(np.where(gaps, middle, said), targets), _auc(gaps, targets))


def _shares(said: NDArray[Any], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of positives in each row's level; rare levels say nothing, for each would know its own rows."""
    codes = pd.factorize(said, use_na_sentinel=False)[0]
    count, found = np.bincount(codes), np.bincount(codes, targets)
    return np.asarray(np.where(count < SEEN, targets.mean(), found / count)[codes])


def _auc(scores: NDArray[Any], targets: NDArray[np.float64]) -> float:
    positives = targets.sum()
    negatives = len(targets) - positives
    if not positives or not negatives:
        return 0.5
    above = rankdata(scores)[targets == 1].sum() - positives * (positives + 1) / 2
    area = above / (positives * negatives)
    return float(max(area, 1 - area))
