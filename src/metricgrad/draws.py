"""Draws: sets of rows for the steps of training, each kind of step from a stream of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import torch
from torch import Tensor

from metricgrad.guard import Rows
from metricgrad.recipe import Recipe
from metricgrad.sampling import SetSampler

TRUST_SETS = 32
"""Fresh sets on which a surrogate is compared with its metric."""


class Draws:
    """Sets of rows for steps; data no larger than a set is used whole.

    Following, refining and measuring trust each draw from a stream of their own, so that every loss is followed on the
    very same sets, and refined on the very same ones. Weights restore the natural prevalence of stratified sets, so for
    a metric that takes none rows come naturally.
    """

    def __init__(self, rows: Rows, recipe: Recipe, seed: int, weighted: bool) -> None:
        self.rows = rows
        self.whole = len(rows.y) <= recipe.set_size
        natural = self.whole or (recipe.restore and not weighted)
        share = None if natural else recipe.share_of(float(rows.y.float().mean()))
        size = max(min(recipe.set_size, len(rows.y)), 2)
        self.streams: dict[str, SetSampler] = {}
        for away, name in enumerate(("follow", "refine", "trust")):
            generator = torch.Generator().manual_seed(seed + away * 2**32)
            self.streams[name] = SetSampler(rows.y, size, share, recipe.restore, rows.w, generator)

    def draw(self, steps: int, sets: int, stream: str = "follow") -> Iterator[Rows]:
        """Yield the sets of each step: x `(sets, n, features)`, y and w `(sets, n)`."""
        if self.whole:
            yield from repeat(Rows(self.rows.x.expand(sets, -1, -1), *self._labels(sets)), steps)
            return
        rows, weights = self.streams[stream].draw(steps * sets)
        for some, heavy in zip(rows.view(steps, sets, -1), weights.view(steps, sets, -1), strict=True):
            yield Rows(self.rows.x[some], self.rows.y[some], heavy)

    def scored(
        self, score: Callable[[Tensor], Tensor], sets: int, noise: float, stream: str = "refine"
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return noisy scores `(..., sets, n)`, targets and weights `(sets, n)` of some sets; whole data once."""
        if self.whole:
            scores = score(self.rows.x).unsqueeze(-2)
            return self.noisy(scores.expand(*scores.shape[:-2], sets, -1), noise, stream), *self._labels(sets)
        (x, y, w), *_ = self.draw(1, sets, stream)
        return self.noisy(score(x), noise, stream), y, w

    def fresh(self, score: Callable[[Tensor], Tensor], recipe: Recipe) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scored sets that nothing learns from, to measure trust on."""
        return self.scored(score, TRUST_SETS, recipe.noise, "trust")

    def alike(self, recipe: Recipe) -> bool:
        """Say whether all such sets are the same: whole data without noise."""
        return self.whole and not recipe.noise

    def noisy(self, scores: Tensor, noise: float, stream: str = "refine") -> Tensor:
        """Perturb each set by its own share of the noise, so that the surrogate learns what moving a score does.

        Several models, `(..., sets, n)`, are perturbed alike.
        """
        if not noise:
            return scores
        generator = self.streams[stream].generator
        share = noise * torch.rand(scores.shape[-2], 1, generator=generator)
        return scores + scores.std(-1, keepdim=True) * (share * torch.randn(scores.shape[-2:], generator=generator))

    def _labels(self, sets: int) -> tuple[Tensor, Tensor]:
        _, y, w = self.rows
        return y.expand(sets, -1), (torch.ones_like(y) if w is None else w).expand(sets, -1)
