"""Cells: a column of a table as numbers, booleans, dates or words, however it was stored.

Numbers may be written as `$12,345.67`, `1.234,56`, `12.3%` or `(1'234.5)`. A `NumberFormat` is a decimal mark and an
optional currency or percent sign; any other mark may separate thousands. It is kept as a short text, for example
`"decimal comma, €"`, so that a saved model reads a cell exactly as in training, whatever the other cells look like.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metricgrad.estimators.labels import NO, YES

Floats = NDArray[np.float64]
SECONDS_PER_DAY = 86_400
DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y")
DATE_FORMATS = ("ISO8601", *(f"{date}{clock}" for clock in ("", " %H:%M", " %H:%M:%S") for date in DATES))
"""Date formats; where several fit, the first is used, so the day precedes the month."""
TWO_NUMBERS = r"\d\D+\d"
"""Every date matches this; columns of text that do not are not parsed with each format."""
EPOCH = pd.Timestamp("1970-01-01")

DECIMALS = ("decimal point", "decimal comma")
PERCENT = "percent"
CURRENCY_SIGNS = "$€£¥₹₽₩₺₪₫฿₴₦₱₡₲₵₸₼₾"
CURRENCY_CODES = (
    "USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|TRY|KRW|BRL|MXN|ZAR|CAD|AUD|NZD|SGD|HKD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|ILS|"
    "AED|SAR|THB|IDR|MYR|PHP|VND|UAH|EGP|NGN|ARS|CLP|COP|PEN"
)
CURRENCY_NAMES = ("US$", "A$", "C$", "R$", "NZ$", "S$", "HK$", "kr", "zł", "Kč", "Ft", "lei", "Fr.", "Rs.", "Rs")
CURRENCY = "|".join((CURRENCY_CODES, *map(re.escape, (*CURRENCY_NAMES, *CURRENCY_SIGNS))))
BLANKS = " \u00a0\u2009\u202f"
"""Space, no-break space, thin space and narrow no-break space: all of them separate thousands somewhere."""
MINUS = "-\u2212"
"""Hyphen and minus sign; they come first in a character class, where a hyphen elsewhere would mean a range."""
NUMBER_LIKE = re.compile(
    rf"\(?[{MINUS}+]?(?P<before>{CURRENCY})?[{BLANKS}]*[{MINUS}+(]?[{BLANKS}]*"
    rf"(?P<digits>[\d.][\d.,'’{BLANKS}]*?(?:[eE][{MINUS}+]?\d\d?)?)[{BLANKS}]*(?P<after>%|{CURRENCY})?\)?"
)
"""Anything that may be a number; which mark is the decimal one is decided later, for all cells together."""
MIN_CODE_DIGITS, MIN_CODES = 7, 5
"""Codes such as `600 123 456` have at least so many digits, the same number in at least so many distinct cells."""


# ---- messages ------------------------------------------------------------------------------------------------------


class TableError(ValueError):
    """A table that cannot be used as it is; the message says where and why."""


def listed(names: list[str], most: int = 8) -> str:
    """Return some names on one line, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(name if name.isprintable() else repr(name) for name in names[:most]) + more


def one_line(text: object, longest: int = 200) -> str:
    r"""Return the beginning of a text on one line, with characters that a terminal would obey escaped.

    Examples
    --------
    >>> print(one_line("a\nb" + "c" * 1_000, longest=8))
    a\nbcccc... (1,003 characters)
    """
    whole = str(text)
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in whole[:longest])[:longest]
    return shown if len(whole) <= longest else f"{shown}... ({len(whole):,} characters)"


def shortened(value: Any, longest: int = 60) -> str:
    """Return a value, or a description of a long one, in a few words."""
    if isinstance(value, str):
        more = f"... ({len(value):,} characters)" if len(value) > longest else ""
        return repr(value[:longest]) + more
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    if isinstance(value, int) and value.bit_length() > 63:
        return f"an integer of {value.bit_length():,} bits"
    return "null" if value is None else repr(value)


# ---- cells ---------------------------------------------------------------------------------------------------------


