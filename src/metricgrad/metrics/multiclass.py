"""Metrics of several classes: scores `(..., n, c)`, of which the highest of a row decides, and one class a row.

What ties, classes that are nowhere, and sets that cannot be judged do is said in `multiclass_formulas.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from metricgrad.metrics import multiclass_formulas as formulas
from metricgrad.metrics.class_offsets import Decision
from metricgrad.metrics.metric import Metric, whole_number
from metricgrad.metrics.multiclass_formulas import CountsLoss
from metricgrad.metrics.tasks import MULTICLASS


def _of_counts(
    name: str, counts: CountsLoss, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    function = partial(formulas.at_argmax, counts=counts)
    best = Decision(function, counts=counts).least
    return Metric(name, function, label, explanation, known_as, True, counts, best, task=MULTICLASS)


macro_f1 = _of_counts("macro_f1", formulas.macro_f1_loss, "macro F1", "Mean F1 of the classes, each counting the same.")
micro_f1 = _of_counts(
    "micro_f1", formulas.micro_f1_loss, "micro F1", "F1 of all classes counted together, which is the accuracy."
)
weighted_f1 = _of_counts(
    "weighted_f1", formulas.weighted_f1_loss, "weighted F1", "Mean F1 of the classes, each counting as often as it is."
)
mean_iou = _of_counts(
    "mean_iou", formulas.mean_iou_loss, "mean IoU", "Mean intersection over union of the classes (Jaccard)."
)
multiclass_balanced_error = _of_counts(
    "multiclass_balanced_error",
    formulas.balanced_error_loss,
    "balanced error",
    "Mean error of the classes, each counting the same.",
    (0, 1),
)
multiclass_mcc = _of_counts(
    "multiclass_mcc",
    formulas.multiclass_mcc_loss,
    "MCC",
    "Matthews correlation of several classes; the loss is (1 - MCC) / 2.",
    (1, -1),
)
cohen_kappa = _of_counts(
    "cohen_kappa",
    formulas.cohen_kappa_loss,
    "kappa",
    "Cohen's kappa, agreement beyond chance; the loss is (1 - kappa) / 2.",
    (1, -1),
)
quadratic_kappa = replace(
    _of_counts(
        "quadratic_kappa",
        formulas.quadratic_kappa_loss,
        "quadratic kappa",
        "Kappa of classes in order, a miss counting by its squared distance; the loss is (1 - kappa) / 2.",
        (1, -1),
    ),
    view="ordered",
)
macro_auc = Metric(
    "macro_auc",
    formulas.macro_auc_loss,
    "macro AUC",
    "Mean area under the ROC curve of each class against the rest.",
    task=MULTICLASS,
    view="log_odds",
)


def top_k_error(k: int = 5) -> Metric:
    """Share of rows whose class is not among the k highest scores."""
    k = whole_number("k", k)
    function = partial(formulas.top_k_error_loss, k=k)
    explanation = f"Share of rows whose class is not among the {k} highest scores."
    best = Decision(function).least
    name, label = f"top_k_error({k})", f"top-{k} error"
    return Metric(name, function, label, explanation, (0, 1), True, best_function=best, task=MULTICLASS)


CLASS_METRICS = (
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
CLASS_FAMILIES: tuple[Callable[..., Metric], ...] = (top_k_error,)
CLASS_ALIASES = {
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
