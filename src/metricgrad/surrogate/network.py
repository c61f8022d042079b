"""The surrogate: a smooth, set-wise, permutation-invariant network `h(mean_i g(y_i, s_i))` (Eq. 2)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.soft_curve import TOKEN, SoftCurve, power_sums
from metricgrad.surrogate.views import GRADE_LEVELS, TASK_VIEWS, VIEWS, view_named

EPSILON = 1e-12
SCORE_STRETCH = 1.5
"""Scores are compressed by asinh(1.5 s) before they are compared with the thresholds of a fixed g."""
TOP_POSITION = 2.1
"""Where `"top"` maps the highest score, just below the highest threshold of a fixed g."""
MIN_TOP_DISTANCE, MAX_TOP_DISTANCE = 0.02, 6.0
"""Distances from the highest score, in standard deviations, that `"top"` resolves."""
GRID_ROWS = 1000
"""Sets of more rows are put on a grid before they are compared with the thresholds of a fixed g."""
GRID_REACH, GRID_STEP = 9.0, 0.03
"""Half the width of the grid, in compressed scores, and the distance of its points: 0.6 widths of the steepest step."""
ATTENTION_SCALE = 10.0
"""Of the logits of attention: from small weights on, it may prefer one threshold to the next."""
SATURATED = 0.02
"""Mean slope of a sigmoid below which it is saturated; at most it is 0.25."""
Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done, total)` while something takes long."""
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "gelu": nn.GELU}


@dataclass(frozen=True)
class SurrogateConfig:
    """How a surrogate is built, as data.

    Parameters
    ----------
    standardise : {"shift", "scale", "top", "none"}
        How the scores of a set are standardised before g: centred and scaled, only scaled (zero stays zero), measured
        from the highest score on a logarithmic scale, for metrics that depend on the first few rows, or not at all.
        Both classes count the same in centre and scale, so that rare positives do not vanish.
    g : tuple of int
        Widths of a learned g; empty for a fixed g, a soft ROC curve.
    thresholds : int
        Thresholds of the soft ROC curve, if g is fixed.
    h : tuple of int
        Hidden widths of h.
    activation : {"tanh", "gelu"}
        Of g and h.
    batch_norm : bool
        Batch norm after the first layer of g.
    link : {"sigmoid", "linear", "leaky_relu"}
        The output function of h.
    view : str
        How a set is seen, a name in `views.py`: as it is, as one set for each of several outputs, ...
    parts : int
        How many ordered sets the view makes of one.
    attention : bool
        Whether h judges every threshold of a set by itself, thresholds lying where its scores do (`soft_curve.py`), and
        the set is judged by attention over them: for metrics at one threshold, which a set chooses itself.
    """

    standardise: str = "shift"
    g: tuple[int, ...] = ()
    thresholds: int = 64
    h: tuple[int, ...] = (96, 96)
    activation: str = "gelu"
    batch_norm: bool = False
    link: str = "sigmoid"
    view: str = "rows"
    parts: int = 1
    attention: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SurrogateConfig:
        """Build from the plain data of `as_dict`, of 0.1.0 too, which called thresholds teeth."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if "teeth" in plain:
            plain["thresholds"] = plain.pop("teeth")
        return cls(**plain)


def config_for(metric: Metric) -> SurrogateConfig:
    """Return the config of a metric's surrogate: scores are not centred for a metric that depends on zero.

    For regression there is no ROC curve, so g is learned.
    """
    view, link = metric.view or TASK_VIEWS[metric.task.name], "sigmoid" if metric.bounded else "linear"
    if metric.task.numbers:
        parts = 2 if metric.task.several else 1
        return SurrogateConfig("none", (64, 64), 0, (64,), link=link, view=view, parts=parts)
    parts = {"columns": 1 + len(metric.columns), "ranking": GRADE_LEVELS}.get(metric.task.name, 1)
    thresholds = 32 if metric.task.outputs else 64  # with a set for every output, 32 are enough
    standardise = "scale" if metric.thresholded else "top" if metric.top_rows else "shift"
    return SurrogateConfig(standardise, thresholds=thresholds, link=link, view=view, parts=parts)


CONFIGS = {
    "default": SurrogateConfig(),
    "paper": SurrogateConfig("none", (30, 30), 0, (10, 10), "tanh", True, "leaky_relu"),
    "attention": SurrogateConfig(h=(32, 32), attention=True),
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
        self.g = _pooling(config)
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


def _pooling(config: SurrogateConfig) -> LearnedMean | SoftROC | SoftCurve:
    if config.g:
        return LearnedMean(config)
    return SoftCurve(config.thresholds, GRID_ROWS) if config.attention else SoftROC(config.thresholds)


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


def standardised(scores: Tensor, classes: Tensor, weights: Tensor, how: str) -> Tensor:
    """Centre and scale the scores of each set, positives and negatives counting the same; `(..., n)` -> `(..., n)`."""
    if how == "none":
        return scores
    both = classes.sum(-2)
    both = both / both.sum(-1, keepdim=True).clamp(min=EPSILON)
    if how in ("shift", "top"):
        scores = scores - (both * scores).sum(-1, keepdim=True)
    scores = scores * ((both * scores.square()).sum(-1, keepdim=True) + EPSILON).rsqrt()
    return from_the_top(scores, weights) if how == "top" else scores


def from_the_top(scores: Tensor, weights: Tensor) -> Tensor:
    """Spread out the first few rows of each set: scores by the logarithm of their distance from the highest.

    The highest score is mapped to `TOP_POSITION` and one at `MAX_TOP_DISTANCE` to `-TOP_POSITION`, in the compressed
    scale of a fixed g; equal scores stay equal, and rows of weight zero do not count.
    """
    if not scores.shape[-1]:
        return scores
    highest = scores.masked_fill(weights == 0, -torch.inf).amax(-1, keepdim=True)
    distance = (highest - scores).clamp(min=0)
    low, high = math.log(MIN_TOP_DISTANCE), math.log(MIN_TOP_DISTANCE + MAX_TOP_DISTANCE)
    position = TOP_POSITION - 2 * TOP_POSITION * ((distance + MIN_TOP_DISTANCE).log() - low) / (high - low)
    return position.sinh() / SCORE_STRETCH


def class_weights(targets: Tensor, weights: Tensor) -> Tensor:
    """Return the weights of positives and of negatives, each summing to one, or to zero where there are none.

    `(..., n)` -> `(..., 2, n)`.
    """
    both = torch.stack((targets, 1 - targets), -2) * weights.unsqueeze(-2)
    return both / both.sum(-1, keepdim=True).clamp(min=EPSILON)


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
