"""Smooth losses that people have made by hand for a metric, where there is one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.binary import SoftCounts
from metricgrad.losses.pairs import pair_loss
from metricgrad.metrics.registry import Metric
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress


class HandMade(Strategy):
    """Follow the metric with probabilities in place of decisions (soft F1, soft MCC), or pairs of rows (soft AP)."""

    name = "hand-made"

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric is a formula of the confusion counts of two classes, or one of their ranking."""
        return setting.metric.task.name == "binary" and _loss_of(setting.metric) is not None

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the soft form of the metric."""
        loss = _loss_of(setting.metric)
        return [] if loss is None else [loss]


def _loss_of(metric: Metric) -> nn.Module | None:
    return pair_loss(metric) if metric.counts is None else SoftCounts(metric.counts)
