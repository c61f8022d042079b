"""Pairs of features for an additive model: those whose grid explains most of what single features leave."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricgrad.training.knots import Knots

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
CELL_RIDGE = 0.1
"""Curvature added to that of a cell of a pair, relative to the mean of all: few rows explain little."""


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
