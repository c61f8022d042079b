"""Hand-made losses, each a plain module called as `loss(scores, targets, weights=None)`, `(..., n)` -> scalar.

Losses of single rows are the weighted mean over the rows of all sets; losses of whole sets are the mean over sets. A
set without positives or without negatives has no pairs to rank, and loses nothing under a loss of pairs.

| name | stands in for | published by |
|---|---|---|
| `cross-entropy`, `balanced` | error rate, balanced error | |
| `focal` | error rate | Lin et al. 2017 |
| `cost-sensitive` | F1 | Parambath et al. 2014 |
| `soft-f1` (Dice), `soft-jaccard` | F1, Jaccard | Milletari et al. 2016, Rahman and Wang 2016 |
| `lovasz-hinge`, `lovasz-softmax` | Jaccard | Yu and Blaschko 2015, Berman et al. 2018 |
| `pairwise` | AUC | Gao and Zhou 2015 |
| `global-objectives` | AUC | Eban et al. 2017 |
| `aucm` | AUC | Yuan et al. 2021 (LibAUC) |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.losses.pairs import PairLoss
from metricgrad.metrics.binary import f_beta_loss, jaccard_loss
from metricgrad.metrics.confusion import Confusion, Counts, ratio

# ---- losses of single rows -----------------------------------------------------------------------------------------


class CrossEntropy(nn.Module):
    """Weighted mean of the logistic loss: the usual stand-in for the error rate."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together."""
        loss = F.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype), reduction="none")
        return row_mean(loss, weights)


class CostSensitive(nn.Module):
    """Cross-entropy in which a positive row costs `weight` times as much as a negative one.

    Some weight makes it optimal for F1 (Parambath et al. 2014); which one is chosen on validation rows: see `TUNED`.
    """

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        if not 0 < weight < math.inf:
            raise ValueError(f"weight: expected a positive finite number, got {weight!r}")
        self.weight = float(weight)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together."""
        cost = torch.where(targets == 1, self.weight, 1.0).to(scores.dtype)
        return row_mean(cost * F.softplus(-_margins(scores, targets)), weights)


class Focal(nn.Module):
    """Cross-entropy times the probability of the wrong class to the power `gamma`: easy rows count less."""

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        if not 0 <= gamma < math.inf:
            raise ValueError(f"gamma: expected a finite number of at least 0, got {gamma!r}")
        self.gamma = float(gamma)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together."""
        wrong = -_margins(scores, targets)
        return row_mean(wrong.sigmoid() ** self.gamma * F.softplus(wrong), weights)


class Balanced(nn.Module):
    """Mean of the cross-entropies of the classes of a set: both classes count the same, however rare one is."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets; a set of one class has the loss of that class."""
        classes = _classes(scores, targets, weights)
        loss = F.softplus(-_margins(scores, targets))
        present = classes.has_positives.to(loss) + classes.has_negatives.to(loss)
        return ratio(((classes.positives + classes.negatives) * loss).sum(-1), present).mean()


# ---- losses of counts ----------------------------------------------------------------------------------------------


class SoftCounts(nn.Module):
    """Any metric of confusion counts, with probabilities in place of decisions.

    Parameters
    ----------
    counts : callable
        The loss from confusion counts, as in `Metric.counts`.
    """

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets."""
        weights = torch.ones_like(scores) if weights is None else weights.to(scores.dtype)
        positives, negatives = weights * (targets == 1), weights * (targets != 1)
        found = scores.sigmoid()
        tp, fp = (positives * found).sum(-1), (negatives * found).sum(-1)
        missed, spared = (positives * (1 - found)).sum(-1), (negatives * (1 - found)).sum(-1)
        return self.counts(Confusion(tp, fp, missed, spared)).mean()


class SoftF1(SoftCounts):
    """One minus F1, with probabilities in place of decisions; also known as the Dice loss."""

    def __init__(self) -> None:
        super().__init__(partial(f_beta_loss, beta=1.0))


class SoftJaccard(SoftCounts):
    """One minus the intersection over the union, with probabilities in place of decisions."""

    def __init__(self) -> None:
        super().__init__(jaccard_loss)


class LovaszHinge(nn.Module):
    """Lovasz extension of the Jaccard loss, at the hinge losses of the rows: convex in the scores."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets."""
        return _lovasz(F.relu(1 - _margins(scores, targets)), targets, weights).mean()


