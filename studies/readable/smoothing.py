"""Additive models with a ridge penalty of their own for every feature, found from the training rows alone.

Penalties are those of the generalised Fellner-Schall method (Wood and Fasiolo 2017): those under which weights as large
as those found would be likely. No row is held out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri
from torch import Tensor

from metricgrad.training.additive import Additive
from metricgrad.training.data import Scaler

Floats, Indices = NDArray[np.float64], NDArray[np.int64]
MAX_STEPS, FIRST_STEPS = 15, 5
"""Changes of the penalties at most, and Newton steps before the first."""
PENALTIES = (1e-3, 1e7)
LARGEST_STEP = 3.0
"""By how much a Newton step may change a score."""
SETTLED = 0.05
"""Change of the degrees of freedom of all features together at which penalties have settled."""


def mean_of_folds(
    x: Floats, y: Floats, test: Floats, parts: Sequence[tuple[Indices, Indices]]
) -> tuple[Floats, Floats]:
    """Return scores of test rows, the mean over folds, and of every other row by the fold that held it out."""
    scores, held_out = np.zeros(len(test)), np.zeros(len(y))
    for kept, out in parts:
        scaler = Scaler.fit(x, kept, None, standardise=True)
        own, others, judged = (
            torch.from_numpy((rows - scaler.centre) / scaler.scale) for rows in (x[kept], x[out], test)
        )
        model = Additive(x.shape[1]).double()
        model.prepare(own)
        smoothed(model, own, y[kept])
        with torch.no_grad():
            held_out[out] = model(others).numpy()[:, 0]
            scores += model(judged).numpy()[:, 0] / len(parts)
    return scores, held_out


def smoothed(model: Additive, x: Tensor, y: Floats) -> Additive:
    """Fit an additive model that has been prepared; lines and bends of a feature have a penalty each."""
    columns, groups = np.ascontiguousarray(model.design(x.double()).numpy(), np.float32), _groups(model)
    relative, count = model.penalty.numpy(), int(groups.max()) + 1
    penalties, weights = np.ones(count), np.zeros(columns.shape[1])
    base, free = float(np.log((y.mean() + 1e-9) / (1 - y.mean() + 1e-9))), 0.0
    for number in range(MAX_STEPS):
        for _ in range(1 if number else FIRST_STEPS):
            base, weights, spread = _newton(columns, y, base, weights, penalties[groups] * relative)
        taken = np.bincount(groups, np.diag(spread) * relative, minlength=count)
        size = np.bincount(groups, weights**2 * relative, minlength=count)
        rank = np.bincount(groups, minlength=count)
        wanted = np.maximum(rank - penalties * taken, 1e-6 * rank) / np.maximum(size, 1e-10)
        wanted = np.clip(np.clip(wanted, *PENALTIES), penalties / 30, penalties * 30)
        free, before = float((rank - penalties * taken).sum()), free
        penalties = wanted
        if abs(free - before) < SETTLED:
            break
    with torch.no_grad():
        model.head.weight.copy_(torch.from_numpy(weights).unsqueeze(0))
        model.head.bias.fill_(base)
    return model


def _groups(model: Additive) -> NDArray[np.int64]:
    """Return the penalty of every column: that of the line of its feature, or that of its bends."""
    encoding = model.encoding
    lines = 2 * np.arange(encoding.features)
    bends = 2 * encoding.source[encoding.start].numpy() + 1
    _, groups = np.unique(np.concatenate((lines, bends)), return_inverse=True)
    return np.asarray(groups, np.int64)


def _newton(columns: Floats, y: Floats, base: float, weights: Floats, penalty: Floats) -> tuple[float, Floats, Floats]:
    """Return base and weights after a Newton step of penalised log loss, and the inverse of its curvature."""
    chance = 1 / (1 + np.exp(-base - columns @ weights))
    curves = np.maximum(chance * (1 - chance), 1e-8)
    mean, total = columns.T @ curves, curves.sum()
    products = columns.T @ (columns * curves[:, None].astype(np.float32))
    curvature = products.astype(np.float64) - np.outer(mean, mean) / total + np.diag(penalty)
    spread = _inverse(curvature)
    lift = (y - chance).sum()
    step = spread @ (columns.T @ (y - chance) - penalty * weights - mean * lift / total)
    shift = float(lift - mean @ step) / total
    share = min(1.0, LARGEST_STEP / max(float(np.abs(columns @ step + shift).max()), 1e-9))
    return base + share * shift, weights + share * step, spread


def _inverse(matrix: Floats) -> Floats:
    """Return the inverse of a positive definite matrix."""
    half, failed = dpotri(dpotrf(matrix, lower=True)[0], lower=True)
    if failed:
        return np.linalg.pinv(matrix)
    return np.asarray(np.tril(half) + np.tril(half, -1).T)
