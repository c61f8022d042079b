"""True losses: what models are judged by, vectorised over sets, in [0, 1], lower is better.

A metric is called as `metric(scores, targets, weights=None)`, with sets on the last axis: `(..., n)` -> `(...)`.
Scores are raw reals, targets 0 or 1, weights non-negative; a row of weight zero is as good as absent. For other targets
than these see `tasks.py`.

What a set that cannot be judged loses (never NaN):

- `auc`, `eer`, `partial_auc`, `mcc` and an empty set under `balanced_error`: 0.5, as chance does;
- metrics that look for positives (`f1`, `f_beta`, `jaccard`, `precision`, `recall`, `average_precision`,
  `precision_at`, `recall_at_precision`): 1 where there is nothing to find or nothing was found, as scikit-learn;
- `balanced_error` with one class: the error of that class; `error_rate` of an empty set: 0.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from metricgrad.metrics import binary_formulas as formulas
from metricgrad.metrics.binary_formulas import Counts
from metricgrad.metrics.metric import Metric as Metric
from metricgrad.metrics.metric import checked_sets as checked_sets
from metricgrad.metrics.multiclass import CLASS_ALIASES, CLASS_FAMILIES, CLASS_METRICS
from metricgrad.metrics.multilabel import LABEL_ALIASES, LABEL_METRICS
from metricgrad.metrics.ranking import QUERY_ALIASES, QUERY_FAMILIES, QUERY_METRICS
from metricgrad.metrics.regression import REGRESSION_ALIASES, REGRESSION_FAMILIES, REGRESSION_METRICS
from metricgrad.metrics.tasks import BINARY, Task

# ---- the built-in metrics ------------------------------------------------------------------------------------------


def _of_counts(
    name: str, counts: Counts, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    return Metric(name, partial(formulas.at_zero, counts=counts), label, explanation, known_as, True, counts)


auc = Metric("auc", formulas.auc_loss, "AUC", "Area under the ROC curve: how often a positive outranks a negative.")
eer = Metric(
    "eer",
    formulas.eer_loss,
    "EER",
    "Equal error rate: mean of miss and false-alarm rate where they are nearest.",
    (0, 1),
)
average_precision = Metric(
    "average_precision",
    formulas.average_precision_loss,
    "AP",
    "Average precision: mean precision at each positive found.",
)
error_rate = _of_counts(
    "error_rate", formulas.error_rate_loss, "error rate", "Share of rows classified wrongly (MCR).", (0, 1)
)
f1 = _of_counts("f1", partial(formulas.f_beta_loss, beta=1.0), "F1", "Harmonic mean of precision and recall.")
mcc = _of_counts(
    "mcc", formulas.mcc_loss, "MCC", "Matthews correlation coefficient; the loss is (1 - MCC) / 2.", (1, -1)
)
jaccard = _of_counts(
    "jaccard", formulas.jaccard_loss, "Jaccard", "Positives found, over positives and false alarms (IoU)."
)
balanced_error = _of_counts(
    "balanced_error", formulas.balanced_error_loss, "balanced error", "Mean of miss rate and false-alarm rate.", (0, 1)
)
precision = replace(
    _of_counts("precision", formulas.precision_loss, "precision", "Share of rows called positive that are."),
    top_rows=True,
)
recall = _of_counts("recall", formulas.recall_loss, "recall", "Share of positive rows that are found.")


def f_beta(beta: float = 2.0) -> Metric:
    """F-measure in which recall counts `beta` times as much as precision."""
    beta = _within("beta", beta, 0, 1e6)
    counts = partial(formulas.f_beta_loss, beta=beta)
    explanation = f"F-measure; recall counts {beta:g} times as much as precision."
    return _of_counts(f"f_beta({_brief(beta)})", counts, f"F{beta:g}", explanation)


def partial_auc(max_fpr: float = 0.05) -> Metric:
    """Area under the ROC curve up to a false-alarm rate, standardised as scikit-learn does (chance is 0.5)."""
    max_fpr = _within("max_fpr", max_fpr, 0, 1)
    explanation = f"Area under the ROC curve up to a false-alarm rate of {max_fpr:g}, standardised (chance is 0.5)."
    function = partial(formulas.partial_auc_loss, max_fpr=max_fpr)
    return Metric(f"partial_auc({_brief(max_fpr)})", function, f"pAUC@{max_fpr:g}", explanation)


def precision_at(fraction: float = 0.02) -> Metric:
    """Precision among the highest-scored fraction of the rows by weight; a cut through ties takes their average."""
    fraction = _within("fraction", fraction, 0, 1)
    explanation = f"Share of positives among the top {fraction:.3g} of the rows (by weight)."
    function = partial(formulas.precision_at_loss, fraction=fraction)
    return Metric(f"precision_at({_brief(fraction)})", function, f"P@{fraction:g}", explanation)


def recall_at_precision(precision: float = 0.9) -> Metric:
    """The largest recall any threshold reaches while keeping at least this precision."""
    precision = _within("precision", precision, 0, 1)
    explanation = f"Largest recall of any threshold with a precision of at least {precision:g}."
    function = partial(formulas.recall_at_precision_loss, precision=precision)
    return Metric(f"recall_at_precision({_brief(precision)})", function, f"R@P{precision:g}", explanation)


def _within(name: str, value: Any, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not low < number <= high:
        raise ValueError(f"{name}: expected a number above {low:g} and at most {high:g}, got {value!r}")
    return number


def _brief(number: float) -> str:
    """Write a number as short as finds the same metric again."""
    return repr(number).removesuffix(".0")


BINARY_METRICS = (auc, eer, average_precision, error_rate, f1, mcc, jaccard, balanced_error, precision, recall)
BINARY_FAMILIES: tuple[Callable[..., Metric], ...] = (f_beta, partial_auc, precision_at, recall_at_precision)
TASK_METRICS = (*CLASS_METRICS, *LABEL_METRICS, *QUERY_METRICS, *REGRESSION_METRICS)
TASK_FAMILIES = (*CLASS_FAMILIES, *QUERY_FAMILIES, *REGRESSION_FAMILIES)
PLAIN = {metric.name: metric for metric in (*BINARY_METRICS, *TASK_METRICS)}
FAMILIES = {family.__name__: family for family in (*BINARY_FAMILIES, *TASK_FAMILIES)}
ALIASES = {
    "mcr": "error_rate",
    "accuracy": "error_rate",
    "ap": "average_precision",
    "jac": "jaccard",
    "iou": "jaccard",
    "roc_auc": "auc",
    "balanced_accuracy": "balanced_error",
    **CLASS_ALIASES,
    **LABEL_ALIASES,
    **QUERY_ALIASES,
    **REGRESSION_ALIASES,
}
WELL_KNOWN = {
    "accuracy": ("accuracy", "Share of rows classified correctly; the loss is the error rate."),
    "balanced_accuracy": ("balanced accuracy", "Mean recall of the two classes; the loss is the balanced error."),
    "multiclass_accuracy": ("accuracy", "Share of rows classified correctly, which is micro F1."),
    "multiclass_balanced_accuracy": (
        "balanced accuracy",
        "Mean recall of the classes; the loss is the balanced error.",
    ),
}
"""Aliases by which a loss is known the other way round, with label and explanation: high is good."""
SKLEARN_NAMES = {
    "accuracy_score": "accuracy",
    "average_precision_score": "average_precision",
    "balanced_accuracy_score": "balanced_accuracy",
    "f1_score": "f1",
    "jaccard_score": "jaccard",
    "matthews_corrcoef": "mcc",
    "precision_score": "precision",
    "recall_score": "recall",
    "roc_auc_score": "auc",
}
"""Functions of scikit-learn that are built in here: the same numbers, for many sets at once."""
SUGGESTED = {
    **SKLEARN_NAMES,
    "auroc": "auc",
    "auprc": "average_precision",
    "cohen_kappa_score": "cohen_kappa",
    "dice": "f1",
    "f2": "f_beta(2)",
    "fbeta_score": "f_beta",
    "label_ranking_average_precision_score": "label_ranking_average_precision",
    "ndcg_score": "ndcg",
    "pr_auc": "average_precision",
    "top_k_accuracy_score": "top_k_error",
    "zero_one_loss": "error_rate",
}
"""Names that others use, and what is nearest to them here."""
SMOOTH = (
    "brier_score",
    "brier_score_loss",
    "cross_entropy",
    "log_loss",
    "mean_absolute_error",
    "mean_squared_error",
    "mse",
    "r2",
    "r2_score",
    "rmse",
    "root_mean_squared_error",
)
"""Metrics that have a gradient, and so need no surrogate."""
LONGEST = 1_000
"""Characters of a metric written as text; the message about a longer one would be as long."""
PAPER = ("auc", "eer", "average_precision", "error_rate", "f1", "mcc", "jaccard")
"""The seven losses of the paper, in the order of its Table 2."""


def builtin_metrics(task: Task | None = BINARY) -> list[Metric]:
    """Return the built-in metrics of a task, or of all, families at their usual setting."""
    known = [*PLAIN.values(), *(family() for family in FAMILIES.values())]
    return [metric for metric in known if task in (None, metric.task)]


def listed_metrics() -> dict[str, Metric]:
    """Return every built-in metric by the name to ask for it; a loss comes after the metric it is better known as."""
    listed: dict[str, Metric] = {}
    for metric in builtin_metrics(None):
        known = [alias for alias in WELL_KNOWN if ALIASES[alias] == metric.name]
        listed |= {name: get_metric(name) for name in (*known, metric.name)}
    return listed


def get_metric(name: str) -> Metric:
    """Find a metric by name: `"f1"`, `"best_f1"`, `"partial_auc(0.05)"`, or an alias of the paper such as `"mcr"`.

    Those of other tasks are found too: `"macro_f1"` is one of classes, `"ndcg(10)"` of rankings.
    """
    if callable(name) and not isinstance(name, (type, Metric)):
        called = getattr(name, "__name__", type(name).__name__)
        raise TypeError(
            f"metric: expected a name, got the callable {called!r}; wrap it: black_box({called}, higher_is_better=True)"
        )
    if not isinstance(name, str):
        raise TypeError(f"metric: expected a name, got {type(name).__name__}")
    check_length(name)
    spelt = re.sub(r"@([\d.]+)$", r"(\1)", name.lower().replace(" ", ""))
    head, bracket, settings = spelt.partition("(")
    plain = head.replace("-", "_") + bracket + settings
    if plain.startswith("best_"):
        return get_metric(plain.removeprefix("best_")).best
    if plain in WELL_KNOWN:
        label, explanation = WELL_KNOWN[plain]
        return replace(PLAIN[ALIASES[plain]], label=label, explanation=explanation, known_as=(1, 0))
    plain = ALIASES.get(plain, plain)
    if plain in PLAIN:
        return PLAIN[plain]
    call = re.fullmatch(r"(\w+?)(?:\(([^()]*)\))?", plain)
    if call and call[1] in FAMILIES:
        return FAMILIES[call[1]](*([call[2]] if call[2] else []))
    raise ValueError(f"metric: unknown name {name!r}; {_hint(plain.partition('(')[0])}")


def check_length(text: str) -> None:
    """Refuse a metric written as a text that is too long, without repeating it."""
    if len(text) > LONGEST:
        raise ValueError(f"metric: expected a text of at most {LONGEST:,} characters, got {len(text):,}")


def _hint(wanted: str) -> str:
    """Return what to say of a name that is not known: what is meant, perhaps, or what there is."""
    wanted = wanted.removeprefix("neg_")
    if wanted in SMOOTH:
        return "it has a gradient, so it needs no surrogate and is not built in: train on it directly"
    names = {name: name for name in (*PLAIN, *FAMILIES, *ALIASES)} | SUGGESTED
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    meant = list(dict.fromkeys(names[name] for name in ([wanted] if wanted in SUGGESTED else near)))
    return f"did you mean {' or '.join(meant)}?" if meant else f"known: {', '.join([*PLAIN, *FAMILIES])}"
