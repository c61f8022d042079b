"""The gradient of a step metric along directions that a model can take, by antithetic probes, and its noise ceiling.

A metric of a set is a step function of its scores: its gradient is zero wherever there is one. What a model can follow
is the slope of the metric smoothed over moves that the model can make: the rows of a set move along the span of its
features, not one by one. With orthonormal directions `d_1 .. d_k` (columns of unit mean square over the rows) and
`s(e) = s + width / sqrt(k) * spread(s) * D e`, the probed gradient is the least-squares slope of
`(L(s(e)) - L(s(-e))) / 2` on Gaussian `e`: in expectation the gradient of `E L(s(e))`. On average, rows move by `width`
standard deviations of the scores. Two independent halves of the probes give the noise ceiling, the cosine between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.metrics.metric import Metric

WIDTH = 0.1
"""How far a row moves on average, in standard deviations of the scores."""
DIRECTIONS = 16
"""Principal directions of the features, beside the constant one."""
PAIRS = 192
"""Antithetic probes of each half."""


@dataclass(frozen=True)
class ScoredSet:
    """A set as a model scores it: scores, targets and weights `(n,)`, and directions `(n, k)` it can be moved along."""

    scores: Tensor
    targets: Tensor
    weights: Tensor
    directions: Tensor


class Cosines(NamedTuple):
    """Cosine of a surrogate's gradient with the probed one, and of the two halves of the probes with each other."""

    cosine: float
    ceiling: float


def principal_directions(features: Tensor, count: int = DIRECTIONS) -> Tensor:
    """Return the first principal directions of the rows, and a constant one: `(n, d)` -> `(n, at most count + 1)`.

    They are orthogonal and of unit mean square.
    """
    centred = features.double() - features.double().mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    kept = [j for j in range(len(values) - 1, -1, -1) if values[j] > 1e-8 * values[-1]][:count]
    moves = centred @ vectors[:, kept] / values[kept].sqrt()
    return torch.cat((moves, torch.ones(len(moves), 1, dtype=moves.dtype)), 1).to(features.dtype)


def moved_scores(one: ScoredSet, width: float, pairs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return probes `(pairs, k)`, and what they add to the scores, `(pairs, n)`."""
    k = one.directions.shape[1]
    noise = torch.randn(pairs, k, generator=generator, dtype=one.scores.dtype)
    return noise, width / k**0.5 * one.scores.std() * noise @ one.directions.T


@torch.no_grad()
def probed_gradient(metric: Metric, one: ScoredSet, width: float, pairs: int, generator: torch.Generator) -> Tensor:
    """Return the gradient of a smoothed metric along each direction, `(k,)`, up to a common factor."""
    noise, moves = moved_scores(one, width, pairs, generator)
    targets, weights = one.targets.expand_as(moves), one.weights.expand_as(moves)
    slopes = (metric(one.scores + moves, targets, weights) - metric(one.scores - moves, targets, weights)) / 2
    return torch.linalg.lstsq(noise.double(), slopes.double().unsqueeze(-1)).solution[:, 0]


def followed_gradient(loss: Callable[..., Tensor], one: ScoredSet) -> Tensor:
    """Return the gradient of a differentiable loss along each direction, `(k,)`."""
    leaf = one.scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf[None], one.targets[None], one.weights[None]).sum(), leaf)
    return one.directions.double().T @ gradient.double()


def probed_halves(
    metric: Metric, one: ScoredSet, *, width: float = WIDTH, pairs: int = PAIRS, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return two independent estimates of the probed gradient."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (probed_gradient(metric, one, width, pairs, generator) for _ in range(2))
    return first, second


def cosines(gradient: Tensor, halves: tuple[Tensor, Tensor]) -> Cosines:
    """Compare a gradient with the mean of the two halves, and these with each other."""
    return Cosines(cosine(gradient, halves[0] + halves[1]), cosine(*halves))


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine between two vectors, 0 if one of them is zero."""
    length = one.norm() * other.norm()
    return float(one @ other / length) if float(length) > 0 else 0.0
