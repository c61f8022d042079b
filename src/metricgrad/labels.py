"""Labels as people write them, and the numbers a model learns: two classes, several, or several labels a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from metricgrad.metrics import Metric
from metricgrad.tasks import Task

Array = NDArray[Any]


def learn_labels(y: Array, task: Task) -> tuple[Array, Array]:
    """Return the classes, and every row as a number of them; for several labels their numbers, and y as it is.

    >>> from metricgrad.tasks import MULTICLASS
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
        raise ValueError(f"y: expected two classes, got one class only: {classes[0]!r}")
    return classes, numbers.astype(np.int8)


def known_labels(y: Any, classes: Array, task: Task) -> Array:
    """Return labels as the metric takes them, or name the first one that was never seen."""
    if task.name == "multilabel":
        return np.asarray(y)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(f"y: expected the classes {classes}, got {unknown[0]!r}")
    return np.searchsorted(classes, np.asarray(y)) if task.outputs else np.asarray(y) == classes[1]


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
