"""Weighted confusion counts of a set: at threshold zero, and at every threshold the set can tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

PART = 2**18
"""Rows of a curve that are counted at a time."""
MANY = 4_096
"""Scores from which on they are sorted together with their places."""


class Confusion(NamedTuple):
    """Weights of true and false positives, of false and true negatives, each `(...)` or `(..., n + 1)`."""

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor

    @property
    def classes(self) -> tuple[Tensor, Tensor]:
        """Weights of the positives and of the negatives of a curve: `(..., 1)`."""
        return self.tp[..., :1] + self.fn[..., :1], self.fp[..., :1] + self.tn[..., :1]


def confusion_at_zero(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Confusion:
    """Count what `scores >= 0` gets right and wrong: `(..., n)` -> four times `(...)`."""
    if weights is None:
        tp = called = positives = torch.zeros(scores.shape[:-1], dtype=counting_dtype(scores), device=scores.device)
        for some, own in zip(scores.split(PART, -1), targets.split(PART, -1), strict=True):
            found, positive = some >= 0, own == 1
            called, positives = called + found.sum(-1), positives + positive.sum(-1)
            tp = tp + (found & positive).sum(-1)
        return Confusion(tp, called - tp, positives - tp, scores.shape[-1] - called - positives + tp)
    found, positive, weights = scores >= 0, targets == 1, comparable(weights, scores)
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
    tied = ranked[..., :-1] == ranked[..., 1:]
    positive = (targets == 1).gather(-1, order)
    if weights is None:
        tp = summed(positive, counting_dtype(scores))
        fp = torch.arange(tp.shape[-1], dtype=tp.dtype, device=tp.device) - tp
    else:
        heavy = comparable(weights, scores).gather(-1, order)
        tp, fp = summed(heavy * positive, heavy.dtype), summed(heavy * ~positive, heavy.dtype)
    if bool(tied.any()):
        tp, fp = held_over(tp, tied), held_over(fp, tied)
    return Confusion(tp, fp, tp[..., -1:] - tp, fp[..., -1:] - fp)


def confusion_parts(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Iterator[Confusion]:
    """Yield the curve of long sets in parts, each beginning with the last point of the one before.

    A part stays near the processor; a curve of millions of rows would go through memory many times. Weighted sets come
    whole, for only then do their sums end at exactly nothing left.
    """
    rows = scores.shape[-1]
    if weights is not None or rows <= PART:
        yield confusion_curve(scores, targets, weights)
        return
    dtype, start = counting_dtype(scores), 0
    positives = sum((own == 1).sum(-1, keepdim=True).to(dtype) for own in targets.split(PART, -1))
    found = scores.new_zeros((*scores.shape[:-1], 1), dtype=dtype)
    held = found, found
    for positive, tied in _from_the_highest(scores, targets):
        tp = summed(positive, dtype).add_(found)
        fp = torch.arange(start, start + tp.shape[-1], dtype=dtype, device=tp.device) - tp
        found, start = tp[..., -1:].clone(), start + positive.shape[-1]
        tp[..., :1], fp[..., :1] = held
        if bool(tied.any()):
            tp, fp = held_over(tp, tied), held_over(fp, tied)
        held = tp[..., -1:].clone(), fp[..., -1:].clone()
        yield Confusion(tp, fp, positives - tp, rows - positives - fp)


def _from_the_highest(scores: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield of some rows at a time, from the highest score down, which are positive and which are tied to the next."""
    rows = scores.shape[-1]
    if not _sorted_as_numbers(scores):
        order = descending_order(scores)
        for start in range(0, rows, PART):
            ranked = scores.gather(-1, order[..., start : start + PART + 1])
            positive = targets.gather(-1, order[..., start : start + PART]) == 1
            yield positive, ranked[..., :-1] == ranked[..., 1:]
        return
    # Score and target, so that nothing is looked up afterwards; numpy asks the system for large pages, torch does not.
    keys = torch.from_numpy(np.empty(scores.shape, np.int64))
    for part, some, own in zip(*(each.split(PART, -1) for each in (keys, scores, targets)), strict=True):
        torch.add(own == 1, _falling(some).long(), alpha=2, out=part)
    keys.numpy().sort(-1)
    for start in range(0, rows, PART):
        ranked = keys[..., start : start + PART + 1] >> 1
        yield keys[..., start : start + PART] & 1, ranked[..., :-1] == ranked[..., 1:]


def summed(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum up what is counted, from nothing on: `(..., n)` -> `(..., n + 1)`."""
    sums = counts.new_zeros((*counts.shape[:-1], counts.shape[-1] + 1), dtype=dtype)
    torch.cumsum(counts, -1, dtype=dtype, out=sums[..., 1:])
    return sums


def held_over(counts: Tensor, tied: Tensor) -> Tensor:
    """Replace rising counts inside a group of ties by the last count before it, `(..., n + 1)`."""
    counts[..., 1 : tied.shape[-1] + 1].masked_fill_(tied, 0)
    return counts.cummax(-1).values


def descending_order(scores: Tensor) -> Tensor:
    """Return indices that sort each set from high to low; on a CPU by numpy, whose sort is vectorised.

    That of whole numbers is faster than its search for an order, so many single scores are sorted as numbers that hold
    score and place.
    """
    if scores.device.type != "cpu" or scores.dtype not in (torch.float32, torch.float64):
        return scores.argsort(-1, descending=True)
    if not _sorted_as_numbers(scores):
        return torch.from_numpy((-scores.detach()).numpy().argsort(-1))
    places = torch.arange(scores.shape[-1], dtype=torch.int32)
    keys = _falling(scores).long().bitwise_left_shift_(32).bitwise_or_(places)
    keys.numpy().sort(-1)
    return keys.bitwise_and_(0xFFFFFFFF)


def _sorted_as_numbers(scores: Tensor) -> bool:
    return scores.device.type == "cpu" and scores.dtype == torch.float32 and scores.numel() >= MANY


def _falling(scores: Tensor) -> Tensor:
    """Return whole numbers of 32 bits that fall as single scores rise, and are equal where these are."""
    bits = (0.0 - scores.detach()).view(torch.int32)  # not -0.0, whose bits are others
    return bits.bitwise_xor_((bits >> 31).bitwise_and_(0x7FFFFFFF))


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
