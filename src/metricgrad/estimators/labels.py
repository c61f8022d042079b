"""Labels as users write them, and the numbers a model learns: two classes, several, or several labels a row."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from metricgrad.training.splits import class_numbers

if TYPE_CHECKING:  # reading a table needs the words below, and no torch
    from metricgrad.metrics.tasks import Task

Array = NDArray[Any]
YES = ("yes", "true", "y", "t", "on")
NO = ("no", "false", "n", "f", "off")
POSITIVE = (*YES, "positive", "pos")
NEGATIVE = (*NO, "negative", "neg")
"""Words that leave no doubt which class is positive."""


def learn_labels(y: Array, task: Task) -> tuple[Array, Array]:
    """Return the classes, and the class number of every row; for several labels a row their numbers, and y as it is.

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
    classes, numbers = class_numbers(np.asarray(y))
    if task.name == "multiclass" and kind == "multiclass":
        return classes, numbers.astype(np.int64)
    if kind != "binary" or len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {kind}. (This holds for the chosen "
            "metric; others, such as macro_f1, take several classes or labels.)"
        )
    if len(classes) < 2:
        raise ValueError(f"y: expected two classes, got one class only: {classes.tolist()[0]!r}")
    return classes, numbers.astype(np.int8)


def positive_targets(classes: Array, targets: Array, task: Task, positive_label: Any = None) -> tuple[Any, Array]:
    """Return the positive one of two classes, None of more, and targets in which it is 1."""
    if task.outputs:
        if positive_label is not None:
            expected = f"expected None where the metric is one of {task.name} targets"
            raise ValueError(f"positive_label: {expected}, got {positive_label!r}")
        return None, targets
    positive = positive_class(classes, np.bincount(targets, minlength=2), positive_label)
    return positive, targets if positive == classes[1] else 1 - targets


def positive_class(classes: Array, counts: Array, positive_label: Any = None) -> Any:
    """Return the positive one of two classes: `positive_label`, or the last in order, as in scikit-learn.

    Warns where the last in order is probably not meant: a word for no, or the more frequent of two words.

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
        means_yes = [_means_yes(label) for label in classes]
        why = "a word for no" if means_yes == [True, False] else ""
        why = why or ("the more frequent one" if means_yes != [False, True] and counts[1] > counts[0] else "")
        if why:
            warnings.warn(
                f"y: {str(classes[1])!r} is taken as the positive class, the last of {classes.tolist()} in order, but "
                f"is {why}; set positive_label={str(classes[0])!r} or positive_label={str(classes[1])!r}",
                stacklevel=6,  # where fit was called
            )
    return classes[1]


def class_factors(given: Any, classes: Array, targets: Array, weights: Array | None = None) -> Array:
    """Return what the weights of the rows of every class are multiplied by, `(classes,)`.

    `given` is a mapping of labels to factors, others have 1, or `"balanced"`: every class then has the same sum.
    `targets` are numbers of `classes`.

    >>> class_factors("balanced", np.array(["fig", "pear"]), np.array([0, 0, 0, 1])).round(2).tolist()
    [0.67, 2.0]
    >>> class_factors({"pear": 5}, np.array(["fig", "pear"]), np.array([0, 0, 0, 1])).tolist()
    [1.0, 5.0]
    """
    if isinstance(given, str) and given == "balanced":
        sums = np.bincount(targets.astype(int), weights, minlength=len(classes)).astype(float)
        return np.asarray(sums.sum() / (len(classes) * np.maximum(sums, np.finfo(float).tiny)))
    if not isinstance(given, Mapping):
        raise ValueError(f"class_weight: expected 'balanced', a mapping of labels to numbers or None, got {given!r}")
    known = classes.tolist()
    for label, factor in given.items():
        if label not in known:
            raise ValueError(f"class_weight: expected weights of the classes {known}, got one of {label!r}")
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 0 < float(factor) < math.inf:
            raise ValueError(f"class_weight: expected positive numbers, got {factor!r} for {label!r}")
    return np.array([float(given.get(label, 1.0)) for label in known])


def _means_yes(label: str) -> bool | None:
    word = label.strip().lower()
    return True if word in POSITIVE else False if word in NEGATIVE else None


def known_labels(y: Any, classes: Array, task: Task, positive: Any = None) -> Array:
    """Return labels as the metric takes them; a label that was not seen in training is refused."""
    if task.name == "multilabel":
        return np.asarray(y)
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(f"y: expected the classes {classes}, got {unknown[0]!r}")
    if task.outputs:
        return np.searchsorted(classes, np.asarray(y))
    return np.asarray(np.asarray(y) == (classes[1] if positive is None else positive))
