"""Which target a column is: its classes, which of them is positive, its labels, or numbers."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from metricgrad.tabular.cells import TableError, flags, number_formats, numbers, words
from metricgrad.tabular.schema import PROBED_CELLS
from metricgrad.tabular.target import ClassTarget, GradeTarget, LabelTarget, NumberTarget, Target

MIN_ROWS_PER_CLASS = 2
"""One to train on, one to validate on."""
MAX_CLASSES, MAX_NUMERIC_CLASSES = 1_000, 100
"""Classes at most, and those that are numbers: more are rather a target of numbers."""
FEW_ROWS = 5
"""Rows of a class below which it is noted."""
MAX_LABELS = 1_000
FEW_CLASSES = 20
"""Different numbers up to which they are rather classes."""
REST = "other"


def has_many_numbers(cells: pd.Series[Any]) -> bool:
    """Whether all cells of a target are numbers, of more values than classes have."""
    labels = pd.unique(pd.Series(words(cells)).dropna())
    return len(labels) > FEW_CLASSES and bool(np.isfinite(numbers(pd.Series(labels, dtype=object))).all())


def infer_target(
    cells: pd.Series[Any], name: str, positive: Any = None, others: pd.DataFrame | None = None
) -> tuple[Target, str]:
    """Infer the classes of a target, and return a line that says which is positive and why.

    With `positive`, all other labels are negative. By default it is yes of yes and no, the larger of two numbers, or
    the rarer of two words. Of the `others`, one that may have been meant is suggested.
    """
    counts = pd.Series(words(cells)).value_counts()
    labels: list[str] = sorted(counts.index, key=lambda label: (-counts[label], label))
    if len(labels) < 2 or (len(labels) > 2 and positive is None):
        got = _few_labels(labels) if len(labels) < 2 else f"{len(labels):,}: {_many_labels(labels)}"
        raise TableError(f"target: expected two classes in {name!r}, got {got}{_suggestions(name, others)}")
    chosen, why = _positive(labels, positive)
    rest = len(labels) > 2
    stored = _stored_values(cells, labels)
    negative = REST if chosen != REST else f"not {REST}"
    target = Target(name, negative if rest else stored[next(la for la in labels if la != chosen)], stored[chosen], rest)
    found, total = int(counts[chosen]), int(counts.sum())
    if min(found, total - found) < MIN_ROWS_PER_CLASS:
        rare = chosen if found < MIN_ROWS_PER_CLASS else next(label for label in labels if label != chosen)
        raise TableError(
            f"target: expected at least {MIN_ROWS_PER_CLASS} rows of each class in {name!r}, got 1 of {rare!r}"
        )
    against = f"{len(labels) - 1} others" if rest else repr(target.negative)
    return target, f"target {name}: {chosen!r} is positive ({why}), {found:,} of {total:,} rows, against {against}"


def _positive(labels: list[str], positive: Any) -> tuple[str, str]:
    if positive is not None:
        asked = words(pd.Series([positive]))[0]
        if asked not in labels:
            raise TableError(f"positive: expected one of {', '.join(map(repr, labels[:5]))}, got {positive!r}")
        return str(asked), "as requested"
    pair = pd.Series(labels, dtype=object)
    for found, why in ((flags(pair), "it means yes"), (numbers(pair), "the larger number")):
        if np.isfinite(found).all():
            return labels[int(np.argmax(found))], why
    return labels[-1], "the rarer label"


def _many_labels(labels: list[str]) -> str:
    found = numbers(pd.Series(labels, dtype=object))
    several = "a metric of several classes, such as macro_f1"
    of_numbers = "a metric of numbers, such as mae or within(0.1)"
    if not np.isfinite(found).all() or len(labels) <= FEW_CLASSES:
        advice = f"choose the positive one, or {several}"
    elif len(labels) <= MAX_NUMERIC_CLASSES and not (found % 1).any():
        advice = f"if they are classes, choose the positive one, or {several}; if not, {of_numbers}"
    else:
        advice = f"choose {of_numbers}"
    return f"{', '.join(map(repr, labels[:3]))} ...; {advice}"


def _stored_values(cells: pd.Series[Any], labels: list[str]) -> dict[str, Any]:
    """Return each label as it was stored: an integer, a boolean or a text."""
    distinct = cells.dropna().unique()
    stored = dict(zip(words(pd.Series(distinct)), distinct, strict=True))
    plain = {label: stored[label].item() if hasattr(stored[label], "item") else stored[label] for label in labels}
    return {label: value if isinstance(value, (bool, int)) else label for label, value in plain.items()}


def _suggestions(name: str, others: pd.DataFrame | None) -> str:
    """Name columns of two values, one of which may have been meant."""
    if others is None:
        return ""
    binary = [str(other) for other in others.columns if other != name and _has_two_values(others[other])]
    near = difflib.get_close_matches(name, binary, n=1)
    chosen = list(dict.fromkeys((*near, *binary)))[:3]
    return f"; columns of two classes: {', '.join(map(repr, chosen))}" if chosen else ""


def _has_two_values(cells: pd.Series[Any]) -> bool:
    try:
        return int(cells.nunique()) == 2
    except TypeError:
        return False


# ---- several classes, labels and numbers ---------------------------------------------------------------------------


def infer_classes(cells: pd.Series[Any], name: str) -> tuple[ClassTarget, str]:
    """Infer the classes of a target, in order, and return a line that says how many rows they have."""
    counts = pd.Series(words(cells)).value_counts()
    labels: list[str] = list(counts.index)
    if len(labels) < 2:
        raise TableError(f"target: expected classes in {name!r}, got {_few_labels(labels)}")
    as_numbers = numbers(pd.Series(labels, dtype=object))
    if len(labels) > MAX_CLASSES or (np.isfinite(as_numbers).all() and len(labels) > MAX_NUMERIC_CLASSES):
        what = "numbers" if np.isfinite(as_numbers).all() else "labels"
        raise TableError(
            f"target: expected at most {MAX_NUMERIC_CLASSES if what == 'numbers' else MAX_CLASSES:,} classes in "
            f"{name!r}, got {len(labels):,} {what}; for numbers choose a metric of numbers, such as mae or within(0.1)"
        )
    in_order = np.argsort(as_numbers, kind="stable") if np.isfinite(as_numbers).all() else np.argsort(labels)
    integers = cells.dtype.kind == "f" and not (cells.dropna() % 1).any()  # as pandas holds them where some are missing
    stored = _stored_values(cells.dropna().astype(np.int64) if integers else cells, labels)
    target = ClassTarget(name, tuple(stored[labels[place]] for place in in_order))
    rarest = str(counts.index[-1])
    few = f"; few of {rarest!r}, so it is hardly learned" if counts.iloc[-1] < FEW_ROWS else ""
    most = f"{labels[0]!r} {counts.iloc[0]:,}"
    return target, (
        f"target {name}: {len(labels)} classes, of {int(counts.sum()):,} rows {most} to {rarest!r} "
        f"{counts.iloc[-1]:,}{few}"
    )


def infer_labels(cells: Sequence[pd.Series[Any]], names: Sequence[str]) -> tuple[LabelTarget, list[str]]:
    """Infer the labels that rows may have: columns of two classes; return a line for each."""
    if len(names) > MAX_LABELS:
        raise TableError(f"target: expected at most {MAX_LABELS:,} columns of labels, got {len(names):,}")
    found = [infer_target(own, name) for own, name in zip(cells, names, strict=True)]
    return LabelTarget(tuple(target for target, _ in found)), [line for _, line in found]


def infer_numbers(cells: pd.Series[Any], name: str, grades: bool = False) -> tuple[NumberTarget, str]:
    """Infer how the numbers of a target are written, and return a line about them; a cell of text is refused."""
    form = ""
    unread = cells[np.isnan(numbers(cells)) & pd.notna(words(cells))]
    if len(unread):
        formats = number_formats(unread.iloc[:PROBED_CELLS])
        form = next((each for each in formats if np.isfinite(numbers(unread, each)).all()), "")
    if len(unread) and not form:
        raise TableError(
            f"target: expected numbers in {name!r}, because the metric is one of numbers, got "
            f"{str(unread.iloc[0])!r}; for classes choose a metric of classes, such as f1 or macro_f1"
        )
    target = (GradeTarget if grades else NumberTarget)(name, form)
    found = target.read([cells])
    there = found[np.isfinite(found)]
    if len(there) < MIN_ROWS_PER_CLASS or not np.ptp(there):
        got = "only missing cells" if not len(there) else f"{there[0]:g} only"
        raise TableError(f"target: expected numbers that differ in {name!r}, got {got}")
    if grades and there.min() < 0:
        raise TableError(f"target: expected grades of at least 0 in {name!r}, got {there.min():g}")
    of = "grades" if grades else "numbers"
    few = "; two values only: for classes choose a metric of classes, such as f1" if len(np.unique(there)) == 2 else ""
    low, middle, high = there.min(), np.median(there), there.max()
    return target, f"target {name}: {of} from {low:g} to {high:g}, median {middle:g}, {len(there):,} rows{few}"


def _few_labels(labels: list[str]) -> str:
    return "only missing cells" if not labels else f"one only, {labels[0]!r}"
