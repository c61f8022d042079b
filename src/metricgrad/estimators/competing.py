"""Training of the models that compete in a fit, one fold after the other, by one method or by several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pandas as pd
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.label_estimator import LabelEstimator
from metricgrad.estimators.metric_estimator import Array, How, Trained, check_fit
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import Task
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.networks import TREES, Scorer, build_model, kind_of
from metricgrad.training.recipe import Recipe, recipe_for
from metricgrad.training.splits import Split

if TYPE_CHECKING:
    from metricgrad.estimators.competition import Candidate, Competition
    from metricgrad.strategies.strategy import Strategy

COMPETING = {"auto": ("linear", "additive", TREES, "tabm"), "readable": ("linear", "additive")}
"""Models that compete, the cheapest first."""
MIN_EVIDENCE = 30
"""Rows of the rarer of two classes below which nothing but the usual loss is tried: a choice would be one of chance."""


def competes(model: Any) -> bool:
    """Whether a model stands for several that compete."""
    return isinstance(model, str) and model in COMPETING


class CompetingClassifier(LabelEstimator):
    """A classifier whose model is the best of some candidates, each the average of models of folds."""

    results_: list[dict[str, Any]]

    def leaderboard(self) -> pd.DataFrame:
        """Return the models that competed, the chosen one first.

        Returns
        -------
        DataFrame
            With the columns `model`, `methods` (how many models of folds were kept by each), `value` (of the metric, on
            held-out rows), `behind` (by how much it is worse than the chosen one, on rows that both have scored),
            `standard_error` (of that), `folds`, `seconds`, `note`.
        """
        from metricgrad.estimators.competition import leaderboard

        check_is_fitted(self, "results_")
        return leaderboard(self.results_)

    def _compete(
        self,
        table: TrainingData,
        plan: Sequence[Split],
        learned_from: Array,
        metric: Metric,
        seed: int,
        start: Scorer | None,
    ) -> Competition:
        """Train every candidate on every part of the plan, as long as it may still be the best."""
        from metricgrad.estimators.competition import (  # predicting needs none
            RULE,
            Candidate,
            Competition,
            RuleCandidate,
        )
        from metricgrad.estimators.fold_training import FoldTraining
        from metricgrad.reporting.progress import fit_bars
        from metricgrad.training.threads import threads_for

        classes = metric.task.name == "multiclass"
        recipes = [(spec, recipe_for(self.recipe, kind_of(spec))) for spec in self._specs(metric.task)]
        networks = [self._network(*each, table, learned_from, metric, seed, start) for each in recipes]
        candidates = [
            (RuleCandidate if strategy.name == RULE else Candidate)(*each, strategy, classes)
            for each, network in zip(recipes, networks, strict=True)
            for strategy in self._strategies(metric, each[1], network, table)
        ]
        by_spec = {id(spec): network for (spec, _), network in zip(recipes, networks, strict=True)}
        kept = [table.validation_rows(parts.validation) for parts in plan]
        fits = len(plan) * len(candidates)
        folds: dict[tuple[int, int], FoldTraining] = {}

        def trained(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
            if bars is not None:
                bars.begin(candidate.title, sum(len(one.folds) for one in candidates))
            how = How(candidate.recipe, seed, left, bars)
            place = (id(candidate.model), fold)
            if place not in folds:
                for other in [each for each in folds if each[1] != fold]:
                    del folds[other]  # whose columns take memory
                rows = table.lazy_rows(plan[fold].train, candidate.recipe.set_size)
                folds[place] = FoldTraining(self, by_spec[id(candidate.model)], rows, kept[fold], metric)
            return folds[place].train(candidate.strategy, how), kept[fold]

        found = Competition(candidates, len(plan), self.time_limit)
        step = max(recipe.set_size * recipe.sets for _, recipe in recipes)
        with threads_for(networks, step), fit_bars(fits) if self.verbose and fits > 1 else nullcontext() as bars:
            found.run(trained)
        return found

    def _strategies(self, metric: Metric, recipe: Recipe, network: Scorer, table: TrainingData) -> Sequence[Strategy]:
        """Return the strategies that compete, or the one method that was asked for."""
        from metricgrad.strategies.named import Named
        from metricgrad.strategies.proper import Proper
        from metricgrad.strategies.registry import strategies_for
        from metricgrad.strategies.strategy import Setting
        from metricgrad.training.methods import AUTO

        if network.name == TREES and (self.method != AUTO or metric.costly):
            return [Named("cross-entropy")]
        if self.method == AUTO and not metric.costly:
            few = not metric.task.outputs and table.fewest < MIN_EVIDENCE
            return [Proper()] if few else strategies_for(Setting(metric, recipe, network))
        return [Named("sl-r" if self.method == AUTO else self.method)]  # a costly metric has few calls

    def _specs(self, task: Task) -> list[Any]:
        """Return the models that compete."""
        if not competes(self.model):
            return [self._model_spec()]
        from metricgrad.training.trees import has_lightgbm

        trees = has_lightgbm() and not task.several
        return [name for name in COMPETING[self.model] if name != TREES or trees]

    def _network(
        self,
        spec: Any,
        recipe: Recipe,
        table: TrainingData,
        rows: Array,
        metric: Metric,
        seed: int,
        start: Scorer | None,
    ) -> Scorer:
        """Return an untrained model, with the knots that it learns from some rows, if any."""
        known = table.lazy_rows(rows, recipe.set_size)
        if start is not None:
            network = deepcopy(start).float()
        else:
            outputs = len(self.classes_) if metric.task.outputs else None
            network = build_model(spec, table.X.shape[1], seed, outputs)
            network.prepare(known.x, known.w, known.y)
        check_fit(network, known.x[:2])
        return network
