"""Knots of the shape functions of an additive model: learned from training rows, whatever their distribution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
MIN_BINS = 3
ROWS_OF_BINS = 40
"""Rows a bin should have; fewer rows have fewer bins."""
TAIL = 0.005
"""Share of the rows beyond the outer quantiles, on either side."""
REACH = 1.0
"""How far the outer knots may be beyond the outer quantiles, in units of the distance of those."""
CELL_RIDGE = 0.1
"""Curvature added to that of a cell of a pair, relative to the mean of all: few rows explain little."""
MIN_WIDTH = 1e-6
"""Least width of a bin, in units of the distance of the outer knots."""


class Knots(NamedTuple):
    """Knots of one feature, `(knots,)`, in order, and the share of the rows that are nearest to each."""

    places: Floats
    share: Floats


def bins_for(rows: int, most: int) -> int:
    """Return how many bins a number may have.

    >>> [bins_for(rows, 16) for rows in (10, 400, 100_000)]
    [3, 10, 16]
    """
    return max(MIN_BINS, min(most, rows // ROWS_OF_BINS))


def learn_knots(values: Floats, weights: Floats, bins: int) -> Knots:
    """Return the knots of a feature: all of its values if they are few, else about as many quantiles as bins.

    A value that has the share of a bin or more is a knot itself, so that ties (such as many zeros) neither waste bins
    nor blur their neighbours. Outer knots are the extremes, unless these are far beyond the outer quantiles: from
    there on the shape is constant. Values that are not finite are left out.

    >>> learn_knots(np.array([0.0, 1, 1, 0]), np.ones(4), 8).places.tolist()
    [0.0, 1.0]
    """
    finite = np.isfinite(values) & (weights > 0)
    if not finite.any():
        return Knots(np.zeros(1), np.ones(1))
    places, inverse = np.unique(values[finite], return_inverse=True)
    mass: Floats = np.bincount(inverse.ravel(), weights[finite] / weights[finite].sum()).astype(np.float64)
    chosen = places if len(places) <= bins + 1 else _spread(places, mass, bins)
    chosen = _apart(chosen)
    nearest = np.searchsorted((chosen[1:] + chosen[:-1]) / 2, places)
    return Knots(chosen, np.bincount(nearest, mass, minlength=len(chosen)).astype(np.float64))


def _spread(places: Floats, mass: Floats, bins: int) -> Floats:
    """Return heavy values, quantiles of the others, and outer knots."""
    heavy = mass >= 1 / bins
    light, cumulative = places[~heavy], np.cumsum(mass[~heavy])
    inner = np.linspace(0, 1, max(2, bins + 1 - int(heavy.sum())))
    levels = np.clip(inner, TAIL, 1 - TAIL) * cumulative[-1]
    quantiles = light[np.searchsorted(cumulative, levels).clip(max=len(light) - 1)]
    knots = np.union1d(places[heavy], quantiles)
    span = REACH * (knots[-1] - knots[0])
    ends = (max(places[0], knots[0] - span), min(places[-1], knots[-1] + span))
    return np.union1d(knots, ends)


def _apart(knots: Floats) -> Floats:
    """Drop knots that are too near to the one before, but no outer one."""
    if len(knots) < 3:
        return knots
    least = MIN_WIDTH * (knots[-1] - knots[0])
    kept = [float(knots[0])]
    kept += [float(knot) for knot in knots[1:-1] if knot - kept[-1] > least and knots[-1] - knot > least]
    return np.array([*kept, float(knots[-1])])


# ---- pairs ---------------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two features, where each is cut, and how much a grid over both explains of the residuals."""

    first: int
    second: int
    cuts: tuple[Floats, Floats]
    gain: float


def best_pairs(
    codes: Sequence[Indices], cuts: Sequence[Floats], steps: Sequence[tuple[Floats, Floats]], most: int
) -> list[Pair]:
    """Return the pairs of features whose grid explains most of what single features leave.

    The gain of a grid is that of one Newton step in each of its cells, less that of its rows and columns alone.

    Parameters
    ----------
    codes : sequence of ndarray of shape (rows,)
        The cell of every row in each feature, 0 to the number of its cuts.
    cuts : sequence of ndarray of shape (cuts,)
        Where features are cut; those without a cut are in no pair.
    steps : sequence of pairs of ndarray of shape (rows,)
        Weighted gradient and curvature of the loss by the score, for each output.
    most : int
        How many pairs.
    """
    usable = [number for number, own in enumerate(cuts) if len(own)]
    found = []
    for a, b in combinations(usable, 2):
        shape = (len(cuts[a]) + 1, len(cuts[b]) + 1)
        cell = codes[a] * shape[1] + codes[b]
        gain = sum(_interaction(*(_sums(cell, each, shape) for each in step)) for step in steps)
        found.append(Pair(a, b, (cuts[a], cuts[b]), gain))
    return sorted(found, key=lambda pair: -pair.gain)[:most]


def _sums(cell: Indices, values: Floats, shape: tuple[int, int]) -> Floats:
    """Return sums of values by cell of a grid."""
    return np.bincount(cell, values, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)


def _interaction(slope: Floats, curve: Floats) -> float:
    """Return the gain of a step in each cell less the gain of the best step that is additive over the grid."""
    size = max(float(curve.sum()), 1e-300)
    curve = curve + CELL_RIDGE * size / curve.size
    rows, columns = slope.shape
    design = np.hstack((np.repeat(np.eye(rows), columns, 0), np.tile(np.eye(columns), (rows, 1))))
    matrix = design.T @ (design * curve.reshape(-1, 1))
    step = np.linalg.lstsq(matrix, design.T @ slope.ravel(), rcond=None)[0]
    alone = float((design.T @ slope.ravel()) @ step)
    return float((slope**2 / curve).sum()) - alone


def pair_cuts(knots: Knots, most: int) -> Floats:
    """Return where a feature is cut in pairs: between knots, into parts of about equal shares.

    >>> pair_cuts(Knots(np.array([0.0, 1.0]), np.array([0.9, 0.1])), 3).tolist()
    [0.5]
    """
    places, total = knots.places, np.cumsum(knots.share)[:-1]
    if len(places) < 2:
        return np.zeros(0)
    middles = (places[1:] + places[:-1]) / 2
    wanted = np.arange(1, most + 1) / (most + 1)
    return np.asarray(np.unique(middles[[int(np.abs(total - level).argmin()) for level in wanted]]))
