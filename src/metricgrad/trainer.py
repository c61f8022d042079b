"""Algorithm 1 as a generator of rounds: the model follows the loss, whatever loss it is; the loss is kept true."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor, nn

from metricgrad.baselines import CrossEntropy
from metricgrad.loss import SurrogateLoss, clip_gradients
from metricgrad.metrics import Metric
from metricgrad.recipe import Recipe
from metricgrad.sampling import SetSampler


class Rows(NamedTuple):
    """Features `(rows, features)`, targets `(rows,)` and, if any, weights `(rows,)`."""

    x: Tensor
    y: Tensor
    w: Tensor | None = None


@dataclass(frozen=True)
class Round:
    """What one round did: model steps so far, the loss followed, how true it is, the true loss on validation rows."""

    phase: str
    number: int
    of: int
    steps: int
    loss: float
    gap: float
    trust: float
    validation: float
    best: bool
    seconds: float


def train(
    model: nn.Module,
    loss: nn.Module,
    rows: Rows,
    recipe: Recipe,
    *,
    validation: Rows | None = None,
    metric: Metric | None = None,
    seed: int = 0,
) -> Generator[Round, None, None]:
    """Train a model in place, yielding every round; when the generator ends or is closed, the model is the best seen.

    Parameters
    ----------
    model : module
        `(..., features)` -> `(...)`.
    loss : module
        `(scores, targets, weights)` -> scalar. A `SurrogateLoss` that is not frozen is refined on the way; parameters
        of any other loss follow it together with the model's.
    rows : Rows
        What to train on.
    recipe : Recipe
        How.
    validation, metric : Rows, Metric
        Where and by what the best model is chosen, the cross-entropy start included; without, the last one stays.
    seed : int
        Of the draws.
    """
    weighted = all(m.takes_weights for m in (metric, getattr(loss, "metric", None)) if isinstance(m, Metric))
    sets = Draws(rows, recipe, seed, weighted)
    guard = Guard(model, metric if metric is None or recipe.form == "zero" else metric.best, validation)
    begun = time.perf_counter()
    try:
        yield from _warm_up(model, sets, recipe, guard, begun)
        trust = earn_trust(model, loss, sets, recipe)
        optimizer, pace = build_optimizer(_learnable(model, loss), recipe, recipe.rounds * recipe.model_steps)
        for number in range(recipe.rounds):  # line 2
            if recipe.first == "surrogate":
                _surrogate_steps(model, loss, sets, recipe)
            value = _model_steps(model, loss, sets, recipe, optimizer, pace, recipe.model_steps)  # lines 3-7
            if recipe.first == "model":
                _surrogate_steps(model, loss, sets, recipe)  # lines 8-12
            checked = _UNSEEN
            if number + 1 == recipe.rounds or due(number, recipe):
                checked, trust = guard.check(), _trust(model, loss, sets, recipe)
            gap = loss.gap if isinstance(loss, SurrogateLoss) else _NAN
            steps = recipe.warmup + (number + 1) * recipe.model_steps
            yield Round("rounds", number + 1, recipe.rounds, steps, value, gap, trust, *checked, _since(begun))
    finally:
        guard.restore()


CHUNK = 65_536
"""Rows scored at a time where there may be many."""
ALIKE = 0.003
"""Sets whose true losses spread less than this share of their range have no order to get right."""
TRUST_SETS = 32
"""Fresh sets on which the surrogate is compared with the metric."""
_NAN = float("nan")
_UNSEEN = (_NAN, False)


def _warm_up(model: nn.Module, sets: Draws, recipe: Recipe, guard: Guard, begun: float) -> Generator[Round, None, None]:
    """Give every loss the same start: steps of cross-entropy; without them, the model as it came."""
    if not recipe.warmup:
        guard.check()
        return
    optimizer, pace = build_optimizer(_learnable(model), recipe, recipe.warmup)
    for number, done in enumerate(range(0, recipe.warmup, recipe.model_steps)):
        steps = min(recipe.model_steps, recipe.warmup - done)
        value = _model_steps(model, CrossEntropy(), sets, recipe, optimizer, pace, steps)
        last = done + steps == recipe.warmup
        checked = guard.check() if last or due(number, recipe) else _UNSEEN
        so_far = done + steps
        yield Round("warm-up", so_far, recipe.warmup, so_far, value, _NAN, _NAN, *checked, _since(begun))


def _model_steps(
    model: nn.Module,
    loss: nn.Module,
    sets: Draws,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    pace: torch.optim.lr_scheduler.LRScheduler,
    steps: int,
) -> float:
    """Lines 4-7: the model follows the loss."""
    model.train()
    anchor, total = CrossEntropy(), torch.zeros(())
    for x, y, w in sets.draw(steps, recipe.sets):
        optimizer.zero_grad()
        scores = model(x)
        value = loss(scores, y, w)
        if recipe.anchor and isinstance(loss, SurrogateLoss):
            value = value + recipe.anchor * anchor(scores, y, w)
        value.backward()
        if recipe.clip is not None:
            clip_gradients(model, recipe.clip)
        optimizer.step()
        pace.step()
        total += value.detach()
    if not bool(total.isfinite()):
        raise ValueError(f"loss: expected finite numbers while training, got {float(total)}; are the features scaled?")
    return float(total) / steps


def _surrogate_steps(
    model: nn.Module, loss: nn.Module, sets: Draws, recipe: Recipe, steps: int | None = None, stream: str = "refine"
) -> None:
    """Lines 9-12: the surrogate follows the metric, on the scores of a model that stands still."""
    steps = recipe.surrogate_steps if steps is None else steps
    if not isinstance(loss, SurrogateLoss) or loss.frozen or not steps:
        return
    if recipe.refine_mode == "eval":
        asked = steps * recipe.refine_sets
        loss.refine(*sets.scored(partial(_scores, model), asked, recipe.noise, stream), steps)
        return
    for x, y, w in sets.draw(steps, recipe.refine_sets, stream):
        judged = _scores(model, x) if recipe.refine_mode == "both" else None
        model.train()
        with torch.no_grad():
            scores = model(x)
        loss.refine(sets.noisy(scores, recipe.noise, stream), y, w, judged=judged)


@torch.no_grad()
def _scores(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    scores: Tensor = model(x)
    return scores


def _trust(model: nn.Module, loss: nn.Module, sets: Draws, recipe: Recipe) -> float:
    """Return the correlation of surrogate and metric on fresh sets of the current model; NaN if nothing tells them.

    That is so where every set is the same, or loses nearly the same: a model that ranks all rows right cannot be told
    from itself.
    """
    if not isinstance(loss, SurrogateLoss) or (sets.whole and not recipe.noise):
        return _NAN
    return trust_on(loss, *sets.scored(partial(_scores, model), TRUST_SETS, recipe.noise, "trust"))


def trust_on(loss: SurrogateLoss, scores: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return the correlation of surrogate and metric on some sets, NaN if these lose nearly the same."""
    measured = loss.fidelity(scores, targets, weights)
    span = float(loss.surrogate.high - loss.surrogate.low)
    return measured["spearman"] if measured["spread"] >= ALIKE * span else _NAN


