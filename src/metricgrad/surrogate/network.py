"""The surrogate: a smooth, set-wise, permutation-invariant network `h(mean_i g(y_i, s_i))` (Eq. 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.surrogate.config import CONFIGS, SurrogateConfig
from metricgrad.surrogate.pooling import ACTIVATIONS, pooling_of
from metricgrad.surrogate.soft_curve import TOKEN
from metricgrad.surrogate.standardising import EPSILON, class_weights, standardised
from metricgrad.surrogate.views import VIEWS, view_named

ATTENTION_SCALE = 10.0
"""Of the logits of attention: from small weights on, it may prefer one threshold to the next."""
SATURATED = 0.02
"""Mean slope of a sigmoid below which it is saturated; at most it is 0.25."""
Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done, total)` while something takes long."""


class Surrogate(nn.Module):
    """A smooth approximation of a metric: `(..., n)` scores, targets and weights -> `(...)` losses.

    Parameters
    ----------
    config : SurrogateConfig or {"default", "paper", "attention"}
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
        self.config, self.view = config, view_named(config.view)
        if config.attention and (config.g or self.view != VIEWS["rows"]):
            raise ValueError(f"attention: expected no learned g and the view 'rows', got {config.g}, {config.view!r}")
        self.g = pooling_of(config)
        activation = ACTIVATIONS[config.activation]
        width = TOKEN if config.attention else config.parts * self.g.width + self.view.sized + self.view.summaries
        widths = (width, *config.h)
        self.h, self.whole = nn.Sequential(), nn.Sequential()
        for before, after in pairwise(widths):
            self.h.extend([nn.Linear(before, after), activation()])
        if self.view.parts == "unordered":
            self.whole.extend([nn.Linear(widths[-1], widths[-1]), activation()])
        self.last = nn.Linear(widths[-1], 1)
        if config.attention:
            self.attend = nn.Linear(widths[-1], 1, bias=False)
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.ones(()))

    low: Tensor
    high: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss of every set: `(..., n)` -> `(...)`, or whatever the view takes."""
        return self.judge(self.pool(scores, targets, weights))

    def pool(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the pooled features of every set, the weighted mean of g: `(..., n)` -> `(..., q)`.

        Unordered sets of a view stay separate, `(..., m, q + 1)`, with the share of each.
        """
        seen = self._seen(scores, targets, weights)
        pooled: Tensor = self.g(*self._levelled(*seen))
        if self.view.summary is not None:
            pooled = torch.cat((pooled, self._summary(scores, targets, weights)), -1)
        if self.view.parts == "one":
            return pooled
        if self.view.parts == "unordered":
            mass = seen[2].sum(-1, keepdim=True)
            return torch.cat((pooled, mass / mass.sum(-2, keepdim=True).clamp(min=EPSILON)), -1)
        pooled = pooled.flatten(-2)
        if not self.view.sized:
            return pooled
        rows = (seen[2][..., 0, :] > 0).sum(-1, keepdim=True).clamp(min=1)
        return torch.cat((pooled, rows.to(pooled.dtype).log() / 4), -1)

    def _seen(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sets of the view, in the precision of the surrogate."""
        dtype = self.low.dtype
        scores, targets = scores.to(dtype), targets.to(dtype)
        if weights is None:
            return self.view.see(scores, targets, torch.ones_like(scores[..., 0] if self.view.outputs else scores))
        weights = weights.to(dtype)
        # Padding may hold any number, even one whose square is infinite; none of it may have an effect.
        present = weights.unsqueeze(-1) > 0 if self.view.outputs else weights > 0
        return self.view.see(scores.where(present, 0), targets, weights)

    def _summary(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        assert self.view.summary is not None
        weights = torch.ones_like(scores) if weights is None else weights
        return self.view.summary(*(each.to(self.low.dtype) for each in (scores, targets, weights)))

    def _levelled(self, scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """Return the input of g: standardised scores, targets, and weights that sum to one in all and in each class."""
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=EPSILON)
        classes = class_weights(targets, weights)
        return standardised(scores, classes, weights, self.config.standardise), targets, weights, classes

    def judge(self, pooled: Tensor) -> Tensor:
        """Return the losses of pooled sets (h): `(..., q)` -> `(...)`."""
        return self.low + (self.high - self.low) * self.linked(self.raw(pooled))

    def raw(self, pooled: Tensor) -> Tensor:
        """Return the output of h for pooled sets, before the output function: `(..., q)` -> `(...)`."""
        if self.view.parts == "unordered":
            pooled, share = pooled[..., :-1], pooled[..., -1:]
            hidden = self.whole((self.h(pooled) * share).sum(-2))
        elif self.config.attention:
            hidden = self.h(pooled.unflatten(-1, (-1, TOKEN)))
            hidden = ((ATTENTION_SCALE * self.attend(hidden)).softmax(-2) * hidden).sum(-2)
        else:
            hidden = self.h(pooled)
        raw: Tensor = self.last(hidden)[..., 0]
        return raw

    @torch.no_grad()
    def calibrate(self, pooled: Tensor, true: Tensor, least_slope: float = 0.05) -> None:
        """Scale and shift the output of h by least squares, so that losses of pooled sets have the level of true ones.

        Far from the sets it was fitted to, h may saturate the output function, where it learns no more.
        """
        raw, share = self.raw(pooled).double(), ((true - self.low) / (self.high - self.low)).double()
        wanted = share.clamp(0.01, 0.99).logit() if self.config.link == "sigmoid" else share
        centred = raw - raw.mean()
        slope = (centred * wanted).sum() / centred.square().sum().clamp(min=EPSILON)
        slope = slope.clamp(least_slope, 20)
        self.last.weight.mul_(slope)
        self.last.bias.mul_(slope).add_(wanted.mean() - slope * raw.mean())

    @torch.no_grad()
    def is_saturated(self, pooled: Tensor) -> bool:
        """Whether the output function is so flat on pooled sets that h learns nothing from them."""
        if self.config.link != "sigmoid":
            return False
        share = self.raw(pooled).sigmoid()
        return float((share * (1 - share)).mean()) < SATURATED

    @torch.no_grad()
    def make_linear(self, pooled: Tensor, true: Tensor) -> None:
        """Replace the output function by a line, at the level of true losses."""
        self.config = replace(self.config, link="linear")
        self.calibrate(pooled, true)

    def linked(self, raw: Tensor) -> Tensor:
        """Apply the output function to the scalar output of h."""
        link = self.config.link
        return raw.sigmoid() if link == "sigmoid" else F.leaky_relu(raw, 0.2) if link == "leaky_relu" else raw

    @property
    def fixed_pool(self) -> bool:
        """Whether g has no parameters, so that a set needs to be pooled only once however often h is refined."""
        return not self.config.g


def new_surrogate(config: SurrogateConfig | str, seed: int) -> Surrogate:
    """Return an unfitted surrogate whose weights depend on the seed only, leaving the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Surrogate(config)


def meta_loss(surrogate: Tensor, true: Tensor, relational: float = 0.0) -> Tensor:
    """Return the distance of surrogate losses from true ones, `(..., k)` -> scalar; k sets of one group.

    The paper's L1, plus `relational` times the L1 of the differences within a group, in units of their spread: a model
    follows differences between sets, not their level.
    """
    error = surrogate - true
    distance = error.abs().mean()
    if relational and error.shape[-1] > 1:
        centred = (error - error.mean(-1, keepdim=True)).abs()
        distance = distance + relational * (centred / (true.std(-1, keepdim=True) + 0.005)).mean()
    return distance
