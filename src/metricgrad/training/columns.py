"""Columns of an additive model: functions of single features and of pairs that the model is linear in."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FAR = 1e30
"""Outer knots of a feature before any are learned."""


class Encoding(nn.Module):
    """Columns of an additive model: every feature, clipped; a ramp for every bin; a step for every cell of a pair.

    A ramp is 0 up to the left knot of its bin, 1 from the right knot on and linear between, so that its weight is a
    difference of the shape function beside the linear one, and ridge shrinks the shape towards a line. A feature of
    two values has no bins. Missing values count as 0, the mean of a standardised feature. All columns have mean 0 on
    the training rows.

    Attributes
    ----------
    source : Tensor of shape (knots,)
        The feature of every knot, in order.
    knots : Tensor of shape (knots,)
        Knots of every feature, in order; beyond the outer ones its shape function is constant.
    share : Tensor of shape (knots,)
        Share of the training rows that are nearest to each knot.
    start : Tensor of shape (pieces,)
        The left knot of every ramp, by its number.
    pair, cut : Tensor of shape (cells, 2)
        Two features, and where each has its step; the column is 1 where both are at least there.
    mean, penalty : Tensor of shape (columns,)
        Means on training rows, and relative ridge weights.
    sign : Tensor of shape (features,)
        1 where the score may only rise with a feature, -1 where it may only fall, else 0.
    """

    source: Tensor
    knots: Tensor
    share: Tensor
    start: Tensor
    pair: Tensor
    cut: Tensor
    mean: Tensor
    penalty: Tensor
    sign: Tensor

    def __init__(self, features: int, knots: int | None = None, pieces: int = 0, cells: int = 0) -> None:
        super().__init__()
        count = 2 * features if knots is None else knots
        columns = features + pieces + cells
        self.register_buffer("source", torch.arange(count) // 2)
        self.register_buffer("knots", FAR * (2.0 * (torch.arange(count) % 2) - 1))
        self.register_buffer("share", torch.full((count,), 0.5))
        self.register_buffer("start", torch.zeros(pieces, dtype=torch.int64))
        self.register_buffer("pair", torch.zeros(cells, 2, dtype=torch.int64))
        self.register_buffer("cut", torch.zeros(cells, 2))
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("penalty", torch.ones(columns))
        self.register_buffer("sign", torch.zeros(features, dtype=torch.int64))

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.mean)

    @property
    def features(self) -> int:
        """Number of features."""
        return len(self.sign)

    def outer(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last knot of every feature, `(features,)` each."""
        each = torch.arange(self.features, device=self.source.device)
        first, after = (torch.searchsorted(self.source, each, right=right) for right in (False, True))
        return self.knots[first], self.knots[after - 1]

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns of rows: `(n, features)` -> `(n, columns)`, each in one piece of memory."""
        values = x.nan_to_num(0.0).mT.contiguous()  # whole columns are copied and multiplied faster than rows
        low, high = self.outer()
        left, right = (self.knots[knot].unsqueeze(1) for knot in (self.start, self.start + 1))
        ramps = values.index_select(0, self.source[self.start]).sub_(left).div_(right - left).clamp_(0, 1)
        parts = [values.clamp(low.unsqueeze(1), high.unsqueeze(1)), ramps]
        if len(self.pair):
            there = values[self.pair] >= self.cut.unsqueeze(-1)  # (cells, 2, n)
            parts.append(there.all(1).to(x.dtype))
        return torch.cat(parts).sub_(self.mean.unsqueeze(1)).mT

    def largest(self, x: Tensor) -> Tensor:
        """Return the largest absolute value of every column, `(columns,)`, given those of the features."""
        low, high = self.outer()
        reached = torch.maximum(low.abs(), high.abs()).minimum(x)
        return torch.cat((reached, x.new_ones(self.columns - self.features))) + self.mean.abs()

    def bounds(self) -> Tensor | None:
        """Return the least and greatest weight of every column, `(columns, 2)`; None if none is bounded.

        A shape function only rises if its linear column and all of its ramps have weights of at least 0. Features that
        may only rise or fall are in no pair.
        """
        if not bool(self.sign.any()):
            return None
        signs = torch.cat((self.sign, self.sign[self.source[self.start]], self.sign.new_zeros(len(self.pair))))
        wide = torch.full((self.columns,), torch.inf, dtype=self.mean.dtype, device=self.mean.device)
        return torch.stack((torch.where(signs > 0, 0.0, -wide), torch.where(signs < 0, 0.0, wide)), 1)

    def check(self) -> None:
        """Refuse buffers, such as those of a forged file, that do not belong together."""
        ends = self.start + 1
        rising = bool((self.knots.diff() > 0)[self.source.diff() == 0].all())
        if not (rising and torch.equal(self.source.unique(), torch.arange(self.features))):
            raise ValueError("encoding: expected knots of every feature in order, got others")
        if not bool((self.source.diff() >= 0).all()):
            raise ValueError("encoding.source: expected features in order, got others")
        inside = bool(((self.start >= 0) & (ends < len(self.knots))).all())
        if not inside or not torch.equal(self.source[self.start], self.source[ends]):
            raise ValueError("encoding.start: expected knots that have a next one of the same feature, got others")
        if not bool(((self.pair >= 0) & (self.pair < self.features)).all()):
            raise ValueError(f"encoding.pair: expected features below {self.features}, got others")
