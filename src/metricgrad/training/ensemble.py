"""Networks side by side: models, or surrogates, of one make whose tensors lie together in memory and compute as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.metrics.tasks import two_classes
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import LearnedMean, meta_loss
from metricgrad.training.networks import Scorer, folded, keeps

CELLS = 2**19
"""Numbers a layer may hold while many rows are scored: as many as stay near the processor."""


def side_by_side(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Move the tensors of modules of one make into common ones, `(members, ...)`; each keeps its own as a view."""
    common = {}
    for name, _ in (*modules[0].named_parameters(), *modules[0].named_buffers()):
        own = [dict((*module.named_parameters(), *module.named_buffers()))[name] for module in modules]
        common[name] = torch.stack([tensor.detach() for tensor in own])
        for tensor, view in zip(own, common[name], strict=True):
            tensor.data = view
    return common


class Models:
    """Models of one make as one: shared rows `(..., features)` -> scores `(members, ...)`."""

    def __init__(self, models: Sequence[Scorer]) -> None:
        self.size, self.models = len(models), models
        common = side_by_side(models)
        body = models[0].body
        named = body.named_children() if isinstance(body, nn.Sequential) else [("", body)]
        self.layers = [(layer, _of_layer(common, f"body.{name}".rstrip("."))) for name, layer in named]
        self.learnable = [common[name].requires_grad_() for name, _ in models[0].named_parameters()]
        self.dropped = [
            before["weight"].shape[1]
            for (_, before), (layer, _) in pairwise(self.layers)
            if isinstance(layer, nn.Dropout) and layer.p
        ]
        self.dropout = next((layer.p for layer, _ in self.layers if isinstance(layer, nn.Dropout)), 0.0)
        self.widest = max(own["weight"].shape[1] for layer, own in self.layers if isinstance(layer, nn.Linear))

    def follow(self, x: Tensor) -> Tensor:
        """Score rows in training mode: batch statistics, dropout alike for all members."""
        latent = x.reshape(-1, x.shape[-1]).mT
        for layer, own in self.layers:
            if isinstance(layer, nn.Linear):
                latent = _dense(own["weight"], own["bias"], latent)
            elif isinstance(layer, nn.BatchNorm1d):
                latent = _batch_norm(layer, own, latent)
            elif isinstance(layer, nn.Dropout):
                if layer.p:
                    (kept,) = keeps(layer.p, [latent[0].numel()], 1, latent.dtype)
                    latent = latent * kept.view_as(latent[0])
            else:
                latent = layer(latent)
        return latent.view(self.size, *x.shape[:-1])

    @torch.no_grad()
    def probe(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Score sets `(sets, n, features)` in evaluation mode and, one after the other, in training mode.

        As if each set were scored in both modes before the next one came: training mode moves the statistics of batch
        norm, by which the next set is judged. Both `(members, sets, n)`.
        """
        sets, n = x.shape[:2]
        masks = iter(self.masks(sets, n, x.dtype))
        still = live = x.reshape(-1, x.shape[-1]).mT
        for layer, own in self.layers:
            if isinstance(layer, nn.Linear):
                still, live = in_both(partial(_dense, own["weight"], own["bias"]), still, live)
            elif isinstance(layer, nn.BatchNorm1d):
                still, live = _batch_norm_of_sets(layer, own, still, live, sets)
            elif isinstance(layer, nn.Dropout):
                live = (live.unflatten(-1, (sets, n)) * next(masks)).flatten(-2) if layer.p else live
            else:
                still, live = in_both(layer, still, live)
        shape = (self.size, sets, n)
        return still.view(shape), live.view(shape)

    def masks(self, sets: int, n: int, dtype: torch.dtype) -> list[Tensor]:
        """Draw the dropout of sets that come one after the other: `(width, sets, n)` for each such layer."""
        if not self.dropped:
            return []
        parts = keeps(self.dropout, [n * width for width in self.dropped], sets, dtype)
        return [part.unflatten(1, (width, n)).transpose(0, 1) for part, width in zip(parts, self.dropped, strict=True)]

    def clip(self, norm: float) -> None:
        """Scale the gradients of every member down to a norm."""
        clip_each(self.learnable, norm)

    @torch.no_grad()
    def judge(self, x: Tensor, first: int | None = None) -> Tensor:
        """Score rows by all or the first members in evaluation mode, where batch norm is part of the next layer."""
        layers, slope = folded(self.layers)
        dense = [(weight[:first], bias[:first]) for weight, bias in layers]
        members, parts = len(dense[0][0]), []
        for part in x.reshape(-1, x.shape[-1]).split(max(CELLS // (members * self.widest), 256)):
            latent = part.mT
            for weight, bias in dense[:-1]:
                latent = F.leaky_relu_(_dense(weight, bias, latent), slope)
            parts.append(_dense(*dense[-1], latent)[:, 0])
        return torch.cat(parts, -1).view(members, *x.shape[:-1])


def in_both(function: Callable[[Tensor], Tensor], still: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Apply a function in both modes, once until they part."""
    out = function(live)
    return (out if still is live else function(still)), out


def _of_layer(common: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in common.items() if key.startswith(f"{name}.")}


def _dense(weight: Tensor, bias: Tensor, latent: Tensor) -> Tensor:
    """Multiply `(members, out, in)` by columns of rows, shared `(in, rows)` or each member's own."""
    if latent.ndim == 2:
        flat = torch.addmm(bias.reshape(-1, 1), weight.flatten(0, 1), latent)
        return flat.view(*weight.shape[:2], -1)
    return torch.baddbmm(bias.unsqueeze(-1), weight, latent)


def _batch_norm(layer: nn.BatchNorm1d, own: Mapping[str, Tensor], latent: Tensor, training: bool = True) -> Tensor:
    """Normalise every channel of every member: `(members, channels, rows)`."""
    if training:
        own["num_batches_tracked"].add_(1)
    means, variances, weight, bias = (own[k].view(-1) for k in ("running_mean", "running_var", "weight", "bias"))
    channels, momentum = latent.reshape(1, -1, latent.shape[-1]), layer.momentum or 0.0
    return F.batch_norm(channels, means, variances, weight, bias, training, momentum, layer.eps).view_as(latent)


def _batch_norm_of_sets(
    layer: nn.BatchNorm1d, own: Mapping[str, Tensor], still: Tensor, live: Tensor, sets: int
) -> tuple[Tensor, Tensor]:
    """Normalise sets that come one after the other in both modes: `(members, channels, sets * n)`."""
    members, channels, rows = live.shape
    n, momentum = rows // sets, layer.momentum or 0.0
    own["num_batches_tracked"].add_(sets)
    weight, bias = own["weight"].unsqueeze(-1), own["bias"].unsqueeze(-1)
    repeated = [t.expand(-1, -1, sets).reshape(-1) for t in (weight, bias)]
    each: Any = torch.native_batch_norm
    out, mean, inverse = each(live.reshape(1, -1, n), *repeated, None, None, True, momentum, layer.eps)
    mean, inverse = (t.view(members, channels, sets) for t in (mean, inverse))
    variance = (inverse**-2 - layer.eps) * (n / (n - 1))
    means = _moved(own["running_mean"], mean, momentum)
    variances = _moved(own["running_var"], variance, momentum)
    scale = weight * (variances + layer.eps).rsqrt()
    shift = bias - means * scale
    judged = torch.addcmul(shift.unsqueeze(-1), still.view(members, channels, sets, n), scale.unsqueeze(-1))
    return judged.view_as(still), out.view_as(live)


def _moved(running: Tensor, seen: Tensor, momentum: float) -> Tensor:
    """Move running statistics by those of sets, `(..., sets)`, and return what they were before each."""
    before = []
    for now in seen.unbind(-1):
        before.append(running.clone())
        running.lerp_(now, momentum)
    return torch.stack(before, -1)


def clip_each(tensors: Sequence[Tensor], norm: float) -> None:
    """Scale the gradients of every member, `(members, ...)` each, down to a norm."""
    gradients = [tensor.grad.flatten(1) for tensor in tensors if tensor.grad is not None]
    total = torch.stack([torch.linalg.vector_norm(g, dim=1) for g in gradients]).norm(dim=0)
    share = norm / total.clamp(min=norm)
    for tensor in tensors:
        if tensor.grad is not None:
            tensor.grad.mul_(share.view(-1, *[1] * (tensor.grad.ndim - 1)))


class Surrogates:
    """Surrogate losses of one construction as one; of scores `(members, sets, n)`, all of the same rows."""

    def __init__(self, losses: Sequence[SurrogateLoss], rate: float) -> None:
        self.losses, self.shape = losses, losses[0].surrogate
        self.common = side_by_side(losses)
        self.norm = _of_layer(self.common, "surrogate.g.norm")
        self.moved = [f"surrogate.{name}" for name, _ in self.shape.named_parameters()]
        metrics = dict.fromkeys(loss.metric for loss in losses)
        self.by_metric = [[i for i, loss in enumerate(losses) if loss.metric == metric] for metric in metrics]
        self.optimizer = None if losses[0].frozen else self._optimizer(rate)
        self.swift: Callable[[Tensor, Tensor, Tensor, Tensor, int], list[Tensor]] | None = None

    def _optimizer(self, rate: float) -> torch.optim.Optimizer:
        """Return one optimizer for all; members that have learned before go on, each with its own count of steps."""
        common = {name: self.common[f"surrogate.{name}"] for name, _ in self.shape.named_parameters()}
        for tensor in common.values():
            tensor.grad = torch.zeros_like(tensor)
        if not any(loss.optimizer and loss.optimizer.state for loss in self.losses):
            return torch.optim.Adam([t.requires_grad_() for t in common.values()], rate, fused=True)
        joint = torch.optim.Adam([p for loss in self.losses for p in loss.surrogate.parameters()], rate, fused=True)
        for i, loss in enumerate(self.losses):
            for name, parameter in loss.surrogate.named_parameters():
                gradients = common[name].grad
                assert gradients is not None
                parameter.requires_grad_(True).grad = gradients[i]
                if loss.optimizer:
                    joint.state[parameter] = loss.optimizer.state[parameter]
        return joint

    @property
    def together(self) -> bool:
        """Whether the optimizer moves what lies side by side, not each member's own part of it."""
        return self.optimizer is not None and self.optimizer.param_groups[0]["params"][0] is self.common[self.moved[0]]

    def __call__(self, scores: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return the surrogate losses: `(members, sets, n)` -> `(members, sets)`."""
        return self.judge(self.pool(scores, y, w))

    def pool(self, scores: Tensor, y: Tensor, w: Tensor, training: bool = False) -> Tensor:
        """Return what is known of every set, the mean of g: `(members, sets, n)` -> `(members, sets, q)`."""
        y, w = y.expand_as(scores), w.expand_as(scores)
        if self.shape.fixed_pool:
            return self.shape.pool(scores, y, w)
        scores, y, w = self.shape.made_ready(scores, y, w)
        latent = torch.stack((y, scores), 1).flatten(2)
        assert isinstance(self.shape.g, LearnedMean)
        for i, _ in enumerate(self.shape.g.layers):
            latent = self.shape.g.activation(_dense(*self._of(f"g.layers.{i}"), latent))
            if i == 0 and isinstance(self.shape.g.norm, nn.BatchNorm1d):
                latent = _batch_norm(self.shape.g.norm, self.norm, latent, training)
        mean: Tensor = (latent.unflatten(-1, scores.shape[1:]) * w.unsqueeze(1)).sum(-1)
        return mean.mT

    def judge(self, pooled: Tensor) -> Tensor:
        """Return the loss of each set from what is known of it: `(members, sets, q)` -> `(members, sets)`."""
        latent = pooled.mT
        for name, layer in self.shape.h.named_children():
            latent = _dense(*self._of(f"h.{name}"), latent) if isinstance(layer, nn.Linear) else layer(latent)
        low, high = self.common["surrogate.low"].unsqueeze(-1), self.common["surrogate.high"].unsqueeze(-1)
        return low + (high - low) * self.shape.linked(_dense(*self._of("last"), latent)[:, 0])

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        return self.common[f"surrogate.{name}.weight"], self.common[f"surrogate.{name}.bias"]

    def refine(
        self, scores: Tensor, y: Tensor, w: Tensor | None, steps: int, judged: Tensor | None = None, apart: bool = False
    ) -> None:
        """Make every surrogate truer on these sets, shared out over some steps (Eq. 5).

        The metric judges the scores themselves or those in `judged`; `apart` if sets come one after the other.
        """
        w = torch.ones_like(y) if w is None else w
        told = two_classes(y, w)
        left_out = told.numel() - int(told.sum())
        for loss in self.losses:
            loss.skipped += left_out
        if self.optimizer is None or not bool(told.any()):
            return
        judged = scores if judged is None else judged
        if left_out:
            scores, judged, y, w = scores[:, told], judged[:, told], y[told], w[told]
        with torch.no_grad():
            true = self._true(judged, y, w)
            known = self.pool(scores, y, w) if self.shape.fixed_pool else None
        if self.swift:
            gaps = self.swift(scores, y, w, true, steps)
        else:
            size = -(-len(y) // steps)
            pooled = [None] * steps if known is None else known.split(size, 1)
            parts = scores.split(size, 1), y.split(size), w.split(size), true.split(size, 1)
            gaps = [self._step(*part) for part in zip(*parts, pooled, strict=False)]
        self._keep([gap.mean(-1) for gap in gaps] if apart else [torch.cat(gaps, -1).mean(-1)])

    def _keep(self, gaps: Sequence[Tensor]) -> None:
        """Move the running mean of the gap by some, `(members,)` each, one after the other."""
        first, running = gaps[0], self.common["running_gap"]
        start = torch.where(running.isnan(), first, running)
        shares = 0.1 * 0.9 ** torch.arange(len(gaps) - 1, -1, -1, dtype=running.dtype)
        running.copy_(0.9 ** len(gaps) * start + shares @ torch.stack(list(gaps)))

    def _step(self, scores: Tensor, y: Tensor, w: Tensor, true: Tensor, pooled: Tensor | None) -> Tensor:
        """Take one step on some sets, which may be pooled already, and return the gaps: `(members, sets)`."""
        assert self.optimizer is not None
        moved = [self.common[name].requires_grad_() for name in self.moved]
        torch._foreach_zero_([tensor.grad for tensor in moved if tensor.grad is not None])
        smooth = self.judge(self.pool(scores, y, w, training=True) if pooled is None else pooled)
        span = (self.common["surrogate.high"] - self.common["surrogate.low"]).unsqueeze(-1)
        (len(self.losses) * meta_loss(smooth / span, true / span, self.losses[0].relational)).backward()
        if self.losses[0].clip is not None:
            clip_each(moved, self.losses[0].clip)
        self.optimizer.step()
        for tensor in moved:
            tensor.requires_grad_(False)
        return (smooth.detach() - true).abs()

    def _true(self, scores: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return the true losses, each metric once for all members that learn it: `(members, sets)`."""
        true = torch.empty(scores.shape[:2], dtype=self.common["running_gap"].dtype)
        for own in self.by_metric:
            true[own] = self.losses[own[0]].true(scores[own], y, w)
        return true
