"""The schema: the kind of each column of a table, inferred from its cells; which columns are not used, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from metricgrad.estimators.labels import NO, YES
from metricgrad.tabular.cells import (
    Floats,
    NumberFormat,
    TableError,
    date_format,
    dates,
    listed,
    number_formats,
    numbers,
    words,
)

USED = {"number": "numbers", "category": "categories", "boolean": "yes or no", "date": "dates", "prose": "free text"}
"""Kinds of columns a model learns from, and their plural."""
DROPPED = {
    "ignored": "as requested",
    "empty": "no values",
    "constant": "a single value",
    "id": "unique values, like an id",
    "text": "free text",
    "nested": "more than one value per cell",
}
"""Kinds of columns a model does not learn from, and why; free text only in folders of earlier versions."""
MIN_PARSED = 0.95
"""Share of cells that must be numbers, or dates, for the column to be; the others are treated as missing."""
MAX_SMALL_CATEGORY = 20
"""Number of distinct values up to which text is a category, however few rows there are."""
MAX_DISTINCT_SHARE = 0.5
"""Share of distinct values up to which text is a category."""
MAX_WORDS = 3
"""Mean number of words above which text is free text."""
WORDS, CHARACTERS = "words", "characters"
"""What free text is hashed by: its words, or three to five characters in a row where there are no words."""
MIN_TEXT_LENGTH = 20
"""Mean length from which on text without words, such as an address of the web, is free text too."""
LETTER = r"[^\W\d_]"
CODE = r"[0-9A-Za-z_.+/=@-]*"
"""Ids, keys, hashes and addresses of mail: nothing to learn from, however long."""
PROBED_CELLS = 200
"""Cells that are tried before a whole column is parsed."""
MAX_COLUMNS = 100_000
"""A column costs about half a millisecond to read, infer and encode, however few rows there are."""
ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|uuid|guid|key|index|idx|row|rownum|nr)$|[a-z](Id|ID)$|^unnamed_\d+$", re.IGNORECASE
)


@dataclass(frozen=True)
class Column:
    """One column: its name, its kind (in `USED` or `DROPPED`), its format and its number of stray cells.

    The format is that of its dates, or a `NumberFormat` as text; it is empty for plain numbers. That of free text is
    what it is hashed by. A stray cell is one
    that could not be parsed as a number in a column of numbers, or as a date in one of dates.
    """

    name: str
    kind: str
    form: str = ""
    stray: int = 0


@dataclass(frozen=True)
class Schema:
    """Every column of a table, in order."""

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
        """Names of the columns that identify rows."""
        return [column.name for column in self.columns if column.kind == "id"]

    def describe(self) -> list[str]:
        """Return what was inferred, one line each."""
        lines = []
        for kind, plural in {**USED, **DROPPED}.items():
            names = [column.name for column in self.columns if column.kind == kind]
            if names:
                lines.append(f"{'' if kind in USED else 'dropped, '}{plural}: {listed(names)}")
        lines += [
            f"{listed([column.name])}: {NumberFormat.from_text(column.form).describe()}"
            for column in self.columns
            if column.kind == "number" and column.form
        ]
        lines += [
            f"{listed([column.name])}: its {column.form} are hashed to features, so that rows of similar text are alike"
            for column in self.columns
            if column.kind == "prose"
        ]
        lines += [
            f"{listed([column.name])}: {column.stray:,} cells could not be parsed as {USED[column.kind]} "
            "and are treated as missing"
            for column in self.used
            if column.stray
        ]
        return lines


def infer_columns(frame: pd.DataFrame, ignore: Collection[str] = ()) -> Schema:
    """Infer the kind of every column of a table.

    >>> frame = pd.DataFrame({"age": ["31", "44", None], "vip": ["yes", "no", "no"], "all": ["a", "a", "a"]})
    >>> [column.kind for column in infer_columns(frame).columns]
    ['number', 'boolean', 'constant']
    """
    unknown = [name for name in ignore if name not in frame.columns]
    if unknown:
        raise TableError(f"ignore: expected names of columns, got {listed(unknown)}")
    named = frame.items()
    return Schema(tuple(Column(str(n), "ignored") if n in ignore else _column(str(n), cells) for n, cells in named))


def check_names(names: list[str]) -> None:
    """Refuse duplicate column names, and more columns than can be handled in reasonable time."""
    if len(names) > MAX_COLUMNS:
        raise TableError(f"expected at most {MAX_COLUMNS:,} columns, got {len(names):,}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"expected unique column names, got {', '.join(map(repr, twice[:5]))} more than once")


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table as a DataFrame with unique column names of type str."""
    frame = X if isinstance(X, pd.DataFrame) else X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X)
    names = [str(name) for name in frame.columns]
    check_names(names)
    named: pd.DataFrame = frame.set_axis(names, axis=1)
    return named


