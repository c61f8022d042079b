"""The columns of an additive model, learned from training rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.training.columns import Encoding
from metricgrad.training.knots import Knots, bins_for, learn_knots
from metricgrad.training.pairs import best_pairs, pair_cuts

PIECE_PENALTY, PAIR_PENALTY = 3.0, 10.0
"""Ridge weight of the rise over a bin, and of a cell of a pair, relative to that of a standardised number.

The first has the least cross-entropy on validation rows (`python -m studies.additive.penalty`); no stored study chose
the second.
"""
PAIR_CUTS, MAX_PAIR_ROWS = 3, 20_000
"""Cuts of a feature in a pair at most, and rows by which pairs are chosen."""
PAIR_RIDGE, NEWTON_STEPS = 1e-3, 5
"""Of the model of single features whose residuals pairs are chosen by."""
ROWS_AT_ONCE = 16_384
"""Rows whose columns are in memory at a time while they are prepared."""


def learn_encoding(
    x: Tensor, w: Tensor, y: Tensor | None, bins: int, interactions: int, monotone: Mapping[Any, int] | None
) -> Encoding:
    """Learn the columns of an additive model from training rows, `(rows, features)`."""
    signs = monotone_signs(monotone, x.shape[1])
    bins = bins_for(int((w > 0).sum()), bins)
    learned = [learn_knots(values, w.numpy(), bins) for values in x.double().numpy().T]
    counts = np.array([len(one.places) for one in learned])
    firsts = np.cumsum(counts) - counts
    starts = [first + np.arange(count - 1) for first, count in zip(firsts, counts, strict=True) if count > 2]
    start = np.concatenate(starts) if starts else np.zeros(0, np.int64)
    encoding = Encoding(x.shape[1], int(counts.sum()), len(start)).double()
    encoding.source = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    encoding.knots = torch.from_numpy(np.concatenate([one.places for one in learned]))
    encoding.share = torch.from_numpy(np.concatenate([one.share for one in learned]))
    encoding.start, encoding.sign = torch.from_numpy(start.astype(np.int64)), torch.from_numpy(signs)
    encoding.penalty[x.shape[1] :] = PIECE_PENALTY
    encoding.mean = _means(encoding, x, w)
    if interactions and y is not None:
        _add_pairs(encoding, learned, x, w, y, interactions)
    return encoding


def _add_pairs(encoding: Encoding, learned: Sequence[Knots], x: Tensor, w: Tensor, y: Tensor, most: int) -> None:
    """Add the cells of the best pairs of features; monotone features are in none."""
    free = (encoding.sign == 0).tolist()
    cuts = [pair_cuts(one, PAIR_CUTS) if usable else np.zeros(0) for one, usable in zip(learned, free, strict=True)]
    some = torch.linspace(0, len(x) - 1, min(MAX_PAIR_ROWS, len(x)), dtype=torch.float64).round().long()
    x, w, y = x[some].double(), w[some], y[some]
    steps = [_after_main_effects(encoding, x, w, targets) for targets in y.T]
    codes = [np.searchsorted(cut, column, side="right") for cut, column in zip(cuts, x.numpy().T, strict=True)]
    pairs = best_pairs(codes, cuts, [(slope.numpy(), curve.numpy()) for slope, curve in steps], most)
    grids = [(pair.first, pair.second, c, d) for pair in pairs for c in pair.cuts[0] for d in pair.cuts[1]]
    table = torch.tensor(grids, dtype=torch.float64).reshape(-1, 4)
    encoding.pair, encoding.cut = table[:, :2].long(), table[:, 2:]
    encoding.penalty = torch.cat((encoding.penalty, encoding.penalty.new_full((len(table),), PAIR_PENALTY)))
    encoding.mean = encoding.mean.new_zeros(len(encoding.penalty))
    encoding.mean = _means(encoding, x, w)


def _after_main_effects(encoding: Encoding, x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient and curvature of cross-entropy by row, once single features are fitted by Newton steps."""
    columns = torch.cat((encoding(x), x.new_ones(len(x), 1)), 1)
    ridge = PAIR_RIDGE * torch.cat((encoding.penalty, x.new_zeros(1))) + 1e-9
    w, weights = w / w.sum(), x.new_zeros(columns.shape[1])
    low, high = float(y.min()), float(y.max())
    y = (y - low) / max(high - low, 1e-12)  # grades of a ranking are ordered too
    for _ in range(NEWTON_STEPS):
        p = (columns @ weights).sigmoid()
        curve = columns.T @ (columns * (w * p * (1 - p)).unsqueeze(1)) + torch.diag(ridge)
        weights = weights - torch.linalg.solve(curve, columns.T @ (w * (p - y)) + ridge * weights)
    p = (columns @ weights).sigmoid()
    return w * (p - y), w * p * (1 - p)


def _means(encoding: Encoding, x: Tensor, w: Tensor) -> Tensor:
    """Return the mean of every column, `(columns,)`, some rows at a time."""
    total = torch.zeros(encoding.columns, dtype=torch.float64)
    encoding.mean = torch.zeros_like(total)
    for rows, weights in zip(x.split(ROWS_AT_ONCE), w.split(ROWS_AT_ONCE), strict=True):
        total += weights @ encoding(rows.double())
    return total / w.sum()


def monotone_signs(monotone: Mapping[Any, int] | None, features: int) -> NDArray[np.int64]:
    """Return the sign of every feature, `(features,)`; features are given by number here."""
    signs = np.zeros(features, np.int64)
    for feature, sign in (monotone or {}).items():
        if isinstance(feature, str) or not 0 <= feature < features:
            raise ValueError(f"monotone: expected a feature's name or a number below {features}, got {feature!r}")
        signs[feature] = sign
    return signs
