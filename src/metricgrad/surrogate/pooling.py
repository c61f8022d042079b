"""The mean of g over a set: a learned g, as in the paper, or a fixed one, a soft ROC curve."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from metricgrad.surrogate.config import SurrogateConfig
from metricgrad.surrogate.soft_curve import SoftCurve, power_sums
from metricgrad.surrogate.standardising import EPSILON, SCORE_STRETCH

GRID_ROWS = 1000
"""Sets of more rows are put on a grid before they are compared with the thresholds of a fixed g."""
GRID_REACH, GRID_STEP = 9.0, 0.03
"""Half the width of the grid, in compressed scores, and the distance of its points: 0.6 widths of the steepest step."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU}


def pooling_of(config: SurrogateConfig) -> LearnedMean | SoftROC | SoftCurve:
    """Return the g of a config."""
    if config.g:
        return LearnedMean(config)
    return SoftCurve(config.thresholds, GRID_ROWS) if config.attention else SoftROC(config.thresholds)


class LearnedMean(nn.Module):
    """Weighted mean of a learned `g(target, score)`, as in the paper."""

    def __init__(self, config: SurrogateConfig) -> None:
        super().__init__()
        self.width = config.g[-1]
        widths = (2, *config.g)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norm = nn.BatchNorm1d(widths[1]) if config.batch_norm else nn.Identity()
        self.activation = ACTIVATIONS[config.activation]()

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor, classes: Tensor) -> Tensor:
        """Pool sets of rows: `(..., n)` -> `(..., q)`."""
        latent = torch.stack((targets, scores), -1)
        for i, layer in enumerate(self.layers):
            latent = self.activation(layer(latent))
            if i == 0:
                latent = self.norm(latent.flatten(0, -2)).view_as(latent)
        return (weights.unsqueeze(-2) @ latent).squeeze(-2)


class SoftROC(nn.Module):
    """Weighted mean of a fixed g, smooth steps at many thresholds: a soft ROC curve of the set.

    `g(y, s) = (y, y * step_j(s), (1 - y) * step_j(s))` for every threshold j. From its mean, h gets the logarithms of
    the rates of each class above and below each threshold, the precision at each, and the log-odds of the positives:
    rare positives and the top of the ranking are then as visible as the rest.

    Between the points of a fine grid a step is close to a polynomial of degree three (to 1e-4). The mean over many rows
    then needs only the sums of the first four powers of their distances from the point below, for each point and class;
    the steps of the grid itself are computed once.
    """

    stretch = SCORE_STRETCH

    def __init__(self, thresholds: int) -> None:
        super().__init__()
        self.width = 5 * thresholds + 1
        self.register_buffer("centres", torch.linspace(-2.3, 2.3, thresholds), persistent=False)
        spans = torch.full((thresholds,), 0.05)
        spans[1::4], spans[3::4] = 0.1, 0.25
        self.register_buffer("sharpness", 1 / spans, persistent=False)
        self.register_buffer("offsets", -self.centres * self.sharpness, persistent=False)
        self.register_buffer("cubics", step_cubics(self.centres, self.sharpness), persistent=False)

    centres: Tensor
    sharpness: Tensor
    offsets: Tensor
    cubics: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor, classes: Tensor) -> Tensor:
        """Pool sets of rows, given the weights of each class too: `(..., n)` -> `(..., 5 * thresholds + 1)`."""
        share = (weights * targets).sum(-1, keepdim=True)
        shares = torch.stack((share, 1 - share), -2)  # (..., 2, 1)
        position = (SCORE_STRETCH * scores).asinh()
        above = (self._rates_on_grid if position.shape[-1] > GRID_ROWS else self._rates)(position, classes)
        masses = shares * above
        precision = masses.select(-2, 0) / (masses.sum(-2) + 1e-6)
        rates = torch.cat((above, 1 - above), -2).flatten(-2)
        odds = share.logit(EPSILON).clamp(-8, 8)
        return torch.cat((odds / 4, (rates.clamp(min=0) + 1e-4).log() / 4, precision), -1)

    def _rates(self, position: Tensor, classes: Tensor) -> Tensor:
        """Return the weight of each class above all t thresholds: `(..., n)`, `(..., 2, n)` -> `(..., 2, t)`."""
        # (position - centre) * sharpness as one matrix product, and one sum in the backward pass.
        slopes = torch.addmm(self.offsets, position.reshape(-1, 1), self.sharpness.unsqueeze(0))
        return classes @ slopes.sigmoid_().view(*position.shape, len(self.centres))

    def _rates_on_grid(self, position: Tensor, classes: Tensor) -> Tensor:
        """Return what `_rates` does, from sums of powers at each point of the grid."""
        sums = power_sums((position + GRID_REACH) / GRID_STEP, classes, len(self.cubics) // 4)
        return torch.cat(sums, -1) @ self.cubics


def step_cubics(centres: Tensor, sharpness: Tensor) -> Tensor:
    """Return cubics in [0, 1] that have the values and slopes of every step at the points of the grid.

    `(t,)`, `(t,)` -> `(4 * intervals, t)`: the constant terms of all intervals, then the linear terms, ...
    """
    intervals = round(2 * GRID_REACH / GRID_STEP)
    points = torch.linspace(-GRID_REACH, GRID_REACH, intervals + 1, dtype=torch.float64).unsqueeze(-1)
    steps = ((points - centres) * sharpness).sigmoid()
    slopes = GRID_STEP * sharpness * steps * (1 - steps)
    rise, start, end = steps.diff(dim=0), slopes[:-1], slopes[1:]
    terms = (steps[:-1], start, 3 * rise - 2 * start - end, start + end - 2 * rise)
    return torch.cat(terms).to(centres.dtype)
