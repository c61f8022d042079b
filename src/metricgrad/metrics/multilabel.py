"""Metrics of several labels: scores `(..., n, c)`, each label given where its score is at least 0, any number a row.

What ties, labels that are nowhere, and sets that cannot be judged do is said in `multiclass_formulas.py`.
"""

from __future__ import annotations

from functools import partial

from metricgrad.metrics import multiclass_formulas as formulas
from metricgrad.metrics.class_offsets import Decision
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.multiclass_formulas import CountsLoss
from metricgrad.metrics.tasks import MULTILABEL


def _of_counts(
    name: str, counts: CountsLoss, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    function = partial(formulas.at_labels, counts=counts)
    best = Decision(function, labels=True, counts=counts).least
    return Metric(name, function, label, explanation, known_as, True, counts, best, task=MULTILABEL)


label_macro_f1 = _of_counts(
    "label_macro_f1", formulas.macro_f1_loss, "macro F1", "Mean F1 of the labels, each counting the same."
)
label_micro_f1 = _of_counts("label_micro_f1", formulas.micro_f1_loss, "micro F1", "F1 of all labels counted together.")
hamming = _of_counts(
    "hamming", formulas.hamming_loss, "Hamming loss", "Share of labels, of all rows together, that are wrong.", (0, 1)
)
sample_f1 = Metric(
    "sample_f1",
    formulas.sample_f1_loss,
    "sample F1",
    "Mean over rows of F1 between the labels a row has and those it is given.",
    thresholded=True,
    best_function=Decision(formulas.sample_f1_loss, labels=True).least,
    task=MULTILABEL,
    view="samples",
)
label_ranking_average_precision = Metric(
    "label_ranking_average_precision",
    formulas.label_ranking_average_precision_loss,
    "LRAP",
    "Mean over rows of the average precision with which scores rank the labels of a row.",
    task=MULTILABEL,
    view="samples",
)
label_map = Metric(
    "label_map", formulas.label_map_loss, "label MAP", "Mean average precision of the labels.", task=MULTILABEL
)

LABEL_METRICS = (label_macro_f1, label_micro_f1, hamming, sample_f1, label_ranking_average_precision, label_map)
LABEL_ALIASES = {
    "f1_samples": "sample_f1",
    "hamming_loss": "hamming",
    "lrap": "label_ranking_average_precision",
}
