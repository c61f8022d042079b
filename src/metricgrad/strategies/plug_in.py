"""The plug-in rule: the model of the usual loss, decided by its probability and the columns of the metric."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.strategies.strategy import Setting
from metricgrad.surrogate.network import Progress


class PlugIn:
    """Train nothing: of the model of the usual loss, find the decision score that is best by the metric.

    Such as probability times amount, least expected cost, or an offset by group (`training/plug_in.py`).
    """

    name, alone = "plug-in", False

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric must know something else of the rows than their class."""
        return bool(setting.metric.columns) and setting.metric.task.name == "columns" and not setting.metric.costly

    def from_best(self, setting: Setting) -> bool:
        """Return False: nothing is trained."""
        return False

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return none."""
        return []
