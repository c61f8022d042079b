"""Plain data of a stranger's: a JSON file read with limits, and every field of it checked where it is used."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

TEXT = 100_000
"""Characters a name, a label or a note may have."""
SHORT = 1_000
"""Characters of what is a word or a line: a phase, a method, a metric."""
FILE, ITEMS = 32 << 20, 3_000_000
"""Bytes of a JSON file, and commas in it: each may become an object of its own in memory."""
SHOWN, LINE = 60, 200
"""Characters that messages show of a value, and of a text that others wrote."""
LARGEST = 2**63


class Field:
    """A value of a manifest and its place there; it is returned as what it should be, or refused by its place.

    Parameters
    ----------
    value : object
        As `json.loads` returns it.
    place : str
        Where it is.

    Examples
    --------
    >>> Field({"levels": ["a", 3]}, "plan")["levels"].items(5)[1].text()
    Traceback (most recent call last):
    ...
    ValueError: plan.levels[1]: expected text, got 3
    """

    def __init__(self, value: Any, place: str = "") -> None:
        self.value, self.place = value, place

    def refuse(self, expected: str) -> NoReturn:
        """Raise an error that names the field, what was expected, and the value."""
        at = f"{self.place}: " if self.place else ""
        raise ValueError(f"{at}expected {expected}, got {shortened(self.value)}")

    # ---- fields and items ------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> Field:
        """Return a field of an object."""
        if key not in self:
            self.refuse(f"a field {key!r}")
        return Field(self.value[key], f"{self.place}.{key}".lstrip("."))

    def __contains__(self, key: str) -> bool:
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return key in self.value

    def items(self, most: int = ITEMS) -> list[Field]:
        """Return the items of a list."""
        if not isinstance(self.value, list) or len(self.value) > most:
            self.refuse(f"a list of at most {most:,}")
        return [Field(item, f"{self.place}[{number}]") for number, item in enumerate(self.value)]

    # ---- values ----------------------------------------------------------------------------------------------------

    def text(self, most: int = TEXT) -> str:
        """Return text that can be written in UTF-8."""
        if not isinstance(self.value, str):
            self.refuse("text")
        if len(self.value) > most or not _is_encodable(self.value):
            self.refuse(f"text of at most {most:,} characters of Unicode")
        return self.value

    def one_of(self, choices: Collection[str]) -> str:
        """Return one of some words."""
        if not isinstance(self.value, str) or self.value not in choices:
            self.refuse(f"one of {', '.join(map(repr, choices))}")
        return self.value

    def flag(self) -> bool:
        """Return a truth value."""
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def count(self, least: int = 0) -> int:
        """Return an integer that fits into eight bytes."""
        if type(self.value) is not int or not least <= self.value < LARGEST:
            self.refuse(f"an integer of at least {least}")
        return int(self.value)

    def number(self) -> float:
        """Return a finite number."""
        if type(self.value) not in (int, float) or not _is_finite(self.value):
            self.refuse("a finite number")
        return float(self.value)

    def number_or_nan(self) -> float:
        """Return a finite number, or NaN where there is none."""
        return math.nan if self.value is None else self.number()


def shortened(value: Any) -> str:
    """Write a value, or what it is like, in a few words."""
    if isinstance(value, str):
        more = f"... ({len(value):,} characters)" if len(value) > SHOWN else ""
        return repr(value[:SHOWN]) + more
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value):,}"
    if isinstance(value, int) and abs(value) >= LARGEST:
        return f"an integer of {value.bit_length():,} bits"
    return "null" if value is None else repr(value)


def one_line(text: object, longest: int = LINE) -> str:
    r"""Return the beginning of a text on one line, with what a terminal would act on escaped.

    Examples
    --------
    >>> print(one_line("a\nb" + "c" * 1_000, longest=8))
    a\nbcccc... (1,003 characters)
    """
    said = str(text)
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in said[:longest])[:longest]
    return shown if len(said) <= longest else f"{shown}... ({len(said):,} characters)"


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


# ---- files ---------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> Field:
    """Read a JSON file that may be anything."""
    return parsed(read_file(path, FILE))


def parsed(content: bytes) -> Field:
    """Return what JSON of limited size says."""
    commas = content.count(b",")
    if commas > ITEMS:
        raise ValueError(f"expected JSON of at most {ITEMS:,} values, got {commas:,} commas")
    try:
        return Field(json.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON, got {error}") from error


def read_file(path: Path, most: int) -> bytes:
    """Read a file of limited size; whatever is not a plain file, and might never end, is refused unread."""
    # Opened without waiting: a pipe that nobody writes to would otherwise never open.
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        there = os.fstat(opened)
        if not stat.S_ISREG(there.st_mode):
            raise ValueError(f"expected a regular file, got {_kind(there.st_mode)}")
        size = there.st_size
        if size <= most:
            with open(opened, "rb", closefd=False) as file:
                content = file.read(size + 1)
            size = len(content)  # a file of the system may say it is empty and never end
        if size > most:
            raise ValueError(f"expected at most {most:,} bytes, got {size:,}")
    finally:
        os.close(opened)
    return content


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}
    return kinds.get(stat.S_IFMT(mode), "something else")
