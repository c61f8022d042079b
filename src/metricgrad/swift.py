"""Swift steps: a whole step of a fleet, from scores to Adam, compiled into one call where a compiler is at hand.

The mathematics is that of `stacked.py`, written without side effects, so that `torch.func` can take its gradient inside
one graph; the tensors are the same ones, changed in place. It pays where there are very many small steps, as in the
recipe of the paper, for compiling takes a while. Without a compiler everything goes its usual way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch._inductor import config as inductor
from torch.nn import functional as F

from metricgrad.stacked import Models, Surrogates
from metricgrad.surrogate import LearnedMean, meta_loss
from metricgrad.tasks import two_classes

PAYS = 10_000
"""Steps of models and surrogates together from which on compiling is worth its time."""
Named = dict[str, Tensor]
Stats = list[tuple[Tensor, Tensor]]
_log = logging.getLogger(__name__)


class Moments:
    """What Adam keeps of some tensors: the optimizer's own state, to be changed in place."""

    def __init__(self, optimizer: torch.optim.Optimizer, tensors: Sequence[Tensor]) -> None:
        states = [optimizer.state[tensor] for tensor in tensors]
        self.first = [state["exp_avg"] for state in states]
        self.second = [state["exp_avg_sq"] for state in states]
        self.steps = [state["step"] for state in states]
        self.group = optimizer.param_groups[0]

    def next(self) -> tuple[Tensor, Tensor]:
        """Count a step, and return its number and its rate."""
        torch._foreach_add_(self.steps, 1)
        return self.steps[0], torch.tensor(self.group["lr"], dtype=torch.float64)


def adam(
    tensors: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    step: Tensor,
    rate: Tensor,
    clip: float | None,
) -> None:
    """Clip the gradients of every member, and move its tensors as Adam does; all `(members, ...)`."""
    share: Tensor | None = None
    if clip is not None:
        norm = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients]).sum(0).sqrt()
        share = clip / norm.clamp(min=clip)
    ahead = step.double()
    size = (rate / (1 - 0.9**ahead)).to(tensors[0].dtype)
    root = (1 - 0.999**ahead).sqrt().to(tensors[0].dtype)
    for tensor, gradient, mean, square in zip(tensors, gradients, first, second, strict=True):
        if share is not None:
            gradient = gradient * share.view(-1, *[1] * (gradient.ndim - 1))
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        tensor.sub_(size * mean / (square.sqrt() / root + 1e-8))


# ---- forward without side effects ----------------------------------------------------------------------------------


