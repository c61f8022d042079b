"""Algorithm 1 as a generator of rounds, for any model and any loss, with a control on cross-entropy beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.losses.binary import ON_ALL_ROWS, ROW_LOSSES
from metricgrad.losses.default import proxy_for
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import BINARY
from metricgrad.surrogate.adam import Adam
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.direct import MAX_SEARCHED, REPORTS, DirectSearch, search
from metricgrad.training.ensemble import Ensemble, ModuleEnsemble, members_of, present_scores
from metricgrad.training.history import Round
from metricgrad.training.loader import SetLoader, may_weigh, random_state, set_random_state
from metricgrad.training.optimizers import Factory, OwnOptimizer
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Best, Selection, scores_of
from metricgrad.training.solver import MAX_WORSE_RIDGES, RIDGES, WHITENED_TOLERANCE, Given, Problem, linear_form
from metricgrad.training.steps import (
    MIN_COSINE,
    earn_trust,
    faith,
    learnable,
    objectives,
    refine,
    set_rate,
    warn_unfaithful,
)

if TYPE_CHECKING:
    from metricgrad.training.jobs import Checkpoint, Start


class NotFinite(ValueError):
    """The loss followed is no longer finite."""


def train(
    model: nn.Module,
    loss: nn.Module,
    rows: Rows,
    recipe: Recipe,
    *,
    selection: Selection | Sequence[Selection] = (),
    seed: int = 0,
    start: Start | None = None,
    checkpoint: Checkpoint | None = None,
    optimizer: Factory | None = None,
    device: str | torch.device | None = None,
    control: nn.Module | None = None,
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
    selection : Selection or sequence of Selection, optional
        Chooses the best model on validation rows, the cross-entropy start included; without, the last one stays. Of
        several, on the same rows by several metrics, the model is that of the first.
    seed : int
        Of the draws.
    start : Start, optional
        What `warm_up` returned for the same model, rows, recipe and seed; by default the model is warmed up first.
    checkpoint : Checkpoint, optional
        Where the state of the rounds is written at checks, and read from if a run was stopped.
    optimizer : callable, optional
        Parameters -> optimizer of torch, in the place of Adam. A model that is solved for needs none.
    device : str or torch.device, optional
        Where a model that is not solved for computes; rows, sets and losses stay where they are, and so does the model
        in the end.
    control : module, optional
        The loss that the control beside a surrogate follows, and that is mixed into it (`anchor`); by default the
        proxy of the task. A start may be a model that followed it.
    """
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    if isinstance(loss, SurrogateLoss):
        loss.sync = False  # this loop trains in one process, whatever others do
    if recipe.start == "solved" and not isinstance(loss, (SurrogateLoss, DirectSearch, *ON_ALL_ROWS)):
        recipe = recipe.for_baselines  # by mini-batches: not every hand-made loss can be followed on all rows
    home = next((parameter.device for parameter in model.parameters()), None)
    like = start.problem if start else None
    run, learned = TrainingRun(model, rows, recipe, selections, seed, loss, optimizer, device, like), False
    run.control = control
    try:
        if start:
            start.hand_over(run)
        else:
            yield from run.warm_up()
        losses = [loss]
        if isinstance(loss, SurrogateLoss):
            learned = True
            yield from run.refine_first(loss)
            losses += [control or proxy_for(run.loader.task)] if selections and recipe.control else []
        if isinstance(loss, DirectSearch):
            learned = True
            yield from run.search(loss, seed)
        elif run.problem and type(loss) is type(run.problem.proxy):
            pass  # its minimum is the start
        elif run.problem and isinstance(loss, (SurrogateLoss, *ON_ALL_ROWS)):
            yield from run.follow_on_all_rows(loss)
        else:
            yield from run.follow("rounds", losses, recipe.rounds * recipe.model_steps, checkpoint)
    finally:
        if selections:
            selections[0].restore(model, learned)
        model.to(home).eval()
    if isinstance(loss, SurrogateLoss) and recipe.trust > -1 and run.cosine < MIN_COSINE:
        why = f"at the end the cosine between its gradient and that of the metric was {run.cosine:.2f}"
        warn_unfaithful(loss, f"{why}, below {MIN_COSINE}")


