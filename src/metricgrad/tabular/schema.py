"""Columns: what each column of a table is, told from its cells, and which are of no use and why."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.estimators.label_words import NO, YES
from metricgrad.tabular.cells import dates, form_of_dates, formats_of_numbers, numbers, words
from metricgrad.tabular.io import TableError
from metricgrad.tabular.number_formats import NumberFormat

USED = {"number": "numbers", "category": "categories", "boolean": "yes or no", "date": "dates"}
"""Kinds of columns a model learns from, and how they are called together."""
DROPPED = {
    "ignored": "as asked",
    "empty": "no value at all",
    "constant": "one value only",
    "id": "every row has its own value, as an id has",
    "text": "free text",
    "nested": "not one value a cell",
}
"""Kinds of columns a model does not learn from, and why."""
CLEAR = 0.95
"""Share of the cells that have to be numbers, or dates, for the column to be; the others are then missing."""
FEW = 20
"""Distinct values that are a category however few rows there are."""
OWN = 0.5
"""Distinct values to rows above which text is no category."""
WORDY = 3
"""Mean words above which text is free text."""
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|row|rownum|nr)$|[a-z](Id|ID)$|^unnamed_\d+$", re.IGNORECASE
)
PROBE = 200


@dataclass(frozen=True)
class Column:
    """One column: its name, its kind (of `USED` or `DROPPED`), its format and its number of stray cells.

    The format is that of its dates, or a `NumberFormat` as text; it is empty for plain numbers. A stray cell is one
    that could not be parsed as a number in a column of numbers, or as a date in one of dates.
    """

    name: str
    kind: str
    form: str = ""
    stray: int = 0


@dataclass(frozen=True)
class Schema:
    """Every column of a table, in its order."""

    columns: tuple[Column, ...]

    @property
    def used(self) -> tuple[Column, ...]:
        """The columns a model learns from."""
        return tuple(column for column in self.columns if column.kind in USED)

    @property
    def names(self) -> list[str]:
        """Names of the columns a model learns from."""
        return [column.name for column in self.used]

    @property
    def ids(self) -> list[str]:
        """Names of the columns that tell rows apart."""
        return [column.name for column in self.columns if column.kind == "id"]

    def describe(self) -> list[str]:
        """Say what was inferred, a line each."""
        lines = []
        for kind, called in {**USED, **DROPPED}.items():
            names = [column.name for column in self.columns if column.kind == kind]
            if names:
                what = f"{called}" if kind in USED else f"dropped, {called}"
                lines.append(f"{what}: {listed(names)}")
        stray = [column for column in self.used if column.stray]
        lines += [
            f"{listed([column.name])}: {NumberFormat.from_text(column.form).describe()}"
            for column in self.columns
            if column.kind == "number" and column.form
        ]
        lines += [
            f"{listed([column.name])}: {column.stray:,} cells could not be parsed as {USED[column.kind]} "
            "and are treated as missing"
            for column in stray
        ]
        return lines


def infer_columns(frame: pd.DataFrame, ignore: Collection[str] = ()) -> Schema:
    """Tell what every column of a table is.

    Parameters
    ----------
    frame : DataFrame
        As `read_table` gives it, or with columns of any other type.
    ignore : collection of str
        Columns to leave out.

    Returns
    -------
    Schema

    Examples
    --------
    >>> frame = pd.DataFrame({"age": ["31", "44", None], "vip": ["yes", "no", "no"], "all": ["a", "a", "a"]})
    >>> [column.kind for column in infer_columns(frame).columns]
    ['number', 'boolean', 'constant']
    """
    unknown = [name for name in ignore if name not in frame.columns]
    if unknown:
        raise TableError(f"ignore: expected names of columns, got {listed(unknown)}")
    named = frame.items()
    return Schema(tuple(Column(str(n), "ignored") if n in ignore else _column(str(n), cells) for n, cells in named))


def _column(name: str, cells: pd.Series[Any]) -> Column:
    missing = cells.isna().to_numpy()
    there = cells[~missing] if missing.any() else cells
    if not len(there):
        return Column(name, "empty")
    try:
        if pd.api.types.is_bool_dtype(there.dtype) or pd.api.types.is_datetime64_any_dtype(there.dtype):
            return Column(name, _unless_constant("boolean" if there.dtype.kind == "b" else "date", there, len(cells)))
        read = _numbers(there)
        if read is None:
            return _of_text(name, pd.Series(words(there)).dropna(), len(cells))
    except TypeError:  # lists, dictionaries, arrays
        return Column(name, "nested")
    found, form = read
    if len(found) == len(cells) and found.min() == found.max():
        return Column(name, "constant")
    stray = int(np.isnan(found).sum())
    return Column(name, "id", stray=stray) if _counts_rows(name, found) else Column(name, "number", form, stray)


def _unless_constant(kind: str, there: pd.Series[Any], rows: int) -> str:
    return "constant" if len(there) == rows and there.nunique() == 1 else kind


def _numbers(there: pd.Series[Any]) -> tuple[NDArray[np.float64], str] | None:
    """Return cells as numbers, and their format, if that is what they mostly are; None otherwise.

    The first few decide whether to look at all. Plain numbers are preferred unless another format reads more cells:
    `1.234` is a plain number, except beside `1.234.567`.
    """
    first = there[:PROBE] if len(there) > PROBE else there
    plain = numbers(first)
    if len(there) > PROBE and _mostly(plain):
        plain = numbers(there)
    unread = there[: len(plain)][np.isnan(plain)] if np.isnan(plain).any() else there[:0]
    read = {"": plain} if len(plain) == len(there) else {}
    for form in formats_of_numbers(unread[:PROBE]) if len(unread) else ():
        if _mostly(numbers(first, form)):
            read[form] = numbers(there, form)
    if not read:
        return None
    best = max(read, key=lambda form: int(np.isfinite(read[form]).sum()))  # of equals, the first
    return (read[best], best) if _mostly(read[best]) else None


def _of_text(name: str, there: pd.Series[Any], rows: int) -> Column:
    if not len(there):
        return Column(name, "empty")
    distinct = pd.Series(there.unique())
    if len(distinct) == 1 and len(there) == rows:
        return Column(name, "constant")
    said = {word.lower() for word in distinct[:3]} if len(distinct) <= 2 else set()
    if said and said <= {*YES, *NO}:
        return Column(name, "boolean")
    form = form_of_dates(distinct[:PROBE], CLEAR)
    if form is not None:
        stray = int(np.isnan(dates(there, form)).sum())
        if stray <= (1 - CLEAR) * len(there):
            return Column(name, "date", form, stray)
    if len(distinct) <= FEW or len(distinct) <= OWN * len(there):
        return Column(name, "category")
    return Column(name, "text" if distinct[:PROBE].str.split().str.len().mean() > WORDY else "id")


def _mostly(found: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(found).mean() >= CLEAR)


def _counts_rows(name: str, found: NDArray[np.float64]) -> bool:
    """Whether whole numbers tell rows apart: each there once, and named so, or one after the other."""
    whole = found[np.isfinite(found)]
    if len(whole) <= FEW or (whole % 1).any() or len(np.unique(whole)) < len(whole):
        return False
    return bool(ID_NAME.search(name)) or bool((np.diff(whole) == 1).all())


def listed(names: list[str], most: int = 8) -> str:
    """Write some names on one line, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(name if name.isprintable() else repr(name) for name in names[:most]) + more
