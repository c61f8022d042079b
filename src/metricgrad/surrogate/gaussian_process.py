"""A Gaussian process: a smooth function of some features, from a hundred values of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor, nn

LENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
NOISES = (1e-6, 1e-4, 1e-2, 1e-1, 0.5)
LINEAR_SHARES = (0.3, 3.0)
"""Length scales of standardised features, variances of noise and of the linear part; the likeliest are taken."""
POINTS_IN_CACHE = 256
"""Points evaluated at a time: as many as stay in the processor's cache."""
MAX_COMPARED = 400
"""Values on which these are compared; more take long and change little."""


class GaussianProcess(nn.Module):
    """The mean of a Gaussian process over features: `(..., f)` -> `(...)`.

    Parameters
    ----------
    features : int
        How many.
    block : int
        How many values next to each other belong together, and are left out together to see what is explained.

    Attributes
    ----------
    explained : Tensor
        Share of the variance that it explains of values left out.
    """

    points: Tensor
    values: Tensor
    coefficients: Tensor
    slopes: Tensor
    centre: Tensor
    scale: Tensor
    level: Tensor
    spread: Tensor
    settings: Tensor
    explained: Tensor

    def __init__(self, features: int, block: int = 1) -> None:
        super().__init__()
        self.block = block
        start = {
            "points": torch.zeros(0, features),
            "values": torch.zeros(0),
            "coefficients": torch.zeros(0),
            "slopes": torch.zeros(features),
            "centre": torch.zeros(features),
            "scale": torch.ones(features),
            "level": torch.zeros(()),
            "spread": torch.ones(()),
            "settings": torch.tensor([1.0, 0.0, 1e-2, 0.3]),  # length, whether rough, noise, share of the linear part
            "explained": torch.zeros(()),
        }
        for name, tensor in start.items():
            self.register_buffer(name, tensor.double())

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state, whose number of points may be another."""
        for name, tensor in state.items():
            setattr(self, name, tensor)

    def forward(self, features: Tensor) -> Tensor:
        """Return the mean at some features, in float64."""
        inputs = (features.to(self.centre) - self.centre) * self.scale
        length, rough, *_ = self.settings.tolist()
        parts = inputs.flatten(0, -2).split(POINTS_IN_CACHE)
        each = [kernel_of(part, self.points, length, bool(rough)) @ self.coefficients for part in parts]
        smooth = torch.cat(each).view(inputs.shape[:-1]) + inputs @ self.slopes
        return self.level + self.spread * smooth

    def fit(self, features: Tensor, values: Tensor) -> None:
        """Fit to values of features, `(k, f)` and `(k,)`; the likeliest settings are taken."""
        features, values = features.to(self.centre), values.to(self.centre)
        self.level, self.spread = values.mean(), values.std()
        if not float(self.spread) > 1e-9 * max(float(self.level.abs()), 1e-9):
            return
        self.centre, self.scale = features.mean(0), 1 / features.std(0).clamp(min=1e-3)
        self.points, self.values = (features - self.centre) * self.scale, values
        some, wanted = self.points[:MAX_COMPARED], self._wanted[:MAX_COMPARED]
        likelihoods = {
            settings: _likelihood(some, wanted, settings)
            for settings in product(LENGTHS, (0.0, 1.0), NOISES, LINEAR_SHARES)
        }
        self.settings = torch.tensor(max(likelihoods, key=lambda settings: likelihoods[settings])).double()
        self._solve()

    def add(self, features: Tensor, values: Tensor) -> None:
        """Fit to more values, with the same settings."""
        inputs = (features.to(self.centre) - self.centre) * self.scale
        self.points, self.values = torch.cat((self.points, inputs)), torch.cat((self.values, values.to(self.values)))
        self._solve()

    @property
    def _wanted(self) -> Tensor:
        return (self.values - self.level) / self.spread

    def _solve(self) -> None:
        factor = torch.linalg.cholesky(covariance(self.points, tuple(self.settings.tolist())))
        inverse = torch.cholesky_inverse(factor)
        self.coefficients = inverse @ self._wanted
        self.slopes = float(self.settings[3]) / self.points.shape[-1] * self.points.T @ self.coefficients
        missed = torch.cat([self._missed(inverse, part) for part in torch.arange(len(inverse)).split(self.block)])
        self.explained = (1 - missed.square().mean() / self._wanted.var()).clamp(min=0)

    def _missed(self, inverse: Tensor, part: Tensor) -> Tensor:
        """Return what some values are missed by when they are left out, without fitting to the others."""
        missed: Tensor = torch.linalg.solve(inverse[part][:, part], self.coefficients[part])
        return missed


def _likelihood(points: Tensor, wanted: Tensor, settings: tuple[float, ...]) -> float:
    """Return the logarithm of the likelihood of values, at the likeliest variance, up to a constant."""
    factor = torch.linalg.cholesky(covariance(points, settings))
    solved = torch.linalg.solve_triangular(factor, wanted.unsqueeze(-1), upper=False)
    variance = float(solved.square().mean())
    return -len(wanted) / 2 * math.log(variance) - float(factor.diagonal().log().sum())


def covariance(points: Tensor, settings: tuple[float, ...]) -> Tensor:
    """Return the covariance of values at some points, their noise included: `(k, f)` -> `(k, k)`."""
    length, rough, noise, linear = settings
    kernel = kernel_of(points, points, length, bool(rough)) + linear / points.shape[-1] * points @ points.T
    return kernel + noise * torch.eye(len(points), dtype=points.dtype)


def kernel_of(one: Tensor, other: Tensor, length: float, rough: bool) -> Tensor:
    """Return the covariance of points, `(a, f)` and `(b, f)` -> `(a, b)`: Gaussian, or Matern 5/2 if rough."""
    squared = one.square().sum(-1, keepdim=True) + other.square().sum(-1) - 2 * one @ other.T
    squared = squared.clamp_(min=0).div_(length**2)
    if not rough:
        return squared.mul_(-0.5).exp_()
    distance = (5 * squared).sqrt()
    return (1 + distance + 5 / 3 * squared) * (-distance).exp()
