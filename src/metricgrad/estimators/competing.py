"""Training of the models that compete in a fit, one fold after the other, by one method or by several."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.metric_estimator import Array, How, MetricEstimator, Trained, check_fit
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import Task
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.networks import MODELS, TREES, Scorer, build_model, kind_of
from metricgrad.training.recipe import Recipe, recipe_for
from metricgrad.training.splits import Split

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import Candidate, Judge
    from metricgrad.estimators.competition import Competition
    from metricgrad.metrics.constants import Units
    from metricgrad.strategies.strategy import Strategy

COMPETING = {"auto": ("linear", "additive", TREES, "tabm"), "readable": ("linear", "additive")}
"""Models that compete, the cheapest first."""


def competes(model: Any) -> bool:
    """Whether a model stands for several that compete."""
    return isinstance(model, str) and model in COMPETING


def check_name(model: Any) -> None:
    """Refuse the name of a model that there is not."""
    if isinstance(model, str) and model not in (*COMPETING, *MODELS):
        known = ", ".join((*COMPETING, *MODELS))
        raise ValueError(f"model: expected one of {known}, a module or a factory, got {model!r}")


class Kind(NamedTuple):
    """A model that competes: how it is trained, on what, and for what; of numbers, in which units."""

    model: Any
    recipe: Recipe
    network: Scorer
    table: TrainingData
    metric: Metric
    units: Units | None = None


class CompetingEstimator(MetricEstimator):
    """An estimator whose model is the best of some candidates, each the average of models of folds."""

    folds: int | None
    results_: list[dict[str, Any]]

    def leaderboard(self) -> pd.DataFrame:
        """Return the models that competed, the chosen one first.

        Returns
        -------
        DataFrame
            With the columns `model`, `methods` (how many models of folds were kept by each), `value` (of the metric, on
            held-out rows), `behind` (by how much it is worse than the chosen one, on rows that both have scored),
            `standard_error` (of that), `folds`, `seconds`, `calls` (of the true metric in training, one a set: those of
            direct search, and all of a function of your own; NaN where they are not counted), `note`; of numbers also
            `units`.
        """
        from metricgrad.estimators.leaderboard import leaderboard

        check_is_fitted(self, "results_")
        return leaderboard(self.results_)

    def _compete(
        self,
        table: TrainingData,
        plan: Sequence[Split],
        learned_from: Array,
        metric: Metric,
        seed: int,
        start: Scorer | None = None,
    ) -> Competition:
        """Train every candidate on every part of the plan, as long as it may still be the best."""
        from metricgrad.estimators.competition import Competition  # predicting needs none
        from metricgrad.estimators.fold_training import FoldTraining
        from metricgrad.reporting.progress import fit_bars
        from metricgrad.training.threads import threads_for

        entered = [
            (self._candidate(kind, strategy, metric), kind)
            for kind in self._kinds(table, learned_from, metric, seed, start)
            for strategy in self._strategies(kind, plan)
        ]
        if not entered:
            raise ValueError(f"method: expected one that suits {metric.name!r} and the model, got {self.method!r}")
        models = list(dict.fromkeys(id(candidate.model) for candidate, _ in entered))
        # The cheapest first, if there is a time limit; and the usual loss of a model first in all units, because which
        # of them are tried further depends on it.
        entered.sort(key=lambda each: (_is_dear(*each), models.index(id(each[0].model)), not each[0].proper))
        kinds, candidates = dict(entered), [candidate for candidate, _ in entered]
        kept = [table.validation_rows(parts.validation) for parts in plan]
        fits = len(plan) * len(candidates)
        folds: dict[tuple[Any, int], FoldTraining] = {}
        fitted: dict[Any, dict[str, Any]] = {}

        def trained(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
            if bars is not None:
                bars.begin(candidate.title, sum(len(one.folds) for one in candidates))
            place, kind, held_out = (candidate.kind, fold), kinds[candidate], plan[fold].validation
            judged = self._judged_rows(kept[fold], table, held_out)
            if place not in folds:
                for other in [each for each in folds if each[1] != fold]:
                    del folds[other]  # whose columns take memory
                rows = kind.table.lazy_rows(plan[fold].train, kind.recipe.set_size)
                own = kept[fold]._replace(y=kind.table.labels(held_out))
                earlier = fitted.setdefault(candidate.kind, {})
                folds[place] = FoldTraining(self, kind.network, rows, own, kind.metric, judged.y, earlier)
            how = How(candidate.recipe, seed, left, bars)
            return folds[place].train(candidate.strategy, how), judged

        judge, mixes = self._judge(metric), self._mixes(metric) and not _is_small(table, metric, plan)
        found = Competition(candidates, len(plan), self.time_limit, judge, self._asked, mixes)
        step = max(kind.recipe.set_size * kind.recipe.sets for kind in kinds.values())
        small = threads_for([kind.network for kind in kinds.values()], step)
        with small, fit_bars(fits) if self.verbose and fits > 1 else nullcontext() as bars:
            found.run(trained)
        return found

    # ---- what competes ---------------------------------------------------------------------------------------------

    def _kinds(
        self, table: TrainingData, learned_from: Array, metric: Metric, seed: int, start: Scorer | None
    ) -> list[Kind]:
        """Return the models that compete, not trained yet."""
        recipes = [(spec, self._recipe_for(spec)) for spec in self._specs(metric.task)]
        return [
            Kind(*each, self._network(*each, table, learned_from, metric, seed, start), table, metric)
            for each in recipes
        ]

    def _recipe_for(self, spec: Any) -> Recipe:
        return recipe_for(self.recipe, kind_of(spec))

    def _candidate(self, kind: Kind, strategy: Strategy, metric: Metric) -> Candidate:
        from metricgrad.estimators.candidates import Candidate, RuleCandidate

        made = RuleCandidate if strategy.nothing else Candidate
        return made(kind.model, kind.recipe, strategy, metric.task.name == "multiclass")

    def _mixes(self, metric: Metric) -> bool:
        """Whether several models may be used together: if any may be, and the metric can be called often."""
        return self.model == "auto" and not metric.costly and not metric.columns

    def _judge(self, metric: Metric) -> Judge | None:
        """Return by what candidates are compared, if that is not what chose their checkpoints."""
        return None

    def _judged_rows(self, rows: Rows, table: TrainingData, held_out: Array) -> Rows:
        """Return the held-out rows as candidates are compared by them."""
        return rows

    def _strategies(self, kind: Kind, plan: Sequence[Split]) -> Sequence[Strategy]:
        """Return the strategies that compete, or the one method that was asked for."""
        from metricgrad.strategies.named import Named
        from metricgrad.strategies.proper import Proper
        from metricgrad.strategies.registry import strategies_for
        from metricgrad.strategies.strategy import Setting
        from metricgrad.training.methods import AUTO

        metric = kind.metric
        if self._asked is not None:
            suited = strategies_for(Setting(metric, kind.recipe, kind.network))
            found = [one for one in suited if isinstance(one, Proper) or one.name == self._asked]
            return found if len(found) > 1 else []
        if kind.network.name == TREES and (self.method != AUTO or metric.costly):
            return [Named("cross-entropy")]
        if self.method == AUTO and not metric.costly:
            setting = Setting(metric, kind.recipe, kind.network)
            return [Proper()] if _is_small(kind.table, metric, plan) else strategies_for(setting)
        return [Named("sl-r" if self.method == AUTO else self.method)]  # a costly metric has few calls

    @property
    def _asked(self) -> str | None:
        """The strategy that was asked for by name; the usual loss, which it starts from, is trained beside it."""
        return None

    def _specs(self, task: Task) -> list[Any]:
        """Return the models that compete."""
        if not competes(self.model):
            check_name(self.model)
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
            outputs = len(getattr(self, "classes_", ())) if metric.task.outputs else None
            network = build_model(spec, table.X.shape[1], seed, outputs)
            network.prepare(known.x, known.w, known.y)
        check_fit(network, known.x[:2])
        return network

    # ---- what is asked for and said --------------------------------------------------------------------------------

    def _check_folds(self) -> None:
        count: Any = self.folds
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 1):
            raise ValueError(f"folds: expected an integer of at least 1 or None, got {self.folds!r}")

    @property
    def _judged_on(self) -> str:
        several = any(line["folds"] > 1 for line in getattr(self, "results_", []))
        return "the rows that each fold left out" if several else "validation rows"


def _is_dear(candidate: Candidate, kind: Kind) -> tuple[bool, bool]:
    """Whether the model is a network, and whether search or a surrogate is to be followed: both take their time."""
    network = kind.network.name != TREES and kind_of(kind.model) != "linear"
    return network, candidate.strategy.learned


def _is_small(table: TrainingData, metric: Metric, plan: Sequence[Split]) -> bool:
    """Whether too few rows of a class are held out for any choice but that of the model."""
    from metricgrad.estimators.candidates import MIN_EVIDENCE

    if metric.task.outputs or metric.task.numbers:
        return False
    held_out = table.strata[np.concatenate([parts.validation for parts in plan])]
    return min(int((held_out == kind).sum()) for kind in np.unique(table.strata)) < MIN_EVIDENCE
