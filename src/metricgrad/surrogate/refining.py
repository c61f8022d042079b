"""Refining a surrogate (Eq. 5): the true losses of the sets of a model, and steps of Adam towards them.

There are two ways to the same result: torch for any sets, and arrays for small sets of two classes. With several
processes the first rank refines on the sets of all.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from operator import getitem
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from metricgrad.surrogate.black_box_calls import SETS_TO_CORRECT, BlackBoxCalls
from metricgrad.surrogate.network import meta_loss
from metricgrad.surrogate.trainable import TrainableSurrogate, learning

if TYPE_CHECKING:
    from metricgrad.surrogate.small_sets import Array, Judged, Seen, Sets

REPLAYED = 4
"""Steps over sets of earlier calls of a black box, for every refining that may call it."""


class RefinedSurrogate(BlackBoxCalls, TrainableSurrogate):
    """The part of a loss that refines its surrogate, on sets whose shapes have been checked."""

    sync: bool
    gather: bool
    skipped: int
    _seen: Seen | None

    @property
    def _several_ranks(self) -> bool:
        """Whether there are other processes that this loss has to agree with."""
        there = self.sync and torch.distributed.is_available() and torch.distributed.is_initialized()
        return there and torch.distributed.get_world_size() > 1

    def _refine_together(
        self, scores: Tensor, targets: Tensor, weights: Tensor, steps: int, judged: Tensor | None
    ) -> float:
        """Refine on the sets of all ranks, on the first of them; the others take over what it learned."""
        from metricgrad.surrogate.distributed import join_rows, on_first_rank, stack_sets, take_over

        own = [tensor.detach() for tensor in (scores, targets, weights, judged) if tensor is not None]
        together = join_rows if self.gather else stack_sets
        scores, targets, weights, *others = together(own, self.metric.task.axes)

        def work() -> tuple[float, ...]:
            gap = self._refine(scores, targets, weights, steps, others[0] if others else None)
            return gap, self._refined, self.skipped, self.out_of_calls, self.revived

        gap, refined, skipped, out_of_calls, revived = on_first_rank(work, scores.device, 5)
        self._refined, self.skipped, self.out_of_calls = int(refined), int(skipped), bool(out_of_calls)
        self.revived = int(revived)
        if self.revived > 1:  # see `_revive`
            self.surrogate.config = replace(self.surrogate.config, link="linear")
        adam = self.optimizer
        assert adam is not None
        state = self.surrogate.state_dict().values()
        take_over([*state, self.running_gap, *adam.means, *adam.squares, *adam.steps])
        return gap

    def _refine(self, scores: Tensor, targets: Tensor, weights: Tensor, steps: int, judged: Tensor | None) -> float:
        """Refine on sets that are valid, in this process."""
        kept = self.metric.task.informative(targets, weights)
        count = int(kept.sum())
        self._count_skipped(count, kept.numel())
        if not count:
            return float("nan")
        self._refined += 1
        if self.metric.costly:
            kept = self._affordable(kept)
            count = int(kept.sum())
            if not count:
                self._replay(steps)
                return float("nan")
        chosen = side_by_side if count == kept.numel() else getitem
        sets = chosen(scores.detach(), kept), chosen(targets, kept), chosen(weights, kept)
        self._correct(*sets)
        with torch.autocast(scores.device.type, enabled=False):
            before = self.calls
            judged_sets = sets[0] if judged is None else chosen(judged.detach(), kept)
            true = self.true(judged_sets, *sets[1:])
            self._per_set = max((self.calls - before) / len(true), 1)
            self._stretch(true)
            gaps = self._learn(sets, true, steps)
        whole = float(torch.cat(gaps).mean())
        self._revive(partial(self.surrogate.pool, *sets), true, whole)
        for gap in [whole] if judged is None else [float(gap.mean()) for gap in gaps]:
            self._count_gap(gap)
        return whole

    def _count_skipped(self, kept: int, given: int) -> None:
        left_out = given - kept
        if left_out and not self.skipped and self.metric.task.classes:
            warnings.warn(
                f"refine: left out {left_out} of {given} sets that held one class only; use larger or "
                "stratified sets (later ones are only counted, in .skipped)",
                stacklevel=4,
            )
        self.skipped += left_out

    def true(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None, checked: bool = False) -> Tensor:
        """Return the true losses, `(k, n)` -> `(k,)`, at least as precise as the surrogate; raise if invalid.

        Sets that are `checked` are not checked again.
        """
        dtype = self.running_gap.dtype
        metric = self.metric.function if checked else self.metric
        true = metric(scores.to(torch.promote_types(scores.dtype, dtype)), targets, weights)
        sets = scores.shape[: -self.metric.task.axes]
        if true.shape != sets:
            expected, got = tuple(sets), tuple(true.shape)
            raise ValueError(f"metric: expected one loss per set from {self.metric.name!r}, {expected}, got {got}")
        self.metric.check_losses(true)
        return true.to(dtype)

    def _small(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Sets | None:
        """Return valid small sets of two classes as arrays; None for all others."""
        from metricgrad.surrogate.small_sets import read_sets  # making a loss needs no module that using it does

        if self.metric.task.name != "binary":
            return None
        return read_sets(self.surrogate, scores, targets, weights, self._seen)

    def _cheap(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Sets | None:
        """Return small sets of two classes, all of which hold both, whose metric may be called on each of them."""
        if self.metric.costly or self._truth is not None:
            return None
        sets = self._small(scores, targets, weights)
        return sets if sets is not None and sets.informative.all() and np.isfinite(sets.scores).all() else None

    def _refine_small(self, scores: Tensor, targets: Tensor, weights: Tensor | None, sets: Sets, steps: int) -> float:
        """Do what `refine` does, on small sets that are known to be valid."""
        from metricgrad.surrogate.small_sets import judged_again

        self._refined += 1
        shape = sets.scores.shape
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            heavy = None if weights is None else weights.reshape(shape)
            true = self.true(scores.detach().reshape(shape), targets.reshape(shape), heavy, checked=True)
            self._stretch(true)
            judged = judged_again(self.surrogate, sets, self._seen)
            gap = float(np.concatenate(self._learn_small(judged, true, steps)).sum()) / len(true)
            self._revive(partial(torch.from_numpy, judged.inputs[0]), true, gap)
        self._count_gap(gap)
        return gap

    def _learn(self, sets: tuple[Tensor, Tensor, Tensor], true: Tensor, steps: int) -> list[Tensor]:
        """Step Adam over parts of the sets, `(k, n)`, and return the gaps of each part before its step."""
        from metricgrad.surrogate.small_sets import arrays, is_small, judge, pool

        surrogate, gaps = self.surrogate, []
        pooled = None
        if is_small(surrogate, sets[0]) and not self.metric.costly:
            judged = judge(surrogate, pool(surrogate, *arrays(surrogate, *sets)).features)
            return [torch.from_numpy(gap) for gap in self._learn_small(judged, true, steps)]
        if surrogate.fixed_pool:
            with torch.no_grad():
                pooled = surrogate.pool(*sets)
            if self.metric.costly and not self._called:
                self._recalibrate(pooled, true)
        span = surrogate.high - surrogate.low
        with learning(surrogate) as learned:
            for part in torch.arange(len(true), device=true.device).chunk(steps):
                smooth = surrogate(*(rows[part] for rows in sets)) if pooled is None else surrogate.judge(pooled[part])
                self._step(meta_loss(smooth / span, true[part] / span, self.relational), learned)
                gaps.append((smooth.detach() - true[part]).abs())
        if self.metric.costly and pooled is not None:
            parts = -(-len(true) // SETS_TO_CORRECT)
            self._called += zip(pooled.chunk(parts), true.chunk(parts), strict=True)
            self._replay(steps)
        return gaps

    def _learn_small(self, judged: Judged, true: Tensor, steps: int) -> list[Array]:
        """Do what `_learn` does, on small sets that the surrogate has just judged."""
        from metricgrad.surrogate.small_sets import distance_gradient, judge

        losses, gaps = true.numpy(), []
        size = -(-len(losses) // steps)  # as torch divides into chunks
        for start in range(0, len(losses), size):
            part = slice(start, start + size)
            now = judged if size == len(losses) else judge(self.surrogate, judged.inputs[0][part])
            self._move(distance_gradient(self.surrogate, now, losses[part], self.relational))
            gaps.append(np.abs(now.losses - losses[part]))
        return gaps

    def _replay(self, steps: int) -> None:
        """Step Adam over sets of earlier calls: a call of a black box is worth more than one step."""
        if not self._called:
            return
        span = self.surrogate.high - self.surrogate.low
        chosen = torch.randint(len(self._called), (max(REPLAYED, steps),), generator=self._generator).tolist()
        with learning(self.surrogate) as learned:
            for sets, losses in (self._called[number] for number in chosen):
                self._step(meta_loss(self.surrogate.judge(sets) / span, losses / span, self.relational), learned)


def side_by_side(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the rows of all sets, which are `(...)` like a mask: `(..., n)` -> `(k, n)`."""
    return rows.reshape(-1, *rows.shape[kept.ndim :])
