"""Metrics of several labels: scores `(..., n, c)`, each label predicted where its score is at least 0.

A label that is neither actual nor predicted in a set is left out of `label_macro_f1`; one that no row has, out of
`label_map`. What a set that cannot be judged loses (never NaN):

- `label_macro_f1`, `label_micro_f1`, `label_map`: 1 where there is nothing to find and nothing was found;
- `sample_f1`: 1 for a row without labels that is given none, as scikit-learn, and for an empty set;
- `label_ranking_average_precision`: 0 for a row without labels, as scikit-learn, but 1 for an empty set;
- `hamming` of an empty set: 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from metricgrad.metrics.binary import average_precision_loss
from metricgrad.metrics.class_offsets import OffsetSearch
from metricgrad.metrics.confusion import (
    ClassCounts,
    ClassCountsLoss,
    counting_dtype,
    label_counts,
    ratio,
    row_weights,
)
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.multiclass import macro_f1_loss, mean_of_rows, micro_f1_loss
from metricgrad.metrics.tasks import MULTILABEL


def at_labels(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: ClassCountsLoss) -> Tensor:
    """Return the loss of the labels `scores >= 0`."""
    return counts(label_counts(scores, targets, weights))


def hamming_loss(c: ClassCounts) -> Tensor:
    """Share of labels, of all rows together, that are wrong."""
    wrong = (c.predicted - c.tp) + (c.actual - c.tp)
    return ratio(wrong.sum(-1), c.total * c.tp.shape[-1]).clamp(0, 1)


def sample_f1_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean over rows of F1 between the labels a row has and its predicted ones."""
    predicted, actual = scores >= 0, targets == 1
    found, both = (predicted & actual).sum(-1), predicted.sum(-1) + actual.sum(-1)
    return mean_of_rows(1 - ratio(2 * found.to(counting_dtype(scores)), both), weights, empty=1.0)


def label_ranking_average_precision_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean over rows of the average precision with which scores rank a row's labels."""
    has_labels = (targets == 1).any(-1)
    losses = average_precision_loss(scores, targets, None)
    return mean_of_rows(losses.where(has_labels, torch.zeros_like(losses)), weights, empty=1.0)


def label_map_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean average precision of the labels that some row has."""
    by_label = targets.movedim(-1, -2) == 1
    weights = row_weights(scores, weights).unsqueeze(-2).expand(by_label.shape)
    losses = average_precision_loss(scores.movedim(-1, -2), by_label, weights)
    present = ((weights * by_label).sum(-1) > 0).to(losses)
    return ratio((losses * present).sum(-1), present.sum(-1), empty=1.0).clamp(0, 1)


# ---- the metrics ---------------------------------------------------------------------------------------------------


def _of_label_counts(
    name: str, counts: ClassCountsLoss, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    function = partial(at_labels, counts=counts)
    best = OffsetSearch(function, labels=True, counts=counts).lowest_loss
    return Metric(name, function, label, explanation, known_as, True, counts, best, task=MULTILABEL)


label_macro_f1 = _of_label_counts(
    "label_macro_f1", macro_f1_loss, "macro F1", "Mean F1 of the labels, each counting the same."
)
label_micro_f1 = _of_label_counts("label_micro_f1", micro_f1_loss, "micro F1", "F1 of all labels counted together.")
hamming = _of_label_counts(
    "hamming", hamming_loss, "Hamming loss", "Share of labels, of all rows together, that are wrong.", (0, 1)
)
sample_f1 = Metric(
    "sample_f1",
    sample_f1_loss,
    "sample F1",
    "Mean over rows of F1 between the labels a row has and those it is given.",
    thresholded=True,
    best_function=OffsetSearch(sample_f1_loss, labels=True).lowest_loss,
    task=MULTILABEL,
    view="samples",
)
label_ranking_average_precision = Metric(
    "label_ranking_average_precision",
    label_ranking_average_precision_loss,
    "LRAP",
    "Mean over rows of the average precision with which scores rank the labels of a row.",
    task=MULTILABEL,
    view="samples",
)
label_map = Metric("label_map", label_map_loss, "label MAP", "Mean average precision of the labels.", task=MULTILABEL)

METRICS = (label_macro_f1, label_micro_f1, hamming, sample_f1, label_ranking_average_precision, label_map)
PARAMETRIC: tuple[Callable[..., Metric], ...] = ()
ALIASES = {
    "f1_samples": "sample_f1",
    "hamming_loss": "hamming",
    "lrap": "label_ranking_average_precision",
}
