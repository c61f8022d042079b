"""Weighted counts that metrics are computed from: of two classes at zero or at every threshold, of many classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ROWS_PER_PART = 2**18
"""Rows of a long curve that are counted at a time."""
MIN_PACKED_SCORES = 4_096
"""Scores from which on they are sorted as integers that hold score and index; fewer are counted by numpy."""


Function = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]
"""A loss of sets: `(scores, targets, weights)`, `(..., n)` -> `(...)`."""


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


Counts = Callable[[Confusion], Tensor]
"""A loss of confusion counts, `(...)` -> `(...)`."""


class ClassCounts(NamedTuple):
    """Counts of several classes or labels: weights of correct, predicted and actual rows of each, `(..., c)`.

    `total` is the weight of all rows, `(...)`. `squared_distance` is the sum by weight of the squared distance between
    the index of the predicted and of the actual class, `(...)`; 0 for labels.
    """

    tp: Tensor
    predicted: Tensor
    actual: Tensor
    total: Tensor
    squared_distance: Tensor


ClassCountsLoss = Callable[[ClassCounts], Tensor]
"""A loss of class counts, `(..., c)` -> `(...)`."""


def ratio(part: Tensor, whole: Tensor, empty: float = 0.0) -> Tensor:
    """Return part / whole, or `empty` where the whole is 0."""
    there = whole > 0
    return torch.where(there, part / torch.where(there, whole, 1), empty)


# ---- two classes ---------------------------------------------------------------------------------------------------


def at_zero(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: Counts) -> Tensor:
    """Return the loss of the labels `scores >= 0`."""
    return counts(confusion_at_zero(scores, targets, weights))


def at_best(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: Counts) -> Tensor:
    """Return the lowest loss over all thresholds."""
    curve = (part for c in confusion_parts(scores, targets, weights) for part in _slices(c))
    least = [counts(part).amin(-1) for part in curve]
    return least[0] if len(least) == 1 else torch.stack(least).amin(0)


def _slices(c: Confusion) -> Iterator[Confusion]:
    """Yield parts of a long curve, so that what is computed of it takes little memory."""
    if c.tp.shape[-1] <= ROWS_PER_PART + 1:
        yield c
        return
    for start in range(0, c.tp.shape[-1], ROWS_PER_PART + 1):
        yield Confusion(*(each[..., start : start + ROWS_PER_PART + 1] for each in c))


def confusion_at_zero(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Confusion:
    """Count the labels `scores >= 0`: `(..., n)` -> four times `(...)`."""
    if weights is None:
        tp = called = positives = torch.zeros(scores.shape[:-1], dtype=counting_dtype(scores), device=scores.device)
        for part, labels in zip(scores.split(ROWS_PER_PART, -1), targets.split(ROWS_PER_PART, -1), strict=True):
            found, positive = part >= 0, labels == 1
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
    """Count at every threshold, from the highest down: `(..., n)` -> four times `(..., n + 1)`.

    Point 0 calls nothing positive. Point i calls the i highest scores positive, unless that would cut through a group
    of equal scores: then it repeats the last point that does not. So every point can be reached by some threshold,
    and a group of equal scores is a single straight step of the curve.
    """
    if weights is None and 0 < scores.numel() < MIN_PACKED_SCORES and _sorts_by_numpy(scores):
        return _small_curve(scores, targets)
    order = descending_order(scores)
    ranked = scores.gather(-1, order)
    tied = ranked[..., :-1] == ranked[..., 1:]
    del ranked  # of millions of rows, whatever is no longer needed is worth its memory
    positive = (targets == 1).gather(-1, order)
    if weights is None:
        tp = cumulated(positive, counting_dtype(scores))
        fp = torch.arange(tp.shape[-1], dtype=tp.dtype, device=tp.device) - tp
    else:
        scaled = comparable(weights, scores).gather(-1, order)
        tp, fp = cumulated(scaled * positive, scaled.dtype), cumulated(scaled * ~positive, scaled.dtype)
    if bool(tied.any()):
        tp, fp = held_over(tp, tied), held_over(fp, tied)
    return Confusion(tp, fp, tp[..., -1:] - tp, fp[..., -1:] - fp)


def _small_curve(scores: Tensor, targets: Tensor) -> Confusion:
    """Return the curve of small sets by numpy, whose operations take a fraction of the time of torch's."""
    rows = scores.shape[-1]
    values = scores.detach().numpy().reshape(-1, rows)
    order = np.negative(values).argsort(-1)
    order += np.arange(0, values.size, rows)[:, None]  # places among the rows of all sets
    ranked = values.take(order)
    tied = ranked[:, :-1] == ranked[:, 1:]
    curve = np.zeros((4, len(values), rows + 1))
    tp, fp, fn, tn = curve
    np.cumsum((targets.detach().numpy().reshape(-1, rows) == 1).take(order), -1, out=tp[:, 1:])
    np.subtract(np.arange(rows + 1), tp, out=fp)
    if tied.any():
        for counts in (tp, fp):
            counts[:, 1:rows][tied] = 0
            np.maximum.accumulate(counts, -1, out=counts)
    np.subtract(tp[:, -1:], tp, out=fn)
    np.subtract(fp[:, -1:], fp, out=tn)
    return Confusion(*torch.from_numpy(curve).view(4, *scores.shape[:-1], -1).unbind())


