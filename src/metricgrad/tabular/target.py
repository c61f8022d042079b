"""The target: its two classes, which of them is positive, and columns that leak it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import rankdata

from metricgrad.tabular.cells import Floats, TableError, flags, listed, numbers, words
from metricgrad.tabular.encoding import MIN_LEVEL_ROWS, values
from metricgrad.tabular.schema import Column

MIN_ROWS_PER_CLASS = 2
"""One to train on, one to validate on."""
REST = "other"
LEAK_AUC = 0.999
"""AUC of a single column above which it is reported."""
MIN_LEAK_ROWS = 20
"""Rows of each class below which a column may separate them by chance."""
PROBED_ROWS = 5_000
"""Rows looked at first; only columns that stand out among them are looked at in full."""


@dataclass(frozen=True)
class Target:
    """The name of the target and its two labels; with `rest`, every label but the positive one is negative."""

    name: str
    negative: Any
    positive: Any
    rest: bool = False

    def classes(self, cells: pd.Series[Any]) -> Floats:
        """Return 1 for the positive class, 0 for the negative one, NaN where missing; refuse any other label."""
        labels = words(cells)
        positive, negative = words(pd.Series([self.positive])), words(pd.Series([self.negative]))
        there = pd.notna(labels)
        found = np.where(there, (labels == positive[0]).astype(float), np.nan)
        unknown = there & (labels != positive[0]) & (labels != negative[0])
        if unknown.any() and not self.rest:
            raise TableError(
                f"target: expected {self.negative!r} or {self.positive!r} in {self.name!r}, got {labels[unknown][0]!r}"
            )
        return np.asarray(found)


def same_label(one: Any, other: Any) -> bool:
    """Return whether two labels are the same word, or one of them is empty."""
    first, second = words(pd.Series([one]))[0], words(pd.Series([other]))[0]
    return first is None or second is None or first == second


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
        few = "only missing cells" if not labels else f"one only, {labels[0]!r}"
        many = (
            f"{len(labels):,}: {', '.join(map(repr, labels[:3]))} ...; choose the positive one, or use "
            "MetricClassifier for several classes"
        )
        got = few if len(labels) < 2 else many
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


def check_column(name: Any, names: Sequence[str], argument: str) -> None:
    """Refuse a column that does not exist, and suggest a similar one."""
    if name in names:
        return
    near = difflib.get_close_matches(str(name).lower(), [other.lower() for other in names], n=1)
    meant = [other for other in names if near and other.lower() == near[0]]
    hint = f"; did you mean {meant[0]!r}?" if meant else f"; there are {listed(list(names))}"
    raise TableError(f"{argument}: expected the name of a column, got {name!r}{hint}")


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


# ---- leaks ---------------------------------------------------------------------------------------------------------


def leaking_columns(frame: pd.DataFrame, columns: tuple[Column, ...], targets: Floats) -> list[tuple[str, float]]:
    """Return the names of columns that predict the target almost alone, and the AUC of each, in either direction.

    In a real table this mostly means that they were filled in later than the target. A column of categories ranks by
    the share of positives in each level; of any other column, both its values and its missing cells are tried.
    """
    if min(targets.sum(), (1 - targets).sum()) < MIN_LEAK_ROWS:
        return []
    some = np.arange(0, len(targets), -(-len(targets) // PROBED_ROWS))
    found = []
    for column in columns:
        cells = frame[column.name]
        if column_auc(column, cells.iloc[some], targets[some]) > LEAK_AUC - 0.01:
            auc = column_auc(column, cells, targets)
            if auc > LEAK_AUC:
                found.append((column.name, auc))
    return found


def column_auc(column: Column, cells: pd.Series[Any], targets: Floats) -> float:
    """Return the AUC of one column, in either direction."""
    if column.kind == "category":
        return _auc(_level_means(words(cells), targets), targets)
    found = values(column, cells)
    gaps = np.isnan(found)
    if not gaps.any():
        return _auc(found, targets)
    middle = 0.0 if gaps.all() else np.median(found[~gaps])
    return max(_auc(np.where(gaps, middle, found), targets), _auc(gaps, targets))


def _level_means(levels: NDArray[Any], targets: Floats) -> Floats:
    """Return the share of positives in each row's level; rare levels get the overall share, as they fit themselves."""
    codes = pd.factorize(levels, use_na_sentinel=False)[0]
    count, found = np.bincount(codes), np.bincount(codes, targets)
    return np.asarray(np.where(count < MIN_LEVEL_ROWS, targets.mean(), found / count)[codes])


def _auc(scores: NDArray[Any], targets: Floats) -> float:
    positives = targets.sum()
    negatives = len(targets) - positives
    if not positives or not negatives:
        return 0.5
    above = rankdata(scores)[targets == 1].sum() - positives * (positives + 1) / 2
    area = above / (positives * negatives)
    return float(max(area, 1 - area))
