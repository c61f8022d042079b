"""The points of a scorecard, feature by feature, and how they are written: as rows, SQL and Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.estimators.labels import NO, YES

Array = NDArray[Any]
Floats = NDArray[np.float64]
PYTHON_HEAD = '''"""A scorecard: points(row) and positive(row)."""


def number(cell):
    """Return a cell as a number; None if it is missing."""
    return None if cell is None or cell != cell else float(cell)


def word(cell):
    """Return a cell as text; None if it is missing."""
    if cell is None or cell != cell:
        return None
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return str(cell).strip() or None

'''


@dataclass(frozen=True, eq=False)
class Item:
    """The points of one feature: those of its levels, in order, and those of a missing cell and an unseen level.

    The levels of a number lie between `cuts`: the first below the first cut, the last from the last cut on.
    """

    feature: str
    kind: str
    levels: tuple[str, ...]
    cuts: Floats
    points: NDArray[np.int64]
    missing: int
    unseen: int

    def codes(self, cells: Array) -> NDArray[np.int64]:
        """Return the place of every cell in `table`: `(rows,)`."""
        if self.kind == "category":
            place = {level: number for number, level in enumerate(self.levels)}
            known = [len(self.levels) if cell is None else place.get(cell, len(self.levels) + 1) for cell in cells]
            return np.array(known, np.int64)
        values = np.asarray(cells, np.float64)
        return np.where(np.isnan(values), len(self.levels), np.searchsorted(self.cuts, values, side="right"))

    @property
    def table(self) -> NDArray[np.int64]:
        """Points of the levels, of a missing cell and of an unseen level."""
        return np.array([*self.points, self.missing, self.unseen], np.int64)


def level_rows(item: Item) -> list[dict[str, Any]]:
    """Return the levels of an item; neighbours of a number with the same points are one."""
    rows: list[dict[str, Any]] = []
    if item.kind == "number":
        for low, high, points in _runs(item):
            shown = " to ".join(f"{end:g}" for end in (low, high) if np.isfinite(end))
            shown = f"below {high:g}" if np.isinf(low) and np.isfinite(high) else shown
            shown = f"{low:g} and more" if np.isinf(high) and np.isfinite(low) else shown or "any"
            rows.append({"feature": item.feature, "level": shown, "from": low, "to": high, "points": points})
    else:
        none = {"from": np.nan, "to": np.nan}
        for level, points in zip(item.levels, item.points, strict=True):
            rows.append({"feature": item.feature, "level": level, **none, "points": int(points)})
        if item.kind == "category" and "other" not in item.levels:
            rows.append({"feature": item.feature, "level": "other", **none, "points": item.unseen})
    return [*rows, {"feature": item.feature, "level": "missing", "from": np.nan, "to": np.nan, "points": item.missing}]


def _runs(item: Item) -> list[tuple[float, float, int]]:
    """Return ranges of a number with equal points: from, to, points."""
    ends = [-math.inf, *map(float, item.cuts), math.inf]
    runs: list[tuple[float, float, int]] = []
    for low, high, points in zip(ends, ends[1:], map(int, item.points), strict=False):
        if runs and runs[-1][2] == points:
            runs[-1] = (runs[-1][0], high, points)
        else:
            runs.append((low, high, points))
    return runs


def sql_case(item: Item) -> str:
    """Return the points of an item as an expression of SQL."""
    column = quoted(item.feature)
    if item.kind == "number":
        branches = [f"WHEN {column} < {_double(high)} THEN {points}" for _, high, points in _runs(item)[:-1]]
        return f"CASE WHEN {column} IS NULL THEN {item.missing} {' '.join(branches)} ELSE {_runs(item)[-1][2]} END"
    text = f"TRIM(CAST({column} AS VARCHAR))"
    if item.kind == "boolean":
        branches = [
            f"WHEN LOWER({text}) IN ({_listed(words)}) THEN {item.points[item.levels.index(level)]}"
            for words, level in (((*YES, "1", "1.0"), "yes"), ((*NO, "0", "0.0"), "no"))
            if level in item.levels
        ]
        return f"CASE {' '.join(branches)} ELSE {item.missing} END"
    branches = [
        f"WHEN {text} IN ({_listed(_spellings(level))}) THEN {points}"
        for level, points in zip(item.levels, item.points, strict=True)
        if not (level == "other" and item.unseen == points)
    ]
    return f"CASE WHEN {column} IS NULL OR {text} = '' THEN {item.missing} {' '.join(branches)} ELSE {item.unseen} END"


def python_lines(item: Item) -> list[str]:
    """Return lines of Python that add the points of an item to `total`."""
    cell = f"row.get({item.feature!r})"
    if item.kind == "number":
        runs = _runs(item)
        lines = [f"    x = number({cell})", "    if x is None:", f"        total += {item.missing}"]
        for _, high, points in runs[:-1]:
            lines += [f"    elif x < {high!r}:", f"        total += {points}"]
        return [*lines, "    else:", f"        total += {runs[-1][2]}"]
    if item.kind == "boolean":
        known = {level: int(points) for level, points in zip(item.levels, item.points, strict=True)}
        words = {"yes": (*YES, "1"), "no": (*NO, "0")}
        table = {word: known[level] for level in known for word in words[level]}
        return [f"    total += {table!r}.get((word({cell}) or '').lower(), {item.missing})"]
    table = {level: int(points) for level, points in zip(item.levels, item.points, strict=True)}
    return [
        f"    x = word({cell})",
        f"    total += {item.missing} if x is None else {table!r}.get(x, {item.unseen})",
    ]


def _spellings(level: str) -> list[str]:
    """Return how a database may write a level: an integer also as a number with a decimal point."""
    return [level, f"{level}.0"] if level.lstrip("-").isdigit() else [level]


def _listed(words: Sequence[str]) -> str:
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)


def quoted(name: str) -> str:
    """Return the name of a column or a table for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _double(value: float) -> str:
    """Write a number so that every database reads it as a double, not as a decimal."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def in_markdown(text: object) -> str:
    """Return text for a cell of a Markdown table."""
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
