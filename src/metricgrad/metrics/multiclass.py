"""Metrics of several classes: scores `(..., n, c)`, of which the highest of a row decides, and one class a row.

Targets are 1 for the class of a row, else 0, `(..., n, c)`; weights are `(..., n)`. A loss is `(...)`, in [0, 1]. Of
equal scores the lowest class is predicted. A class that is neither actual nor predicted in a set is left out of macro
averages (`macro_f1`, `mean_iou`); one without actual rows is left out of means over actual classes
(`multiclass_balanced_error`, `macro_auc`).

What a set that cannot be judged loses (never NaN):

- `cohen_kappa`, `quadratic_kappa`, `multiclass_mcc`, where all rows are of one class and all are predicted as one (for
  the correlation, where either holds), and `macro_auc` with fewer than two classes: 0.5, as chance does;
- `macro_f1`, `micro_f1`, `weighted_f1`, `mean_iou` of an empty set: 1;
- `multiclass_balanced_error` of an empty set: that of guessing, 1 - 1/c; `top_k_error` of an empty set: 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.metrics.binary import auc_loss
from metricgrad.metrics.class_offsets import OffsetSearch
from metricgrad.metrics.confusion import (
    ClassCounts,
    ClassCountsLoss,
    class_counts,
    class_of,
    counting_dtype,
    ratio,
    row_weights,
)
from metricgrad.metrics.metric import Metric, integer_setting, loss_name
from metricgrad.metrics.tasks import MULTICLASS

# ---- losses of counts ----------------------------------------------------------------------------------------------


def at_argmax(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: ClassCountsLoss) -> Tensor:
    """Return the loss of the classes of the highest scores."""
    return counts(class_counts(scores, targets, weights))


def macro_f1_loss(c: ClassCounts) -> Tensor:
    """One minus the mean F1 of the classes that are actual or predicted."""
    return 1 - _mean_present(ratio(2 * c.tp, c.predicted + c.actual), c.predicted + c.actual)


def micro_f1_loss(c: ClassCounts) -> Tensor:
    """One minus F1 of all classes counted together."""
    return (1 - ratio(2 * c.tp.sum(-1), (c.predicted + c.actual).sum(-1))).clamp(0, 1)


def weighted_f1_loss(c: ClassCounts) -> Tensor:
    """One minus the mean F1 of the classes, each weighing what its rows weigh."""
    f1 = ratio(2 * c.tp, c.predicted + c.actual)
    return (1 - ratio((c.actual * f1).sum(-1), c.actual.sum(-1))).clamp(0, 1)


def mean_iou_loss(c: ClassCounts) -> Tensor:
    """One minus the mean intersection over union of the classes that are actual or predicted."""
    union = (c.predicted - c.tp) + c.actual
    return 1 - _mean_present(ratio(c.tp, union), union)


def multiclass_balanced_error_loss(c: ClassCounts) -> Tensor:
    """Mean error of the classes that are present."""
    guessing = 1 - 1 / max(c.actual.shape[-1], 1)
    present = (c.actual > 0).to(c.actual)
    missed = ratio(c.actual - c.tp, c.actual)
    return ratio(missed.sum(-1), present.sum(-1), empty=guessing).clamp(0, 1)


def cohen_kappa_loss(c: ClassCounts) -> Tensor:
    """Cohen's kappa turned into a loss, (1 - kappa) / 2: half of the error, over the error of chance."""
    wrong = (c.predicted - c.tp).sum(-1)
    by_chance = (c.predicted * _others(c.actual)).sum(-1)
    return ratio(wrong * c.total / 2, by_chance, empty=0.5).clamp(0, 1)


def quadratic_kappa_loss(c: ClassCounts) -> Tensor:
    """Kappa of classes in order, a miss counting by its squared distance, turned into a loss, (1 - kappa) / 2."""
    index = torch.arange(c.actual.shape[-1], dtype=c.actual.dtype, device=c.actual.device)
    by_chance = (c.predicted * (c.actual @ (index - index.unsqueeze(-1)).square())).sum(-1)
    return ratio(c.squared_distance * c.total / 2, by_chance, empty=0.5).clamp(0, 1)


def multiclass_mcc_loss(c: ClassCounts) -> Tensor:
    """Matthews correlation of several classes (Gorodkin's) turned into a loss, (1 - MCC) / 2."""
    covariance = (c.tp * _others(c.actual) - (c.predicted - c.tp) * c.actual).sum(-1)
    predicted, actual = ((count * _others(count)).sum(-1) for count in (c.predicted, c.actual))
    return (1 - ratio(covariance, (predicted * actual).sqrt()).clamp(-1, 1)) / 2


def _mean_present(values: Tensor, present: Tensor) -> Tensor:
    """Average over the classes that are present, `(..., c)` -> `(...)`; 0 if none is."""
    mask = (present > 0).to(values)
    return ratio((values * mask).sum(-1), mask.sum(-1)).clamp(0, 1)


def _others(counts: Tensor) -> Tensor:
    """Sum over all other classes, `(..., c)`, without subtracting, so that no sum rounds below 0."""
    before = pad(counts, (1, 0))[..., :-1].cumsum(-1)
    after = pad(counts, (0, 1))[..., 1:].flip(-1).cumsum(-1).flip(-1)
    return before + after


# ---- losses of scores ----------------------------------------------------------------------------------------------


