"""The rows that a table model is fitted on: their target, weights, groups and times, and which of them validate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.tabular.cells import TableError, date_format, dates, numbers
from metricgrad.tabular.schema import MIN_PARSED
from metricgrad.tabular.target import check_column
from metricgrad.training.data import MAX_DUPLICATES, MAX_MERGE_ROWS
from metricgrad.training.splits import group_part, latest_part, split

Array = NDArray[Any]
GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
"""Separates the hashes of equal rows with different targets."""


class HeldOut(NamedTuple):
    """The validation rows if they are given, and the group of each row if rows have one."""

    rows: NDArray[np.int64] | None = None
    groups: Array | None = None


class FitRows(NamedTuple):
    """Rows that have a target: features, targets, weights, what holds rows out, and the metric's columns.

    The table is in a list, from which it is taken, so that its memory can be freed while it is encoded.
    """

    features: list[pd.DataFrame]
    targets: Array
    weights: Array | None
    held_out: HeldOut
    columns: Mapping[str, Any] | None


# ---- columns by name, or values ------------------------------------------------------------------------------------


def cells_of(given: Any, frame: pd.DataFrame, argument: str) -> pd.Series[Any]:
    """Return a column by name, or given values, one per row."""
    if isinstance(given, str):
        check_column(given, list(frame.columns), argument)
        return frame[given]
    values = given.to_pandas() if hasattr(given, "to_pandas") else given
    cells: pd.Series[Any] = pd.Series(values).reset_index(drop=True)
    if len(cells) != len(frame):
        raise TableError(f"{argument}: expected one for each of {len(frame):,} rows, got {len(cells):,}")
    return cells


def target_cells(given: Any, frame: pd.DataFrame) -> tuple[list[str], list[pd.Series[Any]]]:
    """Return the names and the columns of a target: by name, by several names, or values, `(rows,)` or a frame."""
    if isinstance(given, str):
        return [given], [cells_of(given, frame, "target")]
    if _are_names(given, frame):
        if len(set(given)) < len(given):
            raise TableError(f"target: expected columns once each, got {', '.join(map(repr, given))}")
        return list(given), [cells_of(name, frame, "target") for name in given]
    if getattr(given, "ndim", 1) == 2:
        table = given if isinstance(given, pd.DataFrame) else pd.DataFrame(given)
        names = [str(name) if isinstance(given, pd.DataFrame) else f"label {name}" for name in table.columns]
        return names, [cells_of(table.iloc[:, place], frame, "target") for place in range(table.shape[1])]
    return [str(getattr(given, "name", None) or "target")], [cells_of(given, frame, "target")]


def _are_names(given: Any, frame: pd.DataFrame) -> bool:
    """Whether a target is given as names of columns, and not as a label for each row."""
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(name, str) for name in given):
        return False
    known = [name in frame.columns for name in given]
    return all(known) if len(given) == len(frame) else any(known)


def weights_of(cells: pd.Series[Any]) -> Array:
    """Return row weights; anything but a number of at least 0 is refused."""
    found = numbers(cells)
    invalid = ~(found >= 0)
    if invalid.any():
        got = cells.iloc[int(np.argmax(invalid))]
        raise TableError(f"weights: expected a number of at least 0 in every row, got {str(got)!r}")
    return found


def groups_of(cells: pd.Series[Any]) -> Array:
    """Return the number of the group of every row."""
    if cells.isna().any():
        raise TableError(f"group: expected one for every row, got {cells.isna().sum():,} missing")
    return np.asarray(pd.factorize(cells)[0])


def moments_of(cells: pd.Series[Any]) -> Array:
    """Return times, given as numbers or dates, as numbers."""
    found = numbers(cells)
    if np.isnan(found).any():
        form = "" if pd.api.types.is_datetime64_any_dtype(cells.dtype) else date_format(cells.dropna(), MIN_PARSED)
        found = found if form is None else dates(cells, form)
    if np.isnan(found).any():
        got = cells.iloc[int(np.argmax(np.isnan(found)))]
        raise TableError(f"time: expected a number or a date in every row, got {str(got)!r}")
    return found


# ---- which rows validate -------------------------------------------------------------------------------------------


def held_out(groups: pd.Series[Any] | None, times: pd.Series[Any] | None, share: float) -> HeldOut:
    """Return what decides which rows are held out: the latest, or whole groups."""
    if groups is not None:
        return HeldOut(groups=groups_of(groups))
    if times is None:
        return HeldOut()
    try:
        return HeldOut(rows=latest_part(moments_of(times), share))
    except ValueError as error:
        raise TableError(str(error)) from error


def one_split(
    features: pd.DataFrame, strata: Array, groups: Array | None, seed: int, share: float
) -> NDArray[np.int64]:
    """Return the validation rows of one split, by groups or at random."""
    if groups is None:
        return _random_validation(features, strata, seed, share)
    try:
        return group_part(groups, strata, seed, share)
    except ValueError as error:
        raise TableError(str(error)) from error


def _random_validation(features: pd.DataFrame, strata: Array, seed: int, share: float) -> NDArray[np.int64]:
    """Return the validation rows of a random split; equal rows of a small table are on the same side."""
    if len(features) > MAX_MERGE_ROWS:
        return split(strata, seed, test=0.0, validation=share).validation
    cells = pd.util.hash_pandas_object(features, index=False).to_numpy()
    keys = cells + np.unique(strata, return_inverse=True)[1].astype(np.uint64) * GOLDEN_RATIO
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    if len(features) > MAX_DUPLICATES * len(first):
        return split(strata, seed, test=0.0, validation=share).validation
    order = np.argsort(first)  # by first occurrence, so that a table without equal rows is split as usual
    chosen = split(strata[first[order]], seed, test=0.0, validation=share).validation
    return np.flatnonzero(np.isin(number, order[chosen]))
