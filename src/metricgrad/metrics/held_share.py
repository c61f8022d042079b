"""Metrics that some threshold satisfies whatever the scores, such as recall: judged where a share of rows is called.

Recall is 1 where every row is called positive, so at its best threshold all models are equal. They are not where as
many rows are called as there are positives: recall is then precision too, and that of groups shows who is missed.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricgrad.metrics.metric import Metric

SAME, ROUNDING = 1e-9, 1e-9
"""Losses that differ by less, relative to the larger, or at all, are the same."""


def held_at_share(metric: Metric, y: Any, columns: Any = None, weights: Any = None, *, stacklevel: int = 3) -> Metric:
    """Return a metric as a model can be trained for it, and warn if that is not the metric itself.

    One that some threshold satisfies whatever the scores is judged on the top rows by score, as many as there are
    positives. A gap between groups is refused: scores without any order have none either.

    Parameters
    ----------
    metric : Metric
        What is asked for.
    y : array-like of shape (n,)
        Targets, 0 or 1.
    columns : array-like of shape (n, columns), optional
        Those of the metric, in its order.
    weights : array-like of shape (n,), optional
        How much each row counts.
    stacklevel : int
        Of the warning.

    Returns
    -------
    Metric

    Examples
    --------
    >>> from metricgrad import get_metric
    >>> held_at_share(get_metric("f1"), [0, 1, 0, 1, 0]).name
    'f1'
    """
    if not metric.thresholded or metric.costly or metric.task.name not in ("binary", "columns"):
        return metric
    # Copies, because torch warns of arrays that are read only.
    rows = torch.from_numpy(np.column_stack([y, columns]).astype(float) if metric.columns else np.array(y, float))
    w = None if weights is None else torch.from_numpy(np.array(weights, float))
    labels = rows[:, 0] if metric.columns else rows
    right, wrong = _losses(metric.best, labels, rows, w)
    if not _same(right, wrong):
        return metric
    from metricgrad.metrics.money import at_capacity

    share = float(labels.mean() if w is None else (labels * w).sum() / w.sum())
    ordered, reversed_ = _losses(at_capacity(metric, share), labels, rows, w)
    if not _same(ordered, right):  # such as a profit that no call can make
        return metric
    if _same(ordered, reversed_):
        raise ValueError(
            f"metric: expected one that depends on the model, got {metric.name!r}, which some threshold satisfies and "
            f"which is as good for scores in reverse order; take it from another metric, 'f1 - {metric.name}', or "
            f"bound it, 'f1 subject to {metric.name} <= 0.05'"
        )
    held = replace(at_capacity(metric, float(f"{share:.3g}")), column_sizes=metric.column_sizes)
    warnings.warn(
        f"metric: some threshold satisfies {metric.name!r} whatever the model, such as that of calling every row, so "
        f"as many rows are called as are positive: models are trained and compared by {held.name!r}. For another "
        f"share write 'top(0.1): {metric.name}', for a bound '{metric.name} subject to precision >= 0.4'",
        stacklevel=stacklevel,
    )
    return held


def _losses(metric: Metric, labels: Tensor, rows: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the losses of scores in the order of the labels, and in the opposite order."""
    return metric(labels, rows, weights), metric(1 - labels, rows, weights)


def _same(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs() <= SAME * max(float(one.abs()), float(other.abs())) + ROUNDING)
