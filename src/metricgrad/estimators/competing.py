"""Training of the models that compete in a fit, one fold after the other, by one method or by several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from metricgrad.estimators.metric_estimator import Array, How, LabelEstimator, Trained, check_fit, scores_in_double
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import Task
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.networks import TREES, Scorer, build_model, kind_of
from metricgrad.training.recipe import recipe_for
from metricgrad.training.splits import Split

if TYPE_CHECKING:
    from metricgrad.estimators.competition import Candidate, Competition

COMPETING = {"auto": ("linear", "additive", TREES, "tabm"), "readable": ("linear", "additive")}
"""Models that compete, the cheapest first."""


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
        from metricgrad.estimators.competition import Candidate, Competition  # loading and predicting need none

        specs, classes = self._specs(metric.task), metric.task.name == "multiclass"
        candidates = [Candidate(spec, recipe_for(self.recipe, kind_of(spec)), classes) for spec in specs]
        networks = {one: self._network(one, table, learned_from, metric, seed, start) for one in candidates}
        kept = [table.validation_rows(parts.validation) for parts in plan]
        fits = len(plan) * len(candidates)

        def trained(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
            done = sum(len(one.folds) for one in candidates)
            title = "training" if fits == 1 else f"{candidate.name}, fit {done + 1} of at most {fits}"
            how = How(candidate.recipe, seed, left, title)
            network = networks[candidate] if fits == 1 else deepcopy(networks[candidate])
            return self._train(table, plan[fold].train, kept[fold], metric, how, network), kept[fold]

        found = Competition(candidates, len(plan), self.time_limit)
        found.run(trained)
        return found

    def _specs(self, task: Task) -> list[Any]:
        """Return the models that compete."""
        if not competes(self.model):
            return [self._model_spec()]
        from metricgrad.training.trees import has_lightgbm

        trees = has_lightgbm() and not task.several
        return [name for name in COMPETING[self.model] if name != TREES or trees]

    def _network(
        self, candidate: Candidate, table: TrainingData, rows: Array, metric: Metric, seed: int, start: Scorer | None
    ) -> Scorer:
        """Return the untrained model of a candidate, with the knots that it learns from some rows, if any."""
        known = table.lazy_rows(rows, candidate.recipe.set_size)
        if start is not None:
            network = deepcopy(start).float()
        else:
            outputs = len(self.classes_) if metric.task.outputs else None
            network = build_model(candidate.model, table.X.shape[1], seed, outputs)
            network.prepare(known.x, known.w, known.y)
        check_fit(network, known.x[:2])
        return network

    def _train(
        self, table: TrainingData, training: Array, kept: Rows, metric: Metric, how: How, network: Scorer
    ) -> Trained:
        """Train a network; where several losses are to be tried, one for each, of which the best is kept."""
        from metricgrad.reporting.progress import work_bar
        from metricgrad.training.trees import grow_trees

        rows = table.lazy_rows(training, how.recipe.set_size)
        if network.name == TREES:
            grown = Scorer(grow_trees(rows, kept, how.seed), TREES, network.features)
            return Trained(grown, [], False, None, metric)
        runs: list[Trained] = []
        makers = self._makers(network, metric, how)
        for method, make in makers:
            torch.manual_seed(how.seed)
            with work_bar() if self.verbose else nullcontext() as report:
                loss = make(report)
            own = network if len(makers) == 1 else deepcopy(network)
            trained = self._follow(loss, own, rows, kept, metric, how)
            runs.append(trained._replace(method=method))
            if trained.interrupted:
                break
        if len(runs) == 1:
            return runs[0]
        judge = metric if how.recipe.form == "zero" else metric.best
        best = min(runs, key=lambda run: float(judge(scores_in_double(run.network, kept.x), kept.y, kept.w)))
        return best._replace(interrupted=runs[-1].interrupted)

    def _makers(self, network: Scorer, metric: Metric, how: How) -> list[tuple[str, Callable[[Any], nn.Module]]]:
        """Return what makes the losses to be followed, each with its method; the best on validation rows is kept."""
        from metricgrad.losses.binary import TUNED
        from metricgrad.training.methods import AUTO, DIRECT, make_loss
        from metricgrad.training.solver import linear_form

        if self.method in TUNED:
            return [(self.method, _without_progress(make)) for make in TUNED[self.method]]
        methods = [self.method]
        if self.method == AUTO:
            searched = how.recipe.start == "solved" and linear_form(network) and not metric.task.outputs
            methods = ["sl-r", DIRECT] if searched and not metric.costly else ["sl-r"]
        return [(each, partial(make_loss, each, metric, how.recipe)) for each in methods]


def _without_progress(make: Callable[[], nn.Module]) -> Callable[[Any], nn.Module]:
    """Return a maker of losses that takes, and ignores, what reports progress."""
    return lambda report: make()
