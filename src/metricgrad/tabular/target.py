"""The target: which two classes a column holds, which of them is positive, and what each row says."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.tabular.cells import flags, numbers, words
from metricgrad.tabular.io import TableError
from metricgrad.tabular.schema import listed

LEAST = 2
"""Rows of each class there have to be: one to train on, one to validate on."""
REST = "other"


@dataclass(frozen=True)
class Target:
    """The name of the target and its two labels; with `rest`, every label but the positive one is the negative one."""

    name: str
    negative: Any
    positive: Any
    rest: bool = False

    def classes(self, cells: pd.Series[Any]) -> NDArray[np.float64]:
        """Return 1 for the positive class, 0 for the other, NaN where the cell is empty; refuse any other label."""
        said = words(cells)
        positive, negative = words(pd.Series([self.positive])), words(pd.Series([self.negative]))
        there = pd.notna(said)
        found = np.where(there, (said == positive[0]).astype(float), np.nan)
        strange = there & (said != positive[0]) & (said != negative[0])
        if strange.any() and not self.rest:
            raise TableError(
                f"target: expected {self.negative!r} or {self.positive!r} in {self.name!r}, got {said[strange][0]!r}"
            )
        return np.asarray(found)


def alike(one: Any, other: Any) -> bool:
    """Whether two labels are the same word, or one of them is none."""
    first, second = words(pd.Series([one]))[0], words(pd.Series([other]))[0]
    return first is None or second is None or first == second


def infer_target(
    cells: pd.Series[Any], name: str, positive: Any = None, others: pd.DataFrame | None = None
) -> tuple[Target, str]:
    """Tell the classes of a target apart, and say in a line which is positive and how that is known.

    Parameters
    ----------
    cells : Series
        The target.
    name : str
        Its name.
    positive : label, optional
        The positive class; all others are then negative. If not given: yes of yes and no, the larger of two numbers,
        the rarer of two words.
    others : DataFrame, optional
        The columns beside it, to name one that was perhaps meant.

    Returns
    -------
    Target, str
    """
    counts = pd.Series(words(cells)).value_counts()
    labels: list[str] = sorted(counts.index, key=lambda label: (-counts[label], label))
    if len(labels) < 2 or (len(labels) > 2 and positive is None):
        few = "only missing cells" if not labels else f"one only, {labels[0]!r}"
        many = (
            f"{len(labels):,}: {', '.join(map(repr, labels[:3]))} ...; say which is positive, or train "
            "MetricClassifier for several classes"
        )
        got = few if len(labels) < 2 else many
        raise TableError(f"target: expected two classes in {name!r}, got {got}{_likely(name, others)}")
    chosen, why = _positive(labels, positive)
    rest = len(labels) > 2
    value = _values(cells, labels)
    negative = REST if chosen != REST else f"not {REST}"
    target = Target(name, negative if rest else value[next(la for la in labels if la != chosen)], value[chosen], rest)
    found, total = int(counts[chosen]), int(counts.sum())
    if min(found, total - found) < LEAST:
        rare = chosen if found < LEAST else next(label for label in labels if label != chosen)
        raise TableError(f"target: expected at least {LEAST} rows of each class in {name!r}, got 1 of {rare!r}")
    against = f"{len(labels) - 1} others" if rest else repr(target.negative)
    return target, f"target {name}: {chosen!r} is positive ({why}), {found:,} of {total:,} rows, against {against}"


def check_column(name: Any, names: Sequence[str], argument: str) -> None:
    """Refuse a column that is not there, and name one that was perhaps meant."""
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
        return str(asked), "as asked"
    pair = pd.Series(labels, dtype=object)
    for found, why in ((flags(pair), "it says yes"), (numbers(pair), "the larger number")):
        if np.isfinite(found).all():
            return labels[int(np.argmax(found))], why
    return labels[-1], "the rarer label"


def _values(cells: pd.Series[Any], labels: list[str]) -> dict[str, Any]:
    """Return each label as it was stored: a whole number, a truth or a text."""
    distinct = cells.dropna().unique()
    stored = dict(zip(words(pd.Series(distinct)), distinct, strict=True))
    plain = {label: stored[label].item() if hasattr(stored[label], "item") else stored[label] for label in labels}
    return {label: value if isinstance(value, (bool, int)) else label for label, value in plain.items()}


def _likely(name: str, others: pd.DataFrame | None) -> str:
    """Name columns of two values, one of which was perhaps meant."""
    if others is None:
        return ""
    twofold = [str(other) for other in others.columns if other != name and _is_twofold(others[other])]
    near = difflib.get_close_matches(name, twofold, n=1)
    chosen = list(dict.fromkeys((*near, *twofold)))[:3]
    return f"; columns of two classes: {', '.join(map(repr, chosen))}" if chosen else ""


def _is_twofold(cells: pd.Series[Any]) -> bool:
    try:
        return int(cells.nunique()) == 2
    except TypeError:
        return False
