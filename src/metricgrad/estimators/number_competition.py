"""The competition of strategies of a regressor: each is trained from one start and judged at its best constant."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from copy import copy, deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.estimators import number_strategies as strategies
from metricgrad.estimators.metric_estimator import How, Trained, check_fit, scores_in_double
from metricgrad.estimators.number_strategies import DIRECT, MSE, SURROGATE, NumbersVerdict, Strategy, Truth
from metricgrad.losses.default import proxy_for
from metricgrad.metrics.constants import Correction, Units, in_units
from metricgrad.metrics.registry import Metric
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.pretraining import ConstantMetric
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.direct import DirectSearch
from metricgrad.training.jobs import Start
from metricgrad.training.networks import Scorer, build_model, one_thread, threads_for
from metricgrad.training.selection import Selection
from metricgrad.training.solver import linear_form
from metricgrad.training.splits import Split
from metricgrad.training.trainer import TrainingRun

if TYPE_CHECKING:
    from metricgrad.estimators.regressor import MetricRegressor

NOISE = 0.1
"""Of refined scores, in units of their spread: predictions of numbers are nearer to targets than scores of classes."""
USUAL, BY_HAND, CHOSEN = "squared error", "best loss by hand", "chosen"
"""Regressors of `fit_beside_usual`."""
LONGER = ", longer"
"""Ends the name of a loss that was followed as long as the metric was."""


class Setting(NamedTuple):
    """What strategies in the same units share: training and validation rows, the metric, and where they start."""

    units: Units
    rows: Rows
    kept: Rows
    metric: Metric
    network: Scorer
    start: Start

    def loss(self, scores: Tensor, weights: Tensor | None) -> float:
        """Return the true loss of the validation rows at the best constant."""
        return float(self.metric.best(scores, self.kept.y.double(), weights))


class NumberCompetition:
    """Trains the strategies of a regressor one after the other, and chooses the best.

    Parameters
    ----------
    owner : MetricRegressor
        Whose model, recipe, callback and limits they share.
    table : TrainingData
        Targets as given.
    parts : Split
        What is trained on, and what is held out.
    metric : Metric
        In the unit of the targets.
    seed : int
        Of weights and draws.

    Attributes
    ----------
    strategies : list of Strategy
        What was trained so far.
    interrupted : bool
        Whether the user or the time limit ended it.
    """

    def __init__(self, owner: MetricRegressor, table: TrainingData, parts: Split, metric: Metric, seed: int) -> None:
        self.owner, self.table, self.parts, self.metric, self.seed = owner, table, parts, metric, seed
        # The start is the best by squared error: the best by the metric may be so by chance.
        own = owner.effective_recipe
        self.recipe = replace(own, noise=min(NOISE, own.noise), early_stopping=True)
        self.begun, self.interrupted = time.perf_counter(), False
        self.strategies: list[Strategy] = []
        self.losses: dict[str, nn.Module] = {}
        held_out = parts.validation
        y = torch.from_numpy(table.targets[held_out])
        if table.columns is not None:
            y = torch.cat((y.unsqueeze(-1), torch.as_tensor(table.columns[held_out], dtype=y.dtype)), -1)
        self.truth = Truth(y, None if table.weights is None else torch.from_numpy(table.weights[held_out]))

    # ---- one after the other ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train squared error in every unit, and the other strategies in the best of them."""
        settings = []
        for units in self._units():
            setting = self._setting(units)
            settings.append(setting)
            if self.interrupted and not self.strategies:
                self._note(MSE, self._warmed_up(setting), setting, time.perf_counter() - self.begun)
            with self._threads(setting.network):
                self._train(MSE, proxy_for(self.metric.task), setting)
            if self._is_over():
                break
        usual = self.best
        with self._threads(settings[0].network):
            setting = next(each for each in settings if each.units == usual.units)
            if self.owner.method != MSE and not self.metric.task.several:
                for name, make in self._by_hand(usual, setting).items():
                    self._train(name, make(), setting)
            self._follow_metric(setting)

    def _by_hand(self, usual: Strategy, setting: Setting) -> dict[str, strategies.Made]:
        """Return the losses to try beside squared error, given its model."""
        targets = setting.kept.y.double()
        found = strategies.usual_losses(targets - usual.scores)
        if self.owner.method != "usual":
            found |= strategies.hand_made_losses(self.metric, usual, targets, self.truth)
        return found

    def _follow_metric(self, setting: Setting) -> None:
        """Try direct search and the surrogate, from the best model so far."""
        method, first = self.owner.method, self.best
        differ = len(np.unique(self.table.targets[self.parts.train])) > 1
        enough = differ and len(self.truth.y) >= strategies.MIN_LEARNED_ROWS
        if method not in ("auto", DIRECT, SURROGATE) or not enough:
            return
        if method != SURROGATE and linear_form(first.trained.network) is not None:
            self._train(DIRECT, DirectSearch(setting.metric), setting, first)
        if method != DIRECT and not self._is_over():
            with work_bar() if self.owner.verbose else nullcontext() as report:
                scores = scores_in_double(first.trained.network, setting.rows.x[:])
                given = (self.metric, setting.metric, scores, setting.rows, setting.units, self.recipe)
                try:
                    loss = strategies.own_surrogate(*given, report)
                except ConstantMetric:  # such as a tolerance that all predictions keep
                    return
            self._train(SURROGATE, loss, setting, first)

    def _threads(self, network: Scorer) -> AbstractContextManager[None]:
        """Return a context for work on a network: threads that wait for each other make small work slower."""
        return threads_for(network, self.recipe.set_size * self.recipe.sets)

    def _units(self) -> list[Units]:
        """Return the units to try: standardised targets, and their logarithms if all are above 0."""
        targets, train = self.table.targets, self.parts.train
        weights = None if self.table.weights is None else self.table.weights[train]
        positive = bool((targets > 0).all())
        if self.owner.units == "log" and not positive:
            raise ValueError(f"y: expected numbers above 0 with units='log', got {targets.min():g}")
        logs = {"auto": (False, True) if positive else (False,), "log": (True,), "standardised": (False,)}
        return [Units.of(targets[train], weights, log=log) for log in logs[self.owner.units]]

    def _setting(self, units: Units) -> Setting:
        """Make rows, metric and start in some units."""
        table = replace(self.table, targets=units.from_targets(self.table.targets))
        rows = table.lazy_rows(self.parts.train, self.recipe.set_size)
        kept, metric = table.validation_rows(self.parts.validation), in_units(self.metric, units)
        network = build_model(self.owner._model_spec(), self.table.X.shape[1], self.seed)
        network.prepare(rows.x, rows.w, rows.y)
        check_fit(network, rows.x[:2])
        return Setting(units, rows, kept, metric, network, self._warm_up(network, rows, kept, metric))

    def _warm_up(self, network: Scorer, rows: Rows, kept: Rows, metric: Metric) -> Start:
        """Return where squared error leads; if training is stopped on the way, from there nothing else is tried."""
        torch.manual_seed(self.seed)
        owner, own, check = self.owner, deepcopy(network), Selection(kept, metric, self.recipe)
        run = TrainingRun(own, rows, self.recipe, [check], self.seed, None, owner.optimizer, owner.device)
        how = How(self.recipe, self.seed, self._seconds_left())
        _, stopped = owner._watched(run.warm_up(), own, metric, how)
        self.interrupted = self.interrupted or stopped
        return Start.of(run)._replace(seconds=0.0)  # a limit counts them already

    def _warmed_up(self, setting: Setting) -> Trained:
        """Return the model of a warm-up that was stopped, as that of squared error."""
        own, selection = deepcopy(setting.network), setting.start.selections[setting.metric]
        own.load_state_dict(setting.start.model)
        selection.restore(own, learned=False)
        own = own.double() if own.name else own
        return Trained(own, selection.history, True, selection.verdict, setting.metric)

    def _seconds_left(self) -> float | None:
        limit = self.owner.time_limit
        return None if limit is None else max(limit - (time.perf_counter() - self.begun), 0.0)

    def _train(self, name: str, loss: nn.Module, setting: Setting, first: Strategy | None = None) -> None:
        """Train one more strategy, from the common start, or from the model of another, which is then its control."""
        if self._is_over():
            return
        since = time.perf_counter()
        self.losses[name] = loss
        how, start, control = How(self.recipe, self.seed, self._seconds_left()), setting.start, None
        if first is not None:
            how = how._replace(recipe=replace(self.recipe, early_stopping=False))
            start, control = start.moved(first.checkpoint, setting.metric), self.losses[first.name]
        given = (deepcopy(setting.network), setting.rows, setting.kept, setting.metric, how, start)
        # A loss that is followed from the start shows its own best model, even if that is worse than the start.
        trained = self.owner._follow(loss, *given, guarded=first is not None or name == MSE, control=control)
        self.interrupted = self.interrupted or trained.interrupted
        kept = first is None or (trained.verdict is not None and trained.verdict.followed)
        seconds = time.perf_counter() - since
        if not kept and first is not None:  # the network is then its control
            self._note(f"{first.name}{LONGER}", trained, setting, seconds)
            self.losses[f"{first.name}{LONGER}"] = self.losses[first.name]
        self._note(name, trained, setting, seconds, kept)

    def _note(self, name: str, trained: Trained, setting: Setting, seconds: float, kept: bool = True) -> None:
        """Add what a strategy came to; one that is not kept is known by its scores only."""
        scores = scores_in_double(trained.network, setting.kept.x[:])
        if not kept:
            own = trained.held_out[1]
            if own is None:
                return
            scores = own.double()
        found = setting.loss(scores, self.truth.w)
        self.strategies.append(Strategy(name, setting.units, trained, scores, found, seconds, kept))

    def _is_over(self) -> bool:
        limit = self.owner.time_limit
        late = limit is not None and time.perf_counter() - self.begun >= limit
        self.interrupted = self.interrupted or (late and bool(self.strategies))
        return self.interrupted and bool(self.strategies)

    # ---- what came of it -------------------------------------------------------------------------------------------

    @property
    def best(self) -> Strategy:
        """The strategy of the least loss on validation rows that may be chosen."""
        return min((each for each in self.strategies if each.kept), key=lambda each: each.loss)

    @property
    def usual(self) -> Strategy:
        """Squared error, in the units in which it does better."""
        return min((each for each in self.strategies if each.name == MSE), key=lambda each: each.loss)

    @property
    def by_hand(self) -> Strategy:
        """The best of the losses that need no surrogate and no search, trained once."""
        learned = {DIRECT, SURROGATE}
        own = [each for each in self.strategies if each.name not in learned and not each.name.endswith(LONGER)]
        return min(own, key=lambda each: each.loss)

    def correction(self, strategy: Strategy) -> tuple[Correction, float]:
        """Return the map of the predictions of a strategy, and its loss on validation rows."""
        with one_thread():
            return strategies.chosen_correction(self.metric, strategy.predictions, self.truth, self.seed)

    def verdict(self, best: Strategy, correction: Correction) -> NumbersVerdict:
        """Return what won, against squared error with its best constant."""
        usual = self.usual
        error = 0.0 if best is usual else strategies.error_between(self.metric, best, usual, self.truth)
        value, before = (float(self.metric.value(each.loss)) for each in (best, usual))
        unit = abs(float(self.metric.value(1.0)) - float(self.metric.value(0.0)))
        units = "log" if best.units.log else "standardised"
        known = (best.name, units, str(correction), self.metric.label, value, before, unit * error)
        return NumbersVerdict(*known, self.metric.higher_is_better)

    def records(self, best: Strategy) -> list[dict[str, Any]]:
        """Return a record of every strategy."""
        return strategies.leaderboard(self.strategies, best, self.metric, self.truth)


# ---- a regressor beside those it has beaten ------------------------------------------------------------------------


def fit_beside_usual(model: MetricRegressor, X: Any, y: Any, **given: Any) -> dict[str, MetricRegressor]:
    """Fit a regressor, and return it beside others of the same rows: by squared error, and by the best loss by hand.

    Each has its own correction, chosen on the validation rows; `given` is what `fit` takes.
    """
    competition = model._compete(X, y, **given)
    chosen = {USUAL: competition.usual, BY_HAND: competition.by_hand, CHOSEN: competition.best}
    return {name: copy(model)._adopt(competition, strategy) for name, strategy in chosen.items()}
