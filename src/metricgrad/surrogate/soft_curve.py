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
from torch.nn.functional import pad

EPSILON = 1e-12
SCORE_STRETCH = 1 / 3
"""Scores are compressed by asinh(s / 3): hardly within three standard deviations, strongly far beyond."""
SHARPNESS = 64.0
"""Of the steps, in compressed scores: each is about as wide as a normal distribution of 0.08 standard deviations."""
TOP_NEGATIVES = 1e-3
"""Share of the negatives from which on thresholds lie by its logarithm."""
GRID_REACH, GRID_STEP = 3.5, 0.4 / SHARPNESS
"""Half the width of the grid of large sets, in compressed scores, and the distance of its points."""
INTERVALS = round(2 * GRID_REACH / GRID_STEP)
REACH = 30
"""Intervals of the grid on either side of a threshold within which a step is neither 0 nor 1, but for 6e-6."""
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

    sharpness: Tensor
    levels: Tensor

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
        sums = power_sums((position + GRID_REACH) / GRID_STEP, classes, INTERVALS)
        # Further away from a threshold its step is 0 or 1: only the intervals around it need their sums.
        point = ((centres + GRID_REACH) / GRID_STEP).round().nan_to_num(0).clamp(0, INTERVALS).long()
        around = point.unsqueeze(-1) + torch.arange(-REACH, REACH + 1, device=point.device)
        window = (around[..., :-1] + REACH).flatten(-2).unsqueeze(-2).expand(*classes.shape[:-1], -1)
        windows = [pad(each, (REACH, REACH)).gather(-1, window).unflatten(-1, (-1, 2 * REACH)) for each in sums]
        cubics = self._cubics(around * GRID_STEP - GRID_REACH - centres.unsqueeze(-1))
        rates = (torch.cat(windows, -1) * cubics.unsqueeze(-3)).sum(-1)
        beyond_all = (point + REACH).clamp(max=INTERVALS).unsqueeze(-2).expand_as(rates)
        return rates + classes.sum(-1, keepdim=True) - pad(sums[0].cumsum(-1), (1, 0)).gather(-1, beyond_all)

    def _cubics(self, distances: Tensor) -> Tensor:
        """Return cubics with the values and slopes of a step at points: `(..., 2 * r + 1)` -> `(..., 4 * 2 * r)`."""
        steps = (distances.to(self.sharpness.dtype) * self.sharpness).sigmoid()
        slopes = (GRID_STEP * self.sharpness) * (steps - steps.square())
        start, end, rise = slopes[..., :-1], slopes[..., 1:], steps.diff()
        return torch.cat((steps[..., :-1], start, 3 * rise - 2 * start - end, start + end - 2 * rise), -1)


def power_sums(place: Tensor, classes: Tensor, intervals: int) -> list[Tensor]:
    """Return sums over rows of their weight times the powers 0 to 3 of how far each is into its interval of a grid.

    `place` is in intervals from the start of the grid, `(..., n)`, `(..., 2, n)` -> four times `(..., 2, intervals)`.
    """
    place = place.clamp(0, intervals)
    below = place.detach().long().clamp(0, intervals - 1)  # in range for NaN too, which then reaches the loss
    beyond = (place - below).unsqueeze(-2)
    places = below.unsqueeze(-2).expand_as(classes)
    empty = classes.new_zeros(*classes.shape[:-1], intervals)
    sums, terms = [empty.scatter_add(-1, places, classes)], classes
    for _ in range(3):
        terms = terms * beyond
        sums.append(empty.scatter_add(-1, places, terms))
    return sums


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
    before = pad(masses, (1, -1)) + way  # the level when a row is reached, but not passed
    missing = (before.gather(-1, place) - wanted).clamp(min=0)
    return ordered.gather(-1, place) + missing * (span / 2)
