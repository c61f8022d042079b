"""The learned loss for any training loop: `forward` trains the model (Eq. 4), `refine` the surrogate (Eq. 5)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.metrics.metric import Metric, broadcast_sets
from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate.network import (
    Progress,
    Surrogate,
    SurrogateConfig,
    config_for,
    meta_loss,
    renamed_keyword,
)
from metricgrad.surrogate.pretrained import bundled_surrogate, open_surrogate

if TYPE_CHECKING:
    from metricgrad.surrogate.adam import Adam
    from metricgrad.surrogate.small_sets import Array, Judged, Seen, Sets

FORMS = ("best", "zero")
LOOKS_SHARE = 0.25
"""Share of the calls of a run that is kept for looks at validation rows."""
CALLS_PER_PAUSE, PAUSE_OF_EMULATORS = 150, 0.15
"""Refinings between two that call a black box, as a share of all so far: 150 over the limit of calls, and at least."""
SETS_TO_CORRECT = 8
"""Sets of a model that an emulator is fitted to at a time."""
REPLAYED, REFININGS = 4, 100
"""Of a black box that is called: steps over sets of earlier calls for every refining, and the least number of these."""
DEAD_GAP = 0.05
"""Gap, as a share of the range of losses, from which on a saturated surrogate is rescaled."""
DEAD_REFININGS = 20
"""Refinings in a row at which it is saturated before that: far from the sets it was fitted to, it may still learn."""
MIN_COMPARED, MIN_CORRELATION = 24, 0.4
"""Sets of a model from which on an emulator is given up, if it correlates less than this with the metric there."""


class SurrogateLoss(nn.Module):
    """A smooth, learned approximation of a metric, to call `backward` on.

    For a bundled metric the constructor reads one file and does nothing else. Any other metric gets a universal
    surrogate when first used: it is fitted with progress shown, and cached.

    The loss may be part of a user's module: its parameters require no gradient and never hold one, so that an optimizer
    of `module.parameters()`, weight decay and clipping leave the surrogate to its own Adam inside `refine`.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        The metric to train for, whatever `get_metric` takes; a function of your own as
        `black_box(fn, higher_is_better=...)`.
    start : {"universal", "scratch"}, path or Surrogate
        Where the surrogate starts: fitted to random sets (bundled, or fitted now and cached), from random weights,
        from a safetensors file, or as given.
    frozen : bool
        Never refine (the paper's SL-U).
    form : {"best", "zero"}
        Whether a metric with a threshold is trained at the best threshold of each set (to be chosen afterwards on
        validation rows), or at zero.
    config : SurrogateConfig or {"default", "paper", "attention"}, optional
        How a surrogate from scratch is built; by default `config_for(metric)`. With `"attention"`, for metrics of two
        classes at one threshold that a set chooses itself, its gradient is nearer to that of the metric smoothed
        little; training by it was not better (`docs/fidelity.md`).
    learning_rate : float
        Of the Adam inside `refine`.
    clip : float, optional
        Largest norm of the gradient in a refining step.
    relational : float
        How much the differences between sets count beside the paper's L1 while refining; 0 is the paper.
    progress : callable, optional
        `progress(what, done, total)` while a surrogate is fitted; by default a progress bar on the terminal.
    sync : bool
        With several processes of `torch.distributed`, `refine` on the sets of all ranks, so that the surrogate is the
        same on all of them. Then all must call `refine` together; its metric is called on the first rank.
    gather : bool
        With several processes, let sets span them: the rows of all ranks are one set, and the gradient of its loss
        flows to the rows of each. Then all must call `forward` together too. For `DistributedDataParallel` and others
        that average gradients.
    construction : SurrogateConfig or {"default", "paper"}, optional
        Deprecated name of `config`.

    Attributes
    ----------
    metric : Metric
        The metric in the form trained on. A black box is mostly emulated, so that refining hardly calls it.
    judge : Metric
        The metric to judge validation rows by: the one given, but a black box of labels is called only at thresholds
        that its emulator proposes.
    calls : int
        Calls of a user's function since this loss was made.
    out_of_calls : bool
        Whether refining ended because the other calls of the run are kept for looks at validation rows.
    gap : float
        Running mean of `|true - surrogate|` over refined sets; NaN before the first.
    skipped : int
        Sets left out of refining because a model cannot learn from them, such as those of one class.
    revived : int
        How often a saturated surrogate had to be rescaled.
    probing_calls : int
        Calls of a black box for the cosine between its gradient and that of the surrogate, `known_cosine`.

    Examples
    --------
    >>> model = torch.nn.Linear(5, 1)
    >>> loss = SurrogateLoss("average_precision")
    >>> x, y = torch.randn(4, 200, 5), (torch.rand(4, 200) < 0.2).float()
    >>> gap = loss.refine(model(x)[..., 0], y)
    >>> loss(model(x)[..., 0], y).backward()
    """

    def __init__(
        self,
        metric: Any,
        start: str | Path | Surrogate = "universal",
        *,
        frozen: bool = False,
        form: str = "best",
        config: SurrogateConfig | str | None = None,
        learning_rate: float = 1e-3,
        clip: float | None = None,
        relational: float = 0.0,
        progress: Progress | None = None,
        sync: bool = True,
        gather: bool = False,
        construction: SurrogateConfig | str | None = None,
    ) -> None:
        super().__init__()
        config = renamed_keyword(construction, config)
        if form not in FORMS:
            raise ValueError(f"form: expected 'best' or 'zero', got {form!r}")
        for name, number in (("learning_rate", learning_rate), ("clip", 1.0 if clip is None else clip)):
            if not isinstance(number, (int, float)) or not number > 0:
                raise ValueError(f"{name}: expected a positive number, got {number!r}")
        if not isinstance(start, (str, Path, Surrogate)):
            raise TypeError(f"start: expected 'universal', 'scratch', a path or a Surrogate, got {start!r}")
        if gather and not sync:
            raise ValueError("gather: expected False with sync=False, got True")
        metric = get_metric(metric)
        self._calls_before, self._refined = metric.calls, 0
        self.judge: Metric = metric
        self._truth: Metric | None = None
        self._known: Tensor | None = None
        self._seen: Seen | None = None  # the sets of the last forward
        self._compared: list[Tensor] = []
        self._called: list[tuple[Tensor, Tensor]] = []
        self._generator, self._per_set, self._next_due = torch.Generator().manual_seed(0), 1.0, 0
        self.out_of_calls = False
        if form == "best" and metric.costly and (metric.thresholded or start == "universal"):
            metric = self._emulated(metric, progress)
        self.metric: Metric = metric.trained(form)
        self.surrogate = self._started(start, config, progress)
        if self.surrogate.view.outputs != self.metric.task.outputs:
            raise ValueError(
                f"config: expected a view of {self.metric.task.name} sets, as {self.metric.name!r} needs, "
                f"got {self.surrogate.config.view!r}"
            )
        self.surrogate.eval().requires_grad_(False)
        self.frozen, self.clip, self.relational = frozen, clip, relational
        self.sync, self.gather = sync, gather
        self.skipped = self.revived = self.probing_calls = self._saturated = 0
        self._to_straighten = False
        self.known_cosine = math.nan
        self.register_buffer("running_gap", torch.tensor(float("nan")))
        self.learning_rate = learning_rate
        self._optimizer: Adam | None = None

    running_gap: Tensor

    @property
    def optimizer(self) -> Adam | None:
        """The Adam of `refine`, if not frozen; built when first needed."""
        if self._optimizer is None and not self.frozen:
            from metricgrad.surrogate.adam import Adam

            self._optimizer = Adam(self.surrogate.parameters(), self.learning_rate)
        return self._optimizer

    def _emulated(self, metric: Metric, progress: Progress | None) -> Metric:
        """Return a black box as its emulator, if there is a good one."""
        from metricgrad.surrogate import cache, emulators  # fitting needs modules that a bundled metric does not

        emulator = cache.emulator_for(metric, progress)
        if emulator is None or not emulator.is_accurate:
            if isinstance(emulator, emulators.ScoreEmulator):
                self._known = emulator.process.values
            return metric
        if isinstance(emulator, emulators.ScoreEmulator):
            self._truth = metric
        stand_in = emulators.emulated(metric, emulator)
        self.judge = emulators.guided(metric, stand_in)
        return stand_in

    @property
    def calls(self) -> int:
        """Calls of a user's function since this loss was made, looks at validation rows included."""
        calls: int = self.judge.calls - self._calls_before
        return calls

    @property
    def calls_per_set(self) -> float:
        """Calls that the last set took: several where thresholds are tried."""
        return self._per_set

    @property
    def calls_left(self) -> float:
        """Calls that refining may still take: what looks at validation rows do not need of the calls of a run."""
        if self.judge.budget is None:
            return float("inf")
        return max((1 - LOOKS_SHARE) * self.judge.budget.max_calls - self.calls, 0)

    def _started(
        self, start: str | Path | Surrogate, config: SurrogateConfig | str | None, progress: Progress | None
    ) -> Surrogate:
        if isinstance(start, Surrogate):
            return start
        if config == "attention" and self.metric.thresholded:
            raise ValueError("config: expected 'default' for a metric at threshold zero, got 'attention'")
        if start == "universal":
            bundled = bundled_surrogate(self.metric, config)
            if bundled is not None:
                return bundled
            from metricgrad.surrogate.cache import universal_for

            return universal_for(self.metric, config, progress, self._known)
        if start == "scratch":
            return Surrogate(config_for(self.metric) if config in (None, "default") else config)
        if not Path(start).is_file():
            raise FileNotFoundError(f"start: expected 'universal', 'scratch' or a surrogate file, got {str(start)!r}")
        return open_surrogate(Path(start))

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss, the mean over sets: `(..., n)` -> scalar (Eq. 4).

        Sets of one class do not count; where there are no others, the loss is 0 and so is its gradient.

        Parameters
        ----------
        scores : Tensor of shape (..., n) or (..., n, c)
            Raw outputs of the model, the rows of a set on the last axis.
        targets : Tensor
            0 and 1 in the shape of the scores, or as the task of the metric has them.
        weights : Tensor of shape (..., n), optional
            How much each row counts; 0 leaves it out.

        Returns
        -------
        Tensor
            A scalar with a gradient.
        """
        joins = self.gather and self._several_ranks
        if not joins and (sets := self._small_with_gradient(scores, targets, weights)) is not None:
            return self._known_loss(scores, targets, weights, sets)
        unweighted = weights is None
        targets, weights = broadcast_sets(scores, targets, weights, self.metric.task)
        if self.training and torch.is_grad_enabled() and not scores.requires_grad:
            raise RuntimeError(
                "scores: expected the output of a model that is being trained, got one without a gradient; was the "
                "model called under torch.no_grad() or detached? (to only evaluate the loss, call .eval() first)"
            )
        if joins:
            from metricgrad.surrogate.distributed import join_rows

            scores, targets, weights = join_rows((scores, targets, weights), self.metric.task.axes)
            unweighted = False  # on every rank
            if (sets := self._small_with_gradient(scores, targets, weights)) is not None:
                return self._known_loss(scores, targets, weights, sets)
        return self._plain_loss(scores, targets, None if unweighted else weights)

    def _small_with_gradient(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Sets | None:
        """Return valid small sets of two classes whose scores, and nothing else, need a gradient."""
        if not torch.is_grad_enabled() or not getattr(scores, "requires_grad", False):
            return None
        return self._small(scores, targets, weights)

    def _small(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Sets | None:
        """Return valid small sets of two classes as arrays; None for all others."""
        from metricgrad.surrogate.small_sets import read_sets  # making a loss needs no module that using it does

        if self.metric.task.name != "binary":
            return None
        return read_sets(self.surrogate, scores, targets, weights, self._seen)

    def _known_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None, sets: Sets) -> Tensor:
        """Return the loss of small sets, whose gradient is computed at once."""
        from metricgrad.surrogate.small_sets import Known, Seen, mean_loss

        refined = self._refined
        value, gradient, judged = mean_loss(self.surrogate, sets)
        if not self.frozen:
            self._seen = Seen.of(self.surrogate, sets, judged)
        gradient = gradient.view(scores.shape)

        def plain(moved: Tensor) -> Tensor:
            if self._refined != refined:
                raise RuntimeError("backward: expected no refine before a second derivative, got a refined surrogate")
            return self._plain_loss(moved, targets, weights)

        loss: Tensor = Known.apply(scores, value, gradient, plain)  # type: ignore[no-untyped-call]
        return loss

    def _plain_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss by torch, which knows all derivatives."""
        with torch.autocast(scores.device.type, enabled=False):
            losses = self._judged((scores, targets) if weights is None else (scores, targets, weights))
            weights = torch.ones_like(self.metric.task.rows(scores)) if weights is None else weights
            informative = self.metric.task.informative(targets, weights).to(losses.dtype)
            return (losses * (informative / informative.sum().clamp(min=1))).sum()

    def _judged(self, sets: tuple[Tensor, ...]) -> Tensor:
        """Return the surrogate's losses of sets; `backward` leaves no gradient on its parameters.

        It uses the surrogate that `forward` used, a copy, even if it is refined in between; and detached tensors, even
        if a user set `requires_grad` on all parameters of a module that holds the loss. A frozen surrogate needs no
        copy.
        """
        if self.frozen and not any(parameter.requires_grad for parameter in self.surrogate.parameters()):
            direct: Tensor = self.surrogate(*sets)
            return direct
        state = self.surrogate.state_dict()  # without constants such as thresholds, which nothing changes
        if torch.is_grad_enabled() and not self.frozen:
            state = {name: tensor.clone() for name, tensor in state.items()}
        by_copy: Tensor = torch.func.functional_call(self.surrogate, state, sets, tie_weights=False)
        return by_copy

    def refine(
        self,
        scores: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        steps: int = 1,
        judged: Tensor | None = None,
    ) -> float:
        """Fit the surrogate to the true losses of these sets (Eq. 5), `(..., n)`, divided over some steps of Adam.

        The true losses are those of the scores, or of `judged`, where the two differ on purpose: the authors' program
        takes the true loss in evaluation mode and the surrogate loss in training mode. `gap` then counts every step, as
        it does there.

        Parameters
        ----------
        scores, targets, weights : Tensor
            As for `forward`; no gradient of the scores is used.
        steps : int
            Steps of Adam, each on its share of the sets.
        judged : Tensor, optional
            Scores that the true losses are taken of, in the shape of `scores`.

        Returns
        -------
        float
            The mean `|true - surrogate|` of these sets before refining; NaN if every set held one class only.
        """
        if torch.compiler.is_compiling():  # inside a step of a user's that is compiled, this part is left as it is
            plain: float = torch.compiler.disable(self.refine)(scores, targets, weights, steps, judged)
            return plain
        apart = self.frozen or judged is not None or self._several_ranks
        small = None if apart else self._cheap(scores, targets, weights)
        if small is not None and torch.is_grad_enabled() and isinstance(steps, int) and steps > 0:
            return self._refine_small(scores, targets, weights, small, steps)
        targets, weights = broadcast_sets(scores, targets, weights, self.metric.task)
        if judged is not None and judged.shape != scores.shape:
            expected, got = tuple(scores.shape), tuple(judged.shape)
            raise ValueError(f"judged: expected the shape of scores, {expected}, got {got}")
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"steps: expected an integer of at least 1, got {steps!r}")
        if self.frozen:
            raise RuntimeError("refine: expected a surrogate that is not frozen, got one made with frozen=True")
        if not torch.is_grad_enabled():
            raise RuntimeError("refine: expected gradients to be enabled, got a call under torch.no_grad()")
        if self._several_ranks:
            return self._refine_together(scores, targets, weights, steps, judged)
        return self._refine(scores, targets, weights, steps, judged)

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

    def _count_gap(self, gap: float) -> None:
        before = self.gap
        self.running_gap.fill_(gap if math.isnan(before) else 0.9 * before + 0.1 * gap)

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

    def _affordable(self, kept: Tensor) -> Tensor:
        """Return the mask of the sets that a black box is called on: none if it is not due, or calls have run out."""
        assert self.judge.budget is not None
        most = min(max(self.judge.budget.max_calls // REFININGS, SETS_TO_CORRECT), int(self.calls_left / self._per_set))
        if most < min(int(kept.sum()), SETS_TO_CORRECT):
            self.out_of_calls, most = True, 0
        elif not self._is_due(0.0):
            most = 0
        return kept & (kept.flatten().cumsum(0).view(kept.shape) <= most)

    def _is_due(self, least_pause: float) -> bool:
        """Whether to call a black box in this refining: often at first, then in pauses that grow as calls are fewer."""
        assert self.judge.budget is not None
        if self._refined < self._next_due:
            return False
        pause = max(CALLS_PER_PAUSE / self.judge.budget.max_calls, least_pause)
        self._next_due = self._refined + max(int(pause * self._refined), 1)
        return True

    def _correct(self, scores: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Call the true metric now and then on the sets of a model, and fit its emulator to them too.

        If the emulator does not follow it there, the true metric is called from then on.
        """
        some = min(len(scores), SETS_TO_CORRECT, int(min(self.calls_left, SETS_TO_CORRECT)))
        if self._truth is None or not some or not self._is_due(PAUSE_OF_EMULATORS):
            return
        weighs = self._truth.takes_weights or self._truth.repeats_rows
        present = weights[:some] if weighs else (weights[:some] > 0).to(weights)
        sets = scores[:some].double(), targets[:some], present
        true = self._truth(*sets)
        self._compared.append(torch.stack((self.metric(*sets), true)))
        if not _follows(torch.cat(self._compared, -1)):
            self.metric, self._truth, self._next_due = self._truth, None, 0
            return
        emulator: Any = self.metric.function
        emulator.add(*sets, true)

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

    def _recalibrate(self, pooled: Tensor, true: Tensor) -> None:
        """Bring the surrogate to the level of the metric, if on the first sets of a model it does not follow it."""
        judged = self.surrogate.judge(pooled)
        if len(true) > 1 and float((judged - true).abs().mean()) > 2 * float((true - true.mean()).abs().mean()):
            self.surrogate.calibrate(pooled, true)

    @torch.no_grad()
    def _revive(self, pool: Callable[[], Tensor], true: Tensor, gap: float) -> None:
        """Rescale a surrogate whose output is saturated far from the metric, where it would learn no more.

        If that happens again, its output function becomes a line, which cannot saturate.
        """
        few = len(true) < 2
        if self._to_straighten and not few:
            self._to_straighten = False
            self.surrogate.make_linear(pool(), true)
            self._optimizer = None  # its moments belong to the old output
            return
        near = few or not gap > DEAD_GAP * float(self.surrogate.high - self.surrogate.low)
        if near or not self.surrogate.is_saturated(pooled := pool()):
            self._saturated = 0
            return
        self._saturated += 1
        if self._saturated < DEAD_REFININGS:
            return
        self.revived, self._saturated = self.revived + 1, 0
        if self.revived > 1:
            self.surrogate.make_linear(pooled, true)
        else:
            self.surrogate.calibrate(pooled, true)
        self._optimizer = None  # its moments belong to the old output
        what = "its output function is a line from now on" if self.revived > 1 else "its output was rescaled"
        warnings.warn(
            f"refine: the surrogate of {self.metric.label} was saturated, {gap:.2f} from the metric on average; {what}",
            stacklevel=4,
        )

    def straighten(self) -> None:
        """At the next `refine`, replace the output function by a line, at the level of the metric on the sets there.

        A line cannot saturate, and reaches losses beyond the range that the surrogate was fitted to.
        """
        if self.frozen:
            raise RuntimeError("straighten: expected a surrogate that is not frozen, got one made with frozen=True")
        self._to_straighten = True

    def _replay(self, steps: int) -> None:
        """Step Adam over sets of earlier calls: a call of a black box is worth more than one step."""
        if not self._called:
            return
        span = self.surrogate.high - self.surrogate.low
        chosen = torch.randint(len(self._called), (max(REPLAYED, steps),), generator=self._generator).tolist()
        with learning(self.surrogate) as learned:
            for sets, losses in (self._called[number] for number in chosen):
                self._step(meta_loss(self.surrogate.judge(sets) / span, losses / span, self.relational), learned)

    def _step(self, distance: Tensor, learned: list[nn.Parameter]) -> None:
        """Step Adam down a distance of the parameters that are learned.

        Parameters never hold a gradient: where the loss is part of a user's module, the user's own optimizer and
        clipping must not see any.
        """
        self._move(torch.autograd.grad(distance, learned))

    def _move(self, gradients: Sequence[Tensor]) -> None:
        """Step Adam against the gradients of all parameters, clipped."""
        assert self.optimizer is not None
        if self.clip is not None:
            scale_down(gradients, self.clip)
        self.optimizer.step(gradients)

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

    def _count_skipped(self, kept: int, given: int) -> None:
        left_out = given - kept
        if left_out and not self.skipped and self.metric.task.classes:
            warnings.warn(
                f"refine: left out {left_out} of {given} sets that held one class only; use larger or "
                "stratified sets (later ones are only counted, in .skipped)",
                stacklevel=4,
            )
        self.skipped += left_out

    def _stretch(self, true: Tensor) -> None:
        """Stretch the output of a surrogate from scratch over the losses seen, if the metric has no known range."""
        if self.metric.bounded:
            return
        untouched = self.running_gap.isnan() & (self.surrogate.low == 0) & (self.surrogate.high == 1)
        if bool(untouched):
            low, high = true.min(), true.max()
            self.surrogate.low.copy_(low)
            self.surrogate.high.copy_(torch.where(high > low, high, low + 1))

    def fidelity(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> dict[str, float]:
        """Return gap and Spearman correlation of surrogate and metric on sets kept out of refining, `(..., n)`.

        Parameters
        ----------
        scores, targets, weights : Tensor
            As for `forward`.

        Returns
        -------
        dict of str to float
            `gap`, the mean `|true - surrogate|`; `spearman`, NaN if all sets have the same loss; `spread`, the standard
            deviation of the true losses; `ceiling`, the highest correlation possible where sets have equal losses.
        """
        from metricgrad.surrogate.fidelity import measure_fidelity  # needs scipy, which training does not

        targets, weights = broadcast_sets(scores, targets, weights, self.metric.task)
        kept = self.metric.task.informative(targets, weights)
        scores = scores.detach().to(torch.promote_types(scores.dtype, self.running_gap.dtype))
        with torch.autocast(scores.device.type, enabled=False):
            return measure_fidelity(self.surrogate, self.metric, (scores[kept], targets[kept], weights[kept]))

    def train(self, mode: bool = True) -> SurrogateLoss:
        """Set the mode of the loss; its surrogate stays in evaluation mode except inside `refine`."""
        super().train(mode)
        self.surrogate.eval()
        return self

    @property
    def gap(self) -> float:
        """Running mean of `|true - surrogate|`."""
        return float(self.running_gap)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the optimiser and of calls of a black box, so that a state dict resumes exactly."""
        state = None if self._optimizer is None else self._optimizer.state_dict()
        known = {"skipped": self.skipped, "revived": self.revived, "link": self.surrogate.config.link}
        known["saturated"], known["to_straighten"] = self._saturated, self._to_straighten
        found = {"optimizer": state, **known}
        return found if self.judge.budget is None else {**found, "black_box": self._black_box_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the state of the optimiser and of calls of a black box."""
        self._optimizer = None
        if self.optimizer and state["optimizer"]:
            # A copy: Adam changes in place what it would share with the loss the state came from.
            self.optimizer.load_state_dict(deepcopy(state["optimizer"]))
        self.skipped, self.revived = state["skipped"], state.get("revived", 0)
        self._saturated, self._to_straighten = state.get("saturated", 0), state.get("to_straighten", False)
        self.surrogate.config = replace(self.surrogate.config, link=state.get("link", self.surrogate.config.link))
        if self.judge.budget is not None and "black_box" in state:
            self._load_black_box(deepcopy(state["black_box"]))

    def _black_box_state(self) -> dict[str, Any]:
        """Return what is known of a black box by its calls, and when the next are due."""
        emulator: Any = self.metric.function
        return {
            "calls": self.calls,
            "schedule": (self._refined, self._next_due, self._per_set, self.out_of_calls),
            "called": self._called,
            "compared": self._compared,
            "random": self._generator.get_state(),
            "emulator": dict(emulator.process.state_dict()) if self._truth else None,
        }

    def _load_black_box(self, state: dict[str, Any]) -> None:
        self._calls_before = self.judge.calls - state["calls"]
        self._refined, self._next_due, self._per_set, self.out_of_calls = state["schedule"]
        self._called, self._compared = state["called"], state["compared"]
        self._generator.set_state(state["random"])
        emulator: Any = self.metric.function
        if self._truth and state["emulator"]:
            emulator.process.load(state["emulator"])
        elif self._truth:  # it was given up
            self.metric, self._truth = self._truth, None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SurrogateLoss:
        """Move the state of the optimiser along with the parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._optimizer:
            self._optimizer.load_state_dict(self._optimizer.state_dict())
        return self


def side_by_side(rows: Tensor, kept: Tensor) -> Tensor:
    """Return the rows of all sets, which are `(...)` like a mask: `(..., n)` -> `(k, n)`."""
    return rows.reshape(-1, *rows.shape[kept.ndim :])


def _follows(losses: Tensor) -> bool:
    """Whether emulated losses go with the true ones, `(2, k)`; undecided, they do."""
    if losses.shape[-1] < MIN_COMPARED or bool((losses.std(-1) == 0).any()):
        return True
    return float(losses.corrcoef()[0, 1]) >= MIN_CORRELATION


@contextmanager
def learning(surrogate: Surrogate) -> Iterator[list[nn.Parameter]]:
    """Put a surrogate into training mode and yield its parameters; otherwise it learns neither these nor statistics."""
    parameters = list(surrogate.parameters())  # walking through all modules costs as much as some steps of arithmetic
    try:
        _set_learning(surrogate, parameters, True)
        yield parameters
    finally:
        _set_learning(surrogate, parameters, False)


def _set_learning(surrogate: Surrogate, parameters: list[nn.Parameter], mode: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad_(mode)
    if not surrogate.fixed_pool:  # only a learned g has layers with a mode, batch norm
        surrogate.train(mode)


def clip_gradients(module: nn.Module, norm: float) -> None:
    """Scale the gradients of a module down to a norm."""
    scale_down([p.grad for p in module.parameters() if p.grad is not None], norm)


def scale_down(gradients: Sequence[Tensor], norm: float) -> None:
    """Scale gradients down to a norm, exactly: torch adds 1e-6 to it, a tenth of the clip of the paper."""
    total = nn.utils.get_total_norm(gradients)
    share = norm / total.clamp(min=norm)
    for gradient in gradients:
        gradient.mul_(share)