class LovaszSoftmax(nn.Module):
    """Lovasz extension of the Jaccard loss, at the probabilities of the wrong class."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets."""
        return _lovasz((-_margins(scores, targets)).sigmoid(), targets, weights).mean()


ROW_LOSSES = (CrossEntropy, CostSensitive, Focal, Balanced)
"""Losses of single rows."""
ON_ALL_ROWS = (*ROW_LOSSES, SoftCounts, PairLoss)
"""Smooth losses that take no longer than their rows are many, so that a model can follow them on all rows at once."""


# ---- losses of pairs -----------------------------------------------------------------------------------------------


class Pairwise(nn.Module):
    """Mean logistic loss of all pairs of a positive and a negative row: how surely one outranks the other."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets; memory grows with the square of the set."""
        positives, negatives = _classes(scores, targets, weights)[:2]
        loss = F.softplus(scores.unsqueeze(-2) - scores.unsqueeze(-1))
        return torch.einsum("...i,...j,...ij->...", positives, negatives, loss).mean()


class AUCM(nn.Module):
    """Min-max margin loss of LibAUC, on probabilities, with its inner problem solved exactly.

    Yuan et al. (2021) minimise over the model, a and b, and maximise over alpha >= 0,

        E[(p - a)^2 | +] + E[(p - b)^2 | -] + 2 alpha (margin + E[p | -] - E[p | +]) - alpha^2,

    by stochastic steps on all four. On a set the best a, b and alpha are known: the mean of each class, and the margin
    still missing between them. Put in, what remains needs no ascent: the spread of each class plus the square of what
    is missing. Unless the classes are further apart than the margin, that is the mean over all pairs of
    `(margin - (p+ - p-))^2`.
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        if not 0 < margin < math.inf:
            raise ValueError(f"margin: expected a positive finite number, got {margin!r}")
        self.margin = float(margin)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets."""
        classes = _classes(scores, targets, weights)
        p = scores.sigmoid()
        a = (classes.positives * p).sum(-1, keepdim=True)
        b = (classes.negatives * p).sum(-1, keepdim=True)
        spread = (classes.positives * (p - a) ** 2 + classes.negatives * (p - b) ** 2).sum(-1)
        alpha = F.relu(self.margin + b - a).squeeze(-1)
        return torch.where(classes.has_positives & classes.has_negatives, spread + alpha**2, 0.0).mean()


