"""What calling a row gains by a metric, to first order, and what it costs to decide a row wrongly.

A metric of sums over rows is linearised at the calls of some scores. The gains give the decision score that follows
from the metric (`plug_in.py`), the costs are weights for a cost-weighted loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from metricgrad.metrics.metric import Metric
from metricgrad.training.judged_rows import Array, Columns, JudgedRows


def error_costs(
    metric: Metric, scores: Any, y: Any, w: Any = None, columns: Columns | None = None, *, form: str = "best"
) -> Array | None:
    """Return what it costs, by the metric, to decide each row wrongly: weights for a cost-weighted loss.

    The metric is linearised at the calls of the scores. At a capacity a call costs what the last row called would have
    gained in its place.

    Parameters
    ----------
    metric, scores, y, w, columns, form
        As for `plug_in.find_rule`.

    Returns
    -------
    ndarray of shape (n,), or None
        Of mean one, without the row weights `w`; None where the metric is no function of sums over rows.
    """
    from metricgrad.metrics.bounds import priced  # with its modules only where a metric has columns

    judged = JudgedRows.of(metric, scores, y, w, columns, form)
    called = judged.calls(judged.scores)
    gains = row_gains(priced(metric), called, judged.log_odds, judged.row_facts())
    if gains is None:
        return None
    positive, negative = gains
    if not metric.thresholded:
        p = 1 / (1 + np.exp(-np.clip(judged.log_odds, -30, 30)))
        expected = p * positive + (1 - p) * negative
        place = np.quantile(expected, 1 - called.mean())
        positive, negative = positive - place, negative - place
    costs = np.where(judged.labels == 1, np.maximum(positive, 0), np.maximum(-negative, 0))
    mean = np.average(costs, weights=judged.row_facts()["weights"])
    return np.asarray(costs / mean) if mean > 0 else None


def row_gains(metric: Metric, called: Array, log_odds: Array, rows: Mapping[str, Any]) -> tuple[Array, Array] | None:
    """Return how much the expected loss falls, to first order, if a row is called: were it positive, and negative.

    Parameters
    ----------
    metric : Metric
        One of sums over rows; of a capacity, what is judged at it.
    called : ndarray of shape (n,)
        Which rows are called now.
    log_odds : ndarray of shape (n,)
        Of the rows being positive.
    rows : mapping
        `weights` and `scores`, `(n,)`, and `columns`.

    Returns
    -------
    tuple of ndarray of shape (n,), or None
        None where the metric is no function of sums, or does not change.
    """
    from metricgrad.metrics.decided import Decided, Fractional, loss_of
    from metricgrad.metrics.money import TopLoss  # with their modules only where a metric has columns

    judged = metric.decided_loss.metric if isinstance(metric.decided_loss, TopLoss) else metric
    if judged.decided_loss is None and judged.counts is None:
        return None
    p = 1 / (1 + np.exp(-np.clip(log_odds, -30, 30)))
    weights = np.concatenate((rows["weights"] * p, rows["weights"] * (1 - p)))
    share = torch.from_numpy(np.tile(called, 2).astype(float)).requires_grad_()
    both = Decided(
        torch.from_numpy(np.tile(rows["scores"], 2)),
        torch.arange(2 * len(p)) < len(p),
        torch.from_numpy(weights),
        {name: torch.from_numpy(np.tile(column, 2)) for name, column in rows["columns"].items()},
        Fractional(share),
    )
    with torch.enable_grad():
        loss = loss_of(judged, both)
    if not loss.requires_grad:
        return None
    slopes = torch.autograd.grad(loss, share)[0].numpy()
    per_weight = -np.divide(slopes, weights, out=np.zeros_like(slopes), where=weights > 0)
    if not np.isfinite(per_weight).all() or not per_weight.any():
        return None
    size = float(np.abs(per_weight).max())
    return per_weight[: len(p)] / size, per_weight[len(p) :] / size
