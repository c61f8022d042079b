"""The surrogate: a smooth, set-wise, permutation-invariant network `h(mean_i g(y_i, s_i))` (Eq. 2)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.surrogate.views import VIEWS

TINY = 1e-12
STRETCH = 1.5
"""Scores are compressed by asinh(1.5 s) before they are compared with the thresholds of a fixed g."""
REACH = 2.1
"""Place of the highest row under `"top"`, just below the highest threshold of a fixed g."""
NEAREST, FARTHEST = 0.02, 6.0
"""Distances from the highest score, in standard deviations, between which `"top"` tells rows apart."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU}


@dataclass(frozen=True)
class SurrogateConfig:
    """How a surrogate is built, as data.

    Parameters
    ----------
    standardise : {"shift", "scale", "top", "none"}
        What is done to the scores of a set before g: centred and scaled, only scaled (zero stays zero), measured from
        the highest score on a logarithmic scale, for metrics that depend on the first few rows, or nothing. Both
        classes count the same in centre and scale, so that rare positives do not vanish.
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
    view : str
        How it looks at a set, by its name in `views.py`: as it is, as one set for each of several outputs, ...
    parts : int
        How many sets a view tells apart, if it does.
    """

    standardise: str = "shift"
    g: tuple[int, ...] = ()
    teeth: int = 64
    h: tuple[int, ...] = (96, 96)
    activation: str = "gelu"
    batch_norm: bool = False
    link: str = "sigmoid"
    view: str = "rows"
    parts: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SurrogateConfig:
        """Build from plain data, as `as_dict` gave it."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return cls(**plain)


CONFIGS = {
    "default": SurrogateConfig(),
    "paper": SurrogateConfig("none", (30, 30), 0, (10, 10), "tanh", True, "leaky_relu"),
}


def renamed_keyword(
    construction: SurrogateConfig | str | None, config: SurrogateConfig | str | None
) -> SurrogateConfig | str | None:
    """Return the config, also if it was passed by its name in 0.1.0, `construction`."""
    if construction is None:
        return config
    warnings.warn("construction: renamed to config", DeprecationWarning, stacklevel=3)
    return construction


class Surrogate(nn.Module):
    """Smooth stand-in for a metric: `(..., n)` scores, targets and weights -> `(...)` losses.

    Parameters
    ----------
    config : SurrogateConfig or {"default", "paper"}
        How it is built.

    Examples
    --------
    >>> surrogate = Surrogate()
    >>> surrogate(torch.randn(8, 100), torch.rand(8, 100) < 0.3).shape
    torch.Size([8])
    """

    def __init__(self, config: SurrogateConfig | str = "default") -> None:
        super().__init__()
        if isinstance(config, str):
            if config not in CONFIGS:
                raise ValueError(f"config: expected one of {', '.join(CONFIGS)}, got {config!r}")
            config = CONFIGS[config]
        self.config, self.view = config, VIEWS[config.view]
        self.g = LearnedMean(config) if config.g else CombMean(config.teeth)
        activation = ACTIVATIONS[config.activation]
        widths = (config.parts * self.g.width + self.view.sized, *config.h)
        self.h, self.whole = nn.Sequential(), nn.Sequential()
        for before, after in pairwise(widths):
            self.h.extend([nn.Linear(before, after), activation()])
        if self.view.parts == "alike":
            self.whole.extend([nn.Linear(widths[-1], widths[-1]), activation()])
        self.last = nn.Linear(widths[-1], 1)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.ones(()))

    low: Tensor
    high: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss of every set: `(..., n)` -> `(...)`, or whatever the view takes."""
        return self.judge(self.pool(scores, targets, weights))

    def pool(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return what is known of every set, the weighted mean of g: `(..., n)` -> `(..., q)`.

        Sets that are alike to a view stay apart, `(..., m, q + 1)`, with the share of each.
        """
        seen = self._seen(scores, targets, weights)
        pooled: Tensor = self.g(*self._levelled(*seen))
        if self.view.parts == "one":
            return pooled
        if self.view.parts == "alike":
            mass = seen[2].sum(-1, keepdim=True)
            return torch.cat((pooled, mass / mass.sum(-2, keepdim=True).clamp(min=TINY)), -1)
        pooled = pooled.flatten(-2)
        if not self.view.sized:
            return pooled
        rows = (seen[2][..., 0, :] > 0).sum(-1, keepdim=True).clamp(min=1)
        return torch.cat((pooled, rows.to(pooled.dtype).log() / 4), -1)

    def made_ready(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return what g is given: scores standardised as the config says, targets, weights that sum to one."""
        return self._levelled(*self._seen(scores, targets, weights))

    def _seen(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sets of the view, in the precision of the surrogate."""
        dtype = self.low.dtype
        scores, targets = scores.to(dtype), targets.to(dtype)
        rows = scores[..., 0] if self.view.outputs else scores
        weights = torch.ones_like(rows) if weights is None else weights.to(dtype)
        # What pads a set may be any number, even one whose square is infinite; nothing of it may come through.
        present = weights.unsqueeze(-1) > 0 if self.view.outputs else weights > 0
        return self.view.see(scores.where(present, torch.zeros_like(scores)), targets, weights)

    def _levelled(self, scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=TINY)
        return standardised(scores, targets, weights, self.config.standardise), targets, weights

    def judge(self, pooled: Tensor) -> Tensor:
        """Return the loss from what is known of the set (h): `(..., q)` -> `(...)`."""
        if self.view.parts == "alike":
            pooled, share = pooled[..., :-1], pooled[..., -1:]
            hidden = self.whole((self.h(pooled) * share).sum(-2))
        else:
            hidden = self.h(pooled)
        return self.low + (self.high - self.low) * self.linked(self.last(hidden)[..., 0])

    def linked(self, raw: Tensor) -> Tensor:
        """Return the scalar output of h through the link."""
        link = self.config.link
        return raw.sigmoid() if link == "sigmoid" else F.leaky_relu(raw, 0.2) if link == "leaky_relu" else raw

    @property
    def fixed_pool(self) -> bool:
        """Whether g has nothing to learn, so that a set need be pooled only once however often h is refined."""
        return not self.config.g


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
    if how in ("shift", "top"):
        scores = scores - (both * scores).sum(-1, keepdim=True)
    scores = scores * ((both * scores.square()).sum(-1, keepdim=True) + TINY).rsqrt()
    return from_the_top(scores, weights) if how == "top" else scores


def from_the_top(scores: Tensor, weights: Tensor) -> Tensor:
    """Spread out the first few rows of each set: scores by the logarithm of their distance from the highest.

    The highest row lies at `REACH` and one at the distance `FARTHEST` at `-REACH`, in the compressed scale of a fixed
    g; equal scores stay equal, and rows of weight zero do not count.
    """
    if not scores.shape[-1]:
        return scores
    highest = scores.masked_fill(weights == 0, -torch.inf).amax(-1, keepdim=True)
    distance = (highest - scores).clamp(min=0)
    nearest, farthest = math.log(NEAREST), math.log(NEAREST + FARTHEST)
    place = REACH - 2 * REACH * ((distance + NEAREST).log() - nearest) / (farthest - nearest)
    return place.sinh() / STRETCH


def class_weights(targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of positives and of negatives, each summing to one (or to zero where there are none)."""
    positive, negative = weights * targets, weights * (1 - targets)
    return (
        positive / positive.sum(-1, keepdim=True).clamp(min=TINY),
        negative / negative.sum(-1, keepdim=True).clamp(min=TINY),
    )


class LearnedMean(nn.Module):
    """Weighted mean of a learned `g(target, score)`, as in the paper."""

    def __init__(self, config: SurrogateConfig) -> None:
        super().__init__()
        self.width = config.g[-1]
        widths = (2, *config.g)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norm = nn.BatchNorm1d(widths[1]) if config.batch_norm else nn.Identity()
        self.activation = ACTIVATIONS[config.activation]()

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
        place = (STRETCH * scores).asinh()
        # One multiplication for (place - centre) * sharpness, and its sum on the way back.
        slopes = torch.addmm(-self.centres * self.sharpness, place.reshape(-1, 1), self.sharpness.unsqueeze(0))
        steps = slopes.sigmoid_().view(*place.shape, len(self.centres))
        found, alarmed = (torch.stack(class_weights(targets, weights), -2) @ steps).unbind(-2)
        precision = share * found / (share * found + (1 - share) * alarmed + 1e-6)
        rates = torch.cat((found, alarmed, 1 - found, 1 - alarmed), -1)
        odds = (share.clamp(min=TINY).log() - (1 - share).clamp(min=TINY).log()).clamp(-8, 8)
        return torch.cat((odds / 4, (rates.clamp(min=0) + 1e-4).log() / 4, precision), -1)
