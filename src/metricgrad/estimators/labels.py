"""Labels as people write them, and the numbers a model learns: two classes, several, or several labels a row."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from metricgrad.estimators.label_words import NO, YES
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.metrics.tasks import Task

Array = NDArray[Any]
POSITIVE = (*YES, "positive", "pos")
NEGATIVE = (*NO, "negative", "neg")
"""Words for either class that leave no doubt which one is positive."""
NAMESAKES = {
    "multiclass": {"error_rate": "micro_f1", "balanced_error": "multiclass_balanced_error", "mcc": "multiclass_mcc"},
    "multilabel": {"macro_f1": "label_macro_f1", "micro_f1": "label_micro_f1", "map": "label_map"},
}
"""What a metric is called where there are several classes, or several labels a row; micro F1 is one minus the error."""


def suited(metric: Metric, y: Any) -> Metric:
    """Return a metric, or its namesake for the labels at hand: of several classes, or of several labels a row.

    >>> suited(get_metric("macro_f1"), [[0, 1], [1, 1]]).name, suited(get_metric("mcc"), ["a", "b", "c"]).name
    ('label_macro_f1', 'multiclass_mcc')
    """
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] > 1:
        return namesake(metric, "multilabel")
    several = metric.name in NAMESAKES["multiclass"] and len(np.unique(labels)) > 2
    return namesake(metric, "multiclass") if several else metric


def namesake(metric: Metric, task: str) -> Metric:
    """Return the metric of the same name for a task, or the metric itself where there is none."""
    name = NAMESAKES.get(task, {}).get(metric.name)
    return replace(get_metric(name), label=metric.label, known_as=metric.known_as) if name else metric


def learn_labels(y: Array, task: Task) -> tuple[Array, Array]:
    """Return the classes, and every row as a number of them; for several labels their numbers, and y as it is.

    >>> from metricgrad.metrics.tasks import MULTICLASS
    >>> classes, numbers = learn_labels(np.array(["pear", "fig", "pear", "plum"]), MULTICLASS)
    >>> classes.tolist(), numbers.tolist()
    (['fig', 'pear', 'plum'], [1, 0, 1, 2])
    """
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if task.name == "multilabel":
        if kind != "multilabel-indicator":
            raise ValueError(f"y: expected a column of 0 and 1 for every label, (rows, labels), got {kind} targets")
        return np.arange(np.shape(y)[1]), np.asarray(y, np.int8)
    classes, numbers = np.unique(y, return_inverse=True)
    if task.name == "multiclass" and kind == "multiclass":
        return classes, numbers.astype(np.int64)
    if kind != "binary" or len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {kind}. (For the chosen metric, that "
            "is; there are others for several classes or labels, such as macro_f1.)"
        )
    if len(classes) < 2:
        raise ValueError(f"y: expected two classes, got one class only: {classes.tolist()[0]!r}")
    return classes, numbers.astype(np.int8)


def positive_class(classes: Array, counts: Array, positive_label: Any = None) -> Any:
    """Return the positive one of two classes: the one asked for, or the last in order, as scikit-learn has it.

    Warns where the last in order is hardly meant: a word for no, or the more frequent of two words.

    >>> classes = np.array(["bad", "good"])
    >>> str(positive_class(classes, np.array([70, 30]))), str(positive_class(classes, np.array([30, 70]), "bad"))
    ('good', 'bad')
    """
    if positive_label is not None:
        found = np.flatnonzero(classes == positive_label)
        if not len(found):
            raise ValueError(f"positive_label: expected one of {classes.tolist()}, got {positive_label!r}")
        return classes[found[0]]
    if isinstance(classes[1], str):
        says_yes = [_says_yes(label) for label in classes]
        why = "a word for no" if says_yes == [True, False] else ""
        why = why or ("the more frequent one" if says_yes != [False, True] and counts[1] > counts[0] else "")
        if why:
            warnings.warn(
                f"y: {str(classes[1])!r} is taken as the positive class, the last of {classes.tolist()} in order, but "
                f"is {why}; say positive_label={str(classes[0])!r} or positive_label={str(classes[1])!r}",
                stacklevel=6,  # where fit was called
            )
    return classes[1]


def _says_yes(label: str) -> bool | None:
    word = label.strip().lower()
    return True if word in POSITIVE else False if word in NEGATIVE else None


def known_labels(y: Any, classes: Array, task: Task, positive: Any = None) -> Array:
    """Return labels as the metric takes them, or name the first one that was never seen."""
    if task.name == "multilabel":
        return np.asarray(y)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(f"y: expected the classes {classes}, got {unknown[0]!r}")
    if task.outputs:
        return np.searchsorted(classes, np.asarray(y))
    return np.asarray(np.asarray(y) == (classes[1] if positive is None else positive))


def checked_columns(columns: Mapping[str, Any] | None, metric: Metric, rows: int) -> Array | None:
    """Return what the metric must know of every row, `(rows, columns)` in the order it names them; None if nothing."""
    given = dict(columns or {})
    if set(given) != set(metric.columns):
        expected = ", ".join(metric.columns) or "none"
        raise ValueError(
            f"columns: expected {expected} for the metric {metric.name!r}, got {', '.join(given) or 'none'}"
        )
    if not given:
        return None
    whole = np.column_stack([np.asarray(given[name], float) for name in metric.columns])
    if len(whole) != rows:
        raise ValueError(f"columns: expected a number for each of {rows} rows, got {len(whole)}")
    if not (np.isfinite(whole) & (whole >= 0)).all():
        raise ValueError("columns: expected finite numbers of at least 0, got others")
    return np.asarray(whole)
