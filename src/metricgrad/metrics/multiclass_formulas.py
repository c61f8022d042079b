"""Formulas of metrics of several classes or labels: losses from counts of every class, and losses from the scores.

Scores are `(..., n, c)`; targets are 1 for the class of a row (one a row), or for every label a row has, else 0, of the
same shape; weights are `(..., n)`. A loss is `(...)`, in [0, 1]. Of several classes a row is given the one of the
highest score, of equals the lowest; a label is given where its score is at least 0.

A class that is nowhere in a set, neither actual nor given, is left out of macro averages (`macro_f1`, `mean_iou`,
`label_macro_f1`); one that no row is of, out of means over actual classes (`balanced_error`, `macro_auc`, `label_map`).

What a set that cannot be judged loses (never NaN):

- `cohen_kappa`, `quadratic_kappa`, `multiclass_mcc`, where all rows are of one class and all are given one (for the
  correlation, where either holds), and `macro_auc` with fewer than two classes: 0.5, as chance does;
- what looks for classes or labels (`macro_f1`, `micro_f1`, `weighted_f1`, `mean_iou`, `label_macro_f1`,
  `label_micro_f1`, `label_map`): 1 where there is nothing to find and nothing was found, as in an empty set;
- `sample_f1`: 1 for a row without labels that is given none, as scikit-learn, and for an empty set;
- `label_ranking_average_precision`: 0 for a row without labels, as scikit-learn, but 1 for an empty set;
- `balanced_error` of an empty set: that of guessing, 1 - 1/c; `top_k_error` and `hamming` of an empty set: 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.metrics.binary_formulas import auc_loss, average_precision_loss, ratio
from metricgrad.metrics.confusion import comparable, counting_dtype


class ClassCounts(NamedTuple):
    """Weights of the rows given each class and rightly so, given it, and being of it, `(..., c)`; of all, `(...)`.

    `astray` is the sum by weight of the squared distance between the class a row is given and its own, in the places
    they have, `(...)`; of labels it is 0.
    """

    tp: Tensor
    predicted: Tensor
    actual: Tensor
    total: Tensor
    astray: Tensor


CountsLoss = Callable[[ClassCounts], Tensor]
Counting = Callable[[Tensor, Tensor, "Tensor | None"], ClassCounts]


# ---- counting ------------------------------------------------------------------------------------------------------


def class_counts(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> ClassCounts:
    """Count what the highest score of every row says: `(..., n, c)` -> counts of classes."""
    weights = row_weights(scores, weights)
    given, actual = scores.argmax(-1), class_of(targets)
    # All three are summed in one order, so that where all is right they are equal to the last bit.
    none = weights.new_zeros((*scores.shape[:-2], scores.shape[-1]))
    return ClassCounts(
        none.scatter_add(-1, given, weights * (given == actual)),
        none.scatter_add(-1, given, weights),
        none.scatter_add(-1, actual, weights),
        weights.sum(-1),
        (weights * (given - actual).square()).sum(-1),
    )


def label_counts(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> ClassCounts:
    """Count what `scores >= 0` says of every label: `(..., n, c)` -> counts of labels."""
    weights = row_weights(scores, weights)
    given, actual = scores >= 0, targets == 1
    tp, predicted, positive = ((weights.unsqueeze(-1) * rows).sum(-2) for rows in (given & actual, given, actual))
    total = weights.sum(-1)
    return ClassCounts(tp, predicted, positive, total, torch.zeros_like(total))


def row_weights(scores: Tensor, weights: Tensor | None) -> Tensor:
    """Return weights of about one to count with, one a row: `(..., n)`."""
    rows = scores.shape[:-1]
    if weights is None:
        return torch.ones(rows, dtype=counting_dtype(scores), device=scores.device)
    return comparable(weights.expand(rows), scores)


def class_of(targets: Tensor) -> Tensor:
    """Return the number of the class of every row: `(..., n, c)` -> `(..., n)`."""
    return (targets == 1).to(torch.uint8).argmax(-1)


def at_argmax(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: CountsLoss) -> Tensor:
    """Judge what the highest score of every row says."""
    return counts(class_counts(scores, targets, weights))


def at_labels(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: CountsLoss) -> Tensor:
    """Judge what `scores >= 0` says of every label."""
    return counts(label_counts(scores, targets, weights))


# ---- losses of counts ----------------------------------------------------------------------------------------------


def macro_f1_loss(c: ClassCounts) -> Tensor:
    """One minus the mean F1 of the classes that are there or given."""
    return 1 - _mean_present(ratio(2 * c.tp, c.predicted + c.actual), c.predicted + c.actual)


def micro_f1_loss(c: ClassCounts) -> Tensor:
    """One minus F1 of all classes counted together."""
    return (1 - ratio(2 * c.tp.sum(-1), (c.predicted + c.actual).sum(-1))).clamp(0, 1)


def weighted_f1_loss(c: ClassCounts) -> Tensor:
    """One minus the mean F1 of the classes, each weighing what its rows weigh."""
    f1 = ratio(2 * c.tp, c.predicted + c.actual)
    return (1 - ratio((c.actual * f1).sum(-1), c.actual.sum(-1))).clamp(0, 1)


def mean_iou_loss(c: ClassCounts) -> Tensor:
    """One minus the mean intersection over union of the classes that are there or given."""
    union = (c.predicted - c.tp) + c.actual
    return 1 - _mean_present(ratio(c.tp, union), union)


def balanced_error_loss(c: ClassCounts) -> Tensor:
    """Mean error of the classes that are there."""
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
    place = torch.arange(c.actual.shape[-1], dtype=c.actual.dtype, device=c.actual.device)
    by_chance = (c.predicted * (c.actual @ (place - place.unsqueeze(-1)).square())).sum(-1)
    return ratio(c.astray * c.total / 2, by_chance, empty=0.5).clamp(0, 1)


def multiclass_mcc_loss(c: ClassCounts) -> Tensor:
    """Matthews correlation of several classes (Gorodkin's) turned into a loss, (1 - MCC) / 2."""
    covariance = (c.tp * _others(c.actual) - (c.predicted - c.tp) * c.actual).sum(-1)
    given, actual = ((count * _others(count)).sum(-1) for count in (c.predicted, c.actual))
    return (1 - ratio(covariance, (given * actual).sqrt()).clamp(-1, 1)) / 2


def hamming_loss(c: ClassCounts) -> Tensor:
    """Share of labels, of all rows together, that are wrong."""
    wrong = (c.predicted - c.tp) + (c.actual - c.tp)
    return ratio(wrong.sum(-1), c.total * c.tp.shape[-1]).clamp(0, 1)


def _mean_present(values: Tensor, present: Tensor) -> Tensor:
    """Average over the classes that are present, `(..., c)` -> `(...)`; 0 if none is."""
    there = (present > 0).to(values)
    return ratio((values * there).sum(-1), there.sum(-1)).clamp(0, 1)


def _others(counts: Tensor) -> Tensor:
    """Sum over all classes but each, `(..., c)`, without taking away: nothing rounds to less than there is."""
    before = pad(counts, (1, 0))[..., :-1].cumsum(-1)
    after = pad(counts, (0, 1))[..., 1:].flip(-1).cumsum(-1).flip(-1)
    return before + after


# ---- losses of classes that see more than counts --------------------------------------------------------------------


def top_k_error_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, k: int) -> Tensor:
    """Share of rows whose class is not among the k highest scores; of equal scores the lowest class comes first."""
    actual = class_of(targets).unsqueeze(-1)
    own = scores.gather(-1, actual)
    earlier = torch.arange(scores.shape[-1], device=scores.device) < actual
    ahead = (scores > own) | ((scores == own) & earlier)
    return mean_of_rows(ahead.sum(-1) >= k, weights, empty=0.0)


