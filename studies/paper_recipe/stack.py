"""Parameters and batch norms of networks that lie along a leading axis, each moved as its reading says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from studies.paper_recipe.readings import CLIP, Reading

BETAS = (0.9, 0.999)


class State(NamedTuple):
    """What Adam moves: parameters and the means of gradients and of their squares, `(m, p)`; powers of the betas."""

    flat: Tensor
    mean: Tensor
    square: Tensor
    powers: Tensor


class Stack:
    """Parameters of m networks of one shape, `(m, p)`, moved by Adam as their readings say."""

    def __init__(self, states: Sequence[Sequence[Tensor]], readings: Sequence[Reading]) -> None:
        self.shapes = [tuple(part.shape) for part in states[0]]
        self.sizes = [part.numel() for part in states[0]]
        flat = torch.stack([torch.cat([part.flatten() for part in state]) for state in states])
        self.now = State(flat, torch.zeros_like(flat), torch.zeros_like(flat), torch.ones(2, dtype=torch.double))
        self.rate = column(r.rate for r in readings)
        epsilon = column(r.epsilon for r in readings)
        self.inside = epsilon * column(r.adam == "inside" for r in readings)
        self.beside = epsilon * column(r.adam == "torch" for r in readings)
        self.uncorrected = epsilon * column(r.adam == "tensorflow" for r in readings)
        self.by_all = column(r.clip == "all" for r in readings) > 0
        self.by_each = column(r.clip == "each" for r in readings) > 0

    @property
    def flat(self) -> Tensor:
        """The parameters, `(m, p)`."""
        return self.now.flat

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return the parameters by name's order, each `(m, *shape)`."""
        return [part.view(-1, *shape) for part, shape in zip(flat.split(self.sizes, 1), self.shapes, strict=True)]

    def move(self, gradient: Tensor) -> None:
        """Take a step of Adam against the clipped gradient, `(m, p)`."""
        gradients = gradient.split(self.sizes, 1)
        norms = torch.stack([part.square().sum(1) for part in gradients], 1).sqrt()  # (m, variables)
        limited = torch.where(self.by_all, norms.norm(dim=1, keepdim=True), norms)
        scale = torch.where(self.by_all | self.by_each, (CLIP / limited).clamp(max=1), 1.0)
        gradient = torch.cat([part * own for part, own in zip(gradients, scale.split(1, 1), strict=True)], 1)
        powers = self.now.powers * self.now.powers.new_tensor(BETAS)
        first, second = (1 - powers).float()
        mean = self.now.mean.lerp(gradient, 1 - BETAS[0])
        square = BETAS[1] * self.now.square + (1 - BETAS[1]) * gradient.square()
        root = (square / second + self.inside).sqrt() + self.beside + self.uncorrected / second.sqrt()
        self.now = State(self.now.flat - self.rate / first * mean / root, mean, square, powers)


def column(values: Iterable[float]) -> Tensor:
    """Return numbers of the members as a column, `(m, 1)`."""
    return torch.tensor([float(value) for value in values]).unsqueeze(1)


Statistics = tuple[Tensor, Tensor]
"""Means and variances of batches, `(m, batches, units)` each."""


class Norm:
    """Running statistics of a batch norm of m networks, `(m, units)`."""

    def __init__(self, mean: Tensor, variance: Tensor, readings: Sequence[Reading]) -> None:
        self.mean, self.variance = mean.clone(), variance.clone()
        self.momentum = column(0.01 if r.norm == "tensorflow" else 0.1 for r in readings)
        self.epsilon = column(1e-3 if r.norm == "tensorflow" else 1e-5 for r in readings)

    def still(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Normalise `(m, n, units)` by the running statistics."""
        scale = weight * (self.variance + self.epsilon).rsqrt()
        return torch.addcmul((bias - self.mean * scale).unsqueeze(1), x, scale.unsqueeze(1))

    def live(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Statistics]:
        """Normalise batches, `(m, batches, n, units)`, each by its own statistics; return these too."""
        mean, centred, variance = moments(x)
        scale = weight[:, None, None] * (variance + self.epsilon[..., None, None]).rsqrt()
        return torch.addcmul(bias[:, None, None], centred, scale), (mean[:, :, 0].detach(), variance[:, :, 0].detach())

    def move(self, statistics: Statistics, rows: int) -> None:
        """Move the running statistics by those of batches of so many rows, in their order."""
        means, variances = statistics
        batches = means.shape[1]
        left = (1 - self.momentum) ** torch.arange(batches - 1, -1, -1)  # (m, batches)
        shares = (self.momentum * left).unsqueeze(1)
        kept = (1 - self.momentum) ** batches
        self.mean = kept * self.mean + (shares @ means)[:, 0]
        self.variance = kept * self.variance + (shares @ variances)[:, 0] * (rows / (rows - 1))


def moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return means, centred values and variances of batches, `(m, batches, n, units)`, over their rows.

    Products with a row of shares: ten times as fast as `torch.var_mean` over an inner axis.
    """
    share = x.new_full((1, x.shape[2]), 1 / x.shape[2])
    mean = share @ x
    centred = x - mean
    return mean, centred, share @ centred.square()
