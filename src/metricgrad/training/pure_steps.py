"""Networks side by side as pure functions: nothing is changed in place, so that a whole step can be one graph.

The mathematics is that of `ensemble.py`. What members learn lies in one tensor, `(members, all)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from metricgrad.surrogate.network import LearnedMean
from metricgrad.training.ensemble import Models, Surrogates, in_both

THIN = 2
"""Of a matrix with no more rows or columns than this, a product is a sum among others, not a call of its own."""


class Adam(NamedTuple):
    """What members learn and what Adam keeps of it, each `(members, all)`, and the steps so far."""

    learned: Tensor
    first: Tensor
    second: Tensor
    step: Tensor

    def moved(self, gradient: Tensor, rate: Tensor, clip: float | None) -> Adam:
        """Clip the gradient of every member, and take a step."""
        if clip is not None:
            norm = gradient.square().sum(1, keepdim=True).sqrt()
            gradient = gradient * (clip / norm.clamp(min=clip))
        step = self.step + 1
        ahead = step.double()
        size = (rate / (1 - 0.9**ahead)).to(gradient.dtype)
        root = (1 - 0.999**ahead).sqrt().to(gradient.dtype)
        first = self.first.lerp(gradient, 0.1)
        second = self.second * 0.999 + 0.001 * gradient.square()
        return Adam(self.learned - size * first / (second.sqrt() / root + 1e-8), first, second, step)


def unpacked(learned: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Return what lies in one tensor, `(members, all)`, as tensors of some shapes for each member."""
    parts = learned.split([shape.numel() for shape in shapes], 1)
    return [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]


def dense(weight: Tensor, bias: Tensor, latent: Tensor) -> Tensor:
    """Multiply `(members, out, in)` by columns of rows, shared `(in, rows)` or each member's own."""
    if latent.ndim > 2 and min(*weight.shape[1:], latent.shape[-1]) <= THIN:
        return (weight.unsqueeze(-1) * latent.unsqueeze(1)).sum(2) + bias.unsqueeze(-1)
    return weight @ latent + bias.unsqueeze(-1)


def normalised(latent: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, list[Tensor]]:
    """Normalise every channel over its rows, `(members, channels, ..., rows)`, and return mean and variance."""
    more = (1,) * (latent.ndim - 2)
    mean, rows = latent.mean(-1), latent.shape[-1]
    centred = latent - mean.unsqueeze(-1)
    variance = centred.square().mean(-1)
    scale = (variance.unsqueeze(-1) + epsilon).rsqrt() * weight.unflatten(1, (-1, *more))
    out = centred * scale + bias.unflatten(1, (-1, *more))
    return out, [mean.detach(), variance.detach() * (rows / (rows - 1))]


