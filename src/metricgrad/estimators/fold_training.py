"""Training of one kind of model on one fold, by one strategy after the other, from a warm-up that they share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from metricgrad.estimators.metric_estimator import How, MetricEstimator, Trained, scores_in_double
from metricgrad.losses.default import proxy_for
from metricgrad.metrics.registry import Metric
from metricgrad.reporting.progress import work_bar
from metricgrad.strategies.proper import Proper
from metricgrad.strategies.strategy import Known, Setting, Strategy
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.direct import DirectSearch
from metricgrad.training.history import UNKNOWN, Round, doubt_of
from metricgrad.training.jobs import Start
from metricgrad.training.networks import TREES, Scorer
from metricgrad.training.selection import Best, Selection
from metricgrad.training.steps import UnfaithfulWarning
from metricgrad.training.threads import one_thread
from metricgrad.training.trainer import TrainingRun
from metricgrad.training.trees import grow_trees


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
    truth : Tensor, optional
        Targets of the rows held out as they were given, if that is in another unit.
    fitted : dict, optional
        What strategies have fitted on earlier folds, by their name.
    """

    def __init__(
        self,
        estimator: MetricEstimator,
        network: Scorer,
        rows: Rows,
        kept: Rows,
        metric: Metric,
        truth: Tensor | None = None,
        fitted: dict[str, Any] | None = None,
    ) -> None:
        self.fitted = {} if fitted is None else fitted
        self.estimator, self.network, self.rows, self.kept, self.metric = estimator, network, rows, kept, metric
        self.truth = kept.y if truth is None else truth
        self.start: Start | None = None
        self.warm_up: list[Round] = []
        self.best = Best()
        self.usual: Trained | None = None
        self.leader: Trained | None = None  # whose checkpoint is the best
        self.followed = proxy_for(metric.task)  # the loss of the best that has followed one

    def train(self, strategy: Strategy, how: How) -> Trained:
        """Return the model of a strategy: of its losses, the one that is best on the held-out rows.

        Calls are counted of a user's function, whatever they were for, and of direct search, one for each candidate.
        """
        before = self.metric.calls
        if strategy.nothing and self.usual is not None:
            trained = self.usual._replace(method=strategy.name)
        else:
            trained = self._grow(strategy, how) if self.network.name == TREES else self._train(strategy, how)
        if self.metric.budget is not None:
            trained = trained._replace(calls=self.metric.calls - before)
        self.usual = trained if isinstance(strategy, Proper) else self.usual
        return trained

    def _grow(self, strategy: Strategy, how: How) -> Trained:
        """Return trees grown along the losses of a strategy, those that are best on the held-out rows."""
        setting = self._setting(how)
        rows, losses = strategy.rows(setting), strategy.losses(setting)
        grown = []
        for loss in losses[:1] if self.metric.costly else losses:  # the likeliest comes first
            trees = grow_trees(self.rows if rows is None else rows, self.kept, how.seed, loss)
            scorer = Scorer(trees, TREES, self.network.features)
            grown.append(Trained(scorer, [], False, None, self.metric, method=strategy.named(loss)))
        return grown[0] if len(grown) == 1 else min(grown, key=self._loss_of_trees)

    def _loss_of_trees(self, grown: Trained) -> float:
        """Return the loss of held-out rows at their best constant."""
        return float(self.metric.best(scores_in_double(grown.network, self.kept.x), self.kept.y, self.kept.w))

    def _train(self, strategy: Strategy, how: How) -> Trained:
        setting = self._setting(how)
        if strategy.alone:
            runs = self._runs(strategy, setting, self.rows, None, how)
            best, _ = min(runs, key=_validation_loss)
            return best._replace(interrupted=runs[-1][0].interrupted)
        stopped = self._warm_up(strategy, how) if self.start is None else None
        if stopped is not None:
            return stopped
        start = self.start
        if start is not None and self.best.state and strategy.from_best(setting):
            start = start.moved(self.best, self.metric)
        rows = strategy.rows(setting)
        start = start if rows is None else None  # where rows weigh otherwise, the minimum is elsewhere
        control = replace(how.recipe, control=False)  # the usual loss is a strategy of its own
        runs = self._runs(strategy, setting, self.rows if rows is None else rows, start, how._replace(recipe=control))
        if not runs:  # nothing to follow: the best model stays as it is
            assert self.usual is not None
            return (self.leader or self.usual)._replace(method=strategy.name, verdict=None)
        best, loss = min(runs, key=_validation_loss)
        if best.best is not None and best.best.least < self.best.least and not best.doubt:
            self.best, self.leader = best.best, best
            self.followed = self.followed if strategy.learned else loss
        history = best.history if start is None else [*self.warm_up, *best.history]
        return best._replace(history=history, interrupted=runs[-1][0].interrupted, verdict=None)

    def _setting(self, how: How) -> Setting:
        """Return what strategies may know."""
        known = None
        if self.usual is not None:
            usual, best = (partial(scores_in_double, each.network) for each in (self.usual, self.leader or self.usual))
            known = Known(self.rows, self.kept, self.truth, usual, best, self.followed, self.fitted)
        return Setting(self.metric, how.recipe, self.network, known)

    def _warm_up(self, strategy: Strategy, how: How) -> Trained | None:
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
        return Trained(own, self.warm_up, True, selection.verdict, self.metric, method=strategy.name)

    def _runs(
        self, strategy: Strategy, setting: Setting, rows: Rows, start: Start | None, how: How
    ) -> list[tuple[Trained, nn.Module]]:
        """Train a model for every loss of a strategy, each from the start, or from a warm-up of its own."""
        torch.manual_seed(how.seed)
        shared = None if how.bars is None else how.bars.report
        shown = work_bar() if self.estimator.verbose and shared is None else nullcontext(shared)
        with shown as report, one_thread():  # a surrogate is small, whatever the model is
            losses = strategy.losses(setting, report)
        guarded = strategy.alone or isinstance(strategy, Proper)
        control = self.followed if strategy.goes_on else None
        runs: list[tuple[Trained, nn.Module]] = []
        follow = partial(self._follow, rows=rows, start=start, guarded=guarded, control=control)
        for loss in losses:
            with warnings.catch_warnings():
                if not strategy.alone:  # among others, a surrogate that misleads is not chosen
                    warnings.simplefilter("ignore", UnfaithfulWarning)
                begun, run = time.perf_counter(), follow(loss, how=how)
                if isinstance(loss, SurrogateLoss) and not strategy.alone and not run.interrupted:
                    left = None if how.limit is None else how.limit - (time.perf_counter() - begun)
                    again = partial(follow, how=how._replace(limit=left))
                    run, loss = self._restarted(strategy, setting, run, loss, again)
            if isinstance(loss, SurrogateLoss) and strategy.alone and not run.interrupted and how.recipe.trust > 0:
                _warn_of_doubt(loss, run)
            calls = loss.judged_sets if isinstance(loss, DirectSearch) else None
            runs.append((run._replace(method=strategy.named(loss), calls=calls), loss))
            if run.interrupted:
                break
        return runs

    def _follow(self, loss: nn.Module, rows: Rows, **how: Any) -> Trained:
        return self.estimator._follow(loss, deepcopy(self.network), rows, self.kept, self.metric, **how)

    def _restarted(
        self,
        strategy: Strategy,
        setting: Setting,
        run: Trained,
        loss: SurrogateLoss,
        follow: Callable[[SurrogateLoss], Trained],
    ) -> tuple[Trained, SurrogateLoss]:
        """Return a run of a surrogate; if that is doubtful, one of another whose output function is a line.

        If that is doubtful too, or nothing can be known of it, the run says why.
        """
        doubt = doubt_of(run.history)
        if doubt and doubt != UNKNOWN and not loss.frozen:
            others = [each for each in strategy.losses(setting, None) if isinstance(each, SurrogateLoss)]
            if others:
                loss = others[0]
                loss.straighten()
                run = follow(loss)
                doubt = "" if run.interrupted else doubt_of(run.history)
        return run._replace(doubt=doubt), loss


def _warn_of_doubt(loss: SurrogateLoss, run: Trained) -> None:
    if doubt := doubt_of(run.history):
        what = f"the surrogate of {loss.metric.label} is doubtful at the end of training: {doubt}"
        warnings.warn(f"{what}; the best model on validation rows is kept", UnfaithfulWarning, stacklevel=2)


def _validation_loss(run: tuple[Trained, nn.Module]) -> float:
    best = run[0].best
    return best.least if best is not None else float("inf")
