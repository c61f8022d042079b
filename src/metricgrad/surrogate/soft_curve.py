"""A soft ROC curve whose thresholds lie where the scores of a set do, for attention over them.

At a threshold that a set chooses itself, the best one or the one of a given level, a metric changes with the few rows
near it. Fixed thresholds miss them where positives are rare or scores are far from normal; these follow the scores:
they are dense among the positives and among the highest negatives, and leave no wide gap between. They are constants of
the gradient, like the thresholds of a fixed g.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

EPSILON = 1e-12
SCORE_STRETCH = 1 / 3
"""Scores are compressed by asinh(s / 3): hardly within three standard deviations, strongly far beyond."""
SHARPNESS = 64.0
"""Of the steps, in compressed scores: each is about as wide as a normal distribution of 0.08 standard deviations."""
TOP_NEGATIVES = 1e-3
"""Share of the negatives from which on thresholds lie by its logarithm."""
GRID_REACH, GRID_STEP = 3.5, 0.4 / SHARPNESS
"""Half the width of the grid of large sets, in compressed scores, and the distance of its points."""
LOWEST = -1e4
"""Below any compressed score."""
TOKEN = 7
"""Numbers that are known at a threshold."""


class SoftCurve(nn.Module):
    """What is known of a set at each of many thresholds of its own, smooth in the scores.

    At every threshold: the log-odds of the positives, the logarithms of the rates of both classes above and below it
    and of all rows above it, and the precision.

    Parameters
    ----------
    thresholds : int
        How many.
    grid_rows : int
        Sets of more rows are put on a grid, as in `SoftROC`.
    """

    stretch = SCORE_STRETCH

    def __init__(self, thresholds: int, grid_rows: int) -> None:
        super().__init__()
        self.thresholds, self.grid_rows, self.width = thresholds, grid_rows, TOKEN * thresholds
        self.register_buffer("sharpness", torch.tensor(SHARPNESS), persistent=False)
        self.register_buffer("levels", threshold_levels(thresholds), persistent=False)
        intervals = round(2 * GRID_REACH / GRID_STEP)
        self.register_buffer("points", torch.linspace(-GRID_REACH, GRID_REACH, intervals + 1), persistent=False)

    sharpness: Tensor
    levels: Tensor
    points: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor, classes: Tensor) -> Tensor:
        """Pool sets of rows, given the weights of each class too: `(..., n)` -> `(..., thresholds * 7)`."""
        share = (weights * targets).sum(-1, keepdim=True)
        shares = torch.stack((share, 1 - share), -2)  # (..., 2, 1)
        position = (SCORE_STRETCH * scores).asinh()
        centres = placed_thresholds(position.detach(), classes, self.levels)
        above = (self._rates_on_grid if position.shape[-1] > self.grid_rows else self._rates)(
            position, classes, centres
        )
        masses = shares * above
        called = masses.sum(-2, keepdim=True)
        precision = masses[..., :1, :] / (called + 1e-6)
        rates = torch.cat((above, 1 - above, called), -2)
        odds = (share.logit(EPSILON).clamp(-8, 8) / 4).unsqueeze(-2).expand_as(precision)
        return torch.cat((odds, (rates.clamp(min=0) + 1e-4).log() / 4, precision), -2).mT.flatten(-2)

    def _rates(self, position: Tensor, classes: Tensor, centres: Tensor) -> Tensor:
        """Return the weight of each class above all t thresholds: `(..., n)`, `(..., 2, n)` -> `(..., 2, t)`."""
        steps = (position.unsqueeze(-1) - centres.unsqueeze(-2)) * self.sharpness
        return classes @ steps.sigmoid_()

    def _rates_on_grid(self, position: Tensor, classes: Tensor, centres: Tensor) -> Tensor:
        """Return what `_rates` does, from sums of powers at each point of a grid."""
        intervals = len(self.points) - 1
        place = ((position + GRID_REACH) / GRID_STEP).clamp(0, intervals)
        below = place.detach().long().clamp(0, intervals - 1)  # in range for NaN too, which then reaches the loss
        beyond = place - below
        places = below.unsqueeze(-2).expand_as(classes)
        empty = classes.new_zeros(*classes.shape[:-1], intervals)
        sums, terms = [empty.scatter_add(-1, places, classes)], classes
        for _ in range(3):
            terms = terms * beyond.unsqueeze(-2)
            sums.append(empty.scatter_add(-1, places, terms))
        return torch.cat(sums, -1) @ self._cubics(centres.clamp(-GRID_REACH, GRID_REACH))

    def _cubics(self, centres: Tensor) -> Tensor:
        """Return cubics with the values and slopes of every step at the points: `(..., t)` -> `(..., 4 * g, t)`."""
        steps = ((self.points.unsqueeze(-1) - centres.unsqueeze(-2)) * self.sharpness).sigmoid()
        slopes = (GRID_STEP * self.sharpness) * (steps - steps.square())
        start, end, rise = slopes[..., :-1, :], slopes[..., 1:, :], steps.diff(dim=-2)
        terms = (steps[..., :-1, :], start, 3 * rise - 2 * start - end, start + end - 2 * rise)
        return torch.cat(terms, -2)


def threshold_levels(thresholds: int) -> Tensor:
    """Return where thresholds lie, as shares of what `placed_thresholds` sums up; it runs from 0 to 4."""
    return 4 * (torch.arange(thresholds) + 0.5) / thresholds


@torch.no_grad()
def placed_thresholds(position: Tensor, classes: Tensor, levels: Tensor) -> Tensor:
    """Return the thresholds of every set, the highest first: `(..., n)`, `(..., 2, n)`, `(t,)` -> `(..., t)`.

    Going down the scores, three things add up to the level of a threshold: the share of the positives passed, the
    logarithm of that of the negatives, and, twice, the share of the way from the highest score to the lowest. Rows of
    weight zero do not count, nor does it matter if a row is repeated or weighs more.
    """
    if not position.shape[-1]:
        return position.new_zeros(*position.shape[:-1], len(levels))
    present = classes.sum(-2) > 0
    highest = position.masked_fill(~present, LOWEST).amax(-1, keepdim=True)
    ordered, order = torch.where(present, position, highest).sort(-1, descending=True)
    passed = classes.gather(-1, order.unsqueeze(-2).expand_as(classes)).cumsum(-1)
    masses = passed.select(-2, 0) + (passed.select(-2, 1) / TOP_NEGATIVES).log1p() / math.log1p(1 / TOP_NEGATIVES)
    span = (ordered[..., :1] - ordered[..., -1:]).clamp(min=EPSILON)
    way = (ordered[..., :1] - ordered) * (2 / span)
    wanted = levels.to(position.dtype).expand(*position.shape[:-1], len(levels)).contiguous()
    place = torch.searchsorted(masses + way, wanted).clamp(max=position.shape[-1] - 1)
    before = torch.nn.functional.pad(masses, (1, -1)) + way  # the level when a row is reached, but not passed
    missing = (before.gather(-1, place) - wanted).clamp(min=0)
    return ordered.gather(-1, place) + missing * (span / 2)