def judged(latent: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    """Normalise every channel by statistics of before: `(members, channels, rows)`, or a set more before the rows."""
    scale = (variance + epsilon).rsqrt() * weight
    return latent * scale.unsqueeze(-1) + (bias - mean * scale).unsqueeze(-1)


def before_each(running: Tensor, seen: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
    """Return running statistics before each of some sets, `(..., sets)`, and after the last."""
    before = []
    for one in seen.unbind(-1):
        before.append(running)
        running = running.lerp(one, momentum)
    return torch.stack(before, -1), running


class PureModels:
    """Models as a function of what they learn: rows `(rows, features)` -> scores `(members, rows)`."""

    def __init__(self, models: Models) -> None:
        self.layers = [layer for layer, _ in models.layers]
        self.shapes = [tensor.shape[1:] for tensor in models.learnable]
        norms = [(layer, own) for layer, own in models.layers if isinstance(layer, nn.BatchNorm1d)]
        self.running = [own[name] for _, own in norms for name in ("running_mean", "running_var")]
        self.momenta = [layer.momentum or 0.0 for layer, _ in norms for _ in range(2)]
        self.counts = [own["num_batches_tracked"] for _, own in norms]

    def __call__(self, learned: Tensor, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Score rows in training mode, and return what batch norms have seen."""
        left, waiting = iter(unpacked(learned, self.shapes)), iter(masks)
        latent, stats = x.mT, []
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                latent = dense(next(left), next(left), latent)
            elif isinstance(layer, nn.BatchNorm1d):
                latent, seen = normalised(latent, next(left), next(left), layer.eps)
                stats += seen
            elif isinstance(layer, nn.Dropout):
                latent = latent * next(waiting) if layer.p else latent
            else:
                latent = layer(latent)
        return latent[:, 0], stats

    def probe(
        self, learned: Tensor, running: Sequence[Tensor], x: Tensor, masks: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Score sets in both modes, as `Models.probe` does, and return what batch norms remember then."""
        sets, n = x.shape[:2]
        left, waiting, known = iter(unpacked(learned, self.shapes)), iter(masks), iter(running)
        momenta, after = iter(self.momenta), []
        still = live = x.flatten(0, 1).mT
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                weight, bias = next(left), next(left)
                still, live = in_both(partial(dense, weight, bias), still, live)
            elif isinstance(layer, nn.BatchNorm1d):
                weight, bias = next(left), next(left)
                live, seen = normalised(live.unflatten(-1, (sets, n)), weight, bias, layer.eps)
                old = [before_each(next(known), one, next(momenta)) for one in seen]
                after += [last for _, last in old]
                still = still.unflatten(-1, (sets, n))
                still = judged(still, weight.unsqueeze(-1), bias.unsqueeze(-1), old[0][0], old[1][0], layer.eps)
                still, live = still.flatten(-2), live.flatten(-2)
            elif isinstance(layer, nn.Dropout):
                live = (live.unflatten(-1, (sets, n)) * next(waiting)).flatten(-2) if layer.p else live
            else:
                still, live = in_both(layer, still, live)
        shape = (len(still), sets, n)
        return still.view(shape), live.view(shape), after


class PureSurrogates:
    """Surrogates as a function of what they learn: scores `(members, sets, n)` -> losses `(members, sets)`."""

    def __init__(self, group: Surrogates) -> None:
        self.shape, self.names = group.shape, [name.removeprefix("surrogate.") for name in group.moved]
        self.shapes = [group.common[name].shape[1:] for name in group.moved]
        self.stretch = [group.common["surrogate.low"], group.common["surrogate.high"]]
        norm = getattr(self.shape.g, "norm", None)
        normed = isinstance(norm, nn.BatchNorm1d)
        self.running = [group.norm[name] for name in ("running_mean", "running_var")] if normed else []
        self.momenta = [norm.momentum or 0.0] * 2 if isinstance(norm, nn.BatchNorm1d) else []
        self.counts = [group.norm["num_batches_tracked"]] if normed else []

    def __call__(
        self,
        learned: Tensor,
        scores: Tensor,
        y: Tensor,
        w: Tensor,
        stretch: Sequence[Tensor],
        running: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of each set, judged by running statistics or else learning, and what batch norm has seen."""
        named = dict(zip(self.names, unpacked(learned, self.shapes), strict=True))
        pooled, stats = self._pooled(named, scores, y, w, running)
        for name, layer in self.shape.h.named_children():
            pooled = dense(*_of(named, f"h.{name}"), pooled) if isinstance(layer, nn.Linear) else layer(pooled)
        low, high = (end.unsqueeze(-1) for end in stretch)
        return low + (high - low) * self.shape.linked(dense(*_of(named, "last"), pooled)[:, 0]), stats

    def _pooled(
        self, named: dict[str, Tensor], scores: Tensor, y: Tensor, w: Tensor, running: Sequence[Tensor] | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return what is known of every set, the mean of g: `(members, q, sets)`."""
        scores, y, w = self.shape.made_ready(scores, y.expand_as(scores), w.expand_as(scores))
        latent = torch.stack((y, scores), 1).flatten(2)
        stats: list[Tensor] = []
        g = self.shape.g
        assert isinstance(g, LearnedMean)
        for i, _ in enumerate(g.layers):
            latent = g.activation(dense(*_of(named, f"g.layers.{i}"), latent))
            if i == 0 and isinstance(g.norm, nn.BatchNorm1d):
                if running is None:
                    latent, stats = normalised(latent, *_of(named, "g.norm"), g.norm.eps)
                else:
                    latent = judged(latent, *_of(named, "g.norm"), running[0], running[1], g.norm.eps)
        return (latent.unflatten(-1, scores.shape[1:]) * w.unsqueeze(1)).sum(-1), stats


def _of(named: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return named[f"{name}.weight"], named[f"{name}.bias"]
