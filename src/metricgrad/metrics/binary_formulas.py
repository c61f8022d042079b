"""The formulas of the built-in metrics: losses from confusion counts, and losses from the whole curve of a set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Confusion, confusion_at_zero, confusion_curve, confusion_parts

Function = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]
Counts = Callable[[Confusion], Tensor]


# ---- losses of confusion counts ------------------------------------------------------------------------------------


def ratio(part: Tensor, whole: Tensor, empty: float = 0.0) -> Tensor:
    """Return part / whole, or `empty` where the whole is nothing."""
    return torch.where(whole > 0, part / whole.where(whole > 0, torch.ones_like(whole)), empty)


def error_rate_loss(c: Confusion) -> Tensor:
    """Share of weight on the wrong side."""
    return ratio(c.fp + c.fn, c.tp + c.fp + c.fn + c.tn)


def f_beta_loss(c: Confusion, beta: float) -> Tensor:
    """One minus the F-measure."""
    square = beta**2
    return 1 - ratio((1 + square) * c.tp, (1 + square) * c.tp + square * c.fn + c.fp)


def mcc_loss(c: Confusion) -> Tensor:
    """Matthews correlation turned into a loss, (1 - MCC) / 2."""
    called, classes = (c.tp + c.fp) * (c.tn + c.fn), (c.tp + c.fn) * (c.tn + c.fp)
    return (1 - ratio(c.tp * c.tn - c.fp * c.fn, (called * classes).sqrt()).clamp(-1, 1)) / 2


def jaccard_loss(c: Confusion) -> Tensor:
    """One minus the intersection over the union."""
    return 1 - ratio(c.tp, c.tp + c.fp + c.fn)


def balanced_error_loss(c: Confusion) -> Tensor:
    """Mean error of the classes that are there."""
    positives, negatives = c.tp + c.fn, c.fp + c.tn
    classes = (positives > 0).to(positives) + (negatives > 0).to(negatives)
    return ratio(ratio(c.fn, positives) + ratio(c.fp, negatives), classes, empty=0.5)


def precision_loss(c: Confusion) -> Tensor:
    """One minus precision."""
    return 1 - ratio(c.tp, c.tp + c.fp)


def recall_loss(c: Confusion) -> Tensor:
    """One minus recall."""
    return 1 - ratio(c.tp, c.tp + c.fn)


def at_zero(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: Counts) -> Tensor:
    """Judge what `scores >= 0` says."""
    return counts(confusion_at_zero(scores, targets, weights))


def at_best(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: Counts) -> Tensor:
    """Judge at every threshold and take the least."""
    return torch.stack([counts(c).amin(-1) for c in confusion_parts(scores, targets, weights)]).amin(0)


# ---- losses of the whole ranking -----------------------------------------------------------------------------------


def auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Area above the ROC curve."""
    areas = []
    for c in confusion_parts(scores, targets, weights):
        positives, negatives = c.classes
        areas.append((c.fp.diff() * (c.fn[..., 1:] + c.fn[..., :-1])).sum(-1) / 2)
    return ratio(sum_of(areas), (positives * negatives)[..., 0], empty=0.5).clamp(0, 1)


def partial_auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, max_fpr: float) -> Tensor:
    """One minus the area under the ROC curve up to `max_fpr`, standardised by McClish."""
    areas = []
    for c in confusion_parts(scores, targets, weights):
        positives, negatives = c.classes
        tpr, fpr = ratio(c.tp, positives), ratio(c.fp, negatives)
        inside = share_below(fpr, max_fpr)
        areas.append((fpr.diff() * inside * (tpr[..., :-1] + tpr.diff() * inside / 2)).sum(-1))
    least = max_fpr**2 / 2
    loss = (1 - (sum_of(areas) - least) / (max_fpr - least)) / 2
    return torch.where((positives * negatives)[..., 0] > 0, loss.clamp(0, 1), 0.5)


def average_precision_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean precision over the positives."""
    lost = []
    for c in confusion_parts(scores, targets, weights):
        positives, _ = c.classes
        lost.append((c.tp.diff() * ratio(c.fp, c.tp + c.fp)[..., 1:]).sum(-1))
    return ratio(sum_of(lost), positives[..., 0], empty=1.0).clamp(0, 1)


def eer_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of miss and false-alarm rate where they are nearest; of two equally near points the lower mean."""
    c = confusion_curve(scores, targets, weights)
    positives, negatives = c.fn[..., :1], c.tn[..., :1]
    fnr, fpr = ratio(c.fn, positives), ratio(c.fp, negatives)
    distance = (fnr - fpr).abs()
    nearest = distance <= distance.amin(-1, keepdim=True) + 1e3 * torch.finfo(distance.dtype).eps
    rate = ((fnr + fpr) / 2).masked_fill(~nearest, 1).amin(-1)
    return torch.where((positives * negatives)[..., 0] > 0, rate, 0.5)


def precision_at_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, fraction: float) -> Tensor:
    """One minus the precision of the top fraction by weight; ties at the cut count in part."""
    found = []
    for c in confusion_parts(scores, targets, weights):
        positives, negatives = c.classes
        top = fraction * (positives + negatives)
        found.append((c.tp.diff() * share_below(c.tp + c.fp, top)).sum(-1))
    return 1 - ratio(sum_of(found), top[..., 0]).clamp(0, 1)


def recall_at_precision_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, precision: float) -> Tensor:
    """One minus the largest recall with at least this precision."""
    most = []
    for c in confusion_parts(scores, targets, weights):
        positives, _ = c.classes
        precise = ratio(c.tp, c.tp + c.fp) >= precision - 1e3 * torch.finfo(c.tp.dtype).eps
        most.append(c.tp.masked_fill(~precise, 0).amax(-1))
    return 1 - ratio(torch.stack(most).amax(0), positives[..., 0])


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """Add up what the parts of a curve come to."""
    return torch.stack(list(parts)).sum(0)


def share_below(rising: Tensor, limit: Tensor | float) -> Tensor:
    """Return the share of each step of a rising curve that lies below the limit: `(..., n + 1)` -> `(..., n)`."""
    return ratio(limit - rising[..., :-1], rising.diff()).clamp(0, 1)
