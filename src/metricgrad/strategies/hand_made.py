"""Smooth losses that people have made by hand for a metric, where there is one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.binary import SoftCounts
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress


class HandMade(Strategy):
    """Follow the metric with probabilities in place of decisions: soft F1, soft MCC, and so on."""

    name = "hand-made"

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric is a formula of the confusion counts of two classes."""
        return setting.metric.counts is not None and setting.metric.task.name == "binary"

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the soft form of the metric."""
        assert setting.metric.counts is not None
        return [SoftCounts(setting.metric.counts)]
