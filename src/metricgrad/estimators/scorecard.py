"""Scorecards: integer points for every level of a readable model, rounded so that the true metric loses least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.estimators.card_levels import Scale, best_window, contribution_table, contributions_of, item_of, moved
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
SIZES = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 3, 4, 6, 8, 12)
"""Points a unit that are tried, relative to those that give the widest term all points; beyond 1, terms are clipped."""
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

    A number passes from one point to the next where its contribution does, so that rounding costs half a point at most.
    With rows (cells, targets and the scores of the model), the scale, and a point more or less of each level, are those
    with the least true loss at the best threshold. The scale may be larger than fits the widest term, whose ends are
    then cut off: a few extreme rows would otherwise leave no points for the other features.
    """
    if isinstance(points, bool) or not isinstance(points, (int, np.integer)) or points < 1:
        raise ValueError(f"points: expected an integer of at least 1, got {points!r}")
    if any(term.kind == "pair" for term in terms.each):
        raise ValueError("scorecard: expected a model without interactions, got one with pairs of features")
    tables = [contribution_table(term) for term in terms.each]
    ranges = [float(np.ptp(table)) for table in tables]
    used = [term for term, own in zip(terms.each, ranges, strict=True) if own > 0]
    size = points / max(ranges, default=1.0) if used else 1.0
    if cells is None or targets is None:
        lowest = sum(float(table.min()) for table in tables)
        items = [item_of(term, Scale(size, float(contribution_table(term).min()), points)) for term in used]
        return Scorecard(items, math.ceil(-size * (terms.base + lowest) - 1e-9), metric, math.nan, math.nan)
    search = _Search(metric, cells, targets, weights)
    items = search.refined(
        min((search.rounded(used, size * share, points) for share in SIZES), key=search.loss), points
    )
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

        positive = self.targets > 0
        mass = np.ones(len(positive)) if self.weights is None else self.weights
        self.balanced = np.where(
            positive, mass / max(mass[positive].sum(), 1e-12), mass / max(mass[~positive].sum(), 1e-12)
        )

    def _loss(self, total: Array) -> float:
        return float(self.metric(total, self.targets, self.weights))

    def loss(self, items: Sequence[Item]) -> float:
        """Return the loss of points."""
        return self._loss(_total(items, self.cells))

    def rounded(self, terms: Sequence[Term], size: float, points: int) -> list[Item]:
        """Round terms to the nearest points; of a term with a wider range, the part that holds most rows.

        Classes count the same. Beyond that part the points stay as they are at its ends.
        """
        items = []
        for term in terms:
            table, column = contribution_table(term), self.cells[term.feature]
            low, width = float(table.min()), points / size
            if np.ptp(table) > width:
                low = best_window(contributions_of(term, column), self.balanced, width)
                low = min(low, float(table.max()) - width)
            items.append(item_of(term, Scale(size, low, points), column))
        return items

    def refined(self, items: list[Item], points: int) -> list[Item]:
        """Add or take a point of single levels where that lowers the loss."""
        codes = [item.codes(self.cells[item.feature]) for item in items]
        first, total = [item.points for item in items], _total(items, self.cells)
        tries = [(number, at, by) for number, own in enumerate(first) for at in range(len(own)) for by in (1, -1)]
        least = self._loss(total)
        for _ in range(PASSES):
            before = least
            for number, level, step in tries:
                other = moved(items[number], first[number], level, step)
                if other is None or not 0 <= int(other.points[level]) <= points:
                    continue
                changed = total + step * (codes[number] == level)
                loss = self._loss(changed)
                if loss < least - 1e-12:
                    items[number], total, least = other, changed, loss
            if least == before:
                break
        return items