def earn_trust(model: nn.Module, loss: nn.Module, sets: Draws, recipe: Recipe) -> float:
    """Refine before the first round until the surrogate can be trusted, or the cap is reached."""
    trust = _trust(model, loss, sets, recipe)
    if not isinstance(loss, SurrogateLoss) or loss.frozen or recipe.trust <= -1:
        return trust
    taken = 0
    while trust < recipe.trust and taken < recipe.trust_cap:
        steps = min(50, recipe.trust_cap - taken)
        _surrogate_steps(model, loss, sets, recipe, steps, "trust")
        taken += steps
        trust = _trust(model, loss, sets, recipe)
    if trust < recipe.trust:
        warnings.warn(
            f"the surrogate of {loss.metric.label} is not faithful yet: correlation {trust:.2f} on fresh sets after "
            f"{taken} steps, below {recipe.trust:.2f}; the best model on validation rows is kept all the same",
            stacklevel=3,
        )
    return trust


def _learnable(model: nn.Module, loss: nn.Module | None = None) -> list[Tensor]:
    """Return what the optimizer of the model moves: a surrogate has an optimizer of its own."""
    learnable: list[Tensor] = list(model.parameters())
    if not learnable:
        raise ValueError(f"model: expected a module with parameters to train, got {type(model).__name__} without any")
    return learnable if loss is None or isinstance(loss, SurrogateLoss) else learnable + list(loss.parameters())


def build_optimizer(
    learnable: list[Tensor], recipe: Recipe, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """Build the Adam of the model, and the schedule of its rate over some steps."""
    optimizer = torch.optim.Adam(learnable, recipe.learning_rate, fused=True)

    def pace(step: int) -> float:
        return 1.0 if recipe.schedule == "constant" else (1 + math.cos(math.pi * min(step / max(steps, 1), 1))) / 2

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, pace)


def due(number: int, recipe: Recipe) -> bool:
    """Say whether the validation rows are looked at after a round."""
    return (number + 1) % recipe.check_every == 0


def _since(begun: float) -> float:
    return time.perf_counter() - begun


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


class Guard:
    """Keeps the model that loses least on validation rows."""

    def __init__(self, model: nn.Module, metric: Metric | None, validation: Rows | None) -> None:
        self.model, self.metric, self.validation = model, metric, validation
        self.least = float("inf")
        self.state: dict[str, Tensor] | None = None

    def check(self, scores: Tensor | None = None) -> tuple[float, bool]:
        """Return the true loss on the validation rows, and whether it is the least so far."""
        if self.metric is None or self.validation is None:
            return _UNSEEN
        x, y, w = self.validation
        if scores is None:
            scores = torch.cat([_scores(self.model, part) for part in x.split(CHUNK)])
        now = float(self.metric(scores, y, w))
        if now < self.least:
            self.least, self.state = now, deepcopy(self.model.state_dict())
            return now, True
        return now, False

    def restore(self) -> None:
        """Give the model the best weights seen, if any were compared."""
        if self.state is not None:
            self.model.load_state_dict(self.state)
        self.model.eval()