def numbers(cells: pd.Series[Any], form: str = "") -> Floats:
    """Return cells as numbers; NaN where missing, not a number or not finite.

    `form` is the text of the `NumberFormat` of text cells; by default they are plain numbers. Cells that are numbers
    already are neither changed by it nor copied.
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


def words(cells: pd.Series[Any]) -> NDArray[Any]:
    """Return cells as stripped text, None where missing; a float that is an integer is written as one."""
    codes, distinct = pd.factorize(cells)
    written = np.array([*(_word(value) for value in distinct), None], dtype=object)
    return np.asarray(written[codes])  # a missing cell has the code -1, the last


def _word(value: Any) -> str | None:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip() or None


def flags(cells: pd.Series[Any]) -> Floats:
    """Return cells as 1 for yes and 0 for no; NaN for anything else."""
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
    stamps = pd.to_datetime(cells, format=form or DATE_FORMATS[0], errors="coerce", utc=True).dt.tz_localize(None)
    return np.asarray((stamps - EPOCH).dt.total_seconds().to_numpy(dtype=np.float64) / SECONDS_PER_DAY)


def date_format(cells: pd.Series[Any], share: float) -> str | None:
    """Return the first format in which at least a share of the cells are dates; None if there is none."""
    if pd.Series(words(cells), dtype="str").str.contains(TWO_NUMBERS).mean() < share:
        return None
    for form in DATE_FORMATS:
        if np.isfinite(dates(cells, form)).mean() >= share:
            return form
    return None


# ---- number formats ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written; `unit` is a currency, `"percent"` or empty."""

    decimal: str
    unit: str = ""

    @staticmethod
    def from_text(text: str) -> NumberFormat:
        """Parse the text of a format."""
        decimal, _, unit = text.partition(", ")
        if decimal not in DECIMALS or not (unit in ("", PERCENT) or re.fullmatch(CURRENCY, unit)):
            raise ValueError(f"expected a number format such as 'decimal comma, €', got {text!r}")
        return NumberFormat(decimal, unit)

    def __str__(self) -> str:
        return f"{self.decimal}, {self.unit}" if self.unit else self.decimal

    def describe(self) -> str:
        """Return one clause for the notes of a column."""
        kind = {"": "numbers", PERCENT: "percentages (12% is 12)"}.get(self.unit, f"money ({self.unit})")
        example = "1,234 is 1234" if self.decimal == "decimal point" else "1,234 is 1.234"
        return f"read as {kind} with {self.decimal} ({example})"

    def parse(self, texts: pa.Array) -> Floats:
        """Return texts as numbers; NaN where missing or not in this format."""
        pattern, other_marks = _pattern(self)
        texts = pc.utf8_trim_whitespace(texts)
        texts = pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)
        negative = pc.match_substring_regex(texts, rf"^\D*[{MINUS}(]").fill_null(False)
        digits = pc.replace_substring_regex(texts, pattern, r"\1\2\3\4")
        digits = pc.replace_substring_regex(digits, other_marks, "")
        digits = pc.replace_substring(pc.replace_substring(digits, ",", "."), "\u2212", "-")
        found: Floats = digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(negative.to_numpy(zero_copy_only=False), -found, found)


@lru_cache(maxsize=256)
def _pattern(form: NumberFormat) -> tuple[str, str]:
    """Return the pattern of a cell, one of whose groups is the number without sign and unit; the marks to remove."""
    point = form.decimal == "decimal point"
    mark, other = (r"\.", ",") if point else (",", r"\.")
    grouped = [rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}}){{1,6}}" for separator in (f"[{BLANKS}]", "['’]", other)]
    if point:
        grouped.append(r"[1-9]\d?(?:,\d{2}){1,6},\d{3}")  # 12,34,567, as in India
    digits = rf"(?:(?:{'|'.join(grouped)}|0|[1-9]\d{{0,20}})(?:{mark}\d{{1,40}})?|{mark}\d{{1,40}})"
    digits = rf"({digits}(?:[eE][{MINUS}+]?\d\d?)?)"
    sign, blank = f"[{MINUS}+]?", f"[{BLANKS}]*"
    percent = "%" if form.unit == PERCENT else ""
    unit = "" if percent or not form.unit else f"(?:{re.escape(form.unit)})?"
    ways = (
        rf"{sign}{blank}{unit}{blank}{digits}{blank}{unit}{percent}",
        rf"{unit}{blank}{sign}{blank}{digits}{blank}{unit}{percent}",
        rf"\({blank}{unit}{blank}{digits}{blank}{unit}{percent}{blank}\)",
        rf"{unit}{blank}\({digits}\){blank}{unit}{percent}",
    )
    return f"^(?:{'|'.join(ways)})$", rf"['’{BLANKS}{other}]"


def number_formats(cells: pd.Series[Any]) -> list[str]:
    """Return the formats worth trying on a column, given some cells that are not plain numbers; none for codes.

    The unit is the most common one: a cell with another currency, or without the sign among percentages (where 0.12
    may mean 12%), is not a number in the format.
    """
    texts = [word for word in words(cells) if word is not None]
    found = [match for text in texts if (match := NUMBER_LIKE.fullmatch(text))]
    if 2 * len(found) < len(texts) or not found:
        return []
    units = Counter(unit for match in found if (unit := match["before"] or match["after"]))
    unit = units.most_common(1)[0][0].replace("%", PERCENT) if units else ""
    if not unit and _are_codes([match["digits"] for match in found]):
        return []
    return [str(NumberFormat(decimal, unit)) for decimal in DECIMALS]


def _are_codes(texts: list[str]) -> bool:
    """Return whether digits in groups of three are phone or account numbers: no decimals, all of one length."""
    lengths = {len(re.sub(r"\D", "", text)) for text in texts}
    if len(set(texts)) < MIN_CODES or len(lengths) > 1 or lengths.pop() < MIN_CODE_DIGITS:
        return False
    return all(re.fullmatch(rf"\d+(?:[{BLANKS}]\d{{3}})+|\d+(?:\.\d{{3}}){{2,}}", text) for text in texts)
