"""Scorecards: integer points for every level of a readable model, rounded so that the true metric loses least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.estimators.labels import NO, YES
from metricgrad.estimators.terms import Term, Terms
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_threshold

Array = NDArray[Any]
Floats = NDArray[np.float64]
Cells = Mapping[str, Array]
"""Columns by name: numbers, NaN where missing; yes as 1 and no as 0; words of a category, None where missing."""
MAX_ROWS = 20_000
"""Rows by which the rounding is chosen."""
SCALES = 12
"""Scales that are tried, from the largest down to half of it."""
PASSES = 2


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


class Scorecard:
    """Integer points a level; a row is predicted positive if its points add up to `threshold` or more.

    Attributes
    ----------
    frame : DataFrame
        A row for every level, with the columns `feature`, `level`, `from`, `to` (of a number: from inclusive, to
        exclusive) and `points`.
    threshold : int
        Points from which on a row is positive.
    loss, model_loss : float
        True loss of the card and of the model on the rows given; NaN without rows.
    """

    def __init__(self, items: Sequence[Item], threshold: int, metric: Metric, loss: float, model_loss: float) -> None:
        self.items, self.threshold, self.metric = list(items), threshold, metric
        self.loss, self.model_loss = loss, model_loss
        self.frame = pd.DataFrame([row for item in self.items for row in _rows_of(item)])

    def points(self, cells: Cells) -> NDArray[np.int64]:
        """Return the points of rows: `(rows,)`."""
        return _total(self.items, cells)

    @property
    def summary(self) -> str:
        """What the rounding costs, in a sentence."""
        if math.isnan(self.loss):
            return f"Positive from {self.threshold} points on."
        known, rounded = (self.metric.shown(loss) for loss in (self.model_loss, self.loss))
        return f"Positive from {self.threshold} points on. {rounded}; before rounding {known}."

    def to_markdown(self) -> str:
        """Return the card as a Markdown table."""
        rows = ["| feature | level | points |", "|---|---|---:|"]
        rows += [
            f"| {_markdown(row.feature)} | {_markdown(row.level)} | {row.points} |" for row in self.frame.itertuples()
        ]
        return "\n".join([*rows, "", self.summary, ""])

    def to_csv(self) -> str:
        """Return the card as CSV, with a last row for the threshold."""
        last = pd.DataFrame([{"feature": "threshold", "level": "positive from", "points": self.threshold}])
        return str(pd.concat([self.frame, last], ignore_index=True).to_csv(index=False))

    def to_sql(self, table: str = "data") -> str:
        """Return a query that gives all columns of a table, `points` and `positive`; for SQLite, DuckDB and others.

        Numbers must be numbers in the table. A date enters as columns such as `"day (month)"`.
        """
        cases = " +\n    ".join(_case(item) for item in self.items)
        inner = f"SELECT *,\n    {cases} AS points\n  FROM {_quoted(table)}"
        return f"SELECT *, points >= {self.threshold} AS positive FROM (\n  {inner}\n) AS scored;\n"

    def to_python(self) -> str:
        """Return Python code that needs nothing else: `points(row)` and `positive(row)` of a mapping of cells."""
        lines = [
            PYTHON_HEAD,
            "",
            "def points(row):",
            '    """Return the points of a row, a mapping of column to cell."""',
        ]
        lines += ["    total = 0"]
        for item in self.items:
            lines += _python(item)
        lines += ["    return total", "", "", "def positive(row):"]
        lines += [
            '    """Return whether a row is predicted positive."""',
            f"    return points(row) >= {self.threshold}",
            "",
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from markupsafe import escape

        return f"<p>{escape(self.summary)}</p>" + str(self.frame.to_html(index=False, na_rep=""))

    def __repr__(self) -> str:
        return f"{self.frame[['feature', 'level', 'points']].to_string(index=False)}\n{self.summary}"


# ---- rounding ------------------------------------------------------------------------------------------------------


def make_scorecard(
    terms: Terms,
    metric: Metric,
    points: int,
    cells: Cells | None = None,
    targets: Array | None = None,
    weights: Array | None = None,
    scores: Array | None = None,
) -> Scorecard:
    """Round the terms of a model to points of at most so many a level.

    With rows (cells, targets and the scores of the model), the scale, and whether each level is rounded up or down, are
    those with the least true loss at the best threshold.
    """
    if isinstance(points, bool) or not isinstance(points, (int, np.integer)) or points < 1:
        raise ValueError(f"points: expected an integer of at least 1, got {points!r}")
    if any(term.kind == "pair" for term in terms.each):
        raise ValueError("scorecard: expected a model without interactions, got one with pairs of features")
    used = [term for term in terms.each if np.ptp(_table(term)) > 0]
    largest = max((float(np.ptp(_table(term))) for term in used), default=1.0)
    lowest = sum(float(_table(term).min()) for term in used)
    rest = sum(float(_table(term)[0]) for term in terms.each) - sum(float(_table(term)[0]) for term in used)

    def rounded(scale: float) -> list[Item]:
        return [_item(term, scale) for term in used]

    scale = points / largest
    if cells is None or targets is None:
        cut = -scale * (terms.base + lowest + rest)
        return Scorecard(rounded(scale), math.ceil(cut - 1e-9), metric, math.nan, math.nan)
    search = _Search(metric, cells, targets, weights)
    scale = min(
        (scale * float(share) for share in np.linspace(1, 0.5, SCALES)), key=lambda one: search.loss(rounded(one))
    )
    items = search.refined(rounded(scale), used, scale)
    total = _total(items, cells).astype(float)
    threshold = 0 if not items else math.ceil(best_threshold(metric, total, targets, weights))
    if not metric.thresholded:
        threshold = math.ceil(np.quantile(total, np.mean(np.asarray(scores) < 0))) if scores is not None else 0
    known = math.nan if scores is None else float(metric(np.asarray(scores, float), targets, weights))
    return Scorecard(items, threshold, metric, float(metric(total - threshold + 0.5, targets, weights)), known)


def _total(items: Sequence[Item], cells: Cells) -> NDArray[np.int64]:
    total = np.zeros(len(next(iter(cells.values()))), np.int64)
    for item in items:
        total += item.table[item.codes(cells[item.feature])]
    return total


class _Search:
    """Judges points by the true metric at its best threshold, on some of the rows."""

    def __init__(self, metric: Metric, cells: Cells, targets: Array, weights: Array | None) -> None:
        some = np.linspace(0, len(targets) - 1, min(MAX_ROWS, len(targets))).round().astype(int)
        self.metric, self.targets = metric.best, np.asarray(targets, float)[some]
        self.weights = None if weights is None else np.asarray(weights, float)[some]
        self.cells = {name: np.asarray(column)[some] for name, column in cells.items()}

    def _loss(self, total: Array) -> float:
        return float(self.metric(total, self.targets, self.weights))

    def loss(self, items: Sequence[Item]) -> float:
        """Return the loss of points."""
        return self._loss(_total(items, self.cells))

    def refined(self, items: list[Item], terms: Sequence[Term], scale: float) -> list[Item]:
        """Round single levels the other way where that lowers the loss."""
        codes = [item.codes(self.cells[item.feature]) for item in items]
        total = _total(items, self.cells)
        least = self._loss(total)
        items = list(items)
        for _ in range(PASSES):
            before = least
            for number, term in enumerate(terms):
                exact = scale * (_table(term) - _table(term).min())
                for level in range(len(items[number].points)):
                    now = int(items[number].points[level])
                    other = math.floor(exact[level]) + math.ceil(exact[level]) - now
                    moved = total + (other - now) * (codes[number] == level)
                    loss = math.inf if other == now else self._loss(moved)
                    if loss < least - 1e-12:
                        changed = items[number].points.copy()
                        changed[level] = other
                        items[number], total, least = replace(items[number], points=changed), moved, loss
            if least == before:
                break
        return items


def _table(term: Term) -> Floats:
    """Return contributions of the levels, of a missing cell and of an unseen level."""
    unseen = float(term.contribution[0]) if term.unseen is None else term.unseen
    missing = unseen if term.missing is None else float(term.missing[0])
    return np.array([*term.contribution, missing, unseen])


def _item(term: Term, scale: float) -> Item:
    exact = _table(term)
    points = np.rint(scale * (exact - exact.min())).astype(np.int64)
    cuts = np.zeros(0)
    if term.places is not None:
        cuts = np.array([short_cut(low, high) for low, high in zip(term.places, term.places[1:], strict=False)])
    other = term.kind == "category" and "other" in term.levels
    unseen = int(points[term.levels.index("other")]) if other else int(points[-1])
    return Item(term.feature, term.kind, term.levels, cuts, points[:-2], int(points[-2]), unseen)


def short_cut(low: float, high: float) -> float:
    """Return a number with few digits in the middle half between two numbers.

    >>> short_cut(0.1234, 0.2)
    0.16
    """
    middle, quarter = low + (high - low) / 2, (high - low) / 4
    for digits in range(1, 17):
        found = float(f"{middle:.{digits}g}")
        if abs(found - middle) <= quarter:
            return found
    return middle


# ---- text ----------------------------------------------------------------------------------------------------------

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


def _rows_of(item: Item) -> list[dict[str, Any]]:
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


def _case(item: Item) -> str:
    column = _quoted(item.feature)
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


def _python(item: Item) -> list[str]:
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _double(value: float) -> str:
    """Write a number so that every database reads it as a double, not as a decimal."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _markdown(text: object) -> str:
    return str(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
