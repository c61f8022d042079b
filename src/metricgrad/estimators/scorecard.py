"""Scorecards: integer points for every level of a readable model, rounded so that the true metric loses least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.estimators.card_text import PYTHON_HEAD, Item, in_markdown, level_rows, python_lines, quoted, sql_case
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
        True loss of the card and of the model on the rows given, both at the best threshold of these rows; NaN without
        rows. Rows that the card was not made from tell what it loses on new ones.
    """

    def __init__(self, items: Sequence[Item], threshold: int, metric: Metric, loss: float, model_loss: float) -> None:
        self.items, self.threshold, self.metric = list(items), threshold, metric
        self.loss, self.model_loss = loss, model_loss
        self.frame = pd.DataFrame([row for item in self.items for row in level_rows(item)])

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
            f"| {in_markdown(row.feature)} | {in_markdown(row.level)} | {row.points} |"
            for row in self.frame.itertuples()
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
        cases = " +\n    ".join(sql_case(item) for item in self.items)
        inner = f"SELECT *,\n    {cases} AS points\n  FROM {quoted(table)}"
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
            lines += python_lines(item)
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
    known = math.nan if scores is None else float(metric.best(np.asarray(scores, float), targets, weights))
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
