"""Training of one kind of model on one fold, by one strategy after the other, from a warm-up that they share."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from metricgrad.estimators.metric_estimator import How, MetricEstimator, Trained, scores_in_double
from metricgrad.metrics.registry import Metric
from metricgrad.reporting.progress import work_bar
from metricgrad.strategies.proper import Proper
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.training.data import Rows
from metricgrad.training.history import Round
from metricgrad.training.jobs import Start
from metricgrad.training.networks import TREES, Scorer
from metricgrad.training.selection import Best, Selection
from metricgrad.training.trainer import TrainingRun, UnfaithfulWarning
from metricgrad.training.trees import grow_trees

if TYPE_CHECKING:
    from collections.abc import Sequence


class FoldTraining:
    """Models of one kind on one fold.

    Parameters
    ----------
    estimator : MetricEstimator
        Whose callback, limits and progress bar apply.
    network : Scorer
        The untrained model.
    rows, kept : Rows
        What is trained on, and what is held out.
    metric : Metric
        What models are judged by.
    """

    def __init__(self, estimator: MetricEstimator, network: Scorer, rows: Rows, kept: Rows, metric: Metric) -> None:
        self.estimator, self.network, self.rows, self.kept, self.metric = estimator, network, rows, kept, metric
        self.start: Start | None = None
        self.warm_up: list[Round] = []
        self.best = Best()
        self.usual: Trained | None = None

    def train(self, strategy: Strategy, how: How) -> Trained:
        """Return the model of a strategy: of its losses, the one that is best on the held-out rows."""
        if strategy.nothing and self.usual is not None:
            return self.usual._replace(method=strategy.name)
        trained = self._grow(strategy, how) if self.network.name == TREES else self._train(strategy, how)
        self.usual = trained if isinstance(strategy, Proper) else self.usual
        return trained

    def _grow(self, strategy: Strategy, how: How) -> Trained:
        """Return trees, grown by the usual loss."""
        rows = self._rows(strategy, Setting(self.metric, how.recipe, self.network))
        grown = Scorer(grow_trees(rows, self.kept, how.seed), TREES, self.network.features)
        return Trained(grown, [], False, None, self.metric, method=strategy.name)

    def _train(self, strategy: Strategy, how: How) -> Trained:
        setting = Setting(self.metric, how.recipe, self.network)
        if strategy.alone:
            runs = self._runs(strategy, setting, self.rows, None, how)
            best = min(runs, key=_validation_loss)
            return best._replace(interrupted=runs[-1].interrupted, method=strategy.name)
        stopped = self._warm_up(how) if self.start is None else None
        if stopped is not None:
            return stopped
        start = self.start
        if start is not None and self.best.state and strategy.from_best(setting):
            start = start.moved(self.best, self.metric)
        rows = self._rows(strategy, setting)
        start = start if rows is self.rows else None  # where rows weigh otherwise, the minimum is elsewhere
        control = replace(how.recipe, control=False)  # the usual loss is a strategy of its own
        runs = self._runs(strategy, setting, rows, start, how._replace(recipe=control))
        best = min(runs, key=_validation_loss)
        if best.best is not None and best.best.least < self.best.least:
            self.best = best.best
        history = best.history if start is None else [*self.warm_up, *best.history]
        return best._replace(history=history, interrupted=runs[-1].interrupted, method=strategy.name, verdict=None)

    def _rows(self, strategy: Strategy, setting: Setting) -> Rows:
        """Return the rows that a strategy trains on."""
        usual = self.usual
        if usual is None:
            return self.rows
        return strategy.rows(setting, self.rows, lambda: scores_in_double(usual.network, self.rows.x).detach())

    def _warm_up(self, how: How) -> Trained | None:
        """Go along the usual loss; return the model of that only if training was stopped there."""
        torch.manual_seed(how.seed)
        own, selection = deepcopy(self.network), Selection(self.kept, self.metric, how.recipe)
        place = (None, self.estimator.optimizer, self.estimator.device)
        run = TrainingRun(own, self.rows, how.recipe, [selection], how.seed, *place)
        self.warm_up, stopped = self.estimator._watched(run.warm_up(), own, self.metric, how)
        if not stopped:
            self.start = Start.of(run)._replace(seconds=0.0)  # a limit is for each strategy
            return None
        selection.restore(own, learned=False)
        own = own.double() if own.name else own
        return Trained(own, self.warm_up, True, selection.verdict, self.metric, method=Proper.name)

    def _runs(
        self, strategy: Strategy, setting: Setting, rows: Rows, start: Start | None, how: How
    ) -> Sequence[Trained]:
        """Train a model for every loss of a strategy, each from the start, or from a warm-up of its own."""
        torch.manual_seed(how.seed)
        shared = None if how.bars is None else how.bars.report
        with work_bar() if self.estimator.verbose and shared is None else nullcontext(shared) as report:
            losses = strategy.losses(setting, report)
        guarded = strategy.alone or isinstance(strategy, Proper)
        runs: list[Trained] = []
        for loss in losses:
            own = deepcopy(self.network)
            with warnings.catch_warnings():
                if not strategy.alone:  # among others, a surrogate that misleads is not chosen
                    warnings.simplefilter("ignore", UnfaithfulWarning)
                run = self.estimator._follow(loss, own, rows, self.kept, self.metric, how, start, guarded)
            runs.append(run)
            if runs[-1].interrupted:
                break
        return runs


def _validation_loss(trained: Trained) -> float:
    return trained.best.least if trained.best is not None else float("inf")