def top_k_error_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, k: int) -> Tensor:
    """Share of rows whose class is not among the k highest scores; of equal scores the lowest class comes first."""
    actual = class_of(targets).unsqueeze(-1)
    own = scores.gather(-1, actual)
    earlier = torch.arange(scores.shape[-1], device=scores.device) < actual
    ahead = (scores > own) | ((scores == own) & earlier)
    return mean_of_rows(ahead.sum(-1) >= k, weights, empty=0.0)


def macro_auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean AUC of each class against the rest, ranked by log-odds, which do not saturate."""
    by_class = targets.movedim(-1, -2) == 1
    weights = row_weights(scores, weights).unsqueeze(-2).expand(by_class.shape)
    areas = auc_loss(class_log_odds(scores).movedim(-1, -2), by_class, weights)
    in_class, rest = (weights * by_class).sum(-1) > 0, (weights * ~by_class).sum(-1) > 0
    present = (in_class & rest).to(areas)
    return ratio((areas * present).sum(-1), present.sum(-1), empty=0.5).clamp(0, 1)


def class_log_odds(scores: Tensor) -> Tensor:
    """Return the log-odds of each class by softmax, `(..., n, c)`: its score minus the logsumexp of the others.

    They are computed from the sorted scores, and once for classes that tie, so that equal odds are equal to the last
    bit, whatever the classes and rows: a ranking must not find differences where there are none.
    """
    scores = scores.to(counting_dtype(scores))
    if scores.shape[-1] < 2:
        return scores
    ranked, order = scores.sort(-1, descending=True)
    highest, second = ranked[..., :1], ranked[..., 1:2]
    # Relative to the highest score the others may underflow, so they are measured from the second.
    lead = (highest - second) - (ranked[..., 1:] - second).exp().cumsum(-1)[..., -1:].log()
    below = ranked - highest
    odds = torch.cat((lead, (below - _others(below.exp()).log())[..., 1:]), -1)
    index = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
    tied = pad(below[..., 1:] == below[..., :-1], (1, 0))
    return odds.scatter(-1, order, odds.gather(-1, index.masked_fill(tied, 0).cummax(-1).values))


def mean_of_rows(losses: Tensor, weights: Tensor | None, empty: float) -> Tensor:
    """Average over rows by weight, `(..., n)` -> `(...)`; a set without rows loses `empty`."""
    weights = row_weights(losses.unsqueeze(-1), weights)
    return ratio((weights * losses).sum(-1), weights.sum(-1), empty).clamp(0, 1)


# ---- the metrics ---------------------------------------------------------------------------------------------------


def _of_class_counts(
    counts: ClassCountsLoss, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    function = partial(at_argmax, counts=counts)
    best = OffsetSearch(function, counts=counts).lowest_loss
    return Metric(loss_name(counts), function, label, explanation, known_as, True, counts, best, task=MULTICLASS)


macro_f1 = _of_class_counts(macro_f1_loss, "macro F1", "Mean F1 of the classes, each counting the same.")
micro_f1 = _of_class_counts(micro_f1_loss, "micro F1", "F1 of all classes counted together, which is the accuracy.")
weighted_f1 = _of_class_counts(
    weighted_f1_loss, "weighted F1", "Mean F1 of the classes, each counting as often as it is."
)
mean_iou = _of_class_counts(mean_iou_loss, "mean IoU", "Mean intersection over union of the classes (Jaccard).")
multiclass_balanced_error = _of_class_counts(
    multiclass_balanced_error_loss, "balanced error", "Mean error of the classes, each counting the same.", (0, 1)
)
multiclass_mcc = _of_class_counts(
    multiclass_mcc_loss, "MCC", "Matthews correlation of several classes; the loss is (1 - MCC) / 2.", (1, -1)
)
cohen_kappa = _of_class_counts(
    cohen_kappa_loss, "kappa", "Cohen's kappa, agreement beyond chance; the loss is (1 - kappa) / 2.", (1, -1)
)
quadratic_kappa = replace(
    _of_class_counts(
        quadratic_kappa_loss,
        "quadratic kappa",
        "Kappa of classes in order, a miss counting by its squared distance; the loss is (1 - kappa) / 2.",
        (1, -1),
    ),
    view="ordered",
)
macro_auc = Metric(
    "macro_auc",
    macro_auc_loss,
    "macro AUC",
    "Mean area under the ROC curve of each class against the rest.",
    task=MULTICLASS,
    view="log_odds",
)


def top_k_error(k: int = 5) -> Metric:
    """Share of rows whose class is not among the k highest scores."""
    k = integer_setting("k", k)
    function = partial(top_k_error_loss, k=k)
    explanation = f"Share of rows whose class is not among the {k} highest scores."
    best = OffsetSearch(function).lowest_loss
    name, label = f"top_k_error({k})", f"top-{k} error"
    return Metric(name, function, label, explanation, (0, 1), True, best_function=best, task=MULTICLASS)


METRICS = (
    macro_f1,
    micro_f1,
    weighted_f1,
    mean_iou,
    multiclass_balanced_error,
    multiclass_mcc,
    cohen_kappa,
    quadratic_kappa,
    macro_auc,
)
PARAMETRIC: tuple[Callable[..., Metric], ...] = (top_k_error,)
ALIASES = {
    "f1_macro": "macro_f1",
    "f1_micro": "micro_f1",
    "f1_weighted": "weighted_f1",
    "jaccard_macro": "mean_iou",
    "miou": "mean_iou",
    "kappa": "cohen_kappa",
    "qwk": "quadratic_kappa",
    "roc_auc_ovr": "macro_auc",
    "multiclass_accuracy": "micro_f1",
    "multiclass_balanced_accuracy": "multiclass_balanced_error",
}