class TrainingRun:
    """A model on its way through both phases: where its sets come from, and what chooses its checkpoints."""

    def __init__(
        self,
        model: nn.Module,
        rows: Rows,
        recipe: Recipe,
        selections: Sequence[Selection],
        seed: int,
        loss: nn.Module | None = None,
        optimizer: Factory | None = None,
        device: str | torch.device | None = None,
        like: Problem | None = None,
    ) -> None:
        if next(model.parameters(), None) is None:
            got = f"{type(model).__name__} without any"
            raise ValueError(f"model: expected a module with parameters to train, got {got}")
        self.model, self.recipe, self.selections, self.factory = model, recipe, selections, optimizer
        judges = [m for m in (getattr(loss, "metric", None), *(s.metric for s in selections)) if isinstance(m, Metric)]
        task, weighted = judges[0].task if judges else BINARY, may_weigh(judges, rows)
        form = linear_form(model) if recipe.start == "solved" and rows.members is None else None
        self.problem = Problem(form, rows, task, weighted, seed, like) if form else None
        if device is not None and not self.problem:
            model.to(device)
        self.scorer = Given() if form and isinstance(loss, SurrogateLoss) else model
        self.stepped = self.problem.model if self.problem else model  # what takes the steps of mini-batches
        self.loader = SetLoader(self.problem.rows if self.problem else rows, recipe, seed, weighted, task)
        self.trust = self.cosine = math.nan
        self.control: nn.Module | None = None  # the loss of the control, if it is not the proxy
        self.held_out: list[float] = []  # the proxy on the validation rows, at every check
        self.begun = time.perf_counter()

    def warm_up(self) -> Generator[Round, None, None]:
        """Give every loss the same start: steps of cross-entropy; without them, the model as it came."""
        if self.problem:
            yield from self._solve(self.problem)
            return
        if not self.recipe.warmup:
            for selection in self.selections:
                selection.check(self.model, followed=False)
        yield from self.follow("warm-up", [proxy_for(self.loader.task)], self.recipe.warmup)
        if self.recipe.early_stopping and self.selections and self.selections[0].control.state:
            self.model.load_state_dict(self.selections[0].control.state)

    def _solve(self, problem: Problem) -> Generator[Round, None, None]:
        """Go to the minimum of cross-entropy; the ridge penalty is the one with the least loss on validation rows.

        Only that model is checked by the metric, and so is the control: the best of all penalties by the metric may
        owe that to a few rows.
        """
        best, kept, since_best, of = math.inf, (problem.weights, RIDGES[0], math.nan), 0, len(RIDGES)
        try:
            for number, value in enumerate(problem.path(), 1):
                held_out = self._held_out_proxy() if self.selections else value
                since_best += 1
                if held_out < best:
                    best, kept, since_best = held_out, (problem.weights, problem.ridge, value), 0
                yield Round("warm-up", number, of, number, value, seconds=self.seconds)
                if since_best == MAX_WORSE_RIDGES:
                    break
        finally:  # also if the user stops here
            problem.weights, problem.ridge, value = kept
        yield self._validated(Round("warm-up", of, of, number, value, seconds=self.seconds), [self.model])

    def refine_first(self, loss: SurrogateLoss) -> Generator[Round, None, None]:
        """Refine a surrogate that cannot be trusted yet, before the model follows it."""
        recipe = self.recipe
        for taken, trust in earn_trust(self.scorer, loss, self.current_loader(), recipe):
            self.trust = trust
            if taken:
                place = (taken, recipe.trust_cap, recipe.warmup)
                yield Round("refining", *place, math.nan, loss.gap, self.trust, seconds=self.seconds)

    def follow_on_all_rows(self, loss: nn.Module) -> Generator[Round, None, None]:
        """Let the model follow a loss on all rows at once, by L-BFGS; sets are drawn to refine a surrogate only."""
        problem, recipe = self.problem, self.recipe
        assert problem is not None
        y, w = problem.rows.y, problem.rows.w
        w = torch.ones(len(y)) if w is None else w
        by_row = isinstance(loss, ROW_LOSSES)  # it has a minimum near that of the start, found in the same coordinates
        shrink, basis, last = (1.0, problem.basis, math.inf) if by_row else (recipe.anchor, None, math.nan)

        def objective(scores: Tensor, weight: Tensor) -> Tensor:
            scores = scores.double() if by_row else scores
            (value,) = objectives([loss], scores.unsqueeze(0), y, w, recipe.anchor, proxy=self.control)
            return value + shrink * problem.shrinkage(weight)

        for number in range(recipe.rounds):  # line 2
            if recipe.first == "surrogate":
                refine(self.scorer, loss, self.current_loader(), recipe)
            value = problem.minimise(objective, recipe.model_steps, basis)  # lines 3-7
            if recipe.first == "model":
                refine(self.scorer, loss, self.current_loader(), recipe)  # lines 8-12
            result = self._round("rounds", number, (number + 1) * recipe.model_steps, value, loss)
            result = self._checked(result, [self.model], loss)
            yield result
            if self._stalled(result) or last - value <= WHITENED_TOLERANCE * abs(value):
                return
            last = value if by_row else last

    def search(self, loss: DirectSearch, seed: int) -> Generator[Round, None, None]:
        """Move the weights of a linear or additive model by search on the true metric of all rows."""
        if not self.problem and self.recipe.start != "solved" and linear_form(self.model):
            raise ValueError(f"recipe: expected one with start='solved' for 'direct', got start={self.recipe.start!r}")
        if not self.problem or not self.problem.single:
            got = "another" if not self.problem else f"{self.problem.form.head.out_features} outputs"
            raise ValueError(f"method: expected a linear or additive model of one output for 'direct', got {got}")
        if self.problem.columns.shape[1] > MAX_SEARCHED:
            return
        for number, found in enumerate(search(self.problem, loss, seed), 1):
            result = Round("rounds", number, REPORTS, found.evaluations, found.loss, seconds=self.seconds)
            result = self._validated(result, [self.model])
            yield result
            if self._stalled(result):
                return

    def current_loader(self) -> SetLoader:
        """Return the loader of the sets that a surrogate is refined on.

        Where the scores of all rows are at hand they take the place of features, so that a set is only drawn.
        """
        if self.problem and self.scorer is not self.model:
            scores = self.problem.scores()
            self.loader.rows = self.loader.rows._replace(x=scores.unsqueeze(-1) if scores.ndim == 1 else scores)
        return self.loader

    def follow(
        self, phase: str, losses: Sequence[nn.Module], steps: int, checkpoint: Checkpoint | None = None
    ) -> Generator[Round, None, None]:
        """Let the model follow the first loss, and a copy of it beside it the second, for some model steps."""
        model, loader, recipe, loss = self.model, self.loader, self.recipe, losses[0]
        if self.problem:
            loader.rows = self.problem.in_columns
        members = members_of(self.stepped, len(losses), stacked=self.factory is None)
        optimizer = self._optimizer(learnable(members, losses))
        start = self._resume(checkpoint, members, losses, optimizer)
        for number in range(start, -(-steps // recipe.model_steps)):  # line 2
            done = number * recipe.model_steps
            taken, total = min(recipe.model_steps, steps - done), torch.zeros(())
            if recipe.first == "surrogate":
                refine(model, loss, loader, recipe)
            for step, (x, y, w) in enumerate(loader.draw(taken, recipe.sets), done):  # lines 3-7
                scores = present_scores(members, x, w)
                values = objectives(losses, scores, y, w, recipe.anchor, members.several, self.control)
                for parameter in optimizer.parameters:
                    parameter.grad = None
                torch.autograd.backward(values)
                if recipe.clip is not None:
                    members.clip(recipe.clip)
                set_rate(optimizer, recipe, phase, step / steps)
                optimizer.step([parameter.grad for parameter in optimizer.parameters])
                total += values[0].detach()
            if recipe.first == "model":
                refine(model, loss, loader, recipe)  # lines 8-12
            result = self._round(phase, number, done + taken, float(total) / taken, loss)
            if done + taken == steps or (number + 1) % recipe.check_every == 0:
                models = [model] if self.problem else members.models
                result = self._checked(result, models, loss)
                if checkpoint and checkpoint.due:
                    checkpoint.write({"number": number + 1, **self._state(members, losses, optimizer)})
                falling = phase == "rounds" and recipe.schedule != "constant"  # such rounds run to their end
                if not falling and self._stalled(result):
                    yield result
                    return
            yield result

    def _optimizer(self, learned: list[Tensor]) -> Adam | OwnOptimizer:
        if self.factory is None:
            return Adam(learned, self.recipe.learning_rate, self.recipe.weight_decay)
        return OwnOptimizer(self.factory, learned, self.recipe.learning_rate)

    def _round(self, phase: str, number: int, done: int, value: float, loss: nn.Module) -> Round:
        """Return what is known of a round before any check."""
        if not math.isfinite(value):
            raise NotFinite(f"loss: expected finite numbers while training, got {value}; are the features scaled?")
        recipe, gap = self.recipe, loss.gap if isinstance(loss, SurrogateLoss) else math.nan
        place = (done, recipe.warmup, done)
        if phase == "rounds":
            place = (number + 1, recipe.rounds, recipe.warmup + done)
        return Round(phase, *place, value, gap, self.trust, self.cosine, seconds=self.seconds)

    def _checked(self, result: Round, models: Sequence[nn.Module], loss: nn.Module) -> Round:
        """Return a round with how far the surrogate can be trusted and the true losses on the validation rows."""
        if isinstance(loss, SurrogateLoss):
            self.trust, self.cosine = faith(self.scorer, loss, self.current_loader(), self.recipe)
        return self._validated(replace(result, trust=self.trust, cosine=self.cosine), models)

    def _validated(self, result: Round, models: Sequence[nn.Module]) -> Round:
        """Return a round with the true losses on the validation rows, of the model and of a control beside it."""
        if not self.selections:
            return result
        validation = self.selections[0].validation
        scored = [(model, self._validation_scores(model)) for model in models]
        if validation.members is None:
            self.held_out.append(self._held_out_proxy(scored[0][1]))
        for selection in self.selections:
            control = math.nan
            for model, scores in scored[1:]:
                control, _ = selection.check(model, followed=False, scores=scores)
            own, best = selection.check(self.model, followed=result.phase == "rounds", scores=scored[0][1])
            selection.history.append(replace(result, validation=own, best=best, control=control, seconds=self.seconds))
        return self.selections[0].history[-1]

    def _held_out_proxy(self, scores: Tensor | None = None) -> float:
        """Return the proxy on the validation rows; their scores are computed unless they are given."""
        validation = self.selections[0].validation
        scores = self._validation_scores(self.model) if scores is None else scores
        return float(proxy_for(self.loader.task)(scores, validation.y, validation.w))

    def _validation_scores(self, model: nn.Module) -> Tensor:
        """Return the scores of the validation rows; those of fixed columns come from the columns, computed once."""
        x = self.selections[0].validation.x
        if self.problem is None or model is not self.model or not self.problem.keeps(x):
            return scores_of(model, x)
        return self.problem.validation_scores(x)

    def _state(
        self, members: Ensemble | ModuleEnsemble, losses: Sequence[nn.Module], optimizer: Adam | OwnOptimizer
    ) -> dict[str, Any]:
        """Return where everything stands between two rounds, as plain data and tensors."""
        chosen = [(astuple(s.control), astuple(s.followed), [*map(astuple, s.history)]) for s in self.selections]
        return {
            "modules": [dict(module.state_dict()) for module in (*members.models, *losses)],
            "optimizer": optimizer.state_dict(),
            "random": random_state(self.loader),
            "selections": chosen,
            "faith": (self.trust, self.cosine),
        }

    def _resume(
        self,
        checkpoint: Checkpoint | None,
        members: Ensemble | ModuleEnsemble,
        losses: Sequence[nn.Module],
        optimizer: Adam | OwnOptimizer,
    ) -> int:
        """Put everything where a checkpoint has it, if there is one, and return the number of the next round."""
        state = checkpoint.read() if checkpoint else None
        if state is None:
            return 0
        for module, known in zip((*members.models, *losses), state["modules"], strict=True):
            module.load_state_dict(known)
        optimizer.load_state_dict(state["optimizer"])
        set_random_state(self.loader, state["random"])
        for selection, (control, followed, history) in zip(self.selections, state["selections"], strict=True):
            selection.control, selection.followed = Best(*control), Best(*followed)
            selection.history = [Round(*known) for known in history]
        self.trust, self.cosine = state["faith"]
        self.begun -= state["spent"]
        return int(state["number"])

    def _stalled(self, result: Round) -> bool:
        """Whether a phase has gone on for as many checks without a gain as patience allows.

        In the warm-up a gain is a lower loss on validation rows of the proxy that is followed, so that every run of a
        job starts from the same model, whatever its metric; afterwards it is a new best model by any metric.
        """
        patience = self.recipe.patience
        if patience is None or not self.selections:
            return False
        if result.phase == "warm-up":
            earlier, last = self.held_out[:-patience], self.held_out[-patience:]
            return bool(earlier) and min(earlier) <= min(last)
        recent = [done for selection in self.selections for done in selection.history[-patience:]]
        enough = len(recent) == patience * len(self.selections)
        return enough and not any(done.best or done.phase == "warm-up" for done in recent)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.begun
