"""k models of one kind trained side by side, along a leading axis; and scores of a model in both of its modes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.surrogate.clipping import clip_gradients
from metricgrad.training.dropout import dropout_masks
from metricgrad.training.networks import Scorer, layers_of


def members_of(model: nn.Module, k: int, stacked: bool = True) -> Ensemble | ModuleEnsemble:
    """Return a model and copies of it as k members to be trained at once; the first is the model itself.

    All members are given the same rows and the same dropout: shared rows `(..., features)` -> scores `(k, ...)`. With
    `stacked`, members share their parameters' memory where they can; an optimizer then sees them as one.
    """
    models = [model, *(deepcopy(model) for _ in range(k - 1))]
    scorers = [one for one in models if isinstance(one, Scorer) and one.layered]
    return Ensemble(scorers) if scorers and stacked else ModuleEnsemble(models)


class Ensemble(nn.Module):
    """k models known by name, in training mode: layers of all of them are computed as one.

    Every model shares its memory with the ensemble, so that it can be scored and saved by itself at any time.
    """

    def __init__(self, models: Sequence[Scorer]) -> None:
        super().__init__()
        self.models = list(models)  # a plain list: their parameters are views of those of the layers
        self.layers = nn.Sequential(*map(_ensemble_layer, zip(*(layers_of(m.body) for m in models), strict=True)))
        self.outputs, self.several = models[0].outputs, False

    def forward(self, x: Tensor) -> Tensor:
        """Score rows: `(..., features)` -> `(k, ...)` or `(k, ..., c)`."""
        rows = x.to(next(self.parameters()).device)
        columns: Tensor = self.layers(rows.reshape(-1, x.shape[-1]).mT.expand(len(self.models), -1, -1)).to(x.device)
        shape = (len(columns), *x.shape[:-1])
        return columns.reshape(shape) if self.outputs is None else columns.mT.reshape(*shape, self.outputs)

    def clip(self, norm: float) -> None:
        """Scale the gradient of every member down to a norm."""
        gradients = [p.grad.flatten(1) for p in self.parameters() if p.grad is not None]
        total = torch.stack([torch.linalg.vector_norm(g, dim=1) for g in gradients]).norm(dim=0)
        share = (norm / total.clamp(min=norm)).unsqueeze(-1)
        for gradient in gradients:
            gradient.mul_(share)


class LinearEnsemble(nn.Module):
    """k linear layers applied in parallel: `(k, in_features, rows)` -> `(k, out_features, rows)`."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(_shared([layer.weight for layer in layers]))
        self.bias = nn.Parameter(_shared([layer.bias for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs; those of a member are the same to the bit however many there are."""
        return torch.baddbmm(self.bias.unsqueeze(-1), self.weight, x)


class BatchNormEnsemble(nn.Module):
    """k batch norms in training mode applied in parallel: `(k, channels, rows)`."""

    def __init__(self, layers: Sequence[nn.BatchNorm1d]) -> None:
        super().__init__()
        self.weight = nn.Parameter(_shared([layer.weight for layer in layers]))
        self.bias = nn.Parameter(_shared([layer.bias for layer in layers]))
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, _shared([getattr(layer, name) for layer in layers]))
        self.momentum, self.eps = layers[0].momentum or 0.0, layers[0].eps

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Normalise every channel of every member over the rows."""
        self.num_batches_tracked.add_(1)
        statistics = self.running_mean.view(-1), self.running_var.view(-1)
        scale = self.weight.view(-1), self.bias.view(-1)
        return F.batch_norm(x.view(1, -1, x.shape[-1]), *statistics, *scale, True, self.momentum, self.eps).view_as(x)


class SharedDropout(nn.Module):
    """Dropout in training mode that drops the same units of the same rows for all members: `(k, units, rows)`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop units of rows."""
        if not self.p:
            return x
        (mask,) = dropout_masks(self.p, [x[0].numel()], 1, x.dtype)
        return x * mask.to(x.device).view_as(x[0])


class ModuleEnsemble(nn.Module):
    """k modules of any kind, one after the other: the interface of `Ensemble` for a network of the user's own."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.modules_of_members = nn.ModuleList(models)
        self.models = list(models)
        self.several = isinstance(models[0], Scorer) and models[0].several

    def forward(self, x: Tensor) -> Tensor:
        """Score rows in training mode: `(..., features)` -> `(k, ...)` or `(k, ..., c)`; see `Scorer.several`."""
        self.train()
        random, scores = torch.get_rng_state(), []
        for model in self.models:
            torch.set_rng_state(random)  # the same dropout for all
            scores.append(model(x))
        return torch.stack(scores)

    def clip(self, norm: float) -> None:
        """Scale the gradient of every member down to a norm."""
        for model in self.models:
            clip_gradients(model, norm)


def _ensemble_layer(layers: Sequence[Any]) -> nn.Module:
    """Return layers of one kind as one layer; activations have nothing to be put side by side."""
    if isinstance(layers[0], nn.Linear):
        return LinearEnsemble(layers)
    if isinstance(layers[0], nn.BatchNorm1d):
        return BatchNormEnsemble(layers)
    layer: nn.Module = layers[0]
    return SharedDropout(layer.p) if isinstance(layer, nn.Dropout) else layer


def _shared(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors, `(k, ...)`, and make each of them a view of its part."""
    stacked = torch.stack([tensor.detach() for tensor in tensors])
    for tensor, view in zip(tensors, stacked, strict=True):
        tensor.data = view
    return stacked


# ---- scores of sets -------------------------------------------------------------------------------------------------


def present_scores(members: nn.Module, x: Tensor, w: Tensor) -> Tensor:
    """Score sets, `(k, ...)`, 0 where a row has no weight: padding must not get into the statistics of a batch norm."""
    present = w > 0
    if bool(present.all()):
        scores: Tensor = members(x)
        return scores
    some = members(x[present])
    scores = some.new_zeros(len(some), *w.shape, *some.shape[2:])
    scores[:, present] = some
    return scores


@torch.no_grad()
def scores_in_both_modes(model: nn.Module, x: Tensor, both: bool = True) -> tuple[Tensor, Tensor]:
    """Score batches `(batches, n, features)` in evaluation and in training mode, or only in training mode (twice).

    Each batch is scored in both modes before the next one: training mode moves the running statistics of batch norm,
    by which the next batch is scored in evaluation mode. A model known by name computes all batches at once.
    """
    still, live = [], []
    if isinstance(model, Scorer) and model.layered:
        judged, shown = _in_both_modes(model, x)
        return judged if both else shown, shown
    for batch in x:
        if both:
            still.append(model.eval()(batch))
        scores = model.train()(batch)
        live.append(scores.mean(-1) if isinstance(model, Scorer) and model.several else scores)
    return torch.stack(still or live), torch.stack(live)


def _in_both_modes(model: Scorer, x: Tensor) -> tuple[Tensor, Tensor]:
    batches, n = x.shape[:2]
    layers, device = layers_of(model.body), next(model.parameters()).device
    masks = (mask.to(device) for mask in _masks_by_batch(layers, n, batches, x.dtype))
    still = live = x.to(device).flatten(0, 1).mT  # (units, batches * n) from here on
    for layer in layers:
        if isinstance(layer, nn.BatchNorm1d):
            still, live = _batch_norm_by_batch(layer, still, live, batches)
        elif isinstance(layer, nn.Dropout):
            live = live * next(masks) if layer.p else live
        else:
            parted = still is not live
            live = _by_columns(layer, live)
            still = _by_columns(layer, still) if parted else live
    shape = (batches, n) if model.outputs is None else (batches, n, model.outputs)
    return still.mT.reshape(shape).to(x.device), live.mT.reshape(shape).to(x.device)


def _masks_by_batch(layers: Sequence[nn.Module], n: int, batches: int, dtype: torch.dtype) -> list[Tensor]:
    """Draw the dropout of batches that come one after the other, `(units, batches * n)` for each such layer."""
    shares = [layer.p for layer in layers if isinstance(layer, nn.Dropout) and layer.p]
    if not shares:
        return []
    cells = [layer.num_features * n for layer in layers if isinstance(layer, nn.BatchNorm1d)]
    masks = dropout_masks(shares[0], cells, batches, dtype)
    return [mask.unflatten(1, (-1, n)).transpose(0, 1).flatten(1) for mask in masks]


def _by_columns(layer: nn.Module, x: Tensor) -> Tensor:
    """Apply a layer that does not mix rows to columns of them, `(units, rows)`."""
    out: Tensor = torch.addmm(layer.bias.unsqueeze(-1), layer.weight, x) if isinstance(layer, nn.Linear) else layer(x)
    return out


def _batch_norm_by_batch(layer: nn.BatchNorm1d, still: Tensor, live: Tensor, batches: int) -> tuple[Tensor, Tensor]:
    """Normalise batches that come one after the other, `(channels, batches * n)`, in both modes."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.num_batches_tracked is not None
    channels, momentum = len(live), layer.momentum or 0.0
    mean, variance = live.new_zeros(2, channels * batches)  # with a momentum of 1 they become those of each batch
    weight, bias = (t.repeat_interleave(batches) for t in (layer.weight, layer.bias))
    each = live.reshape(1, channels * batches, -1)
    normal = F.batch_norm(each, mean, variance, weight, bias, True, 1.0, layer.eps).view_as(live)
    layer.num_batches_tracked.add_(batches)
    before = [
        _before_each(running, seen.view(channels, batches), momentum)
        for running, seen in ((layer.running_mean, mean), (layer.running_var, variance))
    ]
    scale = layer.weight.unsqueeze(-1) * (before[1] + layer.eps).rsqrt()
    shift = layer.bias.unsqueeze(-1) - before[0] * scale
    judged = torch.addcmul(shift.unsqueeze(-1), still.reshape(channels, batches, -1), scale.unsqueeze(-1))
    return judged.view_as(live), normal


def _before_each(running: Tensor, seen: Tensor, momentum: float) -> Tensor:
    """Move running statistics by those of batches, `(channels, batches)`, and return what they were before each."""
    before = []
    for now in seen.unbind(-1):
        before.append(running.clone())
        running.lerp_(now, momentum)
    return torch.stack(before, -1)
