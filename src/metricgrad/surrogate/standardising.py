"""How the scores of a set are standardised before they are pooled, both classes counting the same."""

from __future__ import annotations

import math

import torch
from torch import Tensor

EPSILON = 1e-12
SCORE_STRETCH = 1.5
"""Scores are compressed by asinh(1.5 s) before they are compared with the thresholds of a fixed g."""
TOP_POSITION = 2.1
"""Where `"top"` maps the highest score, just below the highest threshold of a fixed g."""
MIN_TOP_DISTANCE, MAX_TOP_DISTANCE = 0.02, 6.0
"""Distances from the highest score, in standard deviations, that `"top"` resolves."""


def standardised(scores: Tensor, classes: Tensor, weights: Tensor, how: str) -> Tensor:
    """Centre and scale the scores of each set, positives and negatives counting the same; `(..., n)` -> `(..., n)`."""
    if how == "none":
        return scores
    both = classes.sum(-2)
    both = both / both.sum(-1, keepdim=True).clamp(min=EPSILON)
    if how in ("shift", "top"):
        scores = scores - (both * scores).sum(-1, keepdim=True)
    scores = scores * ((both * scores.square()).sum(-1, keepdim=True) + EPSILON).rsqrt()
    return from_the_top(scores, weights) if how == "top" else scores


def from_the_top(scores: Tensor, weights: Tensor) -> Tensor:
    """Spread out the first few rows of each set: scores by the logarithm of their distance from the highest.

    The highest score is mapped to `TOP_POSITION` and one at `MAX_TOP_DISTANCE` to `-TOP_POSITION`, in the compressed
    scale of a fixed g; equal scores stay equal, and rows of weight zero do not count.
    """
    if not scores.shape[-1]:
        return scores
    highest = scores.masked_fill(weights == 0, -torch.inf).amax(-1, keepdim=True)
    distance = (highest - scores).clamp(min=0)
    low, high = math.log(MIN_TOP_DISTANCE), math.log(MIN_TOP_DISTANCE + MAX_TOP_DISTANCE)
    position = TOP_POSITION - 2 * TOP_POSITION * ((distance + MIN_TOP_DISTANCE).log() - low) / (high - low)
    return position.sinh() / SCORE_STRETCH


def class_weights(targets: Tensor, weights: Tensor) -> Tensor:
    """Return the weights of positives and of negatives, each summing to one, or to zero where there are none.

    `(..., n)` -> `(..., 2, n)`.
    """
    both = torch.stack((targets, 1 - targets), -2) * weights.unsqueeze(-2)
    return both / both.sum(-1, keepdim=True).clamp(min=EPSILON)