class GlobalObjectives(nn.Module):
    """Bound on the area above the ROC curve, from thresholds held at false-alarm rates (Eban et al. 2017).

    At each of some false-alarm rates r, the anchors, a threshold is sought that misses least while its false alarms
    stay within r: minimise `misses + |multiplier| (false alarms - r)` over model and threshold, maximise it over the
    multiplier, and average over the anchors. Both rates are bounded from above by logistic losses in base 2.

    Thresholds and multipliers are parameters, to be learned by the optimiser of the model: the gradient of a
    multiplier is reversed, so that descent ascends. Thresholds start where the scores of the first call have those
    false-alarm rates.
    """

    anchors: Tensor
    started: Tensor

    def __init__(self, anchors: int = 20) -> None:
        super().__init__()
        if anchors < 1:
            raise ValueError(f"anchors: expected at least 1, got {anchors!r}")
        self.thresholds = nn.Parameter(torch.zeros(anchors))
        self.multipliers = nn.Parameter(torch.ones(anchors))
        self.register_buffer("anchors", (torch.arange(anchors) + 0.5) / anchors)
        self.register_buffer("started", torch.tensor(False))

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over sets."""
        classes = _classes(scores, targets, weights)
        if not self.started:
            self._start(scores.detach(), classes.negatives)
        above = scores.unsqueeze(-2) - self.thresholds.unsqueeze(-1)
        missed = (classes.positives.unsqueeze(-2) * F.softplus(-above)).sum(-1) / math.log(2)
        alarms = (classes.negatives.unsqueeze(-2) * F.softplus(above)).sum(-1) / math.log(2)
        excess = torch.where(classes.has_negatives.unsqueeze(-1), alarms - self.anchors, 0.0)
        multipliers = self.multipliers.abs()
        return (missed + (2 * multipliers.detach() - multipliers) * excess).mean()

    @torch.no_grad()
    def _start(self, scores: Tensor, negatives: Tensor) -> None:
        order = scores.flatten().argsort(descending=True)
        alarms = negatives.flatten()[order].cumsum(0)
        cut = torch.searchsorted(alarms, self.anchors.to(alarms) * alarms[-1]).clamp(max=len(order) - 1)
        self.thresholds.copy_(scores.flatten()[order][cut])
        self.started.fill_(True)


# ---- what they share -----------------------------------------------------------------------------------------------


class _Classes(NamedTuple):
    """Weights of the rows of each class, `(..., n)`, that sum to one; and whether a set has the class, `(...)`."""

    positives: Tensor
    negatives: Tensor
    has_positives: Tensor
    has_negatives: Tensor


def _classes(scores: Tensor, targets: Tensor, weights: Tensor | None) -> _Classes:
    positive = (targets == 1).to(scores.dtype)
    weights = torch.ones_like(scores) if weights is None else weights.to(scores.dtype)
    positives, negatives = weights * positive, weights * (1 - positive)
    of_positives, of_negatives = positives.sum(-1, keepdim=True), negatives.sum(-1, keepdim=True)
    return _Classes(
        ratio(positives, of_positives),
        ratio(negatives, of_negatives),
        (of_positives > 0).squeeze(-1),
        (of_negatives > 0).squeeze(-1),
    )


def _margins(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the margin of each score: positive on the correct side of zero."""
    return torch.where(targets == 1, scores, -scores)


def row_mean(loss: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean over the rows of all sets: `(..., n)` -> scalar."""
    return loss.mean() if weights is None else (loss * weights).sum() / weights.sum()


def _lovasz(errors: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the Lovasz extension of the Jaccard loss at some errors of rows: `(..., n)` -> `(...)`.

    Rows are counted as errors from the largest error down; each error is weighted by the rise of the Jaccard loss when
    its row is counted.
    """
    weights = torch.ones_like(errors) if weights is None else weights.to(errors.dtype)
    errors, order = errors.sort(-1, descending=True)
    weights, positive = weights.gather(-1, order), (targets == 1).gather(-1, order)
    missed, alarms = (weights * positive).cumsum(-1), (weights * ~positive).cumsum(-1)
    positives = missed[..., -1:]
    jaccard = 1 - ratio(positives - missed, positives + alarms, empty=1.0)
    return (errors * jaccard.diff(prepend=torch.zeros_like(positives))).sum(-1)


BASELINES: dict[str, Callable[[], nn.Module]] = {
    "cross-entropy": CrossEntropy,
    "balanced": Balanced,
    "focal": Focal,
    "cost-sensitive": CostSensitive,
    "soft-f1": SoftF1,
    "soft-jaccard": SoftJaccard,
    "lovasz-hinge": LovaszHinge,
    "lovasz-softmax": LovaszSoftmax,
    "pairwise": Pairwise,
    "global-objectives": GlobalObjectives,
    "aucm": AUCM,
}
COSTS = (0.3, 0.9, 2.7, 8.1, 24.3, 72.9)
"""Weights of a positive row that the paper tries."""
TUNED: dict[str, tuple[Callable[[], nn.Module], ...]] = {
    "cost-sensitive": tuple(partial(CostSensitive, cost) for cost in COSTS),
}
"""Baselines with a setting that is chosen on validation rows: one model is trained for each, the best is kept."""
