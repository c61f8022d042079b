"""Algorithm 1 as a generator of rounds: the model follows the loss, whatever loss it is; the loss is kept true."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Generator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from metricgrad.losses.default import proxy_for
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import BINARY, RANKING
from metricgrad.surrogate.fidelity import gradient_cosine
from metricgrad.surrogate.loss import SurrogateLoss, clip_gradients
from metricgrad.training.data import Rows
from metricgrad.training.loader import SetLoader
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection, scores_of


@dataclass(frozen=True)
class Round:
    """What one round did.

    Parameters
    ----------
    phase, number, of : str, int, int
        `"warm-up"` or `"rounds"`, and where in it.
    steps : int
        Model steps so far.
    loss, gap : float
        The loss followed, and how far it is from the metric.
    trust : float
        Spearman correlation of surrogate and metric on fresh sets of the current model, at the last check.
    cosine : float
        Between the gradient of the surrogate and that of the smoothed metric, found by probing it, on some of them.
    validation, companion : float
        True loss on the validation rows: of the model, and of its companion that goes on with cross-entropy.
    best : bool
        Whether no model lost less on the validation rows so far.
    seconds : float
        Since the start.
    """

    phase: str
    number: int
    of: int
    steps: int
    loss: float
    gap: float
    trust: float
    cosine: float
    validation: float
    best: bool
    companion: float
    seconds: float


def train(
    model: nn.Module,
    loss: nn.Module,
    rows: Rows,
    recipe: Recipe,
    *,
    guard: Selection | None = None,
    seed: int = 0,
) -> Generator[Round, None, None]:
    """Train a model in place, yielding every round; when the generator ends or is closed, the model is the best seen.

    Parameters
    ----------
    model : module
        `(..., features)` -> `(...)`, or `(..., c)` for several outputs.
    loss : module
        `(scores, targets, weights)` -> scalar. A `SurrogateLoss` that is not frozen is refined on the way; parameters
        of any other loss follow it together with the model's.
    rows : Rows
        What to train on.
    recipe : Recipe
        How.
    guard : Selection, optional
        Chooses the best model on validation rows, the cross-entropy start included; without, the last one stays.
    seed : int
        Of the draws.
    """
    judges = [m for m in (getattr(loss, "metric", None), guard.metric if guard else None) if isinstance(m, Metric)]
    task = judges[0].task if judges else BINARY
    sets = SetLoader(rows, recipe, seed, all(m.takes_weights for m in judges), task)
    learned = isinstance(loss, SurrogateLoss)
    begun = time.perf_counter()
    try:
        yield from _warm_up(model, sets, recipe, guard, begun)
        trust, cosine = earn_trust(model, loss, sets, recipe), _NAN
        steps = recipe.rounds * recipe.model_steps
        followers = [Follower(model, loss, recipe, steps)]
        if guard and learned and recipe.companion:
            followers.append(Follower(deepcopy(model), proxy_for(task), recipe, steps))
        for number in range(recipe.rounds):  # line 2
            if recipe.first == "surrogate":
                _surrogate_steps(model, loss, sets, recipe)
            value = _model_steps(followers, sets, recipe, recipe.model_steps)  # lines 3-7
            if recipe.first == "model":
                _surrogate_steps(model, loss, sets, recipe)  # lines 8-12
            checked = _UNSEEN
            if number + 1 == recipe.rounds or due(number, recipe):
                trust, cosine = _faith(model, loss, sets, recipe)
                checked = _check(guard, followers) if guard else checked
            gap = loss.gap if isinstance(loss, SurrogateLoss) else _NAN
            so_far = recipe.warmup + (number + 1) * recipe.model_steps
            yield Round("rounds", number + 1, recipe.rounds, so_far, value, gap, trust, cosine, *checked, _since(begun))
    finally:
        if guard:
            guard.restore(model, learned)
        model.eval()
    if isinstance(loss, SurrogateLoss) and recipe.trust > -1 and cosine < POINTS:
        warnings.warn(
            f"the surrogate of {loss.metric.label} is not faithful yet: at the end the cosine between its gradient and "
            f"that of the metric was {cosine:.2f}, below {POINTS}; the best model on validation rows is kept all the "
            "same",
            stacklevel=2,
        )


ALIKE = 0.003
"""Sets whose true losses spread less than this share of their range have no order to get right."""
POINTS = 0.3
"""A cosine below this is a direction not worth following."""
PROBED_SETS = 4
"""Of the fresh sets, those on which the metric is probed for where it points."""
_NAN = float("nan")
_UNSEEN = (_NAN, False, _NAN)


def _warm_up(
    model: nn.Module, sets: SetLoader, recipe: Recipe, guard: Selection | None, begun: float
) -> Generator[Round, None, None]:
    """Give every loss the same start: steps of cross-entropy; without them, the model as it came."""
    if not recipe.warmup:
        if guard:
            guard.check(model, bold=False)
        return
    start = Follower(model, proxy_for(sets.task), recipe, recipe.warmup)
    for number, done in enumerate(range(0, recipe.warmup, recipe.model_steps)):
        steps = min(recipe.model_steps, recipe.warmup - done)
        value = _model_steps([start], sets, recipe, steps)
        last = done + steps == recipe.warmup
        checked = (*guard.check(model, bold=False), _NAN) if guard and (last or due(number, recipe)) else _UNSEEN
        so_far = done + steps
        yield Round("warm-up", so_far, recipe.warmup, so_far, value, _NAN, _NAN, _NAN, *checked, _since(begun))


class Follower:
    """A model, the loss it follows, and the optimizer that moves it: by some steps in all."""

    def __init__(self, model: nn.Module, loss: nn.Module, recipe: Recipe, steps: int) -> None:
        self.model, self.loss, self.recipe = model, loss, recipe
        self.anchor = recipe.anchor if isinstance(loss, SurrogateLoss) else 0.0
        self.proxy = proxy_for(loss.metric.task) if isinstance(loss, SurrogateLoss) else loss
        self.optimizer, self.pace = build_optimizer(_learnable(model, loss), recipe, steps)

    def step(self, x: Tensor, y: Tensor, w: Tensor | None) -> Tensor:
        """Follow the loss on some sets, and return it."""
        self.optimizer.zero_grad()
        scores = self.model(x) if w is None else scores_of_present(self.model, x, w)
        value: Tensor = self.loss(scores, y, w)
        if self.anchor:
            value = value + self.anchor * self.proxy(scores, y, w)
        value.backward()
        if self.recipe.clip is not None:
            clip_gradients(self.model, self.recipe.clip)
        self.optimizer.step()
        self.pace.step()
        return value.detach()


def scores_of_present(model: nn.Module, x: Tensor, w: Tensor) -> Tensor:
    """Score sets, 0 where a row has no weight: what pads them must not get into the statistics of a batch norm."""
    present = w > 0
    if bool(present.all()):
        scores: Tensor = model(x)
        return scores
    found = model(x[present])
    scores = found.new_zeros(*w.shape, *found.shape[1:])
    scores[present] = found
    return scores


def _model_steps(followers: Sequence[Follower], sets: SetLoader, recipe: Recipe, steps: int) -> float:
    """Lines 4-7: the model follows the loss, its companion cross-entropy, on the same sets with the same dropout."""
    total = torch.zeros(())
    for follower in followers:
        follower.model.train()
    for x, y, w in sets.draw(steps, recipe.sets):
        chance = torch.get_rng_state() if len(followers) > 1 else None
        total += followers[0].step(x, y, w)
        for companion in followers[1:]:
            assert chance is not None
            torch.set_rng_state(chance)
            companion.step(x, y, w)
    if not bool(total.isfinite()):
        raise ValueError(f"loss: expected finite numbers while training, got {float(total)}; are the features scaled?")
    return float(total) / steps


def _check(guard: Selection, followers: Sequence[Follower]) -> tuple[float, bool, float]:
    """Look at the validation rows: the loss of the companion, if there is one, and of the model."""
    beside = _NAN
    for companion in followers[1:]:
        beside, _ = guard.check(companion.model, bold=False)
    return *guard.check(followers[0].model, bold=True), beside


def _surrogate_steps(
    model: nn.Module, loss: nn.Module, sets: SetLoader, recipe: Recipe, steps: int | None = None, stream: str = "refine"
) -> None:
    """Lines 9-12: the surrogate follows the metric, on the scores of a model that stands still."""
    steps = recipe.surrogate_steps if steps is None else steps
    if not isinstance(loss, SurrogateLoss) or loss.frozen or not steps:
        return
    if recipe.refine_mode == "eval":
        asked = steps * recipe.refine_sets
        loss.refine(*sets.scored(partial(scores_of, model), asked, recipe.noise, stream), steps)
        return
    for x, y, w in sets.draw(steps, recipe.refine_sets, stream):
        judged = scores_of(model, x) if recipe.refine_mode == "both" else None
        model.train()
        with torch.no_grad():
            scores = model(x)
        loss.refine(sets.noisy(scores, recipe.noise, stream, w), y, w, judged=judged)


def _faith(model: nn.Module, loss: nn.Module, sets: SetLoader, recipe: Recipe) -> tuple[float, float]:
    """Return how far the surrogate can be trusted on fresh sets of the current model: correlation and cosine.

    NaN if nothing tells them: where every set is the same, or loses nearly the same, for a model that ranks all rows
    right cannot be told from itself.
    """
    if not isinstance(loss, SurrogateLoss) or sets.alike(recipe):
        return _NAN, _NAN
    scored = sets.fresh(partial(scores_of, model), recipe)
    return trust_on(loss, *scored), cosine_on(loss, *scored)


def trust_on(loss: SurrogateLoss, scores: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return the correlation of surrogate and metric on some sets, NaN if these lose nearly the same."""
    measured = loss.fidelity(scores, targets, weights)
    span = float(loss.surrogate.high - loss.surrogate.low)
    return measured["spearman"] if measured["spread"] >= ALIKE * span else _NAN


