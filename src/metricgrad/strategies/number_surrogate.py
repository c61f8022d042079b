"""The learned surrogate of a metric of numbers, fitted to sets like those of the model that it starts from.

It is fitted once, on the first fold: models of other folds have errors of the same kind, and it is refined on each.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

import torch
from torch import nn

from metricgrad.metrics.constants import InUnits
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.row_costs import RowCost
from metricgrad.strategies.strategy import Known, Setting, Strategy
from metricgrad.surrogate.config import config_for
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Progress, Surrogate
from metricgrad.surrogate.pretraining import ConstantMetric, Fitting, fit_universal
from metricgrad.surrogate.synthetic import ModelSets

FITTING = Fitting(steps=600)
"""How a surrogate is fitted to sets like those of the model it starts from."""


class NumberSurrogate(Strategy):
    """Follow the surrogate, from the best model of the other strategies."""

    name, learned, goes_on = "surrogate", True, True

    def from_best(self, setting: Setting) -> bool:
        """Return that it does."""
        return True

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the surrogate, which is fitted on the first fold; none of a metric that no prediction changes."""
        assert setting.known is not None
        recipe, fitted = setting.recipe, setting.known.fitted
        if self.name not in fitted:
            try:
                fitted[self.name] = _fitted(setting, setting.known, progress)
            except ConstantMetric:  # such as a tolerance that all predictions keep
                return []
        plain, surrogate = fitted[self.name]
        loss = SurrogateLoss(
            plain,
            deepcopy(surrogate),
            form="zero",
            learning_rate=recipe.surrogate_rate,
            clip=recipe.clip,
            relational=recipe.relational,
        )
        loss.judge = setting.metric
        return [loss]


def _fitted(setting: Setting, known: Known, progress: Progress | None) -> tuple[Metric, Surrogate]:
    """Return the metric without its best form, and its surrogate, fitted to sets like those of the best model."""
    metric, recipe, rows = setting.metric, setting.recipe, known.rows
    assert isinstance(metric.function, InUnits)
    scores, units, own = known.best(rows.x[:]), metric.function.units, metric.function.metric
    plain = replace(metric, thresholded=False, best_function=None)
    if isinstance(own.function, RowCost) and own.view is None:
        errors = units.scale * (scores - metric.task.label(rows.y)).abs().median()
        unit = float(errors.clamp(min=1e-9) * (units.to_targets(torch.zeros(1))[0] if units.log else 1.0))
        plain = replace(plain, view=f"errors({unit!r},{units.centre!r},{units.scale!r},{int(units.log)})")
    steps = max(min(FITTING.steps, recipe.trust_cap), 1)
    if metric.budget is not None:
        steps = min(steps, int(0.2 * metric.budget.max_calls) // 16)
    fitting = replace(FITTING, steps=steps, sizes=(min(recipe.set_size, 200),))
    sets = ModelSets(scores.float(), rows.y, metric.takes_weights)
    return plain, fit_universal(plain, sets, config_for(plain), fitting, progress)
