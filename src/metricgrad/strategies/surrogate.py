"""The learned surrogate of the metric (Grabocka et al. 2019): universal and refined, from scratch, or frozen."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress
from metricgrad.training.methods import make_loss


class Surrogate(Strategy):
    """Follow the surrogate, from the best model of the other strategies; it needs neither a formula nor few weights.

    Parameters
    ----------
    mode : {"sl-r", "sl-s", "sl-u"}
        As in the paper.
    """

    learned = True

    def __init__(self, mode: str = "sl-r") -> None:
        self.name = mode

    def from_best(self, setting: Setting) -> bool:
        """Return whether the model is linear in fixed columns; a network starts from the warm-up."""
        return setting.solved

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the surrogate, which may have to be learned first."""
        return [make_loss(self.name, setting.metric, setting.recipe, progress)]
