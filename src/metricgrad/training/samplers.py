"""Sets of row indices to train on: stratified and weighted, natural, or the groups that the rows came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Sampler(Protocol):
    """Draws sets of row indices."""

    generator: torch.Generator | None

    def draw(self, sets: int) -> tuple[Tensor, Tensor]:
        """Return row indices and weights of some sets, both `(sets, size)`."""


class SetSampler:
    """Draw sets of row indices; a draw costs the same however many rows there are.

    Parameters
    ----------
    targets : Tensor
        0 or 1 for every row, or the number of its class, `(rows,)`.
    size : int
        Rows in a set; drawn with replacement.
    positive_share : float or sequence of float, optional
        Share of positives in every set, or of every class. By default whatever share a plain draw gives.
    restore : bool
        Weigh the rows of a stratified set so that its classes count as they do in the data.
    weights : Tensor, optional
        The user's own weight of every row; they multiply in.
    generator : torch.Generator, optional
        Source of randomness.

    Examples
    --------
    >>> targets = torch.tensor([1, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    >>> rows, weights = SetSampler(targets, 4, positive_share=0.5).draw(3)
    >>> targets[rows].sum(-1), (weights * targets[rows]).sum(-1) / weights.sum(-1)
    (tensor([2, 2, 2]), tensor([0.1000, 0.1000, 0.1000]))
    """

    def __init__(
        self,
        targets: Tensor,
        size: int,
        positive_share: float | Sequence[float] | None = None,
        restore: bool = True,
        weights: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if size < 2:
            raise ValueError(f"size: expected at least 2 rows in a set, got {size}")
        shares = [positive_share] if isinstance(positive_share, float) else positive_share or []
        if not all(0 < share < 1 for share in shares):
            raise ValueError(f"positive_share: expected a number between 0 and 1, got {positive_share}")
        if targets.ndim != 1 or not len(targets):
            raise ValueError(f"targets: expected one for every row, (rows,), got shape {tuple(targets.shape)}")
        if weights is not None and weights.shape != targets.shape:
            raise ValueError(f"weights: expected one for every row, {tuple(targets.shape)}, got {tuple(weights.shape)}")
        self.size, self.generator = size, generator
        self.rows = len(targets)
        self.row_weights = weights
        self.restore = restore
        if isinstance(positive_share, float):
            targets, shares = targets != 1, (positive_share, 1 - positive_share)
        small = torch.int32 if self.rows < 2**31 else torch.int64  # one for every row: they weigh as much as a feature
        self.classes = [(targets == number).nonzero()[:, 0].to(small) for number in range(len(shares))]
        self.counts = shared_out(size, shares) if shares else []
        if any(not len(rows) for rows in self.classes):
            raise ValueError("targets: expected both classes for stratified sets, got one class only")

    def draw(self, sets: int) -> tuple[Tensor, Tensor]:
        """Return row indices and weights of some sets, both `(sets, size)`."""
        weights = torch.ones(sets, self.size)
        if not self.classes:
            rows = torch.randint(self.rows, (sets, self.size), generator=self.generator)
        else:
            rows = torch.cat([self._pick(*drawn, sets) for drawn in zip(self.classes, self.counts, strict=True)], -1)
            if self.restore:
                scales = [len(r) / self.rows * self.size / c for r, c in zip(self.classes, self.counts, strict=True)]
                weights = weights * torch.tensor(scales).repeat_interleave(torch.tensor(self.counts))
        if self.row_weights is not None:
            weights = weights * self.row_weights[rows]
        return rows, weights

    def _pick(self, rows: Tensor, count: int, sets: int) -> Tensor:
        return rows[torch.randint(len(rows), (sets, count), generator=self.generator)].long()


def shared_out(size: int, shares: Sequence[float]) -> list[int]:
    """Return how many rows of a set every share gets: at least one, and the largest what the others leave.

    >>> shared_out(10, (0.001, 0.3, 0.699))
    [1, 3, 6]
    """
    counts = [max(round(share * size), 1) for share in shares]
    largest = max(range(len(shares)), key=lambda i: (shares[i], i))
    counts[largest] += size - sum(counts)
    if counts[largest] < 1:
        raise ValueError(f"size: expected more rows in a set, enough for {len(shares)} classes, got {size}")
    return counts


class GroupSampler:
    """Draw sets that the rows came in, such as the documents of a query; short ones are padded by weight zero.

    Parameters
    ----------
    members : Tensor
        Row indices of every set, `(groups, size)`; -1 pads.
    weights : Tensor, optional
        Of every row, `(rows,)`.
    generator : torch.Generator, optional
        Source of randomness.

    Examples
    --------
    >>> rows, weights = GroupSampler(torch.tensor([[0, 1, 2], [3, 4, -1]])).draw(1000)
    >>> sorted({tuple(row) for row in (rows * weights.long()).tolist()}), weights.shape
    ([(0, 1, 2), (3, 4, 0)], torch.Size([1000, 3]))
    """

    def __init__(
        self, members: Tensor, weights: Tensor | None = None, generator: torch.Generator | None = None
    ) -> None:
        self.generator = generator
        self.members = members.clamp(min=0)
        self.weights = (members >= 0).float()
        if weights is not None:
            self.weights = self.weights * weights[self.members]

    def draw(self, sets: int) -> tuple[Tensor, Tensor]:
        """Return row indices and weights of some sets, both `(sets, size)`."""
        drawn = torch.randint(len(self.members), (sets,), generator=self.generator)
        return self.members[drawn], self.weights[drawn]
