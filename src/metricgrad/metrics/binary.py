"""Metrics of two classes: losses of confusion counts, and losses of the whole ranking of a set.

What a set that cannot be judged loses (never NaN):

- `auc`, `eer`, `partial_auc`, `mcc` and an empty set under `balanced_error`: 0.5, as chance does;
- metrics that look for positives (`f1`, `f_beta`, `jaccard`, `precision`, `recall`, `average_precision`,
  `precision_at`, `recall_at_precision`): 1 where there is nothing to find or nothing was found, as scikit-learn;
- `balanced_error` with one class: the error of that class; `error_rate` of an empty set: 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Confusion, Counts, at_zero, confusion_curve, confusion_parts, ratio
from metricgrad.metrics.metric import Metric, loss_name, number_setting, short

# ---- losses of confusion counts ------------------------------------------------------------------------------------


def error_rate_loss(c: Confusion) -> Tensor:
    """Share of the weight that is misclassified."""
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


def recall_at_precision_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, precision: float) -> Tensor:
    """One minus the largest recall with at least this precision."""
    most = []
    for c in confusion_parts(scores, targets, weights):
        positives, _ = c.classes
        precise = ratio(c.tp, c.tp + c.fp) >= precision - 1e3 * torch.finfo(c.tp.dtype).eps
        most.append(c.tp.masked_fill(~precise, 0).amax(-1))
    return 1 - ratio(torch.stack(most).amax(0), positives[..., 0])


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
    function = partial(recall_at_precision_loss, precision=precision)
    return Metric(f"recall_at_precision({short(precision)})", function, f"R@P{precision:g}", explanation)


BINARY_METRICS = (auc, eer, average_precision, error_rate, f1, mcc, jaccard, balanced_error, precision, recall)
BINARY_PARAMETRIC: tuple[Callable[..., Metric], ...] = (f_beta, partial_auc, precision_at, recall_at_precision)
BINARY_ALIASES = {
    "mcr": "error_rate",
    "accuracy": "error_rate",
    "ap": "average_precision",
    "jac": "jaccard",
    "iou": "jaccard",
    "roc_auc": "auc",
    "balanced_accuracy": "balanced_error",
}