def _column(name: str, cells: pd.Series[Any]) -> Column:
    missing = cells.isna().to_numpy()
    there = cells[~missing] if missing.any() else cells
    if not len(there):
        return Column(name, "empty")
    try:
        if pd.api.types.is_bool_dtype(there.dtype) or pd.api.types.is_datetime64_any_dtype(there.dtype):
            kind = "boolean" if there.dtype.kind == "b" else "date"
            return Column(name, "constant" if len(there) == len(cells) and there.nunique() == 1 else kind)
        read = _numbers(there)
        if read is None:
            return _text_column(name, pd.Series(words(there)).dropna(), len(cells))
    except TypeError:  # lists, dictionaries, arrays
        return Column(name, "nested")
    found, form = read
    if len(found) == len(cells) and found.min() == found.max():
        return Column(name, "constant")
    stray = int(np.isnan(found).sum())
    return Column(name, "id", stray=stray) if _is_id(name, found) else Column(name, "number", form, stray)


def _numbers(there: pd.Series[Any]) -> tuple[Floats, str] | None:
    """Return cells as numbers, and their format, if most of them are numbers; None otherwise.

    The first few decide whether to look at all. Plain numbers are preferred unless another format reads more cells:
    `1.234` is a plain number, except in a column with `1.234.567`.
    """
    first = there[:PROBED_CELLS] if len(there) > PROBED_CELLS else there
    plain = numbers(first)
    if len(there) > PROBED_CELLS and _mostly_parsed(plain):
        plain = numbers(there)
    unread = there[: len(plain)][np.isnan(plain)] if np.isnan(plain).any() else there[:0]
    read = {"": plain} if len(plain) == len(there) else {}
    for form in number_formats(unread[:PROBED_CELLS]) if len(unread) else ():
        if _mostly_parsed(numbers(first, form)):
            read[form] = numbers(there, form)
    if not read:
        return None
    best = max(read, key=lambda form: int(np.isfinite(read[form]).sum()))  # of equals, the first
    return (read[best], best) if _mostly_parsed(read[best]) else None


def _text_column(name: str, there: pd.Series[Any], rows: int) -> Column:
    if not len(there):
        return Column(name, "empty")
    distinct = pd.Series(there.unique())
    if len(distinct) == 1 and len(there) == rows:
        return Column(name, "constant")
    pair = {word.lower() for word in distinct[:3]} if len(distinct) <= 2 else set()
    if pair and pair <= {*YES, *NO}:
        return Column(name, "boolean")
    form = date_format(distinct[:PROBED_CELLS], MIN_PARSED)
    if form is not None:
        stray = int(np.isnan(dates(there, form)).sum())
        if stray <= (1 - MIN_PARSED) * len(there):
            return Column(name, "date", form, stray)
    if len(distinct) <= MAX_SMALL_CATEGORY or len(distinct) <= MAX_DISTINCT_SHARE * len(there):
        return Column(name, "category")
    probed = distinct[:PROBED_CELLS]
    if probed.str.contains(LETTER).mean() < MIN_PARSED:  # phone numbers
        return Column(name, "id")
    if probed.str.split().str.len().mean() > MAX_WORDS:
        return Column(name, "prose", WORDS)
    long = probed.str.len().mean() >= MIN_TEXT_LENGTH and probed.str.fullmatch(CODE).mean() < 1 - MIN_PARSED
    return Column(name, "prose", CHARACTERS) if long else Column(name, "id")


def _mostly_parsed(found: Floats) -> bool:
    return bool(np.isfinite(found).mean() >= MIN_PARSED)


def _is_id(name: str, found: Floats) -> bool:
    """Return whether integers identify rows: each occurs once, and their name says so, or they are consecutive."""
    if any((found[rows] % 1 > 0).any() for rows in (slice(PROBED_CELLS), slice(None))):  # NaN is not
        return False
    finite = found[np.isfinite(found)]
    if len(finite) <= MAX_SMALL_CATEGORY or len(np.unique(finite)) < len(finite):
        return False
    return bool(ID_NAME.search(name)) or bool((np.diff(finite) == 1).all())
