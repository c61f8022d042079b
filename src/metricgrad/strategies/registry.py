"""The strategies by name, and those that are tried for a model and a metric."""

from __future__ import annotations

from metricgrad.strategies.cost_weighted import CostWeighted
from metricgrad.strategies.direct import Direct
from metricgrad.strategies.hand_made import HandMade
from metricgrad.strategies.named import Named
from metricgrad.strategies.number_losses import Absolute, Cox, Longer, Quantiles, Robust, Tolerances
from metricgrad.strategies.number_surrogate import NumberSurrogate
from metricgrad.strategies.plug_in import PlugIn
from metricgrad.strategies.proper import Proper
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.strategies.surrogate import Surrogate
from metricgrad.strategies.transformed import Transformed
from metricgrad.strategies.weighted import Weighted
from metricgrad.training.networks import TREES

STRATEGIES: tuple[Strategy, ...] = (
    Proper(),
    PlugIn(),
    CostWeighted(),
    Transformed(),
    Weighted(),
    HandMade(),
    Direct(),
    Surrogate(),
)
"""In the order in which they are trained."""
NUMBER_STRATEGIES: tuple[Strategy, ...] = (
    Proper("mse"),
    Absolute(),
    Robust(),
    Quantiles(),
    Tolerances(),
    Cox(),
    Longer(),
    Direct(),
    NumberSurrogate(),
)
"""The same where targets are numbers."""


def strategies_for(setting: Setting) -> list[Strategy]:
    """Return the strategies that suit a metric and a model, the usual loss first; trees follow few losses."""
    every = NUMBER_STRATEGIES if setting.metric.task.numbers else STRATEGIES
    found = [strategy for strategy in every if strategy.suits(setting)]
    if setting.network.name != TREES:
        return found
    known = [strategy for strategy in found if strategy.by_trees]
    return known if len(known) > 1 or setting.metric.task.numbers else [Named("cross-entropy")]
