"""The paper's two networks, m times along a leading axis: prediction models and surrogates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from metricgrad.surrogate.network import Surrogate
from metricgrad.training.networks import PAPER_WIDTHS, build_model
from studies.paper_recipe.readings import SLOPE, Reading
from studies.paper_recipe.stack import Norm, Stack, Statistics, column


class Models:
    """The paper's prediction model, m times."""

    def __init__(self, features: int, readings: Sequence[Reading], seed: int) -> None:
        body = build_model("mlp", features, seed).body
        torch_weights = [p.detach() for p in body.parameters()]
        self.stack = Stack([initial(torch_weights, r, seed) for r in readings], readings)
        zeros = [torch.zeros(len(readings), width) for width in PAPER_WIDTHS]
        self.norms = [Norm(zero, zero + 1, readings) for zero in zeros]

    def live(self, flat: Tensor, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, list[Statistics]]:
        """Score batches in training mode: `(batches, n, features)` -> `(m, batches, n)`; return the statistics too."""
        return self._live(flat, first_layer(self.stack.parts(flat), x.flatten(0, 1)), masks, x.shape[:2])

    def _live(
        self, flat: Tensor, units: Tensor, masks: Sequence[Tensor], sets: Sequence[int]
    ) -> tuple[Tensor, list[Statistics]]:
        """Go on from the units of the first layer, `(m, rows, width)`."""
        parts, seen = self.stack.parts(flat), []
        for place, (norm, mask) in enumerate(zip(self.norms, masks, strict=True)):
            latent, statistics = norm.live(units.unflatten(1, sets), *parts[4 * place + 2 : 4 * place + 4])
            scores = dense((latent * mask.view(*sets, -1)).flatten(1, 2), *parts[4 * place + 4 : 4 * place + 6])
            units = F.leaky_relu(scores, SLOPE)
            seen.append(statistics)
        return scores[..., 0].unflatten(1, sets), seen

    def move_norms(self, seen: Sequence[Statistics], rows: int) -> None:
        """Move the running statistics of every layer."""
        for norm, statistics in zip(self.norms, seen, strict=True):
            norm.move(statistics, rows)

    @torch.no_grad()
    def still(self, x: Tensor) -> Tensor:
        """Score rows in evaluation mode: `(n, features)` -> `(m, n)`."""
        return self._still(first_layer(self.stack.parts(self.stack.flat), x))

    def _still(self, units: Tensor) -> Tensor:
        """Go on from the units of the first layer, `(m, rows, width)`."""
        parts = self.stack.parts(self.stack.flat)
        for place, norm in enumerate(self.norms):
            latent = norm.still(units, *parts[4 * place + 2 : 4 * place + 4])
            scores = dense(latent, *parts[4 * place + 4 : 4 * place + 6])
            units = F.leaky_relu(scores, SLOPE)
        return scores[..., 0]

    @torch.no_grad()
    def both(self, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, Tensor, list[Statistics]]:
        """Score batches as `still` and as `live` do, which share the first layer, the largest."""
        units, sets = first_layer(self.stack.parts(self.stack.flat), x.flatten(0, 1)), x.shape[:2]
        return self._still(units).unflatten(1, sets), *self._live(self.stack.flat, units, masks, sets)


def first_layer(parts: Sequence[Tensor], x: Tensor) -> Tensor:
    """Return the units of the first layer: `(rows, features)` -> `(m, rows, width)`."""
    return F.leaky_relu(dense(x.unsqueeze(0), *parts[:2]), SLOPE)


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply m dense layers: `(m or 1, n, a)` -> `(m, n, b)`."""
    if len(x) == 1 and len(weight) > 1:
        wide = x[0] @ weight.flatten(0, 1).T  # all members in one product
        return wide.unflatten(1, weight.shape[:2]).transpose(0, 1) + bias.unsqueeze(1)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def initial(weights: Sequence[Tensor], reading: Reading, seed: int) -> list[Tensor]:
    """Return initial weights: torch's, or Glorot's uniform ones with zero biases."""
    if reading.weights == "torch":
        return list(weights)
    generator, found = torch.Generator().manual_seed(seed), []
    for number, part in enumerate(weights):
        if part.ndim == 2:
            bound = (6 / sum(part.shape)) ** 0.5
            found.append((2 * torch.rand(part.shape, generator=generator) - 1) * bound)
        else:  # after a weight comes its bias; a gain of batch norm is one already
            found.append(torch.zeros_like(part) if weights[number - 1].ndim == 2 else part)
    return found


class Surrogates:
    """The paper's surrogate, m times: tanh, batch norm after the first layer of g, leaky ReLU at the end."""

    def __init__(self, surrogates: Sequence[Surrogate], readings: Sequence[Reading]) -> None:
        self.stack = Stack([surrogate_parts(each) for each in surrogates], readings)
        norms = [each.g.norm for each in surrogates]
        means, variances = ([getattr(n, name) for n in norms] for name in ("running_mean", "running_var"))
        self.norm = Norm(torch.stack(means), torch.stack(variances), readings)
        self.in_training = column(r.follows == "train" for r in readings).view(-1, 1, 1)

    def losses(self, flat: Tensor, scores: Tensor, targets: Tensor, refining: bool) -> tuple[Tensor, Statistics]:
        """Return the losses of a set and its statistics: scores `(m, n)` and targets `(n,)` -> `(m,)`."""
        parts = self.stack.parts(flat)
        rows = torch.stack((targets.expand_as(scores), scores), -1)
        latent = torch.tanh(dense_each(rows, *parts[:2]))
        live, statistics = self.norm.live(latent.unsqueeze(1), *parts[2:4])
        if refining:
            latent = live.squeeze(1)
        else:
            latent = torch.lerp(self.norm.still(latent, *parts[2:4]), live.squeeze(1), self.in_training)
        pooled = torch.tanh(dense_each(latent, *parts[4:6])).mean(1, keepdim=True)
        for place in (6, 8):
            pooled = torch.tanh(dense_each(pooled, *parts[place : place + 2]))
        return F.leaky_relu(dense_each(pooled, *parts[10:12]), SLOPE)[:, 0, 0], statistics


def dense_each(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply m dense layers to the rows of each: `(m, n, a)` -> `(m, n, b)`."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def surrogate_parts(surrogate: Surrogate) -> list[Tensor]:
    """Return the parameters of a surrogate in the order in which they are applied."""
    g, h = surrogate.g, [layer for layer in surrogate.h if hasattr(layer, "weight")]
    layers = [g.layers[0], g.norm, g.layers[1], *h, surrogate.last]
    return [part.detach().clone() for layer in layers for part in (layer.weight, layer.bias)]