def confusion_parts(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Iterator[Confusion]:
    """Yield the curve of long sets in parts, each beginning with the last point of the one before.

    A part fits into the processor's cache; a curve of millions of rows would go through memory many times. Weighted
    sets come in one part: otherwise rounding would leave weight at the end of the curve.
    """
    rows = scores.shape[-1]
    if weights is not None or rows <= ROWS_PER_PART:
        yield confusion_curve(scores, targets, weights)
        return
    dtype, start = counting_dtype(scores), 0
    positives = sum((labels == 1).sum(-1, keepdim=True).to(dtype) for labels in targets.split(ROWS_PER_PART, -1))
    found = scores.new_zeros((*scores.shape[:-1], 1), dtype=dtype)
    held = found, found
    for positive, tied in _ranked_parts(scores, targets):
        tp = cumulated(positive, dtype).add_(found)
        fp = torch.arange(start, start + tp.shape[-1], dtype=dtype, device=tp.device) - tp
        found, start = tp[..., -1:].clone(), start + positive.shape[-1]
        tp[..., :1], fp[..., :1] = held
        if bool(tied.any()):
            tp, fp = held_over(tp, tied), held_over(fp, tied)
        held = tp[..., -1:].clone(), fp[..., -1:].clone()
        yield Confusion(tp, fp, positives - tp, rows - positives - fp)


def _ranked_parts(scores: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield masks of positives and of ties with the next row, for parts of the rows from the highest score down."""
    rows = scores.shape[-1]
    if not _sort_packed(scores):
        order = descending_order(scores)
        for start in range(0, rows, ROWS_PER_PART):
            ranked = scores.gather(-1, order[..., start : start + ROWS_PER_PART + 1])
            positive = targets.gather(-1, order[..., start : start + ROWS_PER_PART]) == 1
            yield positive, ranked[..., :-1] == ranked[..., 1:]
        return
    # Keys hold score and target, so that nothing is gathered afterwards; numpy requests large pages, torch does not.
    keys = torch.from_numpy(np.empty(scores.shape, np.int64))
    for part, values, labels in zip(*(each.split(ROWS_PER_PART, -1) for each in (keys, scores, targets)), strict=True):
        torch.add(labels == 1, _descending_bits(values).long(), alpha=2, out=part)
    keys.numpy().sort(-1)
    for start in range(0, rows, ROWS_PER_PART):
        ranked = keys[..., start : start + ROWS_PER_PART + 1] >> 1
        yield keys[..., start : start + ROWS_PER_PART] & 1, ranked[..., :-1] == ranked[..., 1:]


def cumulated(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """Return cumulative sums that start at 0: `(..., n)` -> `(..., n + 1)`."""
    sums = counts.new_zeros((*counts.shape[:-1], counts.shape[-1] + 1), dtype=dtype)
    torch.cumsum(counts, -1, dtype=dtype, out=sums[..., 1:])
    return sums


def held_over(counts: Tensor, tied: Tensor) -> Tensor:
    """Replace rising counts inside a group of ties by the last count before it, `(..., n + 1)`."""
    counts[..., 1 : tied.shape[-1] + 1].masked_fill_(tied, 0)
    return counts.cummax(-1).values


def descending_order(scores: Tensor) -> Tensor:
    """Return indices that sort each set from high to low; on a CPU by numpy, whose sort is vectorised.

    Sorting integers is faster than `argsort`, so many float32 scores are sorted as integers that hold score and index.
    """
    if not _sorts_by_numpy(scores):
        return scores.argsort(-1, descending=True)
    if not _sort_packed(scores):
        return torch.from_numpy((-scores.detach()).numpy().argsort(-1))
    indices = torch.arange(scores.shape[-1], dtype=torch.int32)
    keys = _descending_bits(scores).long().bitwise_left_shift_(32).bitwise_or_(indices)
    keys.numpy().sort(-1)
    return keys.bitwise_and_(0xFFFFFFFF)


def _sorts_by_numpy(scores: Tensor) -> bool:
    return scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64)


def _sort_packed(scores: Tensor) -> bool:
    return scores.device.type == "cpu" and scores.dtype == torch.float32 and scores.numel() >= MIN_PACKED_SCORES


def _descending_bits(scores: Tensor) -> Tensor:
    """Return 32-bit integers that fall as float32 scores rise, and are equal where the scores are."""
    bits = (0.0 - scores.detach()).view(torch.int32)  # never -0.0, whose bits differ from those of 0.0
    return bits.bitwise_xor_((bits >> 31).bitwise_and_(0x7FFFFFFF))


# ---- several classes or labels ------------------------------------------------------------------------------------


def class_counts(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> ClassCounts:
    """Count the classes of the highest score of each row: `(..., n, c)` -> counts `(..., c)`."""
    weights = row_weights(scores, weights)
    predicted, actual = scores.argmax(-1), class_of(targets)
    # All three are summed in one order, so that they are equal to the last bit where all rows are correct.
    zeros = weights.new_zeros((*scores.shape[:-2], scores.shape[-1]))
    return ClassCounts(
        zeros.scatter_add(-1, predicted, weights * (predicted == actual)),
        zeros.scatter_add(-1, predicted, weights),
        zeros.scatter_add(-1, actual, weights),
        weights.sum(-1),
        (weights * (predicted - actual).square()).sum(-1),
    )


def label_counts(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> ClassCounts:
    """Count the labels `scores >= 0`: `(..., n, c)` -> counts `(..., c)`."""
    weights = row_weights(scores, weights)
    called, positive = scores >= 0, targets == 1
    tp, predicted, actual = ((weights.unsqueeze(-1) * rows).sum(-2) for rows in (called & positive, called, positive))
    total = weights.sum(-1)
    return ClassCounts(tp, predicted, actual, total, torch.zeros_like(total))


def row_weights(scores: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weights to count rows with, of about one: `(..., n)`."""
    rows = scores.shape[:-1]
    if weights is None:
        return torch.ones(rows, dtype=counting_dtype(scores), device=scores.device)
    return comparable(weights.expand(rows), scores)


def class_of(targets: Tensor) -> Tensor:
    """Return the index of the class of every row: `(..., n, c)` -> `(..., n)`."""
    return (targets == 1).to(torch.uint8).argmax(-1)


# ---- precision and scale -------------------------------------------------------------------------------------------


def counting_dtype(scores: Tensor) -> torch.dtype:
    """Return the dtype to count in: float64 where the device has it, so that counts of many rows are exact."""
    return torch.float32 if scores.device.type == "mps" else torch.float64


def comparable(weights: Tensor, scores: Tensor) -> Tensor:
    """Scale weights to about one: only their ratios matter, and neither sums nor products can overflow.

    Each set is scaled by a power of two, which is exact: integer weights still count exactly.
    """
    weights = weights.to(counting_dtype(scores))
    if not weights.shape[-1]:
        return weights
    heaviest = weights.amax(-1, keepdim=True)
    scale = (heaviest.frexp().mantissa / heaviest).clamp(max=0.25 / torch.finfo(weights.dtype).tiny)
    return torch.where(heaviest > 0, weights * scale, weights)
