"""Cross-entropy in which positive rows weigh more or less, by a factor that is chosen on validation rows."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.binary import CostSensitive
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress

FACTORS = (0.3, 3.0, 10.0)
"""Weights of a positive row."""


class Weighted(Strategy):
    """Follow weighted cross-entropy: it moves a limited model to where the threshold of the metric will be."""

    name = "weighted"

    def suits(self, setting: Setting) -> bool:
        """Return whether there are two classes, and the model is trained in moments."""
        return setting.solved and setting.metric.task.name == "binary" and not setting.metric.costly

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return a loss for each factor."""
        return [CostSensitive(factor) for factor in FACTORS]
