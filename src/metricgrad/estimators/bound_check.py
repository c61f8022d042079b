"""Whether a bound on another metric holds on held-out rows, at the threshold and beyond it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from metricgrad.metrics.bounds import bound_of, bounded_value
from metricgrad.metrics.metric import Metric

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import Candidate, HeldOut

PARTS = 5
"""Parts of the held-out rows, each cut at a threshold that was chosen on the others."""


@dataclass(frozen=True)
class BoundCheck:
    """A bound on held-out rows.

    Parameters
    ----------
    bound : str
        As it is written: `"precision >= 0.9"`.
    value : float
        Of what is bounded, at the threshold of the model, which was chosen on the same rows.
    unseen : float
        The same where each fifth of the rows is cut at the threshold that was chosen on the others: what to expect of
        new rows.
    rows : int
        Held-out rows.
    kept : bool
        Whether both values keep the bound.

    Examples
    --------
    >>> print(BoundCheck("precision >= 0.9", 0.9024, 0.8871, 900, kept=False))  # doctest: +NORMALIZE_WHITESPACE
    bound precision >= 0.9 missed: 0.8871 on 900 held-out rows by thresholds that were chosen on other rows, 0.9024 by
    that of the model
    """

    bound: str
    value: float
    unseen: float
    rows: int
    kept: bool

    def __str__(self) -> str:
        return (
            f"bound {self.bound} {'kept' if self.kept else 'missed'}: {self.unseen:.4f} on {self.rows:,} held-out rows "
            f"by thresholds that were chosen on other rows, {self.value:.4f} by that of the model"
        )


def check_bound(
    metric: Metric, trained: Metric, best: Candidate, threshold: Any, *, chosen: bool, stacklevel: int = 3
) -> BoundCheck | None:
    """Return whether the bound of a metric holds on held-out rows, and warn if not; None if it has none.

    `trained` is the metric that thresholds are chosen by, and `chosen` whether this one was chosen on these rows.
    """
    bound = bound_of(metric)
    if bound is None:
        return None
    scores, y, w = best.held_out()
    value = bounded_value(metric, scores - threshold, y, w)
    unseen = _unseen_value(metric, trained, best.held_out()) if chosen else value
    found = BoundCheck(bound.text, value, unseen, len(y), bound.keeps(value) and bound.keeps(unseen))
    if not found.kept:
        warnings.warn(f"{found}; expect it to be missed on new rows too: ask for more", stacklevel=stacklevel)
    return found


def _unseen_value(metric: Metric, trained: Metric, rows: HeldOut) -> float:
    """Return the value of what is bounded where each part is cut at the threshold that is best for the others."""
    from metricgrad.metrics.thresholds import best_threshold

    scores, y, w = rows
    part = torch.randperm(len(y), generator=torch.Generator().manual_seed(0)) % PARTS
    shifted = torch.empty_like(scores)
    for number in range(PARTS):
        others = part != number
        cut = best_threshold(trained, scores[others], y[others], None if w is None else w[others])
        shifted[~others] = scores[~others] - cut
    return bounded_value(metric, shifted, y, w)
