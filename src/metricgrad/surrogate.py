"""The surrogate: a smooth, set-wise, permutation-invariant network `h(mean_i g(y_i, s_i))` (Eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

TINY = 1e-12
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU}


@dataclass(frozen=True)
class Construction:
    """How a surrogate is built, as data.

    Parameters
    ----------
    standardise : {"shift", "scale", "none"}
        What is done to the scores of a set before g: centred and scaled, only scaled (zero stays zero), or nothing.
        Both classes count the same in centre and scale, so that rare positives do not vanish.
    g : tuple of int
        Widths of a learned g; empty for a fixed g: a comb of smooth steps whose means are a smoothed ROC curve.
    teeth : int
        Steps of the comb, if g is fixed.
    h : tuple of int
        Hidden widths of h.
    activation : {"tanh", "gelu"}
        Of g and h.
    batch_norm : bool
        Batch norm after the first layer of g.
    link : {"sigmoid", "linear", "leaky_relu"}
        What the scalar output of h goes through.
    outputs : bool
        Whether scores have several outputs, `(..., n, c)`; their order does not matter.
    """

    standardise: str = "shift"
    g: tuple[int, ...] = ()
    teeth: int = 64
    h: tuple[int, ...] = (96, 96)
    activation: str = "gelu"
    batch_norm: bool = False
    link: str = "sigmoid"
    outputs: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Construction:
        """Build from plain data, as `as_dict` gave it."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**plain)


CONSTRUCTIONS = {
    "default": Construction(),
    "paper": Construction("none", (30, 30), 0, (10, 10), "tanh", True, "leaky_relu"),
}


