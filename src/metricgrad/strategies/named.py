"""One method that was asked for by name, with the guard and the control that belong to it."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.losses.binary import TUNED
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress
from metricgrad.training.methods import make_loss


class Named(Strategy):
    """Follow one loss; of a learned one, the model is kept only if it beats that of the usual loss.

    Parameters
    ----------
    method : str
        As `MetricClassifier` takes it.
    """

    alone = True

    def __init__(self, method: str) -> None:
        self.name = method

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the loss of the method, or one for each of its settings."""
        if self.name in TUNED:
            return [make() for make in TUNED[self.name]]
        return [make_loss(self.name, setting.metric, setting.recipe, progress)]
