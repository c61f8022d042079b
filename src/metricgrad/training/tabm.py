"""A small ensemble network for tables, in the manner of TabM-mini with piecewise-linear encoding.

Gorishniy et al. 2025, *TabM: advancing tabular deep learning with parameter-efficient ensembling*; and Gorishniy et al.
2022, *On embeddings for numerical features in tabular deep learning*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.training.additive import MAX_BINS, rows_to_prepare, weights_of
from metricgrad.training.columns import FAR
from metricgrad.training.dropout import dropout_masks
from metricgrad.training.learned_columns import learn_encoding

SHAPE = {"members": 4, "dimension": 8, "width": 192, "depth": 2}
"""Members, numbers that embed a feature, units of a hidden layer, and hidden layers."""
DROPOUT = 0.1
MAX_SHIFT = 0.3
"""Of the embedding of a feature, at the start."""


class TabM(nn.Module):
    """Networks that share all but the scales of their inputs and their outputs: `(n, features)` -> `(n, outputs)`.

    A feature of more than two values becomes the ramps of an additive model, one for every bin, and these are embedded
    by a linear layer of the feature's own, which starts as a linear function of the feature: one that starts at random
    learns few rows by heart. Another feature enters as it is. Scales start as random signs, one for each feature and
    member. In training mode the scores of all members are returned, `(n, outputs, members)`, each to be
    trained by its own loss; in evaluation mode their mean. Until `prepare` has learned knots, no feature is embedded.

    Parameters
    ----------
    features, outputs : int
        Numbers of features and outputs.
    sizes : mapping of str to int, optional
        Sizes of a model that was prepared; see the attribute of that name.

    Attributes
    ----------
    embedded, single : Tensor of shape (features embedded,), (other features,)
        Which features they are.
    left, slope, mean : Tensor of shape (features embedded, ramps)
        Where every ramp starts, its slope (0 if a feature has fewer ramps), and its mean on training rows.
    low, high, middle : Tensor of shape (other features,)
        Least and greatest value on training rows, and the mean.
    """

    embedded: Tensor
    single: Tensor
    left: Tensor
    slope: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor
    middle: Tensor

    def __init__(self, features: int, outputs: int = 1, sizes: Mapping[str, int] | None = None) -> None:
        super().__init__()
        self.seed = torch.initial_seed()  # `prepare` draws weights again
        self._build(features, outputs, sizes or {})

    def _build(self, features: int, outputs: int, sizes: Mapping[str, int]) -> None:
        """Make all layers, with new weights."""
        shape = {"embedded": 0, "ramps": 0, **SHAPE, **sizes}
        embedded, ramps, members, dimension, width, depth = shape.values()
        single = features - embedded
        self.register_buffer("embedded", torch.arange(embedded))
        self.register_buffer("single", torch.arange(single))
        for name in ("left", "slope", "mean"):
            self.register_buffer(name, torch.zeros(embedded, ramps))
        for name, value in (("low", -FAR), ("high", FAR), ("middle", 0.0)):
            self.register_buffer(name, torch.full((single,), value))
        self.embedding = nn.Parameter(torch.zeros(embedded, ramps, dimension))
        self.shift = nn.Parameter(_uniform((embedded, 1, dimension), MAX_SHIFT))
        signs = (_signs(members, embedded).repeat_interleave(dimension, 1), _signs(members, single))
        self.scale = nn.Parameter(torch.cat(signs, 1))
        inputs = [self.scale.shape[1], *[width] * (depth - 1)]
        self.hidden = nn.ModuleList(nn.Linear(before, width) for before in inputs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(members * width) for _ in inputs)
        self.head = nn.Parameter(_uniform((members, width, outputs), width**-0.5))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of what was learned and of the layers, from which an empty model of the same shapes can be built."""
        embedded, ramps, dimension = self.embedding.shape
        members, width, _ = self.head.shape
        shape = {"members": members, "dimension": dimension, "width": width, "depth": len(self.hidden)}
        return {"embedded": embedded, "ramps": ramps, **shape}

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ramps of embedded features, `(features embedded, n, ramps)`, and the others, `(n, features)`."""
        x = x.nan_to_num(0.0)  # missing: the mean of a standardised feature
        places = x[:, self.embedded].mT.unsqueeze(-1) - self.left.unsqueeze(1)
        return places.mul_(self.slope.unsqueeze(1)).clamp_(0, 1), x[:, self.single].clamp(self.low, self.high)

    def inputs(self, x: Tensor) -> Tensor:
        """Return what all members have in common, embedded features first: `(n, features)` -> `(n, inputs)`."""
        ramps, others = self.encode(x)
        shift = self.shift - self.mean.unsqueeze(1) @ self.embedding  # as if the ramps had mean 0
        embedded = torch.baddbmm(shift, ramps, self.embedding)
        return torch.cat((embedded.transpose(0, 1).flatten(1), others - self.middle), 1)

    def member_scores(self, x: Tensor) -> Tensor:
        """Score rows by every member: `(n, features)` -> `(members, n, outputs)`."""
        first, members = cast("nn.Linear", self.hidden[0]), len(self.scale)
        weight = (first.weight * self.scale.unsqueeze(1)).flatten(0, 1)  # all members as one wide layer
        latent = F.linear(self.inputs(x), weight, first.bias.repeat(members))
        for number, norm in enumerate(self.norms):
            if number:
                latent = self.hidden[number](latent.unflatten(1, (members, -1))).flatten(1)
            latent = self._activated(norm(latent))
        latent = latent.unflatten(1, (members, -1)).transpose(0, 1)
        return torch.baddbmm(self.bias, latent, self.head)

    def _activated(self, latent: Tensor) -> Tensor:
        latent = latent.relu()
        if not self.training:
            return latent
        (mask,) = dropout_masks(DROPOUT, [latent.numel()], 1, latent.dtype)
        return latent * mask.view_as(latent)

    def forward(self, x: Tensor) -> Tensor:
        """Score rows: `(n, features)` -> `(n, outputs)`, or `(n, outputs, members)` in training mode."""
        scores = self.member_scores(x)
        return scores.movedim(0, -1) if self.training else scores.mean(0)

    @torch.no_grad()
    def prepare(self, x: Any, w: Tensor | None = None, y: Tensor | None = None) -> None:
        """Learn knots from training rows, `(rows, features)`, with weights `(rows,)`; all weights start again."""
        rows, like = rows_to_prepare(x), self.head
        encoding = learn_encoding(x[rows].detach().cpu(), weights_of(rows, w), None, MAX_BINS, 0, None)
        source = encoding.source[encoding.start]  # the feature of every ramp, in order
        counts = source.bincount(minlength=encoding.features)
        sizes = {**self.sizes, "embedded": int((counts > 0).sum()), "ramps": int(counts.max())}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self._build(encoding.features, like.shape[2], sizes)
            line = _uniform((encoding.features, sizes["dimension"]))
        self.embedded, self.single = counts.nonzero()[:, 0], (counts == 0).nonzero()[:, 0]
        self.low, self.high = (ends[self.single] for ends in encoding.outer())
        self.middle = encoding.mean[self.single]
        left, right = encoding.knots[encoding.start], encoding.knots[encoding.start + 1]
        row = torch.searchsorted(self.embedded, source)
        place = row, torch.arange(len(source)) - (counts.cumsum(0) - counts)[source]
        self.left, self.slope, self.mean = (t.double() for t in (self.left, self.slope, self.mean))
        self.left[place], self.slope[place], self.mean[place] = (
            left,
            1 / (right - left),
            encoding.mean[encoding.features :],
        )
        self.embedding[place] = line[source] * (right - left).float().unsqueeze(1)
        self.to(like.device, like.dtype)

    def check(self) -> None:
        """Refuse buffers, such as those of a forged file, that do not belong together."""
        features = len(self.embedded) + len(self.single)
        places = torch.cat((self.embedded, self.single))
        if not bool(((places >= 0) & (places < features)).all()):
            raise ValueError(f"embedded, single: expected features below {features}, got others")

    @torch.no_grad()
    def largest(self, x: Tensor) -> Tensor:
        """Return a bound of every sum on the way to a score, given that of every feature, `(features,)`."""
        embedded = ((1 + self.mean.abs()).unsqueeze(1) @ self.embedding.abs() + self.shift.abs()).flatten()
        latent = torch.cat((embedded, x[self.single] + self.middle.abs())) * self.scale.abs()  # (members, inputs)
        reached = [latent.flatten()]
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            layer, norm = cast("nn.Linear", layer), cast("nn.BatchNorm1d", norm)
            latent = latent @ layer.weight.abs().mT + layer.bias.abs()
            reached.append(latent.flatten())
            latent = _largest_normalised(latent.flatten(), norm).view_as(latent)
            reached.append(latent.flatten())
        scores = latent.unsqueeze(1) @ self.head.abs() + self.bias.abs()
        return torch.cat((*reached, scores.sum(0).flatten()))


def _largest_normalised(latent: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    """Return a bound of what a batch norm makes of numbers, `(units,)`, given one of theirs."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    spread = (norm.running_var + norm.eps).sqrt()
    return (latent + norm.running_mean.abs()) / spread * norm.weight.abs() + norm.bias.abs()


def _uniform(shape: Sequence[int], most: float = 1.0) -> Tensor:
    return torch.empty(*shape).uniform_(-most, most)


def _signs(members: int, inputs: int) -> Tensor:
    return torch.randint(0, 2, (members, inputs)).float() * 2 - 1
