"""The usual loss of the task, to its minimum: cross-entropy of classes, squared error of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.default import proxy_for
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress


class Proper(Strategy):
    """Follow the usual loss; only the decision is tuned for the metric.

    Parameters
    ----------
    name : str
        What it is called.
    """

    by_trees = True

    def __init__(self, name: str = "proper") -> None:
        self.name = name

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the usual loss."""
        return [proxy_for(setting.metric.task)]