def normalised(latent: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Normalise every channel over its rows, `(members, channels, rows)`, and return what batch norm is to remember."""
    mean, variance = latent.mean(-1), latent.var(-1, correction=0)
    scale = (variance + epsilon).rsqrt() * weight
    rows = latent.shape[-1]
    out = (latent - mean.unsqueeze(-1)) * scale.unsqueeze(-1) + bias.unsqueeze(-1)
    return out, (mean.detach(), variance.detach() * (rows / (rows - 1)))


def remember(norms: Sequence[Mapping[str, Tensor]], momenta: Sequence[float], stats: Stats) -> None:
    """Move the running statistics of batch norms."""
    for own, momentum, (mean, variance) in zip(norms, momenta, stats, strict=True):
        own["running_mean"].lerp_(mean, momentum)
        own["running_var"].lerp_(variance, momentum)
        own["num_batches_tracked"].add_(1)


def dense(weight: Tensor, bias: Tensor, latent: Tensor) -> Tensor:
    """Multiply `(members, out, in)` by columns of rows, shared `(in, rows)` or each member's own."""
    return weight @ latent + bias.unsqueeze(-1)


class SwiftModels:
    """Models as a function of what they learn: rows `(rows, features)` -> scores `(members, rows)`."""

    def __init__(self, models: Models) -> None:
        self.layers = [layer for layer, _ in models.layers]
        self.tensors = [tensor.detach() for tensor in models.learnable]  # the same memory, without a history
        self.norms = [own for layer, own in models.layers if isinstance(layer, nn.BatchNorm1d)]
        self.momenta = [layer.momentum or 0.0 for layer in self.layers if isinstance(layer, nn.BatchNorm1d)]
        self.places = [
            (i, models.layers[i - 1][1]["weight"].shape[1])
            for i, layer in enumerate(self.layers)
            if isinstance(layer, nn.Dropout) and layer.p
        ]

    def masks(self, rows: int, dtype: torch.dtype) -> list[Tensor]:
        """Draw the dropout of a step, `(width, rows)` each, as `Models.follow` does."""
        drawn = [F.dropout(torch.ones(rows, width, dtype=dtype), self.layers[i].p) for i, width in self.places]  # type: ignore[arg-type]
        return [mask.mT.contiguous() for mask in drawn]

    def __call__(self, tensors: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, Stats]:
        """Score rows in training mode, and return what batch norms are to remember."""
        left, waiting = iter(tensors), iter(masks)
        latent, stats = x.mT, []
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                latent = dense(next(left), next(left), latent)
            elif isinstance(layer, nn.BatchNorm1d):
                latent, seen = normalised(latent, next(left), next(left), layer.eps)
                stats.append(seen)
            elif isinstance(layer, nn.Dropout):
                latent = latent * next(waiting) if layer.p else latent
            else:
                latent = layer(latent)
        return latent[:, 0], stats


class SwiftSurrogates:
    """Surrogates as a function of what they learn: scores `(members, sets, n)` -> losses `(members, sets)`."""

    def __init__(self, group: Surrogates) -> None:
        self.shape, self.names = group.shape, [name.removeprefix("surrogate.") for name in group.moved]
        self.tensors = [group.common[name].detach() for name in group.moved]
        self.low, self.high = group.common["surrogate.low"], group.common["surrogate.high"]
        self.norms = [group.norm] if group.norm else []
        norm = getattr(self.shape.g, "norm", None)
        self.momenta = [norm.momentum or 0.0] if isinstance(norm, nn.BatchNorm1d) else []

    def pool(self, named: Named, scores: Tensor, y: Tensor, w: Tensor, learning: bool) -> tuple[Tensor, Stats]:
        """Return what is known of every set, `(members, sets, q)`, in training or in evaluation mode."""
        y, w = y.expand_as(scores), w.expand_as(scores)
        scores, y, w = self.shape.made_ready(scores, y, w)
        latent, stats = torch.stack((y, scores), 1).flatten(2), []
        g = self.shape.g
        assert isinstance(g, LearnedMean)
        for i, _ in enumerate(g.layers):
            latent = g.activation(dense(named[f"g.layers.{i}.weight"], named[f"g.layers.{i}.bias"], latent))
            if i == 0 and isinstance(g.norm, nn.BatchNorm1d):
                if learning:
                    latent, seen = normalised(latent, named["g.norm.weight"], named["g.norm.bias"], g.norm.eps)
                    stats.append(seen)
                else:
                    own = self.norms[0]
                    scale = (own["running_var"] + g.norm.eps).rsqrt() * named["g.norm.weight"]
                    shift = named["g.norm.bias"] - own["running_mean"] * scale
                    latent = latent * scale.unsqueeze(-1) + shift.unsqueeze(-1)
        return (latent.unflatten(-1, scores.shape[1:]) * w.unsqueeze(1)).sum(-1).mT, stats

    def judge(self, named: Named, pooled: Tensor) -> Tensor:
        """Return the loss of each set: `(members, sets, q)` -> `(members, sets)`."""
        latent = pooled.mT
        for name, layer in self.shape.h.named_children():
            linear = isinstance(layer, nn.Linear)
            latent = dense(named[f"h.{name}.weight"], named[f"h.{name}.bias"], latent) if linear else layer(latent)
        raw = dense(named["last.weight"], named["last.bias"], latent)[:, 0]
        return self.low.unsqueeze(-1) + (self.high - self.low).unsqueeze(-1) * self.shape.linked(raw)

    def named(self, tensors: Sequence[Tensor]) -> Named:
        """Return what is learned by name."""
        return dict(zip(self.names, tensors, strict=True))


# ---- steps ---------------------------------------------------------------------------------------------------------


class Swift:
    """The two kinds of step of a fleet of surrogates, each one compiled call; the plain ones where that fails.

    Parameters
    ----------
    models : Models
        Side by side, each following a surrogate of the one group.
    group : Surrogates
        One for each model, of a learned g; frozen, or with an optimizer that has its moments, as the models' has.
    optimizer : Optimizer
        Of the models.
    anchor, clip : float
        As the recipe says.
    """

    def __init__(
        self, models: Models, group: Surrogates, optimizer: torch.optim.Optimizer, anchor: float, clip: float | None
    ) -> None:
        inductor.compile_threads = 1  # no processes of its own beside those that train
        self.models, self.surrogates = SwiftModels(models), SwiftSurrogates(group)
        self.of_models = Moments(optimizer, models.learnable)
        learned = [group.common[name] for name in group.moved]
        self.of_surrogates = Moments(group.optimizer, learned) if group.optimizer else None
        self.anchor, self.clip, self.relational = anchor, clip, group.losses[0].relational
        self._follow = torch.compile(self._follow_whole, fullgraph=True, dynamic=False)
        self._refine = torch.compile(self._refine_whole, fullgraph=True, dynamic=False)

    @torch.no_grad()
    def follow(self, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Take a step of all models on one set, `(1, n, features)`, and return their losses: `(members,)`."""
        masks = self.models.masks(x.shape[1], x.dtype)
        moments = self.of_models
        state = self.models.tensors, moments.first, moments.second
        losses: Tensor = self._follow(*state, *moments.next(), x[0], y, w, masks)
        return losses

    def _follow_whole(
        self,
        tensors: list[Tensor],
        first: list[Tensor],
        second: list[Tensor],
        step: Tensor,
        rate: Tensor,
        x: Tensor,
        y: Tensor,
        w: Tensor,
        masks: list[Tensor],
    ) -> Tensor:
        named = self.surrogates.named(self.surrogates.tensors)

        def objective(learned: list[Tensor]) -> tuple[Tensor, tuple[Tensor, Stats]]:
            scores, stats = self.models(learned, x, masks)
            own = scores.unsqueeze(1)
            pooled, _ = self.surrogates.pool(named, own, y, w, learning=False)
            told = two_classes(y, w).to(scores.dtype)
            losses = (self.surrogates.judge(named, pooled) * told).sum(-1) / told.sum().clamp(min=1)
            if self.anchor:
                rows = F.binary_cross_entropy_with_logits(own, y.expand_as(own), reduction="none") * w
                losses = losses + self.anchor * rows.sum((-1, -2)) / w.sum()
            return losses.sum(), (losses.detach(), stats)

        losses: Tensor
        gradients, (losses, stats) = torch.func.grad(objective, has_aux=True)(tensors)
        adam(tensors, gradients, first, second, step, rate, self.clip)
        remember(self.models.norms, self.models.momenta, stats)
        return losses

    @torch.no_grad()
    def refine(self, scores: Tensor, y: Tensor, w: Tensor, true: Tensor) -> Tensor:
        """Take a step of all surrogates on some sets, `(members, sets, n)`, and return the gaps: `(members, sets)`."""
        moments = self.of_surrogates
        assert moments is not None
        state = self.surrogates.tensors, moments.first, moments.second
        gaps: Tensor = self._refine(*state, *moments.next(), scores, y, w, true)
        return gaps

    def _refine_whole(
        self,
        tensors: list[Tensor],
        first: list[Tensor],
        second: list[Tensor],
        step: Tensor,
        rate: Tensor,
        scores: Tensor,
        y: Tensor,
        w: Tensor,
        true: Tensor,
    ) -> Tensor:
        span = (self.surrogates.high - self.surrogates.low).unsqueeze(-1)

        def objective(learned: list[Tensor]) -> tuple[Tensor, tuple[Tensor, Stats]]:
            named = self.surrogates.named(learned)
            pooled, stats = self.surrogates.pool(named, scores, y, w, learning=True)
            smooth = self.surrogates.judge(named, pooled)
            distance = len(true) * meta_loss(smooth / span, true / span, self.relational)
            return distance, ((smooth - true).abs().detach(), stats)

        gaps: Tensor
        gradients, (gaps, stats) = torch.func.grad(objective, has_aux=True)(tensors)
        adam(tensors, gradients, first, second, step, rate, self.clip)
        remember(self.surrogates.norms, self.surrogates.momenta, stats)
        return gaps


def can_compile() -> bool:
    """Say, quietly, whether this machine can compile: by a function that is hardly one."""
    try:
        torch.compile(torch.neg, fullgraph=True)(torch.ones(2))
    except Exception as error:  # whatever a compiler that is missing or broken raises
        _log.info("steps are not compiled here: %s", (str(error) or type(error).__name__).splitlines()[0])
        return False
    return True
