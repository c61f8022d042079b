"""The strategies by name, and those that are tried for a model and a metric."""

from __future__ import annotations

from metricgrad.strategies.direct import Direct
from metricgrad.strategies.hand_made import HandMade
from metricgrad.strategies.plug_in import PlugIn
from metricgrad.strategies.proper import Proper
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.strategies.surrogate import Surrogate
from metricgrad.strategies.weighted import Weighted

STRATEGIES: tuple[Strategy, ...] = (Proper(), PlugIn(), Weighted(), HandMade(), Direct(), Surrogate())
"""In the order in which they are trained."""


def strategies_for(setting: Setting) -> list[Strategy]:
    """Return the strategies that suit a metric and a model, the usual loss first."""
    return [strategy for strategy in STRATEGIES if strategy.suits(setting)]
