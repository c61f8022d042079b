"""Sets of rows to train on (stratified and weighted, or natural), and sets drawn at random for Eq. 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Sets(NamedTuple):
    """Scores, targets and weights of several sets, each `(k, n)`, or scores and targets with an axis more."""

    scores: Tensor
    targets: Tensor
    weights: Tensor


class RandomSets(Protocol):
    """Where random sets come from: called, it draws `families * kin` of them, kin next to each other."""

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets."""


class Sampler(Protocol):
    """SetLoader sets of row indices."""

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
                heavy = [len(r) / self.rows * self.size / c for r, c in zip(self.classes, self.counts, strict=True)]
                weights = weights * torch.tensor(heavy).repeat_interleave(torch.tensor(self.counts))
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


@dataclass(frozen=True)
class PaperSets:
    """The random sets of the paper: targets ~ Bernoulli(p), scores ~ Normal(mu, sigma), whatever the target is."""

    p: float = 0.5
    mu: float = 0.0
    sigma: float = 1.0

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw `families * kin` sets; here a family has nothing in common but its size."""
        shape = (families * kin, size)
        targets = (torch.rand(shape, generator=generator) < self.p).float()
        scores = torch.randn(shape, generator=generator) * self.sigma + self.mu
        return Sets(scores, targets, torch.ones(shape))


@dataclass(frozen=True)
class BroadSets:
    """Random sets as models make them: rare or common positives, mixtures, separation, skew, tails, weights, ties.

    Sets come in families that share one distribution, as the sets one model sees do, and every second member is a
    perturbed copy of the one before. What tells kin apart is what a model can change, so it matters most.
    """

    rarest: float = 0.002
    common: float = 0.6
    weighted: bool = True

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw `families * kin` sets, kin next to each other."""
        draw = FamilyDraw(families, kin, size, generator)
        prevalence, natural = self._prevalence(draw), draw.chance(0.4 if self.weighted else 1.0)
        share = torch.where(natural, prevalence, draw.uniform(0.1, 0.6))
        targets = draw.paired(torch.rand(draw.shape, generator=generator)) < share
        targets[:, 0], targets[:, 1] = True, False
        targets = targets.float()
        scores = self._scores(draw, targets)
        found = targets.mean(-1, keepdim=True)
        restoring = targets * prevalence / found + (1 - targets) * (1 - prevalence) / (1 - found)
        weights = torch.where(natural, torch.ones(()), restoring)
        spread = torch.where(draw.chance(0.15 if self.weighted else 0.0), torch.tensor(0.5), torch.tensor(0.0))
        return Sets(scores, targets, weights * (spread * draw.paired(draw.normal_rows())).exp())

    def _prevalence(self, draw: FamilyDraw) -> Tensor:
        rare = draw.uniform(math.log(self.rarest), math.log(self.common)).exp()
        return torch.where(draw.chance(0.8), rare, draw.uniform(0.3, 0.95))

    def _scores(self, draw: FamilyDraw, targets: Tensor) -> Tensor:
        positive = targets > 0
        first = draw.uniform(0, 1), draw.uniform(0, 1)
        part = torch.rand(draw.shape, generator=draw.generator) < torch.where(positive, *first)
        component = 2 * positive.long() + part.long()
        means = torch.cat([draw.normal() for _ in range(4)], -1).gather(-1, component)
        spreads = torch.cat([(0.5 * draw.normal()).exp() for _ in range(4)], -1).gather(-1, component)
        apart = torch.where(draw.chance(0.7), draw.uniform(0, 5), draw.uniform(0, 9))
        cut = apart * draw.uniform(-0.2, 1.2) + 0.5 * draw.normal()
        scores = draw.perturbed(draw.normal_rows() * spreads + means + apart * targets) - cut
        skew, tail = 0.5 * draw.normal(), (0.35 * draw.normal()).exp()
        warped = ((scores.asinh() + skew) * tail).clamp(-12, 12).sinh()
        scores = torch.where(draw.chance(0.6), warped, scores)
        return torch.where(draw.chance(0.05), (scores * 4).round() / 4, scores)


class FamilyDraw:
    """Random numbers of families: one a family `(families * kin, 1)`, or one a row `(families * kin, size)`."""

    def __init__(self, families: int, kin: int, size: int, generator: torch.Generator) -> None:
        if kin % 2:
            raise ValueError(f"kin: expected an even number, for every second one is a copy, got {kin}")
        self.families, self.kin, self.generator = families, kin, generator
        self.shape = (families * kin, size)

    def _of_family(self, make: Callable[..., Tensor]) -> Tensor:
        return make(self.families, 1, generator=self.generator).repeat_interleave(self.kin, 0)

    def uniform(self, low: float, high: float) -> Tensor:
        """Draw one uniform number a family."""
        return low + (high - low) * self._of_family(torch.rand)

    def normal(self) -> Tensor:
        """Draw one normal number a family."""
        return self._of_family(torch.randn)

    def chance(self, probability: float) -> Tensor:
        """Draw True or False, one a family."""
        return self._of_family(torch.rand) < probability

    def normal_rows(self) -> Tensor:
        """Draw one normal number a row."""
        return torch.randn(self.shape, generator=self.generator)

    def paired(self, rows: Tensor) -> Tensor:
        """Give every second kin the values of the one before it."""
        pairs = rows.clone().view(-1, 2, self.shape[1])
        pairs[:, 1] = pairs[:, 0]
        return pairs.view(self.shape)

    def perturbed(self, scores: Tensor) -> Tensor:
        """Make every second kin a noisy copy of the one before it; the noise is log-uniform in 0.02 to 0.7."""
        low, high = math.log(0.02), math.log(0.7)
        size = torch.rand(len(scores) // 2, 1, generator=self.generator) * (high - low) + low
        copies = self.paired(scores).view(-1, 2, self.shape[1])
        copies[:, 1] += size.exp() * torch.randn(copies[:, 1].shape, generator=self.generator)
        return copies.view(self.shape)
