"""The metrics with columns by name: money of each row, what is caught at a capacity, groups, and uplift."""

from __future__ import annotations

from collections.abc import Callable

from metricgrad.metrics.groups import equal_opportunity_gap, group_min
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.money import expected_profit, savings, value_at_capacity
from metricgrad.metrics.uplift import qini

METRICS: tuple[Metric, ...] = ()
PARAMETRIC: tuple[Callable[..., Metric], ...] = (
    savings,
    expected_profit,
    value_at_capacity,
    equal_opportunity_gap,
    group_min,
    qini,
)
"""Their settings are numbers, names of columns or of metrics."""
ALIASES: dict[str, str] = {}
