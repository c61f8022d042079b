"""One way from a spec to a metric, `get_metric`, and the names of all built-in metrics.

A metric is called as `metric(scores, targets, weights=None)`, with sets on the last axis: `(..., n)` -> `(...)`, in
[0, 1] where it is bounded, lower is better. Scores are raw reals, targets 0 or 1, weights non-negative; a row of weight
zero is as good as absent. For other targets see `tasks.py`.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from metricgrad.metrics.binary import auc as auc
from metricgrad.metrics.binary import average_precision as average_precision
from metricgrad.metrics.binary import balanced_error as balanced_error
from metricgrad.metrics.binary import eer as eer
from metricgrad.metrics.binary import error_rate as error_rate
from metricgrad.metrics.binary import f1 as f1
from metricgrad.metrics.binary import f_beta as f_beta
from metricgrad.metrics.binary import fnr_at_fpr as fnr_at_fpr
from metricgrad.metrics.binary import jaccard as jaccard
from metricgrad.metrics.binary import ks as ks
from metricgrad.metrics.binary import mcc as mcc
from metricgrad.metrics.binary import partial_auc as partial_auc
from metricgrad.metrics.binary import pr_auc as pr_auc
from metricgrad.metrics.binary import precision as precision
from metricgrad.metrics.binary import precision_at as precision_at
from metricgrad.metrics.binary import precision_at_recall as precision_at_recall
from metricgrad.metrics.binary import recall as recall
from metricgrad.metrics.binary import recall_at_precision as recall_at_precision
from metricgrad.metrics.metric import Metric as Metric
from metricgrad.metrics.metric import name_of
from metricgrad.metrics.sets import checked_sets as checked_sets
from metricgrad.metrics.tasks import BINARY, Task

MODULES = ("binary", "multiclass", "multilabel", "ranking", "regression", "columns")
"""Modules of built-in metrics, in the order in which a name is looked for; each is imported in its turn."""
WELL_KNOWN = {
    "accuracy": ("accuracy", "Share of rows classified correctly; the loss is the error rate."),
    "balanced_accuracy": ("balanced accuracy", "Mean recall of the two classes; the loss is the balanced error."),
    "multiclass_accuracy": ("accuracy", "Share of rows classified correctly, which is micro F1."),
    "multiclass_balanced_accuracy": (
        "balanced accuracy",
        "Mean recall of the classes; the loss is the balanced error.",
    ),
}
"""Aliases under which high is good although their metric is an error: label and explanation."""
SKLEARN_NAMES = {
    "accuracy_score": "accuracy",
    "average_precision_score": "average_precision",
    "balanced_accuracy_score": "balanced_accuracy",
    "f1_score": "f1",
    "jaccard_score": "jaccard",
    "matthews_corrcoef": "mcc",
    "mean_absolute_error": "mae",
    "mean_absolute_percentage_error": "mape",
    "mean_squared_error": "mse",
    "precision_score": "precision",
    "r2_score": "r2",
    "recall_score": "recall",
    "roc_auc_score": "auc",
    "root_mean_squared_error": "rmse",
    "root_mean_squared_log_error": "rmsle",
}
"""Functions of scikit-learn that are built in: the same numbers, for many sets at once."""
SUGGESTIONS = {
    **SKLEARN_NAMES,
    "auroc": "auc",
    "auprc": "average_precision",
    "cohen_kappa_score": "cohen_kappa",
    "dice": "f1",
    "f2": "f_beta(2)",
    "fbeta_score": "f_beta",
    "label_ranking_average_precision_score": "label_ranking_average_precision",
    "ndcg_score": "ndcg",
    "top_k_accuracy_score": "top_k_error",
    "zero_one_loss": "error_rate",
}
"""Names that other packages use, and the nearest built-in ones."""
SKLEARN_PREFIX = "sklearn.metrics."
SMOOTH_METRICS = ("brier_score", "brier_score_loss", "cross_entropy", "log_loss")
"""Metrics that have a gradient, and so need no surrogate."""
COLUMN_SIGNS = ("sum", ":", " over ", " subject to ", "+", "*", "/", " - ")
"""At least one of them is in a text with columns, groups, a capacity or a bound."""
COUNT_WORD = re.compile(r"\b(tp|fp|fn|tn)\b")
"""What every expression over confusion counts contains."""
MAX_SPEC_LENGTH = 1_000
"""Characters of a metric written as text; error messages quote it."""
PAPER = ("auc", "eer", "average_precision", "error_rate", "f1", "mcc", "jaccard")
"""The seven losses of the paper, in the order of its Table 2."""


class BuiltIn(NamedTuple):
    """The built-in metrics of a module by name, those with a setting, such as `partial_auc(0.05)`, and aliases."""

    plain: dict[str, Metric]
    parametric: dict[str, Callable[..., Metric]]
    aliases: dict[str, str]


@cache
def built_in(*modules: str) -> BuiltIn:
    """Return the built-in metrics of modules, which are imported."""
    found = BuiltIn({}, {}, {})
    for own in (import_module(f"metricgrad.metrics.{module}") for module in modules):
        found.plain.update((metric.name, metric) for metric in own.METRICS)
        found.parametric.update((make.__name__, make) for make in own.PARAMETRIC)
        found.aliases.update(own.ALIASES)
    return found


def builtin_metrics(task: Task | None = BINARY) -> list[Metric]:
    """Return the built-in metrics of a task, or of all, those with a setting at its default."""
    known = built_in(*MODULES)
    metrics = [*known.plain.values(), *(make() for make in known.parametric.values())]
    return [metric for metric in metrics if task in (None, metric.task)]


def listed_metrics() -> dict[str, Metric]:
    """Return every built-in metric by name; an error comes after the metric it is better known as."""
    listed: dict[str, Metric] = {}
    for metric in builtin_metrics(None):
        aliases = [alias for alias in WELL_KNOWN if built_in(*MODULES).aliases[alias] == metric.name]
        listed |= {name: named_metric(name) for name in (*aliases, metric.name)}
    return listed


# ---- from a spec to a metric ---------------------------------------------------------------------------------------


def get_metric(spec: Any, *, allow_files: bool = False) -> Metric:
    """Return the metric that a spec stands for.

    Parameters
    ----------
    spec : str, Metric, torchmetrics object, scorer or callable
        A name (`"f1"`, `"best_f1"`, `"partial_auc(0.05)"`, `"macro_f1"`, `"ndcg(10)"`, or an alias such as `"mcr"`); an
        expression over confusion counts (`"(5*tp - fp) / (5*(tp + fn))"`), over columns (`"sum(amount * tp) - 5*fp"`,
        `"top(0.02): sum(amount * tp)"`), groups (`"min over sex of recall"`) or with a bound (`"recall subject to
        precision >= 0.9"`); a function of scikit-learn, itself or by
        name (`"sklearn.metrics.cohen_kappa_score"`); a scorer; a torchmetrics object; a function with an attribute
        `higher_is_better` (for any other see `black_box`); or a `Metric`, which is returned as it is.
    allow_files : bool
        Whether the spec may be an object in a file of Python, `"my_metrics.py:profit"`, which is then run. Pass True
        only for what the user typed, never for what a file or a model folder contains.

    Returns
    -------
    Metric

    Examples
    --------
    >>> get_metric("mcr")
    Metric(name='error_rate')
    >>> get_metric("2*tp / (2*tp + fp + fn)").higher_is_better
    True
    """
    if isinstance(spec, Metric):
        return spec
    if isinstance(spec, str):
        return _from_text(spec, allow_files)
    if not callable(spec) or isinstance(spec, type):
        raise TypeError(
            f"metric: expected a name, a Metric, a torchmetrics object, a scorer or a callable, got {spec!r}"
        )
    from metricgrad.metrics.adapters import adapt  # a metric by name needs none of it
    from metricgrad.metrics.plain_functions import is_sklearn_function

    builtin = SKLEARN_NAMES.get(name_of(spec)) if is_sklearn_function(spec) else None
    return named_metric(builtin) if builtin else adapt(spec)


def _from_text(text: str, allow_files: bool) -> Metric:
    if len(text) > MAX_SPEC_LENGTH:
        raise ValueError(f"metric: expected a text of at most {MAX_SPEC_LENGTH:,} characters, got {len(text):,}")
    if ".py:" in text:
        if not allow_files:
            raise ValueError(f"metric: expected one that needs no code run, got {text!r}; give the metric itself")
        from metricgrad.metrics.parse import object_in_file

        found = object_in_file(text)
        return found if isinstance(found, Metric) else _adapted(found, text)
    if text.startswith(SKLEARN_PREFIX):
        from metricgrad.metrics.parse import sklearn_function

        name = text.removeprefix(SKLEARN_PREFIX)
        return named_metric(SKLEARN_NAMES[name]) if name in SKLEARN_NAMES else _adapted(sklearn_function(name), text)
    if any(sign in text for sign in COLUMN_SIGNS):
        from metricgrad.metrics.column_expressions import column_metric, needs_columns

        if needs_columns(text):
            return column_metric(text, get_metric)
    if COUNT_WORD.search(text):
        from metricgrad.metrics.parse import expression_metric, is_expression  # a metric by name needs none of it

        if is_expression(text):
            return expression_metric(text)
    return named_metric(text)


def _adapted(function: Callable[..., Any], text: str) -> Metric:
    from metricgrad.metrics.adapters import adapt

    return adapt(function, text, by_trial=True)


def named_metric(name: str) -> Metric:
    """Return a built-in metric by its name or alias."""
    spelled = re.sub(r"@([\d.]+)$", r"(\1)", name.replace(" ", ""))
    head, bracket, setting = spelled.partition("(")
    plain = head.lower().replace("-", "_") + bracket + setting  # settings may be names of columns
    if plain.startswith("best_"):
        return named_metric(plain.removeprefix("best_")).best
    found = _found(plain)
    if found is None:
        raise ValueError(f"metric: unknown name {name!r}; {_hint(plain.partition('(')[0])}")
    if plain in WELL_KNOWN:
        label, explanation = WELL_KNOWN[plain]
        return replace(found, label=label, explanation=explanation, known_as=(1, 0))
    return found


def _found(plain: str) -> Metric | None:
    """Return the built-in metric of a name or alias, from the first module that has it."""
    for module in MODULES:
        own = built_in(module)
        name = own.aliases.get(plain, plain)
        if name in own.plain:
            return own.plain[name]
        call = re.fullmatch(r"(\w+?)(?:\((.*)\))?", name)
        if call and call[1] in own.parametric:
            return _with_settings(own.parametric[call[1]], call[2])
    return None


def _with_settings(make: Callable[..., Metric], text: str | None) -> Metric:
    """Return a metric with the settings in its brackets, separated by commas."""
    settings = re.split(r",(?![^()]*\))", text) if text else []  # commas in the brackets of a setting are its own
    parameters = inspect.signature(make).parameters
    names, any_number = list(parameters), any(each.kind == each.VAR_POSITIONAL for each in parameters.values())
    if len(settings) > len(names) and not any_number:
        raise ValueError(f"metric: expected at most {len(names)} setting of {make.__name__!r}, got {text!r}")
    pairs = zip_longest(names[: len(settings)], settings)
    return make(*(get_metric(setting) if name == "metric" else setting for name, setting in pairs))


def _hint(wanted: str) -> str:
    """Return the advice for an unknown name: what may be meant, or what there is."""
    wanted = wanted.removeprefix("neg_")
    if wanted in SMOOTH_METRICS:
        return "it has a gradient, so it needs no surrogate and is not built in: train on it directly"
    plain, parametric, aliases = built_in(*MODULES)
    names = {name: name for name in (*plain, *parametric, *aliases)} | SUGGESTIONS
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    meant = list(dict.fromkeys(names[name] for name in ([wanted] if wanted in SUGGESTIONS else near)))
    return f"did you mean {' or '.join(meant)}?" if meant else f"known: {', '.join([*plain, *parametric])}"


# ---- metrics for the labels at hand --------------------------------------------------------------------------------

NAMESAKES = {
    "multiclass": {"error_rate": "micro_f1", "balanced_error": "multiclass_balanced_error", "mcc": "multiclass_mcc"},
    "multilabel": {"macro_f1": "label_macro_f1", "micro_f1": "label_micro_f1", "map": "label_map"},
}
"""Name of a metric for several classes, or several labels a row; micro F1 is one minus the error rate."""


def metric_for_labels(metric: Metric, y: Any) -> Metric:
    """Return a metric, or its namesake for labels of several classes, or several labels a row.

    >>> metric_for_labels(get_metric("macro_f1"), [[0, 1], [1, 1]]).name
    'label_macro_f1'
    >>> metric_for_labels(get_metric("mcc"), ["a", "b", "c"]).name
    'multiclass_mcc'
    """
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] > 1:
        return metric_for_task(metric, "multilabel")
    several = metric.name in NAMESAKES["multiclass"] and len(np.unique(labels)) > 2
    return metric_for_task(metric, "multiclass") if several else metric


def metric_for_task(metric: Metric, task: str) -> Metric:
    """Return the metric of the same name for a task, or the metric itself where there is none."""
    name = NAMESAKES.get(task, {}).get(metric.name)
    return replace(get_metric(name), label=metric.label, known_as=metric.known_as) if name else metric
