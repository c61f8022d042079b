"""The best threshold of a metric: exact, over every cut the scores allow, and always between two scores."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import torch

from metricgrad.metrics.binary_formulas import Counts
from metricgrad.metrics.callable import as_metric
from metricgrad.metrics.confusion import Confusion, confusion_parts, descending_order
from metricgrad.metrics.registry import checked_sets

FEW = 100


@torch.no_grad()
def best_threshold(metric: Any, scores: Any, targets: Any, weights: Any = None) -> float:
    """Return the threshold that loses least under a thresholded metric; `scores >= threshold` is called positive.

    Exact for metrics of confusion counts: all midpoints between neighbouring scores, and both extremes, are tried at
    once. A black box is tried at the midpoints nearest to 100 quantiles, one call each. Of equally good thresholds the
    highest is returned.

    Parameters
    ----------
    metric : str, Metric or callable
        One that has a threshold; for any other the answer is 0.
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
    metric = as_metric(metric)
    if not metric.thresholded:
        return 0.0
    scores, targets, weights = checked_sets(scores, targets, weights, metric.task)
    if scores.ndim != 1:
        raise ValueError(f"scores: expected one set, (n,), got the shape {tuple(scores.shape)}")
    if not len(scores):
        raise ValueError("scores: expected at least one row, got none")
    scores = scores.double()
    ranked = scores[descending_order(scores)]
    if metric.counts is not None:
        return _between(ranked, _best_cut(metric.counts, confusion_parts(scores, targets, weights)))
    cuts = torch.linspace(0, len(ranked), min(FEW, len(ranked) + 1)).round().long().unique().tolist()
    thresholds = list(dict.fromkeys(_between(ranked, cut) for cut in cuts))
    losses = torch.stack([metric(scores - threshold, targets, weights) for threshold in thresholds])
    return thresholds[int(losses.argmin())]


def _best_cut(counts: Counts, parts: Iterable[Confusion]) -> int:
    """Return the number of the first point of a curve where least is lost."""
    before, cut, least = 0, 0, math.inf
    for part in parts:
        losses = counts(part)
        here = int(losses.argmin())
        if float(losses[here]) < least:
            cut, least = before + here, float(losses[here])
        before += len(losses) - 1
    return cut


def _between(ranked: torch.Tensor, cut: int) -> float:
    """Return a threshold that calls the `cut` highest scores positive, or where ties forbid it, those above them."""
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
    # Between neighbouring floats there is nothing: the upper one itself is the only threshold that parts them.
    return middle if lower < middle < upper else upper


def _finite(threshold: float, score: float) -> float:
    """Stay within the numbers there are, unless the score is already the last of them."""
    last = math.copysign(sys.float_info.max, threshold)
    return threshold if math.isfinite(threshold) or score == last else last
