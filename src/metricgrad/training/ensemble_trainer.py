"""A fleet: models of one make trained at once on the same sets, each by a loss of its own.

Their parameters lie side by side in memory, so that a step of all of them is a few large multiplications instead of
many small ones. The mathematics is that of `trainer.train`, run by run; what does not depend on the loss is done once:
the warm-up, the draws and the dropout.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import two_classes
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.candidates import Keeper, Trained, judged
from metricgrad.training.checkpoint import Checkpoint, go_on, state_of
from metricgrad.training.compiled_steps import PAYS, Swift, can_compile
from metricgrad.training.data import Rows
from metricgrad.training.ensemble import Models, Surrogates
from metricgrad.training.loader import SetLoader, random_state, set_random_state
from metricgrad.training.networks import Scorer
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import Pace, Round, build_optimizer, cosine_on, due, earn_trust, train, trust_on

NAN = float("nan")


class Member(NamedTuple):
    """One loss to follow, and the metrics by which its best models are chosen; the model is the same for all."""

    loss: nn.Module
    metrics: tuple[Metric, ...]


def can_sail(model: Scorer, losses: Sequence[nn.Module], recipe: Recipe) -> bool:
    """Say whether runs can be trained as a fleet.

    Models must be known by name, surrogates of one construction and of bounded metrics of single scores. If the model
    is refined upon in training mode, that uses up dropout, so that only those may sail together which all refine, or
    none.
    """
    surrogates = [loss for loss in losses if isinstance(loss, SurrogateLoss)]
    alike = len({loss.surrogate.config for loss in surrogates}) <= 1
    bounded = all(loss.metric.bounded and loss.surrogate.config.view == "rows" for loss in surrogates)
    together = recipe.refine_mode == "eval" or len({_rank(loss) == 0 for loss in losses}) == 1
    return bool(model.name) and alike and bounded and together


def train_fleet(
    model: Scorer,
    members: Sequence[Member],
    rows: Rows,
    recipe: Recipe,
    *,
    validation: Rows,
    seed: int = 0,
    compiles: bool | None = None,
    start: Start | None = None,
    log: Checkpoint | None = None,
) -> list[list[Trained]]:
    """Train copies of a model, each by one loss, and return for every member the best model by each of its metrics.

    Parameters
    ----------
    model : Scorer
        The start of every member; a model known by name.
    members : sequence of Member
        The losses, and by which metrics their best models are chosen.
    rows, validation : Rows
        What to train on, and where the best models are chosen.
    recipe : Recipe
        How, for all.
    seed : int
        Of the draws, which are the same for all.
    compiles : bool, optional
        Whether steps are compiled, where a compiler is at hand; by default if it pays. The mathematics is the same.
    start : Start, optional
        What `warm_up` returned for the same model, rows, recipe, validation rows and seed, and for these metrics among
        others, all of which take weights or do not; by default the model is warmed up first.
    log : Checkpoint, optional
        Where to write down how far the rounds have come, and to go on from.
    """
    if not can_sail(model, [member.loss for member in members], recipe):
        raise ValueError(
            "members: expected a model known by name, surrogates of one construction and of bounded metrics, and, "
            f"unless refine_mode is 'eval', all or none of them learning, got the recipe {recipe.name!r}"
        )
    metrics = tuple(dict.fromkeys(metric for member in members for metric in member.metrics))
    start = start or warm_up(model, metrics, rows, recipe, validation=validation, seed=seed)
    warmed, sets = start.fleet.models[0], _draws(metrics, rows, recipe, seed)
    for member in members:
        if isinstance(member.loss, SurrogateLoss):
            earn_trust(warmed, member.loss, _draws(metrics, rows, recipe, seed), recipe)
    crew = [*members, *_companion(members, recipe)]
    begun = time.perf_counter() - start.seconds
    fleet = Fleet([deepcopy(warmed) for _ in crew], crew, sets, recipe, validation, begun, compiles)
    fleet.take_over(start.fleet)
    set_random_state(sets, start.random)
    for _ in fleet.sail("rounds", recipe.rounds * recipe.model_steps, log):
        pass
    return [[keeper.trained() for keeper in keepers] for keepers in fleet.keepers[: len(members)]]


class Start(NamedTuple):
    """A model after the warm-up: where every member starts, with the state of every random number generator."""

    fleet: Fleet
    random: list[Tensor]
    seconds: float


def warm_up(
    model: Scorer, metrics: tuple[Metric, ...], rows: Rows, recipe: Recipe, *, validation: Rows, seed: int = 0
) -> Start:
    """Train a copy of a model along cross-entropy, as the recipe says; the arguments are those of `train_fleet`."""
    begun, sets = time.perf_counter(), _draws(metrics, rows, recipe, seed)
    fleet = Fleet([deepcopy(model)], [Member(CrossEntropy(), metrics)], sets, recipe, validation, begun)
    for _ in fleet.sail("warm-up", recipe.warmup):
        pass
    return Start(fleet, random_state(sets), time.perf_counter() - begun)


def _draws(metrics: Sequence[Metric], rows: Rows, recipe: Recipe, seed: int) -> SetLoader:
    return SetLoader(rows, recipe, seed, all(metric.takes_weights for metric in metrics))


def train_each(
    model: Scorer,
    members: Sequence[Member],
    rows: Rows,
    recipe: Recipe,
    *,
    validation: Rows,
    seed: int = 0,
    log: Checkpoint | None = None,
) -> list[list[Trained]]:
    """Train copies of a model, one after the other, each beside its control alone; see `train_fleet`.

    Members of one fleet are rounded differently in the last bit, depending on how many there are and in which order,
    and training amplifies it. The result of a run must not depend on which others were asked for, so only the warm-up,
    which is the same for all, is shared.
    """
    starts: dict[bool, Start] = {}
    found = []
    for number, (loss, metrics) in enumerate(members):
        torch.manual_seed(seed)
        if not can_sail(model, [loss], recipe):
            losses = [loss, *(deepcopy(loss) for _ in metrics[1:])]  # each is trained as it came
            pairs = zip(losses, metrics, strict=True)
            found.append([_alone(model, *pair, rows, recipe, validation, seed) for pair in pairs])
            continue
        weighted = all(metric.takes_weights for metric in metrics)
        if weighted not in starts:
            alike = dict.fromkeys(m for _, ms in members if all(m.takes_weights for m in ms) == weighted for m in ms)
            starts[weighted] = warm_up(model, tuple(alike), rows, recipe, validation=validation, seed=seed)
        own = log.part(number) if log else None
        member = [Member(loss, metrics)]
        found += train_fleet(
            model, member, rows, recipe, validation=validation, seed=seed, start=starts[weighted], log=own
        )
    return found


def _alone(
    model: Scorer, loss: nn.Module, metric: Metric, rows: Rows, recipe: Recipe, validation: Rows, seed: int
) -> Trained:
    """Train one model the plain way."""
    own, guard = deepcopy(model), Selection(validation, metric, recipe)
    torch.manual_seed(seed)
    history = [d for d in train(own, loss, rows, recipe, guard=guard, seed=seed) if d.validation == d.validation]
    return judged(guard, own, isinstance(loss, SurrogateLoss), history)


def _companion(members: Sequence[Member], recipe: Recipe) -> list[Member]:
    """Return the member that goes on with cross-entropy beside surrogates, unless there is one already."""
    needed = recipe.companion and any(isinstance(member.loss, SurrogateLoss) for member in members)
    return [Member(CrossEntropy(), ())] if needed and not any(map(_is_plain, members)) else []


def _is_plain(member: Member) -> bool:
    return type(member.loss) is CrossEntropy


# ---- sailing -------------------------------------------------------------------------------------------------------


class Fleet:
    """Members under way: surrogates that learn first, then those that do not, then the losses made by hand."""

    def __init__(
        self,
        models: list[Scorer],
        members: Sequence[Member],
        sets: SetLoader,
        recipe: Recipe,
        validation: Rows,
        begun: float,
        compiles: bool | None = None,
    ) -> None:
        self.compiles = compiles
        self.models, self.members, self.sets, self.recipe = models, members, sets, recipe
        self.validation, self.begun = validation, begun
        self.keepers = [
            [Keeper(model, member.loss, metric, validation, recipe) for metric in member.metrics]
            for model, member in zip(models, members, strict=True)
        ]
        self.order = sorted(range(len(members)), key=lambda i: _rank(members[i].loss))
        self.joint = Models([models[i] for i in self.order])
        self.probe = self.joint.probe
        losses = [members[i].loss for i in self.order]
        groups = [[loss for loss in losses if _rank(loss) == rank] for rank in (0, 1)]
        self.groups = [Surrogates(group, recipe.surrogate_rate) for group in groups if group]  # type: ignore[arg-type]
        self.by_hand = losses[sum(map(len, groups)) :]
        self.gone = torch.zeros(len(members), dtype=torch.bool)
        plain = [i for i, member in enumerate(members) if _is_plain(member)]
        self.companion = plain[0] if plain and recipe.companion else None

    def take_over(self, first: Fleet) -> None:
        """Let every keeper start from what the warm-up found best by its metric, and from its history."""
        found = {keeper.metric: keeper for keeper in first.keepers[0]}
        for keepers in self.keepers:
            for keeper in keepers:
                old = found[keeper.metric]
                keeper.guard.safe = replace(old.guard.safe)
                keeper.history = list(old.history)

    def sail(self, phase: str, steps: int, log: Checkpoint | None = None) -> Iterator[int]:
        """Take some model steps, refining in every round of them, check at times, and yield the steps so far.

        With a logbook they go on from what it says.
        """
        recipe = self.recipe
        learnable = [*self.joint.learnable, *(p for loss in self.by_hand for p in loss.parameters())]
        optimizer, pace = build_optimizer(learnable, recipe, steps)
        follow: Callable[[int], Tensor] = partial(self._follow, optimizer, pace)
        if not steps:
            self._check(phase, 0, 0, torch.full((len(self.members),), NAN))
        log = log if all(group.together for group in self.groups if group.optimizer) else None
        known = log.read() if log else None
        start = 0 if known is None else go_on(self, known, optimizer, pace)
        if start and self._pays(optimizer):
            follow = self._compiled(optimizer, pace)
        for number in range(start, -(-steps // recipe.model_steps)):
            done = number * recipe.model_steps
            taken = min(recipe.model_steps, steps - done)
            if recipe.first == "surrogate":
                self._refine()
            values = follow(taken)
            if recipe.first == "model":
                self._refine()
            if number == 0 and self._pays(optimizer):
                follow = self._compiled(optimizer, pace)
            if done + taken == steps or due(number, recipe):
                self._check(phase, done + taken, steps, values)
                if log and log.due:
                    log.write({"number": number + 1, **state_of(self, optimizer, pace)})
            yield done + taken
        if bool(self.gone.any()):
            names = ", ".join(type(self.members[i].loss).__name__ for i in self.gone.nonzero()[:, 0].tolist())
            warnings.warn(f"losses stopped being finite, their best model before is kept: {names}", stacklevel=3)

    def _follow(self, optimizer: torch.optim.Optimizer, pace: Pace, steps: int) -> Tensor:
        """Let every model follow its loss for some steps, and return the mean losses: `(members,)`."""
        values = torch.zeros(len(self.members))
        for x, y, w in self.sets.draw(steps, self.recipe.sets):
            optimizer.zero_grad()
            each = self._losses(self.joint.follow(x), y, torch.ones_like(y) if w is None else w)
            each.sum().backward()
            if self.recipe.clip is not None:
                self.joint.clip(self.recipe.clip)
            optimizer.step()
            pace.step()
            values += each.detach() / steps
        return values

    def _pays(self, optimizer: torch.optim.Optimizer) -> bool:
        """Say whether compiled steps are possible and worth their time: very many, and all along surrogates alike."""
        recipe = self.recipe
        if len(self.groups) != 1 or self.by_hand or recipe.sets > 1 or self.groups[0].shape.fixed_pool:
            return False
        group = self.groups[0]
        if group.optimizer and not (group.optimizer.state and group.together):
            return False
        many = recipe.rounds * (recipe.model_steps + recipe.surrogate_steps) >= PAYS
        return bool(optimizer.state) and (many if self.compiles is None else self.compiles) and can_compile()

    def _compiled(self, optimizer: torch.optim.Optimizer, pace: Pace) -> Callable[[int], Tensor]:
        """Compile the steps of models and surrogates from here on: Adam has its moments by now."""
        swift = Swift(self.joint, self.groups[0], optimizer, self.recipe.anchor, self.recipe.clip)
        self.groups[0].swift, self.probe = swift.refine, swift.probe

        def follow(steps: int) -> Tensor:
            rates = []
            for _ in range(steps):
                rates.append(optimizer.param_groups[0]["lr"])
                pace.step()
            return swift.follow(*self.sets.at_once(steps, "follow"), rates).mean(0)

        return follow

    def _losses(self, scores: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return the loss of every member in order, surrogates anchored: `(members, sets, n)` -> `(members,)`."""
        learned = sum(len(group.losses) for group in self.groups)
        values = [loss(own, y, w) for loss, own in zip(self.by_hand, scores[learned:], strict=True)]
        if not learned:
            return torch.stack(values)
        own = scores[:learned]
        parts = own.split([len(group.losses) for group in self.groups])
        losses = torch.cat([group(part, y, w) for group, part in zip(self.groups, parts, strict=True)])
        told = two_classes(y, w).to(losses.dtype)
        losses = (losses * told).sum(-1) / told.sum().clamp(min=1)
        if self.recipe.anchor:
            rows = F.binary_cross_entropy_with_logits(own, y.expand_as(own), reduction="none") * w
            losses = losses + self.recipe.anchor * rows.sum((-1, -2)) / w.sum()
        return torch.cat((losses, torch.stack(values))) if values else losses

    def _refine(self) -> None:
        recipe = self.recipe
        group = self.groups[0] if self.groups else None
        if group is None or group.optimizer is None or not recipe.surrogate_steps:
            return
        steps, count = recipe.surrogate_steps, len(group.losses)
        if recipe.refine_mode == "eval":
            judge = partial(self.joint.judge, first=count)
            group.refine(*self.sets.scored(judge, steps * recipe.refine_sets, recipe.noise), steps)
            return
        sets = recipe.refine_sets
        x, y, w = self.sets.at_once(steps * sets, "refine")
        still, live = (scores[:count] for scores in self.probe(x.unflatten(0, (steps, sets)).flatten(1, 2)))
        still, live = (scores.unflatten(-1, (sets, -1)).flatten(1, 2) for scores in (still, live))
        judged = still if recipe.refine_mode == "both" else None
        if recipe.noise:
            live = torch.cat([self.sets.noisy(part, recipe.noise) for part in live.split(sets, 1)], 1)
        group.refine(live, y, w, steps, judged, apart=True)

    def _check(self, phase: str, done: int, of: int, values: Tensor) -> None:
        """Look at the validation rows, and at how far the surrogates can be trusted; where they point, at the end."""
        recipe, count = self.recipe, len(self.members)
        scores = self.joint.judge(self.validation.x)
        faith, gaps = [(NAN, NAN)] * count, [NAN] * count
        if self.groups and not self.sets.alike(recipe):
            losses = [loss for group in self.groups for loss in group.losses]
            tried, y, w = self.sets.fresh(partial(self.joint.judge, first=len(losses)), recipe)
            for place, loss in enumerate(losses):
                rows = tried[place], y, w
                faith[place] = trust_on(loss, *rows), cosine_on(loss, *rows) if done == of else NAN
                gaps[place] = loss.gap
        so_far = done if phase == "warm-up" else recipe.warmup + done
        unit = 1 if phase == "warm-up" else recipe.model_steps
        self.gone[self.order] |= ~scores.isfinite().all(-1)
        for place, i in enumerate(self.order):
            if bool(self.gone[i]):
                continue
            for keeper in self.keepers[i]:
                beside = NAN
                if keeper.learned and self.companion is not None and not bool(self.gone[self.companion]):
                    other = scores[self.order.index(self.companion)]
                    beside, _ = keeper.guard.check(self.models[self.companion], False, other)
                checked = keeper.guard.check(self.models[i], phase == "rounds", scores[place])
                if not of:
                    continue
                numbers = (done // unit, of // unit, so_far, float(values[place]), gaps[place], *faith[place])
                keeper.history.append(Round(phase, *numbers, *checked, beside, time.perf_counter() - self.begun))


def _rank(loss: nn.Module) -> int:
    """Return 0 for a surrogate that learns, 1 for one that does not, 2 for any other loss."""
    return 2 if not isinstance(loss, SurrogateLoss) else int(loss.frozen)
