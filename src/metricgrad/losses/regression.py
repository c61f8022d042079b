"""Hand-made losses of numbers, plain modules called as `loss(scores, targets, weights=None)`, `(..., n)` -> scalar.

Each is the weighted mean over the rows of all sets of a function of the error. Scores and targets are best in units of
about one, as an estimator's are: the width of each loss is in the same units.

| name | stands in for | published by |
|---|---|---|
| `mae` | errors of the median | |
| `huber` | squares near 0, absolute errors far from it | Huber 1964 |
| `pinball` | costs that differ by side | Koenker and Bassett 1978 |
| `soft-within` | within a tolerance | |
| `welsch` | within a tolerance | Holland and Welsch 1977 |
| `cox` | the order of times, some of which are censored | Cox 1972 |
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.losses.binary import row_mean


class ErrorLoss(nn.Module):
    """The weighted mean of a function of errors in units of a width."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        if not 0 < width < math.inf:
            raise ValueError(f"width: expected a positive finite number, got {width!r}")
        self.width = float(width)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together."""
        return row_mean(self.of_errors((scores - targets.to(scores.dtype)) / self.width), weights)

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of every row: `(..., n)` -> `(..., n)`."""
        raise NotImplementedError


class AbsoluteError(ErrorLoss):
    """Weighted mean of absolute errors."""

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the size of every error."""
        return errors.abs()


class Huber(ErrorLoss):
    """Half the square of errors within the width, and a line with the same slope beyond."""

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of every row."""
        return F.huber_loss(errors, torch.zeros_like(errors), reduction="none")


class Welsch(ErrorLoss):
    """One minus exp(-error^2 / 2): errors far beyond the width all count the same."""

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of every row."""
        return -torch.expm1(-errors.square() / 2)


class SoftWithin(ErrorLoss):
    """A smooth step at the width: about 0 within, about 1 beyond.

    Parameters
    ----------
    width : float
        Where the step is.
    softness : float
        Width of the step itself, in units of `width`.
    """

    def __init__(self, width: float = 1.0, softness: float = 0.3) -> None:
        super().__init__(width)
        if not 0 < softness < math.inf:
            raise ValueError(f"softness: expected a positive finite number, got {softness!r}")
        self.softness = float(softness)

    def of_errors(self, errors: Tensor) -> Tensor:
        """Return the loss of every row."""
        return ((errors.abs() - 1) / self.softness).sigmoid()


class Pinball(nn.Module):
    """The loss of a quantile: a unit short costs the quantile, a unit over the rest of 1."""

    def __init__(self, quantile: float = 0.5) -> None:
        super().__init__()
        if not 0 < quantile < 1:
            raise ValueError(f"quantile: expected a number between 0 and 1, got {quantile!r}")
        self.quantile = float(quantile)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together."""
        error = targets.to(scores.dtype) - scores
        return row_mean(torch.maximum(self.quantile * error, (self.quantile - 1) * error), weights)


class PartialLikelihood(nn.Module):
    """Cox's partial likelihood, negated, of times of which some are censored; ties as Breslow has them.

    Scores are high where the event comes late: they are the log risk, negated.
    """

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over the events of all sets: scores `(..., n)`, targets `(..., n, 2)`; 0 without events."""
        times, events = targets[..., 0].contiguous(), targets[..., 1].to(scores.dtype)
        own = torch.ones_like(scores) if weights is None else weights.to(scores.dtype).expand(scores.shape)
        sooner, order = (-times).expand(scores.shape).sort(-1)
        heavy = -scores + own.clamp(min=1e-30).log()
        at_risk = heavy.gather(-1, order).logcumsumexp(-1)  # of rows that are still there at the time of each
        last = torch.searchsorted(sooner, (-times).expand(scores.shape).contiguous(), right=True) - 1
        counted = own * events
        return (counted * (at_risk.gather(-1, last) + scores)).sum() / counted.sum().clamp(min=1e-12)
