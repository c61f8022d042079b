"""Boosted shapes: steps of single features in turn, by log loss, as EBM does, in numpy.

Rows are read once in a while only: between, the slopes of the loss by bin are moved by the products of bins, which say
how rows of one bin are spread over the bins of every other feature. A step then costs as many additions as there are
bins, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from metricgrad.training.knots import learn_knots

Floats, Indices = NDArray[np.float64], NDArray[np.int64]
RATE, MAX_ROUNDS, PATIENCE = 0.05, 400, 10
"""Share of a Newton step that is taken, rounds over all features at most, and looks at held-out rows without a gain."""
ROUNDS_A_LOOK, ROUNDS_A_CURVATURE = 2, 20
"""Rounds after which scores are computed anew, and after which curvatures are."""
CURVATURE, MIN_ROWS = 1.0, 4
"""Curvature that is added to that of either side of a step, and rows that it has at least."""
MAX_BINS, MAX_TOTAL, RARE_ROWS = 64, 3_000, 4
"""Bins of a feature and of all features, and rows of the rarer class a bin for which it counts for half."""


class Bins(NamedTuple):
    """Rows by the bin of every feature, `(features, rows)`; bins of all features are numbered in one go."""

    codes: Indices
    sizes: Indices

    @property
    def first(self) -> Indices:
        """The first bin of every feature."""
        return np.cumsum(self.sizes) - self.sizes

    def of(self, rows: Indices) -> Bins:
        """Return some of the rows."""
        return Bins(self.codes[:, rows], self.sizes)

    def sums(self, values: Floats) -> Floats:
        """Return sums of values of rows by bin, `(bins,)`."""
        every = np.broadcast_to(values, self.codes.shape).ravel()
        return np.bincount(self.codes.ravel(), every, minlength=int(self.sizes.sum()))

    def scores(self, shapes: Floats) -> Floats:
        """Return what the shapes, `(bins,)`, add up to for every row."""
        return shapes[self.codes].sum(0)

    def products(self, weights: Floats) -> NDArray[np.float32]:
        """Return the weight of rows that are in one bin and in another, `(bins, bins)`."""
        total, first = int(self.sizes.sum()), self.first
        found = np.zeros((total, total), np.float32)
        if total <= 10 * len(self.sizes):  # bins are so few that a product of matrices is faster
            there = np.zeros((len(weights), total), np.float32)
            for codes in self.codes:
                there[np.arange(len(weights)), codes] = 1
            return there.T @ (there * weights[:, None].astype(np.float32))
        for a in range(len(self.sizes)):
            for b in range(a, len(self.sizes)):
                shape = self.sizes[a], self.sizes[b]
                both = (self.codes[a] - first[a]) * shape[1] + self.codes[b] - first[b]
                own = np.bincount(both, weights, minlength=shape[0] * shape[1]).reshape(shape)
                rows, columns = (slice(first[each], first[each] + self.sizes[each]) for each in (a, b))
                found[rows, columns], found[columns, rows] = own, own.T
        return found


def learn_places(x: Floats, y: Floats) -> list[Floats]:
    """Return the middle of every bin of every feature: values that many rows have, and quantiles.

    Quantiles are those of rows of which the rarer class counts for half, so that bins are fine where it is.
    """
    bins = MAX_BINS
    while True:
        weights = balanced(y, bins)
        places = [learn_knots(values, weights, bins).places for values in x.T]
        if sum(map(len, places)) <= MAX_TOTAL or bins <= 8:
            return places
        bins = max(8, int(0.8 * bins))


def balanced(y: Floats, bins: int) -> Floats:
    """Return weights of rows by which the rarer class counts for half, or less where it has few rows a bin.

    >>> balanced(np.array([1.0, 0, 0, 0]), 2).round(2).tolist()
    [1.0, 1.0, 1.0, 1.0]
    >>> balanced(np.array([1.0] * 8 + [0] * 24), 2)[[0, -1]].round(2).tolist()
    [2.0, 0.67]
    """
    rare = (y > 0) if y.mean() <= 0.5 else (y == 0)
    share = float(rare.mean())
    wanted = max(share, min(0.5, rare.sum() / (RARE_ROWS * bins)))
    return np.where(rare, wanted / share, (1 - wanted) / (1 - share))


def binned(x: Floats, places: Sequence[Floats]) -> Bins:
    """Return the nearest bin of every value."""
    sizes = np.array([len(own) for own in places])
    first = np.cumsum(sizes) - sizes
    codes = [np.searchsorted((own[1:] + own[:-1]) / 2, values) for own, values in zip(places, x.T, strict=True)]
    return Bins(np.array(codes) + first[:, None], sizes)


class _Steps:
    """Steps of single features at one quadratic approximation of the loss."""

    def __init__(self, rows: Bins, curves: Floats) -> None:
        self.rows, self.by_bin = rows, rows.sums(curves)
        self.below = rows.products(curves)  # cumulated: of all bins up to one
        counts = rows.sums(np.ones(rows.codes.shape[1]))
        self.parts: list[tuple[slice, Floats, Floats]] = []
        for first, size in zip(rows.first, rows.sizes, strict=True):
            own = slice(first, first + size)
            np.cumsum(self.below[own], 0, out=self.below[own])
            left, there = np.cumsum(self.by_bin[own])[:-1], np.cumsum(counts[own])[:-1]
            usable = np.minimum(there, counts[own].sum() - there) >= MIN_ROWS
            inverse = [1 / (np.maximum(part, 0) + CURVATURE) for part in (left, self.by_bin[own].sum() - left)]
            self.parts.append((own, usable * inverse[0], usable * inverse[1]))

    def round(self, shapes: Floats, slopes: Floats) -> None:
        """Give every feature, one after the other, a small step where the loss falls most; both arrays change."""
        for own, left, right in self.parts:
            total = np.cumsum(slopes[own])
            low, high = total[:-1], total[-1] - total[:-1]
            gain = low * low * left + high * high * right
            if not len(gain) or not gain.any():
                continue
            cut = int(gain.argmax())
            below, above = -RATE * low[cut] * left[cut], -RATE * high[cut] * right[cut]
            shapes[own][: cut + 1] += below
            shapes[own][cut + 1 :] += above
            slopes += (below - above) * self.below[own.start + cut] + above * self.by_bin


def mean_of_folds(
    x: Floats, y: Floats, test: Floats, parts: Sequence[tuple[Indices, Indices]]
) -> tuple[Floats, Floats]:
    """Return scores of test rows, the mean over folds, and of every other row by the fold that held it out."""
    places = learn_places(x, y)
    rows, judged = binned(x, places), binned(test, places)
    scores, held_out = np.zeros(len(test)), np.zeros(len(y))
    for kept, out in parts:
        base, shapes = boosted(rows.of(kept), y[kept], rows.of(out), y[out])
        scores += (base + judged.scores(shapes)) / len(parts)
        held_out[out] = base + rows.of(out).scores(shapes)
    return scores, held_out


def boosted(rows: Bins, y: Floats, held_out: Bins, kept: Floats) -> tuple[float, Floats]:
    """Return the base score and the shapes, `(bins,)`, with the least log loss on held-out rows."""
    odds = (y.mean() + 1e-9) / (1 - y.mean() + 1e-9)
    base, shapes = float(np.log(odds)), np.zeros(int(rows.sizes.sum()))
    best, since, found = log_loss(np.full(len(kept), base), kept), 0, shapes.copy()
    for number in range(0, MAX_ROUNDS, ROUNDS_A_LOOK):
        chance = 1 / (1 + np.exp(-base - rows.scores(shapes)))
        slopes = rows.sums(chance - y)
        if number % ROUNDS_A_CURVATURE == 0:
            steps = _Steps(rows, np.maximum(chance * (1 - chance), 1e-6))
        for _ in range(ROUNDS_A_LOOK):
            steps.round(shapes, slopes)
        loss, since = log_loss(base + held_out.scores(shapes), kept), since + 1
        if loss < best - 1e-6:
            best, since, found = loss, 0, shapes.copy()
        if since >= PATIENCE:
            break
    return base, found


def log_loss(scores: Floats, y: Floats) -> float:
    """Return the mean log loss of scores that are logits."""
    return float(np.logaddexp(0, (1 - 2 * y) * scores).mean())