def cosine_on(loss: SurrogateLoss, scores: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return whether surrogate and metric point the same way on the first of some sets; NaN if asking is costly."""
    if loss.metric.costly:
        return _NAN
    weights = torch.ones_like(loss.metric.task.rows(scores)) if weights is None else weights
    probed = len(scores) if loss.metric.task == RANKING else PROBED_SETS  # a query has few rows
    some = [rows[:probed] for rows in (scores, targets, weights)]
    return gradient_cosine(loss, *some, generator=torch.Generator().manual_seed(0))


def _trust(model: nn.Module, loss: nn.Module, sets: SetLoader, recipe: Recipe) -> float:
    """Return the correlation alone."""
    if not isinstance(loss, SurrogateLoss) or sets.alike(recipe):
        return _NAN
    return trust_on(loss, *sets.fresh(partial(scores_of, model), recipe))


def earn_trust(model: nn.Module, loss: nn.Module, sets: SetLoader, recipe: Recipe) -> float:
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


def build_optimizer(learnable: list[Tensor], recipe: Recipe, steps: int) -> tuple[torch.optim.Optimizer, Pace]:
    """Build the Adam of the model, and the schedule of its rate over some steps."""
    optimizer = torch.optim.Adam(learnable, recipe.learning_rate, fused=True)
    return optimizer, Pace(optimizer, recipe, steps)


class Pace:
    """The rate of an optimizer over some steps: constant, or along a cosine to zero.

    What LambdaLR does, at a small part of its cost.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, recipe: Recipe, steps: int) -> None:
        self.groups, self.recipe, self.steps = optimizer.param_groups, recipe, max(steps, 1)
        self.taken = 0

    def step(self) -> None:
        """Set the rate of the next step."""
        self.taken += 1
        if self.recipe.schedule == "cosine":
            share = (1 + math.cos(math.pi * min(self.taken / self.steps, 1))) / 2
            for group in self.groups:
                group["lr"] = self.recipe.learning_rate * share


def due(number: int, recipe: Recipe) -> bool:
    """Say whether the validation rows are looked at after a round."""
    return (number + 1) % recipe.check_every == 0


def _since(begun: float) -> float:
    return time.perf_counter() - begun
