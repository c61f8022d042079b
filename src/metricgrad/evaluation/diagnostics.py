"""What scores of labelled rows show: ROC and precision-recall curves, every threshold, confusion, calibration.

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
"""False-alarm rates of a ROC curve, and shares of rows called positive: closest where rare positives are decided."""
RECALLS: Array = np.linspace(0, 1, 101)
"""Recalls of a precision-recall curve."""
BINS = 10
"""Groups of rows, of about equal size, of a calibration curve."""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What one model shows on some rows.

    Parameters
    ----------
    confusion : Confusion
        Rows found, falsely found, missed and rightly left, at the threshold.
    loss : float
        True loss at the threshold.
    called : float
        Share of rows called positive at the threshold.
    roc : array
        Recall at the false-alarm rates `SHARES`.
    precision : array
        Precision where the recalls `RECALLS` are first reached.
    losses : array, optional
        True loss if the best-scored `SHARES` of the rows were called positive; None if the threshold does not matter.
    predicted, observed : array
        Calibration: mean of the scores taken as log-odds and share of positives of `BINS` groups; NaN if one is empty.
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
def diagnose(metric: Metric, scores: Any, targets: Any, threshold: float = 0.0) -> Diagnosis:
    """Diagnose raw scores of rows of both classes, `(n,)`.

    Parameters
    ----------
    metric : Metric
        What the model is judged by.
    scores, targets : array-like of shape (n,)
        Raw scores, and 0 or 1.
    threshold : float
        Where scores are cut.

    Examples
    --------
    >>> from metricgrad.metrics.registry import f1
    >>> found = diagnose(f1, [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], threshold=0.3)
    >>> [int(count) for count in found.confusion], float(found.roc[0])
    ([2, 1, 0, 1], 0.5)
    """
    scores, targets, _ = checked_sets(scores, targets)
    if scores.ndim != 1 or not 0 < int((targets == 1).sum()) < len(scores):
        raise ValueError(f"targets: expected rows of both classes, (n,), got the shape {tuple(targets.shape)}")
    scores = scores.double()
    every = confusion_curve(scores, targets)
    tp, fp = every.tp.numpy(), every.fp.numpy()
    cuts = np.flatnonzero(np.diff(tp + fp, prepend=-1.0) > 0)  # ties leave some points of the curve out of reach
    found = scores >= threshold
    predicted, observed = _calibration(scores.sigmoid().numpy(), (targets == 1).numpy())
    return Diagnosis(
        _confusion(found, targets == 1),
        float(metric(scores - threshold, targets)),
        float(found.double().mean()),
        np.interp(SHARES, fp[cuts] / fp[-1], tp[cuts] / tp[-1]),
        _precision(tp[cuts[1:]], fp[cuts[1:]]),
        _losses(metric, scores, targets, every, cuts) if metric.thresholded else None,
        predicted,
        observed,
    )


def _confusion(found: Tensor, positive: Tensor) -> Confusion:
    pairs = ((found, positive), (found, ~positive), (~found, positive), (~found, ~positive))
    return Confusion(*((one & other).sum() for one, other in pairs))


def _precision(tp: Array, fp: Array) -> Array:
    """Return the precision of the highest threshold that reaches each recall."""
    reached = np.searchsorted(tp, RECALLS * tp[-1] - 1e-9)
    return np.asarray(tp[reached] / (tp[reached] + fp[reached]))


def _losses(metric: Metric, scores: Tensor, targets: Tensor, every: Confusion, cuts: NDArray[np.intp]) -> Array:
    """Return the loss if each share of rows were called positive, or the largest part of it that ties allow."""
    places = cuts[np.searchsorted(cuts, SHARES * len(scores) + 1e-9, side="right") - 1]
    if metric.counts is not None:
        return np.asarray(metric.counts(Confusion(*(count[places] for count in every))).double())
    ranked = scores.sort(descending=True).values
    above = torch.cat((torch.nextafter(ranked[:1], torch.tensor(torch.inf).double()), ranked))
    return np.array([float(metric(scores - above[place], targets)) for place in places])


def _calibration(probabilities: Array, positive: NDArray[np.bool_]) -> tuple[Array, Array]:
    edges = np.percentile(probabilities, 100 * np.linspace(0, 1, BINS + 1))
    group = np.searchsorted(edges[1:-1], probabilities)
    size = np.bincount(group, minlength=BINS).astype(float)
    size[size == 0] = np.nan
    sums = (np.bincount(group, weights, minlength=BINS) for weights in (probabilities, positive))
    predicted, observed = (total / size for total in sums)
    return predicted, observed