def macro_auc_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean AUC of each class against the rest, ranked by log-odds: probabilities that do not saturate."""
    by_class = targets.movedim(-1, -2) == 1
    weights = row_weights(scores, weights).unsqueeze(-2).expand(by_class.shape)
    areas = auc_loss(log_odds(scores).movedim(-1, -2), by_class, weights)
    there, rest = (weights * by_class).sum(-1) > 0, (weights * ~by_class).sum(-1) > 0
    present = (there & rest).to(areas)
    return ratio((areas * present).sum(-1), present.sum(-1), empty=0.5).clamp(0, 1)


def log_odds(scores: Tensor) -> Tensor:
    """Return the log-odds of each class by softmax, `(..., n, c)`: its score, less the log of the sum of the others.

    They are counted from the scores in order and alike for classes that tie, so that odds that are equal, of whatever
    classes and rows, are so to the last bit: what ranks them must not find differences where there are none.
    """
    scores = scores.to(counting_dtype(scores))
    if scores.shape[-1] < 2:
        return scores
    ranked, order = scores.sort(-1, descending=True)
    highest, second = ranked[..., :1], ranked[..., 1:2]
    # Beside the highest the others may be too small to be seen, so that they are measured by the second.
    lead = (highest - second) - (ranked[..., 1:] - second).exp().cumsum(-1)[..., -1:].log()
    below = ranked - highest
    odds = torch.cat((lead, (below - _others(below.exp()).log())[..., 1:]), -1)
    places = torch.arange(scores.shape[-1], device=scores.device).expand(scores.shape)
    tied = pad(below[..., 1:] == below[..., :-1], (1, 0))
    return odds.scatter(-1, order, odds.gather(-1, places.masked_fill(tied, 0).cummax(-1).values))


# ---- losses of labels that see more than counts ---------------------------------------------------------------------


def sample_f1_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean over rows of F1 between the labels a row has and those it is given."""
    given, actual = scores >= 0, targets == 1
    found, both = (given & actual).sum(-1), given.sum(-1) + actual.sum(-1)
    return mean_of_rows(1 - ratio(2 * found.to(counting_dtype(scores)), both), weights, empty=1.0)


def label_ranking_average_precision_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean over rows of the average precision with which scores rank a row's labels."""
    has_labels = (targets == 1).any(-1)
    losses = average_precision_loss(scores, targets, None)
    return mean_of_rows(losses.where(has_labels, torch.zeros_like(losses)), weights, empty=1.0)


def label_map_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean over labels, of those that some row has, of average precision."""
    by_label = targets.movedim(-1, -2) == 1
    weights = row_weights(scores, weights).unsqueeze(-2).expand(by_label.shape)
    losses = average_precision_loss(scores.movedim(-1, -2), by_label, weights)
    present = ((weights * by_label).sum(-1) > 0).to(losses)
    return ratio((losses * present).sum(-1), present.sum(-1), empty=1.0).clamp(0, 1)


def mean_of_rows(losses: Tensor, weights: Tensor | None, empty: float) -> Tensor:
    """Average over rows by weight, `(..., n)` -> `(...)`; a set without rows loses what `empty` says."""
    weights = row_weights(losses.unsqueeze(-1), weights)
    return ratio((weights * losses).sum(-1), weights.sum(-1), empty).clamp(0, 1)
