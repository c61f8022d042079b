"""Metrics of two classes: losses of confusion counts, and losses of the whole ranking of a set.

What a set that cannot be judged loses (never NaN):

- `auc`, `eer`, `partial_auc`, `mcc` and an empty set under `balanced_error`: 0.5, as chance does;
- metrics that look for positives (`f1`, `f_beta`, `jaccard`, `precision`, `recall`, `average_precision`, `pr_auc`,
  `precision_at`, `recall_at_precision`, `precision_at_recall`, `fnr_at_fpr`): 1 where there is nothing to find or
  nothing was found, as scikit-learn;
- `ks` without rows of both classes: 1, as chance does;
- `balanced_error` with one class: the error of that class; `error_rate` of an empty set: 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from metricgrad.metrics.confusion import (
    Confusion,
    Counts,
    at_best,
    at_zero,
    confusion_curve,
    confusion_parts,
    ratio,
)
from metricgrad.metrics.metric import Metric, loss_name, number_setting, short

# ---- losses of confusion counts ------------------------------------------------------------------------------------


def error_rate_loss(c: Confusion) -> Tensor:
    """Share of the weight that is misclassified."""
    return ratio(c.fp + c.fn, c.tp + c.fp + c.fn + c.tn)


def f_beta_loss(c: Confusion, beta: float) -> Tensor:
    """One minus the F-measure."""
    square = beta**2
    found = (1 + square) * c.tp
    return 1 - ratio(found, found + square * c.fn + c.fp)


def mcc_loss(c: Confusion) -> Tensor:
    """Matthews correlation turned into a loss, (1 - MCC) / 2."""
    called, classes = (c.tp + c.fp) * (c.tn + c.fn), (c.tp + c.fn) * (c.tn + c.fp)
    return (1 - ratio(c.tp * c.tn - c.fp * c.fn, (called * classes).sqrt()).clamp(-1, 1)) / 2


def jaccard_loss(c: Confusion) -> Tensor:
    """One minus the intersection over the union."""
    return 1 - ratio(c.tp, c.tp + c.fp + c.fn)


def balanced_error_loss(c: Confusion) -> Tensor:
    """Mean error of the classes that are present."""
    positives, negatives = c.tp + c.fn, c.fp + c.tn
    classes = (positives > 0).to(positives) + (negatives > 0).to(negatives)
    return ratio(ratio(c.fn, positives) + ratio(c.fp, negatives), classes, empty=0.5)


def precision_loss(c: Confusion) -> Tensor:
    """One minus precision."""
    return 1 - ratio(c.tp, c.tp + c.fp)


def recall_loss(c: Confusion) -> Tensor:
    """One minus recall."""
    return 1 - ratio(c.tp, c.tp + c.fn)


# ---- losses of confusion counts at the one threshold that a metric belongs to --------------------------------------

# Thresholds that meet the condition lose at most 1, all others more, and less the nearer they come to it. The slack is
# for weights: sums of them in another order must not decide whether a condition is met.


def recall_at_precision_loss(c: Confusion, precision: float) -> Tensor:
    """One minus recall where the precision is reached."""
    reached = ratio(c.tp, c.tp + c.fp)
    return torch.where(reached >= precision - _slack(reached), recall_loss(c), 2 - reached)


def precision_at_recall_loss(c: Confusion, recall: float) -> Tensor:
    """One minus precision where the recall is reached."""
    reached = ratio(c.tp, c.tp + c.fn)
    return torch.where(reached >= recall - _slack(reached), precision_loss(c), 2 - reached)


def fnr_at_fpr_loss(c: Confusion, fpr: float) -> Tensor:
    """Miss rate where the false-alarm rate is not exceeded."""
    alarmed = ratio(c.fp, c.fp + c.tn)
    return torch.where(alarmed <= fpr + _slack(alarmed), recall_loss(c), 1 + alarmed)


def ks_loss(c: Confusion) -> Tensor:
    """One minus the difference of recall and false-alarm rate."""
    positives, negatives = c.tp + c.fn, c.fp + c.tn
    loss = (ratio(c.fn, positives) + ratio(c.fp, negatives)).clamp(0, 1)
    return torch.where((positives > 0) & (negatives > 0), loss, 1.0)


def _slack(rates: Tensor) -> float:
    return 1e3 * float(torch.finfo(rates.dtype).eps)


# ---- losses of the whole ranking -----------------------------------------------------------------------------------


def auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Area above the ROC curve."""
    areas = []
    for c in confusion_parts(scores, targets, weights):
        positives, negatives = c.classes
        areas.append((c.fp.diff() * (c.fn[..., 1:] + c.fn[..., :-1])).sum(-1) / 2)
    return ratio(_sum(areas), (positives * negatives)[..., 0], empty=0.5).clamp(0, 1)


