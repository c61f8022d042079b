"""The best decision between several classes or labels: offsets of their scores, the counterpart of a threshold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.callable import as_metric
from metricgrad.metrics.class_offsets import COSTLY, FEW, Decision
from metricgrad.metrics.metric import Metric, checked_sets
from metricgrad.metrics.tasks import MULTILABEL


@torch.no_grad()
def best_offsets(metric: Any, scores: Any, targets: Any, weights: Any = None) -> Tensor:
    """Return the offsets, one a class or label, that lose least when added to the scores of a set.

    Of classes the highest score then decides, of labels each that is at least 0. The search goes class by class, the
    rarest first, from no offsets until none improves, at most ten times over all. Each step is exact for metrics of
    counts: every offset that gives a class to other rows is tried at once, in the middle between two of them; for
    others, and black boxes, quantiles are tried. The result depends on nothing but what is given, and loses no more
    than no offsets do.

    Parameters
    ----------
    metric : str, Metric or callable
        One of several classes or labels. Where it does not depend on a decision the answer is 0.
    scores, targets, weights : array-like
        One set: `(n, c)`, `(n, c)` and `(n,)`.

    Returns
    -------
    Tensor
        `(c,)`, in double precision, in which it has to be added; of classes the mean is zero.

    Examples
    --------
    >>> scores = [[2.0, 0.0], [2.0, 1.0], [1.0, 0.5], [3.0, 0.0]]
    >>> best_offsets("macro_f1", scores, [0, 1, 1, 0])
    tensor([-0.7500,  0.7500], dtype=torch.float64)
    """
    metric = as_metric(metric)
    if not metric.task.outputs:
        raise ValueError(
            f"metric: expected one of several classes or labels, got {metric.name!r} of one score a row, which has a "
            "threshold instead"
        )
    scores, targets, weights = checked_sets(scores, targets, weights, metric.task)
    if scores.ndim != 2:
        raise ValueError(f"scores: expected one set, (n, c), got the shape {tuple(scores.shape)}")
    if not scores.numel():
        raise ValueError(f"scores: expected at least one row, got the shape {tuple(scores.shape)}")
    if not metric.thresholded:
        return torch.zeros(scores.shape[-1], dtype=torch.float64)
    return decision_of(metric).search(scores, targets, weights)[0].cpu().double()


def decision_of(metric: Metric) -> Decision:
    """Return how a metric of several outputs decides."""
    trials = COSTLY if metric.costly else FEW
    return Decision(metric.function, metric.task == MULTILABEL, metric.counts, trials)
