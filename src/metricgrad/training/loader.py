"""Sets of rows to train on: samplers draw row indices, and the loader gives each kind of step a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import repeat
from typing import Any, Protocol

import torch
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.metrics.tasks import BINARY, Task
from metricgrad.surrogate.fidelity import spread_of
from metricgrad.training.data import Rows
from metricgrad.training.recipe import Recipe

RARE = 0.05
"""Share of the rarer class below which sets are stratified even for a callable that takes no weights."""
TRUST_SETS = 32
"""Fresh sets on which a surrogate is compared with its metric."""


def may_weigh(metrics: Sequence[Metric], rows: Rows) -> bool:
    """Whether sets may be stratified, and weighted to the natural prevalence, for all of some metrics.

    For a callable that takes no weights rows are repeated instead, which costs time: only where a class is so rare that
    natural sets would hardly hold it.
    """
    if all(metric.takes_weights for metric in metrics):
        return True
    if not all(metric.takes_weights or metric.repeats_rows for metric in metrics):
        return False
    if rows.w is not None and float(rows.w.max()) > float(rows.w.min()):
        return False
    share = float(metrics[0].task.label(rows.y).float().mean())
    return min(share, 1 - share) < RARE


class SetLoader:
    """Sets of rows for steps; data no larger than a set is used whole.

    Following, refining and measuring trust each draw from a stream of their own, so that every loss is followed on the
    very same sets, and refined on the very same ones. Weights restore the natural prevalence of stratified sets, so for
    a metric that takes none rows come naturally. Rows that come in sets of their own stay in them.
    """

    def __init__(self, rows: Rows, recipe: Recipe, seed: int, weighted: bool, task: Task = BINARY) -> None:
        self.rows, self.task = rows, task
        self.whole = rows.members is None and len(rows.y) <= recipe.set_size
        natural = self.whole or (recipe.restore and not weighted)
        strata = None if natural else task.strata(rows.y)
        shares = None if strata is None else self._shares(strata, recipe)
        size = max(min(recipe.set_size, len(rows.y)), 2)
        sampler: Sampler
        if rows.members is not None:
            sampler = GroupSampler(rows.members, rows.w)
        else:
            alike = torch.zeros(len(rows.y)) if strata is None else strata
            sampler = SetSampler(alike, size, shares, recipe.restore, rows.w)
        self.streams: dict[str, Sampler] = {}
        for away, name in enumerate(("follow", "refine", "trust")):
            self.streams[name] = copy(sampler)  # where the rows of each class lie is kept once
            self.streams[name].generator = torch.Generator().manual_seed(seed + away * 2**32)

    def _shares(self, strata: Tensor, recipe: Recipe) -> float | list[float] | None:
        if self.task.outputs:
            return recipe.shares_of((strata.bincount() / len(strata)).tolist())
        return recipe.share_of(float(strata.float().mean()))

    def draw(self, steps: int, sets: int, stream: str = "follow") -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the sets of each step: x `(sets, n, features)`, y `(sets, n)` or `(sets, n, t)`, w `(sets, n)`."""
        if self.whole:
            yield from repeat((self.rows.x.expand(sets, -1, -1), *self._labels(sets)), steps)
            return
        rows, weights = self.streams[stream].draw(steps * sets)
        for some, heavy in zip(rows.view(steps, sets, -1), weights.view(steps, sets, -1), strict=True):
            if self.rows.members is not None:
                longest = int((heavy > 0).sum(-1).max())  # what pads all of these sets is left out
                some, heavy = some[:, :longest], heavy[:, :longest]
            yield _rows_at(self.rows.x, some), self.rows.y[some], heavy

    def at_once(self, sets: int, stream: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return sets: x `(sets, n, features)`, y and w `(sets, n)`."""
        if self.whole:
            return self.rows.x.expand(sets, -1, -1), *self._labels(sets)
        rows, weights = self.streams[stream].draw(sets)
        return _rows_at(self.rows.x, rows), self.rows.y[rows], weights

    def scored(
        self, score: Callable[[Tensor], Tensor], sets: int, noise: float, stream: str = "refine"
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return noisy scores `(..., sets, n)`, targets and weights `(sets, n)` of some sets; whole data once."""
        if self.whole:
            scores = score(self.rows.x)
            axis = scores.ndim - self.task.axes
            several = scores.unsqueeze(axis).expand(*scores.shape[:axis], sets, *scores.shape[axis:])
            return self.noisy(several, noise, stream), *self._labels(sets)
        (x, y, w), *_ = self.draw(1, sets, stream)
        return self.noisy(score(x), noise, stream, w), y, w

    def fresh(self, score: Callable[[Tensor], Tensor], recipe: Recipe) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """Return scored sets that nothing learns from, to measure trust on; None if all would be the same."""
        if self.whole and not recipe.noise:
            return None
        return self.scored(score, TRUST_SETS, recipe.noise, "trust")

    def noisy(self, scores: Tensor, noise: float, stream: str = "refine", weights: Tensor | None = None) -> Tensor:
        """Perturb each set by its own share of the noise, so that the surrogate learns what moving a score does.

        Several models, `(..., sets, n)`, are perturbed alike.
        """
        if not noise:
            return scores
        generator = self.streams[stream].generator
        one_set = scores.shape[-self.task.axes :]
        sets = scores.shape[-self.task.axes - 1]
        share = noise * torch.rand(sets, *[1] * self.task.axes, generator=generator)
        return scores + spread_of(scores, self.task, weights) * (
            share * torch.randn(sets, *one_set, generator=generator)
        )

    def _labels(self, sets: int) -> tuple[Tensor, Tensor]:
        y, w = self.rows.y, self.rows.w
        w = torch.ones(len(y)) if w is None else w
        return y.expand(sets, *y.shape), w.expand(sets, -1)


def _rows_at(x: Any, places: Tensor) -> Tensor:
    """Return the rows at some places, `(...)` -> `(..., features)`, copied whole, which is faster than cell by cell."""
    if isinstance(x, Tensor):
        return x.index_select(0, places.flatten()).view(*places.shape, -1)
    drawn: Tensor = x[places]  # standardised as they are drawn
    return drawn


def random_state(sets: SetLoader) -> list[Tensor]:
    """Return the state of torch's random number generator and of those the streams draw from."""
    return [torch.get_rng_state(), *(generator.get_state() for generator in _generators(sets))]


def set_random_state(sets: SetLoader, state: Sequence[Tensor]) -> None:
    """Set every generator to a state that `random_state` returned."""
    torch.set_rng_state(state[0])
    for generator, known in zip(_generators(sets), state[1:], strict=True):
        generator.set_state(known)


def _generators(sets: SetLoader) -> list[torch.Generator]:
    return [stream.generator for stream in sets.streams.values() if stream.generator]


# ---- samplers of row indices ----------------------------------------------------------------------------------------


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