def partial_auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, max_fpr: float) -> Tensor:
    """One minus the area under the ROC curve up to `max_fpr`, standardised by McClish."""
    areas = []
    for c in confusion_parts(scores, targets, weights):
        positives, negatives = c.classes
        tpr, fpr = ratio(c.tp, positives), ratio(c.fp, negatives)
        inside = _share_below(fpr, max_fpr)
        areas.append((fpr.diff() * inside * (tpr[..., :-1] + tpr.diff() * inside / 2)).sum(-1))
    least = max_fpr**2 / 2
    loss = (1 - (_sum(areas) - least) / (max_fpr - least)) / 2
    return torch.where((positives * negatives)[..., 0] > 0, loss.clamp(0, 1), 0.5)


def average_precision_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean precision over the positives."""
    lost = []
    for c in confusion_parts(scores, targets, weights):
        positives, _ = c.classes
        lost.append((c.tp.diff() * ratio(c.fp, c.tp + c.fp)[..., 1:]).sum(-1))
    return ratio(_sum(lost), positives[..., 0], empty=1.0).clamp(0, 1)


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
    """One minus the precision of the top fraction by weight; ties at the cut count in proportion."""
    found = []
    for c in confusion_parts(scores, targets, weights):
        positives, negatives = c.classes
        top = fraction * (positives + negatives)
        found.append((c.tp.diff() * _share_below(c.tp + c.fp, top)).sum(-1))
    return 1 - ratio(_sum(found), top[..., 0]).clamp(0, 1)


def pr_auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, lo: float, hi: float) -> Tensor:
    """One minus the mean precision over the recalls from `lo` to `hi`, in steps as average precision has them."""
    lost = []
    for c in confusion_parts(scores, targets, weights):
        positives, _ = c.classes
        inside = ratio(c.tp, positives).clamp(lo, hi).diff()
        lost.append((inside * ratio(c.fp, c.tp + c.fp)[..., 1:]).sum(-1))
    return torch.where(positives[..., 0] > 0, (_sum(lost) / (hi - lo)).clamp(0, 1), 1.0)


def at_decision(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: Counts) -> Tensor:
    """Return the lowest loss over all thresholds, at most 1: where none meets the condition, all is lost."""
    return at_best(scores, targets, weights, counts).clamp(0, 1)


def _sum(parts: Sequence[Tensor]) -> Tensor:
    """Add up the parts of a curve."""
    return torch.stack(list(parts)).sum(0)


def _share_below(rising: Tensor, limit: Tensor | float) -> Tensor:
    """Return the share of each step of a rising curve that lies below the limit: `(..., n + 1)` -> `(..., n)`."""
    return ratio(limit - rising[..., :-1], rising.diff()).clamp(0, 1)


# ---- the metrics ---------------------------------------------------------------------------------------------------


def _of_confusion(
    counts: Counts, label: str, explanation: str, known_as: tuple[float, float] = (1, 0), name: str | None = None
) -> Metric:
    name = name or loss_name(counts)
    return Metric(name, partial(at_zero, counts=counts), label, explanation, known_as, True, counts)


auc = Metric("auc", auc_loss, "AUC", "Area under the ROC curve: how often a positive outranks a negative.")
average_precision = Metric(
    "average_precision", average_precision_loss, "AP", "Average precision: mean precision at each positive found."
)
eer = Metric(
    "eer", eer_loss, "EER", "Equal error rate: mean of miss and false-alarm rate where they are nearest.", (0, 1)
)
error_rate = _of_confusion(error_rate_loss, "error rate", "Share of rows classified wrongly (MCR).", (0, 1))
f1 = _of_confusion(partial(f_beta_loss, beta=1.0), "F1", "Harmonic mean of precision and recall.", name="f1")
mcc = _of_confusion(mcc_loss, "MCC", "Matthews correlation coefficient; the loss is (1 - MCC) / 2.", (1, -1))
jaccard = _of_confusion(jaccard_loss, "Jaccard", "Positives found, over positives and false alarms (IoU).")
balanced_error = _of_confusion(balanced_error_loss, "balanced error", "Mean of miss rate and false-alarm rate.", (0, 1))
precision = replace(
    _of_confusion(precision_loss, "precision", "Share of rows called positive that are."), top_rows=True
)
recall = _of_confusion(recall_loss, "recall", "Share of positive rows that are found.")


def f_beta(beta: float = 2.0) -> Metric:
    """F-measure in which recall counts `beta` times as much as precision."""
    beta = number_setting("beta", beta, 0, 1e6)
    counts = partial(f_beta_loss, beta=beta)
    explanation = f"F-measure; recall counts {beta:g} times as much as precision."
    return _of_confusion(counts, f"F{beta:g}", explanation, name=f"f_beta({short(beta)})")


def partial_auc(max_fpr: float = 0.05) -> Metric:
    """Area under the ROC curve up to a false-alarm rate, standardised as scikit-learn does (chance is 0.5)."""
    max_fpr = number_setting("max_fpr", max_fpr, 0, 1)
    explanation = f"Area under the ROC curve up to a false-alarm rate of {max_fpr:g}, standardised (chance is 0.5)."
    function = partial(partial_auc_loss, max_fpr=max_fpr)
    return Metric(f"partial_auc({short(max_fpr)})", function, f"pAUC@{max_fpr:g}", explanation)


def precision_at(fraction: float = 0.02) -> Metric:
    """Precision among the highest-scored fraction of the rows by weight; a cut through ties takes their average."""
    fraction = number_setting("fraction", fraction, 0, 1)
    explanation = f"Share of positives among the top {fraction:.3g} of the rows (by weight)."
    function = partial(precision_at_loss, fraction=fraction)
    return Metric(f"precision_at({short(fraction)})", function, f"P@{fraction:g}", explanation)


def recall_at_precision(precision: float = 0.9) -> Metric:
    """The largest recall any threshold reaches while keeping at least this precision."""
    precision = number_setting("precision", precision, 0, 1)
    explanation = f"Largest recall of any threshold with a precision of at least {precision:g}."
    counts = partial(recall_at_precision_loss, precision=precision)
    return _at_decision(f"recall_at_precision({short(precision)})", counts, f"R@P{precision:g}", explanation)


def precision_at_recall(recall: float = 0.9) -> Metric:
    """The largest precision any threshold reaches while finding at least this share of the positives."""
    recall = number_setting("recall", recall, 0, 1)
    explanation = f"Largest precision of any threshold with a recall of at least {recall:g}."
    counts = partial(precision_at_recall_loss, recall=recall)
    return _at_decision(f"precision_at_recall({short(recall)})", counts, f"P@R{recall:g}", explanation)


def fnr_at_fpr(fpr: float = 0.05) -> Metric:
    """The lowest miss rate any threshold reaches at no more than this false-alarm rate."""
    fpr = number_setting("fpr", fpr, 0, 1)
    explanation = f"Lowest miss rate of any threshold with a false-alarm rate of at most {fpr:g}."
    counts = partial(fnr_at_fpr_loss, fpr=fpr)
    return _at_decision(f"fnr_at_fpr({short(fpr)})", counts, f"FNR@FPR{fpr:g}", explanation, (0, 1))


def pr_auc(lo: float = 0.95, hi: float = 1.0) -> Metric:
    """Area under the precision-recall curve over a range of recall, divided by its width: the mean precision there.

    Over all recalls, from 0 to 1, it is the average precision, which the name `"pr_auc"` without a range means.
    """
    hi = number_setting("hi", hi, 0, 1)
    lo = 0.0 if lo in (0, "0", "0.0") else number_setting("lo", lo, 0, 1)
    if not lo < hi:
        raise ValueError(f"lo: expected less than hi, {hi:g}, got {lo:g}")
    explanation = f"Mean precision over the recalls from {lo:g} to {hi:g}: area under the precision-recall curve."
    function = partial(pr_auc_loss, lo=lo, hi=hi)
    return Metric(f"pr_auc({short(lo)},{short(hi)})", function, f"PR-AUC {lo:g}-{hi:g}", explanation)


def _at_decision(
    name: str, counts: Counts, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    return Metric(name, partial(at_decision, counts=counts), label, explanation, known_as, decision=counts)


ks = _at_decision(
    "ks", ks_loss, "KS", "Kolmogorov-Smirnov: largest difference of recall and false-alarm rate over all thresholds."
)

METRICS = (auc, eer, average_precision, error_rate, f1, mcc, jaccard, balanced_error, precision, recall, ks)
PARAMETRIC: tuple[Callable[..., Metric], ...] = (
    f_beta,
    partial_auc,
    precision_at,
    recall_at_precision,
    precision_at_recall,
    fnr_at_fpr,
    pr_auc,
)
ALIASES = {
    "mcr": "error_rate",
    "accuracy": "error_rate",
    "ap": "average_precision",
    "pr_auc": "average_precision",
    "kolmogorov_smirnov": "ks",
    "jac": "jaccard",
    "iou": "jaccard",
    "roc_auc": "auc",
    "balanced_accuracy": "balanced_error",
}
