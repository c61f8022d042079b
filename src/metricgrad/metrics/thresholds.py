"""The best decision of a metric on a set: a threshold, always between two scores, or offsets of several outputs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.class_offsets import COSTLY_TRIALS, TRIALS, OffsetSearch
from metricgrad.metrics.confusion import (
    Confusion,
    Counts,
    Function,
    confusion_curve,
    confusion_parts,
    descending_order,
)
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.sets import checked_sets
from metricgrad.metrics.tasks import MULTILABEL

GUIDED_FACTORS = (0.8, 1.25)
"""Rows to call positive beside those that a guide proposes, as multiples of their number."""


@torch.no_grad()
def best_threshold(metric: Any, scores: Any, targets: Any, weights: Any = None) -> float:
    """Return the threshold of the lowest loss; rows with `scores >= threshold` are called positive.

    Exact for metrics of confusion counts: all midpoints between neighbouring scores, and both extremes, are tried at
    once. A black box is tried at the midpoints nearest to 100 quantiles, one call each, or at the few that its
    emulator proposes. Of equally good thresholds the
    highest is returned.

    Parameters
    ----------
    metric : str, Metric or callable
        Whatever `get_metric` takes. A metric that belongs to one threshold has that one: recall at a precision of 0.9
        that of the largest recall with this precision. For any other that does not depend on a threshold, 0 is
        returned.
    scores, targets, weights : array-like
        One set, `(n,)`.

    Returns
    -------
    float

    Examples
    --------
    >>> from metricgrad.metrics.registry import f1
    >>> best_threshold(f1, [0.0, 0.5, 0.25, 1.0], [0, 0, 1, 1])
    0.125
    """
    metric = get_metric(metric)
    if not metric.decides:
        return 0.0
    scores, targets, weights = checked_sets(scores, targets, weights, metric.task)
    if scores.ndim != 1:
        raise ValueError(f"scores: expected one set, (n,), got the shape {tuple(scores.shape)}")
    if not len(scores):
        raise ValueError("scores: expected at least one row, got none")
    scores = scores.double()
    ranked = scores[descending_order(scores)]
    counts = metric.counts or metric.decision
    if counts is not None:
        labels = metric.task.label(targets)
        return _threshold_between(ranked, _best_cut(counts, confusion_parts(scores, labels, weights)))
    if metric.decided_loss is not None:
        from metricgrad.metrics.decided import losses_by_threshold  # which only metrics with columns need

        losses = losses_by_threshold(scores, targets, weights, metric.decided_loss, metric.columns)
        return _threshold_between(ranked, int(losses.argmin()))
    cuts = torch.linspace(0, len(ranked), min(TRIALS, len(ranked) + 1)).round().long().unique().tolist()
    if metric.stand_in is not None and metric.stand_in.counts is not None:
        cuts = proposed_cuts(metric.stand_in.counts, confusion_curve(scores, targets, weights))
    thresholds = list(dict.fromkeys(_threshold_between(ranked, cut) for cut in cuts))
    losses = torch.stack([metric(scores - threshold, targets, weights) for threshold in thresholds])
    return thresholds[int(losses.argmin())]


def _best_cut(counts: Counts, parts: Iterable[Confusion]) -> int:
    """Return the index of the first point of a curve with the lowest loss."""
    before, cut, least = 0, 0, math.inf
    for part in parts:
        losses = counts(part)
        here = int(losses.argmin())
        if float(losses[here]) < least:
            cut, least = before + here, float(losses[here])
        before += len(losses) - 1
    return cut


def proposed_cuts(guide: Counts, curve: Confusion) -> list[int]:
    """Return where to cut one curve, `(n + 1,)`: where the guide expects the lowest loss, and on both sides of it.

    A guide was fitted to sets of another size, which a metric may depend on: so there are some on each side.
    """
    best, rows = int(guide(curve).argmin()), len(curve.tp) - 1
    near = (min(max(round(factor * best), 1), rows) for factor in GUIDED_FACTORS)
    return sorted({best, *near} if best else {0, 1, max(rows // 100, 1)})


def guided_lowest_loss(
    scores: Tensor, targets: Tensor, weights: Tensor | None, function: Function, guide: Counts
) -> Tensor:
    """Return the lowest loss of every set over the few thresholds that a guide proposes: `(..., n)` -> `(...)`."""
    curves, losses = confusion_curve(scores.double(), targets, weights), []
    rows = scores.shape[-1]
    sets = (scores.reshape(-1, rows), targets.reshape(-1, rows), None if weights is None else weights.reshape(-1, rows))
    for number, (own, labels) in enumerate(zip(*sets[:2], strict=True)):
        cuts = proposed_cuts(guide, Confusion(*(column.reshape(-1, rows + 1)[number] for column in curves)))
        ranked = own.double().sort(descending=True).values
        shifted = torch.stack([own.double() - _threshold_between(ranked, cut) for cut in cuts])
        row_weights = None if sets[2] is None else sets[2][number].expand_as(shifted)
        losses.append(function(shifted, labels.expand_as(shifted), row_weights).amin())
    return torch.stack(losses).view(scores.shape[:-1]).to(scores)


def _threshold_between(ranked: torch.Tensor, cut: int) -> float:
    """Return a threshold that calls the `cut` highest scores positive, or those above a tie at the cut."""
    highest, lowest = float(ranked[0]), float(ranked[-1])
    margin = max(highest / len(ranked) - lowest / len(ranked), 1e-6 * max(1.0, abs(highest), abs(lowest)))
    above = ranked[ranked > ranked[cut]] if cut < len(ranked) else ranked
    if not len(above):
        return _finite(highest + margin, highest)
    if cut == len(ranked):
        return _finite(lowest - margin, lowest)
    upper, lower = float(above[-1]), float(ranked[cut])
    gap = upper - lower
    middle = lower + gap / 2 if math.isfinite(gap) else lower / 2 + upper / 2
    # Between adjacent floats there is no other: only the upper one separates them.
    return middle if lower < middle < upper else upper


def _finite(threshold: float, score: float) -> float:
    """Keep a threshold finite, unless the score itself is the largest float."""
    last = math.copysign(sys.float_info.max, threshold)
    return threshold if math.isfinite(threshold) or score == last else last


@torch.no_grad()
def best_offsets(metric: Any, scores: Any, targets: Any, weights: Any = None) -> Tensor:
    """Return the offsets, one per class or label, of the lowest loss when added to the scores of a set.

    The class of the highest score is then predicted, or each label whose score is at least 0. The search goes class by
    class, the rarest first, starting from zero until none improves, at most ten times over all. Each step is exact for
    metrics of counts: every offset that changes a prediction is tried at once; for other metrics, and black boxes,
    quantiles are tried. The result is deterministic, and loses no more than no offsets do.

    Parameters
    ----------
    metric : str, Metric or callable
        Whatever `get_metric` takes, of several classes or labels; zeros are returned if it does not depend on offsets.
    scores, targets, weights : array-like
        One set: `(n, c)`, `(n, c)` and `(n,)`.

    Returns
    -------
    Tensor
        `(c,)`, in float64, in which it has to be added; the mean over classes is zero.

    Examples
    --------
    >>> scores = [[2.0, 0.0], [2.0, 1.0], [1.0, 0.5], [3.0, 0.0]]
    >>> best_offsets("macro_f1", scores, [0, 1, 1, 0])
    tensor([-0.7500,  0.7500], dtype=torch.float64)
    """
    metric = get_metric(metric)
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
    return offset_search(metric).search(scores, targets, weights)[0].cpu().double()


def offset_search(metric: Metric) -> OffsetSearch:
    """Return the search for the offsets of a metric of several outputs."""
    trials = COSTLY_TRIALS if metric.costly else TRIALS
    return OffsetSearch(metric.function, metric.task == MULTILABEL, metric.counts, trials)
