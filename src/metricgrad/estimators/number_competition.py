"""What competes where targets are numbers: models in several units, by strategies that suit the metric."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from metricgrad.estimators.competing import CompetingEstimator, Kind, competes
from metricgrad.estimators.metric_columns import checked_columns
from metricgrad.estimators.metric_estimator import Array, seed_of, weights_for
from metricgrad.metrics.constants import Units, in_units
from metricgrad.metrics.plain_functions import as_numbers
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.training.data import Rows, Scaler, TrainingData, merge_duplicates
from metricgrad.training.networks import Scorer, kind_of
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import Split

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import Candidate, Judge
    from metricgrad.estimators.competition import Competition
    from metricgrad.strategies.strategy import Strategy

AUTO, LONGER = "auto", "longer"
USUAL_LOSSES = ("mse", "mae", "huber")
BY_HAND_LOSSES = (*USUAL_LOSSES, "pinball", "tolerance", "cox")
METHODS = {
    AUTO: (*BY_HAND_LOSSES, LONGER, "direct", "surrogate"),
    "usual": USUAL_LOSSES,
    "hand-made": BY_HAND_LOSSES,
    "mse": ("mse",),
    "surrogate": (*BY_HAND_LOSSES, LONGER, "surrogate"),
    "direct": (*BY_HAND_LOSSES, "direct"),
}
"""The strategies of every method: all, the usual losses, these and hand-made ones, squared error, one learned."""
MIN_LEARNED_ROWS = 40
"""Held-out rows of a fold from which on a learned loss can be judged."""
NOISE = 0.1
"""Of refined scores, in units of their spread: predictions of numbers are nearer to targets than scores of classes."""
NETWORK_RATE = 1e-2
"""Learning rate of the default recipe for networks: errors of numbers are far from learned at that for two classes."""
USUAL, BY_HAND, CHOSEN = "squared error", "best loss by hand", "chosen"
"""Regressors of `fit_beside_usual`."""


class NumberCompetition(CompetingEstimator):
    """An estimator of numbers: checks its input, and trains every model, in every unit, by every strategy."""

    units: str

    def _competed(
        self,
        X: Any,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        columns: Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
    ) -> Competition:
        """Check the input, hold rows out, learn the scale of the features, and train every strategy."""
        from metricgrad.estimators.held_out import HoldOut, fold_count, held_out_parts, is_table, joined_for
        from metricgrad.estimators.inputs import read_rows

        X, y, validation, self.inputs_ = read_rows(self.model, X, y, validation)
        metric, seed = metric_of_numbers(self.metric), seed_of(self.random_state)
        self._check_arguments()
        if is_table(validation):
            X, y, sample_weight, validation = joined_for(metric, X, y, sample_weight, validation)
        X, y = self._checked(X, y, ensure_min_samples=2, y_numeric=True)
        targets: Array = np.asarray(y, np.float64)
        _warn_of_zeros(metric, targets)
        weights = weights_for(metric, sample_weight, X)
        known = checked_columns(columns, metric, len(targets))
        if validation is None and groups is None and known is None and metric.takes_weights:
            X, targets, weights = merge_duplicates(X, targets, weights)
        table = TrainingData(X, targets, weights, columns=known)
        strata = replace(table, targets=np.zeros(len(targets), np.int8))
        several = (competes(self.model) or self.method == AUTO) and validation is None
        count = fold_count(self.folds, metric, strata.targets, groups, several=several)
        how = HoldOut(count, self.validation_fraction, seed, False, validation, groups)
        plan = held_out_parts(strata, metric.task, how)
        learned_from = plan[0].train if len(plan) == 1 else np.arange(len(targets))
        scaler = Scaler.fit(X, learned_from, weights, standardise=self._standardises)
        self.centre_, self.scale_ = scaler.centre, scaler.scale
        with torch.random.fork_rng(devices=[]):
            return self._compete(replace(table, scaler=scaler), plan, learned_from, metric, seed)

    def _kinds(
        self, table: TrainingData, learned_from: Array, metric: Metric, seed: int, start: Scorer | None
    ) -> list[Kind]:
        """Return every model in every unit."""
        found = []
        for spec in self._specs(metric.task):
            for units in self._units(table, learned_from):
                own, inside = replace(table, targets=units.from_targets(table.targets)), in_units(metric, units)
                recipe = self._recipe_for(spec)
                network = self._network(spec, recipe, own, learned_from, inside, seed, start)
                found.append(Kind(spec, recipe, network, own, inside, units))
        return found

    def _units(self, table: TrainingData, rows: Array) -> list[Units]:
        """Return the units to try: standardised targets, and their logarithms if all are above 0."""
        targets, weights = table.targets, None if table.weights is None else table.weights[rows]
        positive = bool((targets > 0).all())
        if self.units == "log" and not positive:
            raise ValueError(f"y: expected numbers above 0 with units='log', got {targets.min():g}")
        logs = {"auto": (False, True) if positive else (False,), "log": (True,), "standardised": (False,)}
        return [Units.of(targets[rows], weights, log=log) for log in logs[self.units]]

    def _recipe_for(self, spec: Any) -> Recipe:
        # The start is the best by squared error: the best by the metric may be so by chance.
        own = super()._recipe_for(spec)
        faster = isinstance(self.recipe, str) and kind_of(spec) == "network"
        rate = NETWORK_RATE if faster else own.learning_rate
        return replace(own, noise=min(NOISE, own.noise), early_stopping=True, learning_rate=rate)

    def _network(self, spec: Any, *rest: Any) -> Scorer:
        """Return an untrained model; dropout, which the paper's network has, blurs numbers."""
        return super()._network("plain" if isinstance(spec, str) and spec == "mlp" else spec, *rest)

    def _strategies(self, kind: Kind, plan: Sequence[Split]) -> Sequence[Strategy]:
        from metricgrad.strategies.registry import strategies_for
        from metricgrad.strategies.strategy import Setting

        differ = len(np.unique(kind.table.targets[plan[0].train])) > 1
        enough = differ and min(len(parts.validation) for parts in plan) >= MIN_LEARNED_ROWS
        names = [name for name in METHODS[self.method] if enough or name in BY_HAND_LOSSES]
        suited = strategies_for(Setting(kind.metric, kind.recipe, kind.network))
        return [strategy for strategy in suited if strategy.name in names]

    def _candidate(self, kind: Kind, strategy: Strategy, metric: Metric) -> Candidate:
        from metricgrad.estimators.candidates import NumberCandidate

        assert kind.units is not None
        return NumberCandidate(kind.model, kind.recipe, strategy, kind.units, metric)

    def _judge(self, metric: Metric) -> Judge:
        from metricgrad.estimators.candidates import Judge

        return Judge(metric, metric)

    def _judged_rows(self, rows: Rows, table: TrainingData, held_out: Array) -> Rows:
        """Return the held-out rows with targets as they were given, in double precision."""
        weights = None if table.weights is None else torch.from_numpy(table.weights[held_out])
        return rows._replace(y=table.labels(held_out, torch.float64), w=weights)

    def _check_arguments(self) -> None:
        self._check_training(tuple(METHODS))
        self._check_folds()
        if self.units not in ("auto", "log", "standardised"):
            raise ValueError(f"units: expected 'auto', 'log' or 'standardised', got {self.units!r}")


def _warn_of_zeros(metric: Metric, targets: Array) -> None:
    """Warn of targets of zero, of which a relative error has no size."""
    zeros = int((targets == 0).sum())
    if metric.name == "mape" and zeros:
        warnings.warn(
            f"y: {zeros:,} of {len(targets):,} targets are 0, where relative errors are divided by almost nothing: "
            "predicting 0 for every row may be best; choose mae or rmsle, or leave these rows out",
            stacklevel=4,  # where fit was called
        )


def metric_of_numbers(spec: Any) -> Metric:
    """Return the metric of a spec, or raise an error if it is not one of numbers."""
    metric = as_numbers(get_metric(spec))
    if not metric.task.numbers:
        raise ValueError(
            f"metric: expected one of numbers (within, step_cost, pinball, mae, spearman ...), got {metric.name!r} of "
            f"{metric.task.name}; a function of your own is black_box(fn, higher_is_better=..., task='regression')"
        )
    return metric
