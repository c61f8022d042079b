"""Hand-made losses of pairs of rows that stand in for AUC, its part at few false alarms, and average precision.

They take a set of any size: of too many pairs, rows of each class are thinned out evenly, always the same ones, so that
a model that is solved for on all rows can follow them too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.metrics.binary import auc_loss, average_precision_loss, partial_auc_loss
from metricgrad.metrics.registry import Metric

MAX_PAIRS = 250_000
"""Pairs of a positive and a negative row that are compared."""
MAX_POSITIVES = 500
"""Positive rows of a set that are compared."""
WIDTH = 0.1
"""Standard deviations of the scores over which one row passes another in `SmoothAveragePrecision`."""


class _Side(NamedTuple):
    """Scores of the rows of one class, `(rows,)`, with weights whose sum is that of all rows of the class."""

    scores: Tensor
    weights: Tensor

    def thinned(self, most: int) -> _Side:
        """Return at most some rows, evenly spaced."""
        count = len(self.scores)
        if count <= most:
            return self
        kept = torch.linspace(0, count - 1, most, dtype=torch.float64).round().long()
        weights = self.weights[kept]
        return _Side(self.scores[kept], weights * (self.weights.sum() / weights.sum().clamp(min=1e-12)))

    def top(self, share: float) -> _Side:
        """Return the rows of the highest scores that have a share of the weight; the last of them in part."""
        order = self.scores.detach().argsort(descending=True)
        weights = self.weights[order]
        before = weights.cumsum(0) - weights
        inside = (share * weights.sum() - before).clamp(min=0).minimum(weights)
        some = inside > 0
        return _Side(self.scores[order][some], inside[some])


class PairLoss(nn.Module):
    """A loss of the pairs of a positive and a negative row; sets without such pairs lose nothing."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets."""
        weights = torch.ones_like(scores) if weights is None else weights.to(scores.dtype)
        width = scores.shape[-1]
        sets = (each.expand_as(scores).reshape(-1, width) for each in (scores, targets, weights))
        losses = [self._of_set(*rows) for rows in zip(*sets, strict=True)]
        return torch.stack(losses).mean()

    def _of_set(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        counted, positive = weights > 0, targets == 1
        sides = [_Side(scores[counted & own], weights[counted & own]) for own in (positive, ~positive)]
        if not all(len(side.scores) for side in sides):
            return 0.0 * scores.sum()
        return self._of_sides(*sides)

    def _of_sides(self, positives: _Side, negatives: _Side) -> Tensor:
        """Return the loss of a set with rows of both classes."""
        raise TypeError(f"{type(self).__name__}: expected a loss of pairs, got the class of all of them")


class TopPairwise(PairLoss):
    """Mean logistic loss of pairs of a positive row and one of the highest negative rows.

    Parameters
    ----------
    share : float
        Share of the negatives, by weight: 1 stands in for AUC, less for its part up to so many false alarms.
    """

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise ValueError(f"share: expected a number above 0 and at most 1, got {share!r}")
        self.share = float(share)

    def _of_sides(self, positives: _Side, negatives: _Side) -> Tensor:
        positives = positives.thinned(MAX_POSITIVES)
        hard = negatives if self.share == 1 else negatives.top(self.share)
        hard = hard.thinned(MAX_PAIRS // len(positives.scores))
        losses = F.softplus(hard.scores - positives.scores.unsqueeze(-1))
        mean: Tensor = (positives.weights @ losses @ hard.weights) / (positives.weights.sum() * hard.weights.sum())
        return mean


class SmoothAveragePrecision(PairLoss):
    """One minus average precision, with a smooth step for whether one row is above another (Brown et al. 2020).

    The step is as wide as a part of the spread of the scores, so that their scale does not matter.

    Parameters
    ----------
    width : float
        That part.
    """

    def __init__(self, width: float = WIDTH) -> None:
        super().__init__()
        if not 0 < width < float("inf"):
            raise ValueError(f"width: expected a positive finite number, got {width!r}")
        self.width = float(width)

    def _of_sides(self, positives: _Side, negatives: _Side) -> Tensor:
        spread = torch.cat((positives.scores, negatives.scores)).detach().std(correction=0)
        step = (self.width * spread).clamp(min=1e-6)
        positives = positives.thinned(MAX_POSITIVES)
        negatives = negatives.thinned(MAX_PAIRS // len(positives.scores))
        own = positives.scores.unsqueeze(-1)
        above = ((positives.scores - own) / step).sigmoid() * positives.weights
        found = above.sum(-1) + above.diagonal()  # a row itself is half above itself
        alarms = ((negatives.scores - own) / step).sigmoid() @ negatives.weights
        precision = found / (found + alarms)
        loss: Tensor = 1 - (positives.weights @ precision) / positives.weights.sum()
        return loss


def pair_loss(metric: Metric) -> PairLoss | None:
    """Return the loss of pairs that stands in for a metric of the ranking of two classes; None if there is none."""
    function = getattr(metric.function, "func", metric.function)
    if function is auc_loss:
        return TopPairwise()
    if function is partial_auc_loss:
        return TopPairwise(metric.function.keywords["max_fpr"])  # type: ignore[attr-defined]
    return SmoothAveragePrecision() if function is average_precision_loss else None
