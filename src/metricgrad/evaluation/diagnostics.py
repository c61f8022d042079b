"""Diagnostics of scored rows: ROC and precision-recall curves, every threshold, confusion, calibration.

Curves lie on fixed grids, so that those of several splits can be averaged point by point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics.confusion import Confusion, confusion_curve
from metricgrad.metrics.registry import Metric, checked_sets

Array = NDArray[np.float64]
SHARES: Array = np.linspace(0, 1, 101) ** 2
"""False-positive rates of a ROC curve, and shares of predicted positives: densest where rare positives are decided."""
RECALLS: Array = np.linspace(0, 1, 101)
"""Recalls of a precision-recall curve."""
BINS = 10
"""Bins of a calibration curve, with about equally many rows each."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Curves and counts of one model on some rows, with scores cut at a threshold.

    `confusion`, the true `loss` and the share of predicted positives, `called`, are at the threshold. `roc` is the
    recall at the false-positive rates `SHARES`, `precision` that where the recalls `RECALLS` are first reached.
    `losses` are the true losses if the `SHARES` of rows with the highest scores are predicted positive; None for
    metrics without a threshold. Calibration: `predicted` mean probability, scores taken as log-odds, and `observed`
    share of positives in `BINS` bins; NaN in an empty one.
    """

    confusion: Confusion
    loss: float
    called: float
    roc: Array
    precision: Array
    losses: Array | None
    predicted: Array
    observed: Array


@torch.no_grad()
def diagnose(metric: Metric, scores: Any, targets: Any, threshold: float = 0.0, weights: Any = None) -> Diagnosis:
    """Diagnose raw scores and targets (0 or 1) of rows of both classes, `(n,)` each; targets may have columns.

    Weights count in the loss and the curves; the confusion and the calibration are of rows.

    >>> from metricgrad.metrics.registry import f1
    >>> found = diagnose(f1, [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], threshold=0.3)
    >>> [int(count) for count in found.confusion], float(found.roc[0])
    ([2, 1, 0, 1], 0.5)
    """
    scores, judged, weights = checked_sets(scores, targets, weights, metric.task)
    targets = metric.task.label(judged)
    if scores.ndim != 1 or not 0 < int((targets == 1).sum()) < len(scores):
        raise ValueError(f"targets: expected rows of both classes, (n,), got the shape {tuple(targets.shape)}")
    scores = scores.double()
    curve = confusion_curve(scores, targets, weights)
    tp, fp = curve.tp.numpy(), curve.fp.numpy()
    cuts = np.flatnonzero(np.diff(tp + fp, prepend=-1.0) > 0)  # no threshold lies between tied scores
    positive = scores >= threshold
    predicted, observed = _calibration(scores.sigmoid().numpy(), (targets == 1).numpy())
    return Diagnosis(
        _confusion(positive, targets == 1),
        float(metric(scores - threshold, judged, weights)),
        float(positive.double().mean()),
        np.interp(SHARES, fp[cuts] / fp[-1], tp[cuts] / tp[-1]),
        _precision(tp[cuts[1:]], fp[cuts[1:]]),
        _losses(metric, scores, judged, weights, curve, cuts) if metric.thresholded else None,
        predicted,
        observed,
    )


def _confusion(predicted: Tensor, actual: Tensor) -> Confusion:
    pairs = ((predicted, actual), (predicted, ~actual), (~predicted, actual), (~predicted, ~actual))
    return Confusion(*((one & other).sum() for one, other in pairs))


def _precision(tp: Array, fp: Array) -> Array:
    """Return the precision of the highest threshold that reaches each recall."""
    reached = np.searchsorted(tp, RECALLS * tp[-1] - 1e-9)
    return np.asarray(tp[reached] / (tp[reached] + fp[reached]))


def _losses(
    metric: Metric,
    scores: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    curve: Confusion,
    cuts: NDArray[np.intp],
) -> Array:
    """Return the loss at each share of predicted positives, or at the next smaller one that ties allow."""
    places = cuts[np.searchsorted(cuts, SHARES * len(scores) + 1e-9, side="right") - 1]
    if metric.counts is not None:
        return np.asarray(metric.counts(Confusion(*(count[places] for count in curve))).double())
    ranked = scores.sort(descending=True).values
    above = torch.cat((torch.nextafter(ranked[:1], torch.tensor(torch.inf).double()), ranked))
    return np.array([float(metric(scores - above[place], targets, weights)) for place in places])


def _calibration(probabilities: Array, positive: NDArray[np.bool_]) -> tuple[Array, Array]:
    edges = np.percentile(probabilities, 100 * np.linspace(0, 1, BINS + 1))
    group = np.searchsorted(edges[1:-1], probabilities)
    size = np.bincount(group, minlength=BINS).astype(float)
    size[size == 0] = np.nan
    sums = (np.bincount(group, weights, minlength=BINS) for weights in (probabilities, positive))
    predicted, observed = (total / size for total in sums)
    return predicted, observed
