"""The usual loss of the task, to its minimum: cross-entropy of classes, squared error of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.default import proxy_for
from metricgrad.strategies.strategy import Setting
from metricgrad.surrogate.network import Progress


class Proper:
    """Follow the usual loss; only the decision is tuned for the metric."""

    name, alone = "proper", False

    def suits(self, setting: Setting) -> bool:
        """Return True: every model has it."""
        return True

    def from_best(self, setting: Setting) -> bool:
        """Return False: it starts from the warm-up."""
        return False

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the usual loss."""
        return [proxy_for(setting.metric.task)]
