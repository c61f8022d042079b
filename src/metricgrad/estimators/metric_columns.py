"""The columns that a metric must know of the rows: checked, and groups encoded to codes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:  # reading a table needs no torch
    from metricgrad.metrics.registry import Metric

Array = NDArray[Any]
Codes = dict[str, list[Any]]
"""The values of every column that is encoded, in the order of their codes 0, 1, 2 ..."""
LEAKING_AUC = 0.999
"""From which on a column separates the classes by itself: it was probably filled in after the target."""
CONSTANT_SHARE, VARYING_SHARE = 0.99, 0.5
"""Shares of the rows of one class, and of the other, with the same value, by which a column belongs to one of them."""
MIN_LEAK_ROWS = 20
"""Rows of each class below which that may be chance."""


def learn_columns(
    columns: Mapping[str, Any] | None, metric: Metric, targets: Array
) -> tuple[Metric, Codes, Array | None]:
    """Check the columns a metric needs, and learn the codes of those that are groups or text.

    Returns the metric with the sizes of its columns, the codes, and the columns as numbers, `(rows, columns)` in the
    metric's order; None if it needs none. Warns of a column of amounts that nearly separates the classes
    by itself, or is constant for one of them.

    >>> from metricgrad import get_metric
    >>> _, codes, known = learn_columns({"sex": ["m", "f", "m"]}, get_metric("min over sex of recall"), np.zeros(3))
    >>> codes, known.ravel().tolist()
    ({'sex': ['f', 'm']}, [1.0, 0.0, 1.0])
    """
    given = _given(columns, metric)
    codes = _codes(given, metric)
    found = checked_columns(given, metric, len(targets), codes)
    if found is None:
        return metric, {}, None
    for place, name in enumerate(metric.columns):
        if name not in codes:
            _warn_of_leak(name, found[:, place], targets)
    sizes = [
        float(len(codes[name])) if name in codes else _typical(found[:, place])
        for place, name in enumerate(metric.columns)
    ]
    return replace(metric, column_sizes=tuple(sizes)), codes, found


def checked_columns(
    columns: Mapping[str, Any] | None, metric: Metric, rows: int, codes: Codes | None = None
) -> Array | None:
    """Return the columns a metric needs as numbers, `(rows, columns)` in the metric's order; None if it needs none.

    A value of a group that has no code gets the one after the last; a column without codes has codes of its own.
    """
    given = _given(columns, metric)
    if not given:
        return None
    codes = _codes(given, metric) | (codes or {})
    numbers = [_encoded(given[n], codes[n]) if n in codes else _numbers(n, given[n]) for n in metric.columns]
    for name, column in zip(metric.columns, numbers, strict=True):
        if len(column) != rows:
            raise ValueError(f"columns: expected a number for each of {rows} rows, got {len(column)} for {name!r}")
    found = np.column_stack(numbers)
    if not (np.isfinite(found) & (found >= 0)).all():
        raise ValueError("columns: expected finite numbers of at least 0, got others")
    return np.asarray(found)


def _given(columns: Mapping[str, Any] | None, metric: Metric) -> dict[str, Any]:
    given = {} if columns is None else dict(columns)
    if set(given) != set(metric.columns):
        expected = ", ".join(metric.columns) or "none"
        unused = [name for name in given if name not in metric.columns]
        hint = f"; {', '.join(unused)} {'is' if len(unused) == 1 else 'are'} not used by it" if unused else ""
        raise ValueError(
            f"columns: expected {expected} for the metric {metric.name!r}, got {', '.join(given) or 'none'}{hint}"
        )
    return given


def _codes(given: Mapping[str, Any], metric: Metric) -> Codes:
    return {name: _levels(given[name]) for name in metric.columns if _is_encoded(name, given[name], metric)}


def _is_encoded(name: str, values: Any, metric: Metric) -> bool:
    """Whether a column is encoded: groups always are, text only where the metric may compare it, as a callable does."""
    return name in metric.groups or (metric.costly and pd.Series(values).dtype.kind in "OUST")


def _levels(values: Any) -> list[Any]:
    """Return the distinct values of a column, in order; missing ones are a value of their own."""
    found: list[Any] = np.unique(_comparable(values)).tolist()
    return found


def _encoded(values: Any, levels: list[Any]) -> Array:
    codes = pd.Index(levels).get_indexer(pd.Index(_comparable(values)))
    return np.where(codes < 0, len(levels), codes).astype(float)


def _comparable(values: Any) -> Array:
    """Return numbers or text, without missing values."""
    column = pd.Series(values)
    if column.dtype.kind in "biuf":
        return np.asarray(column.fillna(-1.0) if column.dtype.kind == "f" else column.astype(float), float)
    words = ["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]
    return np.array(words, dtype=object)


def _numbers(name: str, values: Any) -> Array:
    try:
        return np.asarray(values, float)
    except (TypeError, ValueError):
        raise ValueError(f"columns: expected numbers for {name!r}, got {pd.Series(values).dtype} values") from None


def _typical(amounts: Array) -> float:
    """Return the mean of a column of amounts, rounded to a power of two, so that similar tables share a surrogate."""
    mean = float(amounts.mean())
    return 2.0 ** round(math.log2(mean)) if mean > 0 else 1.0


def _warn_of_leak(name: str, amounts: Array, targets: Array) -> None:
    """Warn of a column that nearly separates the classes by itself, or that only one of them has."""
    positive = np.asarray(targets) == 1
    if not 0 < positive.sum() < len(positive):
        return
    ranks = pd.Series(amounts).rank().to_numpy()
    count = int(positive.sum())
    auc = (ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(positive) - count))
    found = f"alone predicts the target (AUC {auc:.4f})" if max(auc, 1 - auc) >= LEAKING_AUC else ""
    found = found or _of_one_class(amounts[positive], amounts[~positive])
    if found:
        warnings.warn(
            f"columns: {name!r} {found}; if it is known only after the target, a rule that uses it cannot be applied "
            "to new rows",
            stacklevel=4,  # where fit was called
        )


def _of_one_class(positive: Array, negative: Array) -> str:
    """Return how a column is constant for one class and not for the other; empty if it is not."""
    if min(len(positive), len(negative)) < MIN_LEAK_ROWS:
        return ""
    for own, other, name in ((negative, positive, "negative"), (positive, negative, "positive")):
        values, counts = np.unique(own, return_counts=True)
        most = values[counts.argmax()]
        share, elsewhere = float(counts.max() / len(own)), float((other == most).mean())
        if share >= CONSTANT_SHARE and elsewhere <= VARYING_SHARE:
            return f"is {most:g} in {100 * share:.4g} % of the {name} rows and in {100 * elsewhere:.4g} % of the others"
    return ""
