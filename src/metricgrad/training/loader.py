"""SetLoader: sets of rows for the steps of training, each kind of step from a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import repeat

import torch
from torch import Tensor

from metricgrad.metrics.tasks import BINARY, Task
from metricgrad.surrogate.fidelity import spread_of
from metricgrad.training.data import Rows
from metricgrad.training.recipe import Recipe
from metricgrad.training.samplers import GroupSampler, Sampler, SetSampler

TRUST_SETS = 32
"""Fresh sets on which a surrogate is compared with its metric."""


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
            yield self.rows.x[some], self.rows.y[some], heavy

    def at_once(self, sets: int, stream: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return sets: x `(sets, n, features)`, y and w `(sets, n)`."""
        if self.whole:
            return self.rows.x.expand(sets, -1, -1), *self._labels(sets)
        rows, weights = self.streams[stream].draw(sets)
        return self.rows.x[rows], self.rows.y[rows], weights

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

    def fresh(self, score: Callable[[Tensor], Tensor], recipe: Recipe) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scored sets that nothing learns from, to measure trust on."""
        return self.scored(score, TRUST_SETS, recipe.noise, "trust")

    def alike(self, recipe: Recipe) -> bool:
        """Return whether all such sets are the same: whole data without noise."""
        return self.whole and not recipe.noise

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
