"""Cells: what a column of a table says, as numbers, yes or no, dates or words, however it was stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from metricgrad.estimators.label_words import NO, YES
from metricgrad.tabular.number_formats import NumberFormat, likely_formats

Floats = NDArray[np.float64]
DAY = 86_400
DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y")
FORMATS = ("ISO8601", *(f"{date}{clock}" for clock in ("", " %H:%M", " %H:%M:%S") for date in DATES))
"""How dates may be written; where several fit, the first is taken, so the day goes before the month."""
TWO_NUMBERS = r"\d\D+\d"
"""What every date has; looking for it first spares most columns of text the trying of formats."""
EPOCH = pd.Timestamp("1970-01-01")


def numbers(cells: pd.Series[Any], form: str = "") -> Floats:
    """Return cells as numbers; NaN where there is none, or one that is not finite.

    `form` is the text of the `NumberFormat` in which text cells are written; by default they are plain numbers. Cells
    that are numbers already are not changed by it, and not copied.
    """
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    if cells.dtype == np.float64:
        found = cells.to_numpy()
    elif pd.api.types.is_numeric_dtype(cells.dtype) or pd.api.types.is_bool_dtype(cells.dtype):
        found = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    elif form:
        return _formatted(cells, NumberFormat.from_text(form))
    else:
        found = np.asarray(pd.to_numeric(cells.to_numpy(dtype=object), errors="coerce"), np.float64)
    infinite = np.isinf(found)
    return np.where(infinite, np.nan, found) if infinite.any() else found


def _formatted(cells: pd.Series[Any], form: NumberFormat) -> Floats:
    if isinstance(cells.dtype, pd.StringDtype):
        return form.parse(pa.array(cells, pa.large_string(), from_pandas=True))
    values = cells.to_numpy(dtype=object)
    texts = [value if isinstance(value, str) else None for value in values]
    found = form.parse(pa.array(texts, pa.large_string()))
    others = [None if isinstance(value, str) else value for value in values]
    return np.where(np.isnan(found), numbers(pd.Series(others, dtype="object")), found)


def formats_of_numbers(cells: pd.Series[Any]) -> list[str]:
    """Return the number formats worth trying on a column, given some of its cells that are not plain numbers."""
    return [str(form) for form in likely_formats([word for word in words(cells) if word is not None])]


def words(cells: pd.Series[Any]) -> NDArray[Any]:
    """Return cells as text without blanks around it; None where there is none. A whole number is written as one."""
    codes, distinct = pd.factorize(cells)
    written = np.array([*(_word(value) for value in distinct), None], dtype=object)
    return np.asarray(written[codes])  # a missing cell has the code -1, the last


def _word(value: Any) -> str | None:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip() or None


def flags(cells: pd.Series[Any]) -> Floats:
    """Return cells as 1 for yes and 0 for no, in the words people use for them; NaN where neither is said."""
    if pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_numeric_dtype(cells.dtype):
        found = numbers(cells)
        return np.where((found == 0) | (found == 1), found, np.nan)
    known = {**dict.fromkeys((*YES, "1"), 1.0), **dict.fromkeys((*NO, "0"), 0.0)}
    codes, distinct = pd.factorize(words(cells))
    return np.asarray(np.array([*(known.get(word.lower(), np.nan) for word in distinct), np.nan])[codes])


def dates(cells: pd.Series[Any], form: str) -> Floats:
    """Return cells as days since 1970, with the time of day as a fraction; NaN where there is no date."""
    if not pd.api.types.is_datetime64_any_dtype(cells.dtype):
        cells = pd.Series(words(cells), dtype="str")
    stamps = pd.to_datetime(cells, format=form or FORMATS[0], errors="coerce", utc=True).dt.tz_localize(None)
    return np.asarray((stamps - EPOCH).dt.total_seconds().to_numpy(dtype=np.float64) / DAY)


def form_of_dates(cells: pd.Series[Any], share: float) -> str | None:
    """Return the format in which at least a share of some cells of text are dates; None if there is none."""
    if pd.Series(words(cells), dtype="str").str.contains(TWO_NUMBERS).mean() < share:
        return None
    for form in FORMATS:
        if np.isfinite(dates(cells, form)).mean() >= share:
            return form
    return None
