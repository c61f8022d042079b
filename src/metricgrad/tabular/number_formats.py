"""Number formats: text such as `$12,345.67`, `1.234,56`, `12.3%` or `(1'234.5)` read as numbers.

A format is a decimal mark, and a currency or a percent sign if there is one. Where the mark is known, thousands may be
separated by any other mark, so a format needs no field for that. It is kept as a short text, for example
`"decimal comma, €"`: a saved model reads a cell exactly as it did in training, whatever the other cells look like.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DECIMALS = ("decimal point", "decimal comma")
PERCENT = "percent"
CURRENCY_SIGNS = "$€£¥₹₽₩₺₪₫฿₴₦₱₡₲₵₸₼₾"
CODES = (
    "USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|TRY|KRW|BRL|MXN|ZAR|CAD|AUD|NZD|SGD|HKD|SEK|NOK|DKK|ISK|PLN|CZK|HUF|RON|BGN|ILS|"
    "AED|SAR|THB|IDR|MYR|PHP|VND|UAH|EGP|NGN|ARS|CLP|COP|PEN"
)
NAMES = ("US$", "A$", "C$", "R$", "NZ$", "S$", "HK$", "kr", "zł", "Kč", "Ft", "lei", "Fr.", "Rs.", "Rs")
CURRENCY = "|".join((CODES, *map(re.escape, (*NAMES, *CURRENCY_SIGNS))))
BLANKS = " \u00a0\u2009\u202f"
"""Space, no-break space, thin space and narrow no-break space: all of them separate thousands somewhere."""
MINUS = "-\u2212"
"""Hyphen and minus sign; they come first in a set of characters, where a hyphen elsewhere would mean a range."""
OUTLINE = re.compile(
    rf"\(?[{MINUS}+]?(?P<before>{CURRENCY})?[{BLANKS}]*[{MINUS}+(]?[{BLANKS}]*"
    rf"(?P<digits>[\d.][\d.,'’{BLANKS}]*?(?:[eE][{MINUS}+]?\d\d?)?)[{BLANKS}]*(?P<after>%|{CURRENCY})?\)?"
)
"""Anything that may be a number; which of its marks is the decimal one is decided later, for all cells together."""
CODE_DIGITS, CODE_CELLS = 7, 5
"""Codes such as `600 123 456`: at least so many digits, the same number in at least so many distinct cells."""


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written; `unit` is a currency, `"percent"` or empty."""

    decimal: str
    unit: str = ""

    @staticmethod
    def from_text(text: str) -> NumberFormat:
        """Read a format from its text; a text that is none is refused."""
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
        """Return the number each text stands for; NaN where it is missing or not written in this format."""
        pattern, other_marks = _pattern(self)
        texts = pc.utf8_trim_whitespace(texts)
        texts = pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)
        negative = pc.match_substring_regex(texts, rf"^\D*[{MINUS}(]").fill_null(False)
        digits = pc.replace_substring_regex(texts, pattern, r"\1\2\3\4")
        digits = pc.replace_substring_regex(digits, other_marks, "")
        digits = pc.replace_substring(pc.replace_substring(digits, ",", "."), "\u2212", "-")
        numbers: Floats = digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.where(negative.to_numpy(zero_copy_only=False), -numbers, numbers)


@lru_cache(maxsize=256)
def _pattern(form: NumberFormat) -> tuple[str, str]:
    """Return the pattern of a cell, one of whose groups is the number without sign and unit; the marks to take out."""
    point = form.decimal == "decimal point"
    mark, other = (r"\.", ",") if point else (",", r"\.")
    grouped = [rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}}){{1,6}}" for separator in (f"[{BLANKS}]", "['’]", other)]
    if point:
        grouped.append(r"[1-9]\d?(?:,\d{2}){1,6},\d{3}")  # 12,34,567, as India writes it
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


def likely_formats(texts: list[str]) -> list[NumberFormat]:
    """Return the formats worth trying on a column, judged by some cells that are not plain numbers; none for codes.

    The unit is the most common one: a cell with another currency, or without the sign among percentages (where 0.12
    may stand for 12%), is not a number in the format.
    """
    found = [match for text in texts if (match := OUTLINE.fullmatch(text.strip()))]
    if 2 * len(found) < len(texts) or not found:
        return []
    units = Counter(unit for match in found if (unit := match["before"] or match["after"]))
    unit = units.most_common(1)[0][0].replace("%", PERCENT) if units else ""
    if not unit and _are_codes([match["digits"] for match in found]):
        return []
    return [NumberFormat(decimal, unit) for decimal in DECIMALS]


def _are_codes(bodies: list[str]) -> bool:
    """Whether digits in groups of three are phone or account numbers or addresses: no decimals, all of one length."""
    lengths = {len(re.sub(r"\D", "", body)) for body in bodies}
    if len(set(bodies)) < CODE_CELLS or len(lengths) > 1 or lengths.pop() < CODE_DIGITS:
        return False
    return all(re.fullmatch(rf"\d+(?:[{BLANKS}]\d{{3}})+|\d+(?:\.\d{{3}}){{2,}}", body) for body in bodies)
