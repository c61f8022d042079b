"""Weighted confusion counts of a set: at threshold zero, and at every threshold the set can tell apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Confusion(NamedTuple):
    """Weights of true and false positives, of false and true negatives, each `(...)` or `(..., n + 1)`."""

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor


def confusion_at_zero(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Confusion:
    """Count what `scores >= 0` gets right and wrong: `(..., n)` -> four times `(...)`."""
    found, positive = scores >= 0, targets == 1
    if weights is None:
        total = torch.full(scores.shape[:-1], scores.shape[-1], dtype=counting_dtype(scores), device=scores.device)
        positives = positive.sum(-1).to(total)
        tp = (found & positive).sum(-1).to(total)
        fp = found.sum(-1).to(total) - tp
        return Confusion(tp, fp, positives - tp, total - positives - fp)
    weights = comparable(weights, scores)
    return Confusion(
        (weights * (found & positive)).sum(-1),
        (weights * (found & ~positive)).sum(-1),
        (weights * (~found & positive)).sum(-1),
        (weights * (~found & ~positive)).sum(-1),
    )


def confusion_curve(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Confusion:
    """Count right and wrong for every threshold, from the highest down: `(..., n)` -> four times `(..., n + 1)`.

    Point 0 calls nothing positive. Point i calls the i highest scores positive, unless that would cut through a group
    of equal scores: then it repeats the last point that does not. So every point can be reached by some threshold,
    and a group of equal scores is a single straight step of the curve.
    """
    order = descending_order(scores)
    ranked = scores.gather(-1, order)
    positive = (targets == 1).gather(-1, order)
    if weights is None:
        tp = positive.to(counting_dtype(scores)).cumsum(-1)
        fp = torch.arange(1, scores.shape[-1] + 1, dtype=tp.dtype, device=tp.device) - tp
    else:
        heavy = comparable(weights, scores).gather(-1, order)
        tp, fp = (heavy * positive).cumsum(-1), (heavy * ~positive).cumsum(-1)
    tied = ranked[..., :-1] == ranked[..., 1:]
    if bool(tied.any()):
        tp, fp = held_over(tp, tied), held_over(fp, tied)
    start = tp.new_zeros((*tp.shape[:-1], 1))
    all_positive, all_negative = tp[..., -1:] if tp.shape[-1] else start, fp[..., -1:] if fp.shape[-1] else start
    tp, fp = torch.cat((start, tp), -1), torch.cat((start, fp), -1)
    return Confusion(tp, fp, all_positive - tp, all_negative - fp)


def held_over(counts: Tensor, tied: Tensor) -> Tensor:
    """Replace rising counts inside a group of ties by the last count before it, `(..., n)`."""
    inside = torch.cat((tied, tied.new_zeros((*tied.shape[:-1], 1))), -1)
    return counts.masked_fill(inside, 0).cummax(-1).values


def descending_order(scores: Tensor) -> Tensor:
    """Return indices that sort each set from high to low; on a CPU by numpy, whose sort is vectorised."""
    if scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64):
        return torch.from_numpy((-scores.detach()).numpy().argsort(-1))
    return scores.argsort(-1, descending=True)


def counting_dtype(scores: Tensor) -> torch.dtype:
    """Return the type to count in: double wherever the device has it, so that a million rows do not round."""
    return torch.float32 if scores.device.type == "mps" else torch.float64


def comparable(weights: Tensor, scores: Tensor) -> Tensor:
    """Return weights of about one: only their ratios matter, and neither sums nor products can overflow.

    Each set is scaled by a power of two, which rounds nothing: whole weights still count exactly.
    """
    weights = weights.to(counting_dtype(scores))
    if not weights.shape[-1]:
        return weights
    heaviest = weights.amax(-1, keepdim=True)
    scale = (heaviest.frexp().mantissa / heaviest).clamp(max=0.25 / torch.finfo(weights.dtype).tiny)
    return torch.where(heaviest > 0, weights * scale, weights)
