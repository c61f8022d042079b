"""Costs of single rows that are piecewise linear in the error, prediction less target: tolerances, fines, prices.

Within, bands, pinball, costs of a unit short or over, MAE and MAPE are all of this form. So is then their mean over
rows as a function of a constant that is added to all predictions, or multiplies them: its minimum is found exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metricgrad.metrics.confusion import comparable, counting_dtype, ratio

MIN_TARGET = 2.0**-52
"""Size of a target at least where an error is divided by it, as in scikit-learn's percentage error."""


@dataclass(frozen=True)
class RowCost:
    """The weighted mean of a cost of every row: `(scores, targets, weights)`, `(..., n)` -> `(...)`.

    Parameters
    ----------
    limits : tuple of float
        Rising errors at which the cost jumps or bends.
    offsets, slopes : tuple of float
        The cost between two limits is `offset + slope * error`, one more of each than there are limits. On a limit it
        is the lower one of both sides.
    relative : bool
        Whether an error is a share of the size of the target.
    """

    limits: tuple[float, ...]
    offsets: tuple[float, ...]
    slopes: tuple[float, ...]
    relative: bool = False

    def __call__(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the mean cost of every set, 0 where it has no rows."""
        scores, targets, weights = in_counting_dtype(scores, targets, weights)
        return ratio((weights * self.rows(scores, targets)).sum(-1), weights.sum(-1))

    def rows(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the cost of every row: `(..., n)` -> `(..., n)`."""
        error, size = scores - targets, self._size(targets)
        share = error / size.clamp(min=MIN_TARGET)
        below, above = (torch.zeros_like(error, dtype=torch.long) for _ in range(2))
        for limit in self.limits:
            below += error > limit * size
            above += error >= limit * size
        cost = torch.full_like(error, torch.inf)  # where limits meet, at a target of 0, an error is on all their sides
        for piece, (offset, slope) in enumerate(zip(self.offsets, self.slopes, strict=True)):
            here = (below <= piece) & (piece <= above)
            cost = torch.where(here, cost.minimum(offset + slope * share), cost)
        return cost

    def _size(self, targets: Tensor) -> Tensor:
        return targets.abs() if self.relative else torch.ones_like(targets)

    def best_along(self, start: Tensor, rate: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the constant c of the least mean cost, and that cost, where errors are `start + c * rate`.

        Exact: the mean is piecewise linear in c, so that its minimum lies where some row meets a limit. All of these
        points are visited in one sweep over their sorted order.

        Parameters
        ----------
        start, rate : Tensor of shape (..., n)
            Errors without the constant, and what it is multiplied by, positive.
        targets, weights : Tensor of shape (..., n)
            Of the rows.

        Returns
        -------
        (Tensor, Tensor)
            `(...)` each.
        """
        start, targets, weights = in_counting_dtype(start, targets, weights)
        rate, size = rate.to(start.dtype), self._size(targets)
        share = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        unit = size.clamp(min=MIN_TARGET)
        places, jumps, constants, slopes = [], [], [], []
        for piece, limit in enumerate(self.limits):
            bend, step = (levels[piece + 1] - levels[piece] for levels in (self.slopes, self.offsets))
            places.append((limit * size - start) / rate)
            jumps.append(share * (step + bend * limit * size / unit))
            constants.append(share * (step + bend * start / unit))
            slopes.append(share * (bend * rate / unit))
        first = (share * (self.offsets[0] + self.slopes[0] * start / unit)).sum(-1, keepdim=True)
        first_slope = (share * self.slopes[0] * rate / unit).sum(-1, keepdim=True)
        return _least(
            torch.cat(places, -1), torch.cat(jumps, -1), torch.cat(constants, -1), torch.cat(slopes, -1),
            first, first_slope,
        )  # fmt: skip


def _least(
    places: Tensor, jumps: Tensor, constants: Tensor, slopes: Tensor, first: Tensor, first_slope: Tensor
) -> tuple[Tensor, Tensor]:
    """Return where a piecewise linear function is least, and its value there.

    It is `first + first_slope * c` before the first place, and changes by the other terms at each of them. Of jumps at
    the same place those that lower it are counted before any that raise it. In the middle of a flat piece rounding
    does no harm, so this is preferred to its ends.
    """
    order = (jumps > 0).to(torch.int8).argsort(dim=-1, stable=True)
    order = order.gather(-1, places.gather(-1, order).argsort(dim=-1, stable=True))
    places, constants, slopes = (values.gather(-1, order) for values in (places, constants, slopes))
    constants, slopes = first + constants.cumsum(-1), first_slope + slopes.cumsum(-1)
    values = constants + slopes * places
    least = values.amin(-1, keepdim=True)
    where = (values <= least + 1e-12 * (1 + least.abs())).to(torch.int8).argmax(-1, keepdim=True)  # the first of equals
    following = (where + 1).clamp(max=places.shape[-1] - 1)
    here, then = places.gather(-1, where), places.gather(-1, following)
    flat = (constants + slopes * then).gather(-1, where) <= least + 1e-12 * (1 + least.abs())
    return torch.where(flat, here + (then - here) / 2, here)[..., 0], least[..., 0]


@dataclass(frozen=True)
class SquaredCost:
    """The weighted mean of squared errors, or a form of it: `(..., n)` -> `(...)`.

    Parameters
    ----------
    form : {"mse", "rmse", "r2"}
        As it is, its root, or as a share of the variance of the targets. Where these are all the same that share is 0
        if nothing is missed, else 1, as in scikit-learn.
    """

    form: str = "mse"

    def __call__(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of every set, 0 where it has no rows."""
        scores, targets, weights = in_counting_dtype(scores, targets, weights)
        return self._of(scores - targets, targets, weights)

    def _of(self, errors: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        share = ratio(weights, weights.sum(-1, keepdim=True))
        mean = (share * errors.square()).sum(-1)
        if self.form != "r2":
            return mean.sqrt() if self.form == "rmse" else mean
        spread = (share * (targets - (share * targets).sum(-1, keepdim=True)).square()).sum(-1)
        return torch.where(spread > 0, ratio(mean, spread), (mean > 0).to(mean.dtype))

    def best_along(self, start: Tensor, rate: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the constant c of the least loss, by least squares, and that loss; as of `RowCost`."""
        start, targets, weights = in_counting_dtype(start, targets, weights)
        rate = rate.to(start.dtype)
        best = -ratio((weights * rate * start).sum(-1), (weights * rate.square()).sum(-1))
        return best, self._of(start + best.unsqueeze(-1) * rate, targets, weights)


def in_counting_dtype(scores: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return all three in the dtype to count in, weights of about one."""
    dtype = counting_dtype(scores)
    scores, targets = scores.to(dtype), targets.to(dtype)
    return scores, targets, torch.ones_like(scores) if weights is None else comparable(weights, scores)
