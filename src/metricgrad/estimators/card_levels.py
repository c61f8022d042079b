"""Levels of a scorecard: a feature's contribution in points, and where a number passes from one point to the next."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.estimators.card_text import Item
from metricgrad.estimators.terms import Term

Array = NDArray[Any]
Floats = NDArray[np.float64]
Points = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scale:
    """From contributions to points: `size` points a unit, 0 at the contribution `low`, at most `top` points."""

    size: float
    low: float
    top: int

    def __call__(self, contributions: Floats) -> Points:
        """Return the points of contributions, rounded to the nearest, a half up."""
        return np.floor(np.clip(self.size * (contributions - self.low), 0, self.top) + 0.5).astype(np.int64)


def contribution_table(term: Term) -> Floats:
    """Return contributions of the levels, of a missing cell and of an unseen level."""
    unseen = float(term.contribution[0]) if term.unseen is None else term.unseen
    missing = unseen if term.missing is None else float(term.missing[0])
    return np.array([*term.contribution, missing, unseen])


def contributions_of(term: Term, cells: Array) -> Floats:
    """Return what the cells of a column add to the score, `(rows,)`: of a number, linear between its places."""
    table = contribution_table(term)
    if term.kind != "number":
        return np.asarray(table[_plain_item(term, np.zeros(len(table), np.int64)).codes(cells)])
    assert term.places is not None
    values = np.asarray(cells, np.float64)
    return np.where(np.isnan(values), table[-2], np.interp(values, term.places, term.contribution))


def best_window(contributions: Floats, weights: Floats, width: float) -> float:
    """Return the lower end of the range of some width that holds rows of the most weight.

    >>> best_window(np.array([-9.0, 0.0, 0.5, 1.0]), np.ones(4), 1.0)
    0.0
    """
    order = np.argsort(contributions)
    values, total = contributions[order], np.append(0.0, np.cumsum(weights[order]))
    inside = total[np.searchsorted(values, values + width, side="right")] - total[:-1]
    return float(values[inside.argmax()])


def item_of(term: Term, scale: Scale, cells: Array | None = None) -> Item:
    """Return the points of a term; with cells, a number has no level without any of them."""
    points = scale(contribution_table(term))
    if term.kind != "number":
        return _plain_item(term, points)
    assert term.places is not None
    seen = None if cells is None else np.asarray(cells, np.float64)[~np.isnan(np.asarray(cells, np.float64))]
    cuts, levels = _number_levels(term, scale, _are_integers(term.places if seen is None else seen))
    if seen is not None:
        cuts, levels = _without_empty(cuts, levels, seen)
    return Item(term.feature, term.kind, ("",) * len(levels), cuts, levels, int(points[-2]), int(points[-1]))


def _plain_item(term: Term, points: Points) -> Item:
    """Return a term with the same levels as the model: those of a category, or yes and no."""
    other = term.kind == "category" and "other" in term.levels
    unseen = int(points[term.levels.index("other")]) if other else int(points[-1])
    return Item(term.feature, term.kind, term.levels, _middles(term.places), points[:-2], int(points[-2]), unseen)


def _middles(places: Floats | None) -> Floats:
    if places is None:
        return np.zeros(0)
    return np.array([short_cut(low, high) for low, high in pairwise(places)])


def _are_integers(values: Floats) -> bool:
    return bool(
        np.allclose(values, np.rint(values), rtol=0, atol=1e-6 * max(1.0, float(np.abs(values).max(initial=0))))
    )


def _number_levels(term: Term, scale: Scale, integers: bool) -> tuple[Floats, Points]:
    """Return where the points of a number change, and the points between: the nearest integer, whatever the places.

    A column of integers has one cut at most between two of them.
    """
    assert term.places is not None
    found: dict[tuple[float, float], int] = {}
    for (left, place, right), after in _crossings(term.places, term.contribution, scale):
        found[(math.ceil(place - 1e-6) - 1.0, math.ceil(place - 1e-6)) if integers else (left, right)] = after
    cuts, points = [short_cut(*ends) for ends in found], [int(scale(term.contribution[:1])[0]), *found.values()]
    return _joined(np.array(cuts), np.array(points, np.int64))


def _crossings(places: Floats, contributions: Floats, scale: Scale) -> Iterator[tuple[Floats, int]]:
    """Yield, in order, where the points change, half a point to either side of there, and what they change to."""
    exact = scale.size * (contributions - scale.low)
    for x, next_x, y, next_y in zip(places, places[1:], exact, exact[1:], strict=False):
        low, high, step = min(y, next_y), max(y, next_y), 1 if next_y > y else -1
        first, last = max(0, math.floor(low + 0.5)), min(scale.top - 1, math.floor(high - 0.5))
        for number in range(first, last + 1)[::step]:
            heights = np.clip([number, number + 0.5, number + 1.0][::step], low, high)
            yield x + (heights - y) / (next_y - y) * (next_x - x), number + (step > 0)


def _without_empty(cuts: Floats, points: Points, cells: Floats) -> tuple[Floats, Points]:
    """Leave out levels without any cell."""
    counts = np.bincount(np.searchsorted(cuts, cells, side="right"), minlength=len(points))
    kept = np.flatnonzero(counts)
    if not len(kept):
        return cuts[:0], points[:1]
    between = [
        cuts[left] if right == left + 1 else short_cut(float(cuts[left]), float(cuts[right - 1]))
        for left, right in pairwise(kept)
    ]
    return _joined(np.array(between), points[kept])


def _joined(cuts: Floats, points: Points) -> tuple[Floats, Points]:
    """Join neighbours with the same points."""
    changes = np.flatnonzero(np.diff(points))
    return cuts[changes], points[np.append(0, changes + 1)]


def moved(item: Item, first: Points, level: int, step: int) -> Item | None:
    """Return an item with one level a step higher or lower; None if it then had two points more or less than at first.

    Neighbours of a number keep the order that they had at first, so that a monotone feature stays one.
    """
    points = item.points.copy()
    points[level] += step
    if abs(int(points[level] - first[level])) > 1:
        return None
    beside = [at for at in (level - 1, level + 1) if item.kind == "number" and 0 <= at < len(points)]
    reversed_ = any(int((points[at] - points[level]) * (first[at] - first[level])) < 0 for at in beside)
    return None if reversed_ else replace(item, points=points)


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