class Surrogate(nn.Module):
    """Smooth stand-in for a metric: `(..., n)` scores, targets and weights -> `(...)` losses.

    Parameters
    ----------
    construction : Construction or {"default", "paper"}
        How it is built.

    Examples
    --------
    >>> surrogate = Surrogate()
    >>> surrogate(torch.randn(8, 100), torch.rand(8, 100) < 0.3).shape
    torch.Size([8])
    """

    def __init__(self, construction: Construction | str = "default") -> None:
        super().__init__()
        if isinstance(construction, str):
            if construction not in CONSTRUCTIONS:
                raise ValueError(f"construction: expected one of {', '.join(CONSTRUCTIONS)}, got {construction!r}")
            construction = CONSTRUCTIONS[construction]
        self.construction = construction
        self.g = LearnedMean(construction) if construction.g else CombMean(construction.teeth)
        widths = (self.g.width, *construction.h)
        self.h = nn.Sequential()
        for before, after in pairwise(widths):
            self.h.extend([nn.Linear(before, after), ACTIVATIONS[construction.activation]()])
        self.last = nn.Linear(widths[-1], 1)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.ones(()))

    low: Tensor
    high: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss of every set, `(..., n)` -> `(...)` or `(..., n, c)` -> `(...)`."""
        return self.judge(self.pool(scores, targets, weights))

    def pool(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return what is known of every set, the weighted mean of g: `(..., n)` -> `(..., q)`."""
        pooled: Tensor = self.g(*self.made_ready(scores, targets, weights))
        return pooled

    def made_ready(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return what g is given: scores standardised as the construction says, targets, weights that sum to one."""
        dtype = self.low.dtype
        scores, targets = scores.to(dtype), targets.to(dtype)
        weights = torch.ones_like(scores) if weights is None else weights.to(dtype)
        if self.construction.outputs:
            weights = weights.unsqueeze(-1).expand_as(scores) if weights.ndim < scores.ndim else weights
            scores, targets, weights = scores.mT, targets.mT, weights.mT
        # What pads a set may be any number, even one whose square is infinite; nothing of it may come through.
        scores = scores.where(weights > 0, torch.zeros_like(scores))
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=TINY)
        return standardised(scores, targets, weights, self.construction.standardise), targets, weights

    def judge(self, pooled: Tensor) -> Tensor:
        """Return the loss from what is known of the set (h): `(..., q)` -> `(...)`."""
        hidden = self.h(pooled)
        if self.construction.outputs:
            hidden = hidden.mean(-2)
        return self.low + (self.high - self.low) * self.linked(self.last(hidden)[..., 0])

    def linked(self, raw: Tensor) -> Tensor:
        """Return the scalar output of h through the link."""
        link = self.construction.link
        return raw.sigmoid() if link == "sigmoid" else F.leaky_relu(raw, 0.2) if link == "leaky_relu" else raw

    @property
    def fixed_pool(self) -> bool:
        """Whether g has nothing to learn, so that a set need be pooled only once however often h is refined."""
        return not self.construction.g


def meta_loss(surrogate: Tensor, true: Tensor, relational: float = 0.0) -> Tensor:
    """Return the distance of surrogate losses from true ones, `(..., k)` -> scalar; k sets of one kin.

    The paper's L1, plus `relational` times the same for what tells the kin apart, in units of their own spread: a
    model follows differences between sets, not their level.
    """
    error = surrogate - true
    distance = error.abs().mean()
    if relational and error.shape[-1] > 1:
        apart = (error - error.mean(-1, keepdim=True)).abs()
        distance = distance + relational * (apart / (true.std(-1, keepdim=True) + 0.005)).mean()
    return distance


def standardised(scores: Tensor, targets: Tensor, weights: Tensor, how: str) -> Tensor:
    """Centre and scale the scores of each set, positives and negatives counting the same; `(..., n)` -> `(..., n)`."""
    if how == "none":
        return scores
    positive, negative = class_weights(targets, weights)
    both = positive + negative
    both = both / both.sum(-1, keepdim=True).clamp(min=TINY)
    if how == "shift":
        scores = scores - (both * scores).sum(-1, keepdim=True)
    return scores * ((both * scores.square()).sum(-1, keepdim=True) + TINY).rsqrt()


def class_weights(targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of positives and of negatives, each summing to one (or to zero where there are none)."""
    positive, negative = weights * targets, weights * (1 - targets)
    return (
        positive / positive.sum(-1, keepdim=True).clamp(min=TINY),
        negative / negative.sum(-1, keepdim=True).clamp(min=TINY),
    )


class LearnedMean(nn.Module):
    """Weighted mean of a learned `g(target, score)`, as in the paper."""

    def __init__(self, construction: Construction) -> None:
        super().__init__()
        self.width = construction.g[-1]
        widths = (2, *construction.g)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norm = nn.BatchNorm1d(widths[1]) if construction.batch_norm else nn.Identity()
        self.activation = ACTIVATIONS[construction.activation]()

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Pool sets of rows: `(..., n)` -> `(..., q)`."""
        latent = torch.stack((targets, scores), -1)
        for i, layer in enumerate(self.layers):
            latent = self.activation(layer(latent))
            if i == 0:
                latent = self.norm(latent.flatten(0, -2)).view_as(latent)
        return (weights.unsqueeze(-2) @ latent).squeeze(-2)


class CombMean(nn.Module):
    """Weighted mean of a fixed g: smooth steps at many thresholds, which is a smoothed ROC curve of the set.

    `g(y, s) = (y, y * step_j(s), (1 - y) * step_j(s))` for every tooth j. Of its mean, h is given the rates of each
    class above and below each tooth as logarithms, the precision at each tooth, and the log-odds of the positives:
    rare positives and the top of the ranking are then as visible as the rest.
    """

    def __init__(self, teeth: int) -> None:
        super().__init__()
        self.width = 5 * teeth + 1
        self.register_buffer("centres", torch.linspace(-2.3, 2.3, teeth), persistent=False)
        spans = torch.full((teeth,), 0.05)
        spans[1::4], spans[3::4] = 0.1, 0.25
        self.register_buffer("sharpness", 1 / spans, persistent=False)

    centres: Tensor
    sharpness: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Pool sets of rows: `(..., n)` -> `(..., 5 * teeth + 1)`."""
        share = (weights * targets).sum(-1, keepdim=True)
        place = (1.5 * scores).asinh()
        # One multiplication for (place - centre) * sharpness, and its sum on the way back.
        slopes = torch.addmm(-self.centres * self.sharpness, place.reshape(-1, 1), self.sharpness.unsqueeze(0))
        steps = slopes.sigmoid_().view(*place.shape, len(self.centres))
        found, alarmed = (torch.stack(class_weights(targets, weights), -2) @ steps).unbind(-2)
        precision = share * found / (share * found + (1 - share) * alarmed + 1e-6)
        rates = torch.cat((found, alarmed, 1 - found, 1 - alarmed), -1)
        odds = (share.clamp(min=TINY).log() - (1 - share).clamp(min=TINY).log()).clamp(-8, 8)
        return torch.cat((odds / 4, (rates.clamp(min=0) + 1e-4).log() / 4, precision), -1)
