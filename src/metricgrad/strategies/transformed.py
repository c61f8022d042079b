"""The class transformation for uplift: cross-entropy on whether a row went as it should in its arm."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.uplift import ClassTransformation
from metricgrad.metrics.uplift import QiniLoss
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress


class Transformed(Strategy):
    """Follow the class transformation: the probability of a response says little of what treatment adds to it."""

    name = "transformed"

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric is one of uplift."""
        return isinstance(setting.metric.decided_loss, QiniLoss)

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the loss."""
        loss = setting.metric.decided_loss
        assert isinstance(loss, QiniLoss)
        return [ClassTransformation(1 + setting.metric.columns.index(loss.column))]
