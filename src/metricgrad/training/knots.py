"""Knots of the shape functions of an additive model: learned from training rows, whatever their distribution."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_BINS = 3
ROWS_OF_BINS = 40
"""Rows a bin should have; fewer rows have fewer bins."""
TAIL = 0.005
"""Share of the rows beyond the outer quantiles, on either side."""
REACH = 1.0
"""How far the outer knots may be beyond the outer quantiles, in units of the distance of those."""
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
