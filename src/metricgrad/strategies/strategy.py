"""What a strategy is: the losses that it lets a model follow, and from where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.network import Progress
from metricgrad.training.data import Rows
from metricgrad.training.networks import Scorer
from metricgrad.training.recipe import Recipe
from metricgrad.training.solver import linear_form

Scoring = Callable[[Tensor], Tensor]


class Known(NamedTuple):
    """What is known on a fold after the usual loss: rows to train on and held out, and what models say of rows.

    `truth` are targets of the held-out rows as they were given, of numbers in another unit. `usual` scores rows by the
    model of the usual loss, `best` by the best so far, and `followed` is the loss that this has followed. `fitted` is
    what strategies have fitted on this fold and earlier ones, by their name, for the next ones to start from.
    """

    rows: Rows
    kept: Rows
    truth: Tensor
    usual: Scoring
    best: Scoring
    followed: nn.Module
    fitted: dict[str, Any]


class Setting(NamedTuple):
    """What a model is trained for, how, and what it is; on a fold also what is known there."""

    metric: Metric
    recipe: Recipe
    network: Scorer
    known: Known | None = None

    @property
    def solved(self) -> bool:
        """Whether the model is linear in fixed columns and followed on all rows at once."""
        return self.recipe.start == "solved" and linear_form(self.network) is not None


class Strategy:
    """A way to train a model for a metric.

    Every strategy starts from the same warm-up with the usual loss, or from the best model of those before it. One that
    is `alone` has a warm-up, a control and a guard of its own. LightGBM knows the losses of one that is `by_trees`. One
    that trains `nothing` decides otherwise by the model of the usual loss. One that is `learned` follows the metric
    itself. One that `goes_on` mixes the loss that its start has followed into its own, not the usual loss.
    """

    name: str
    alone = False
    by_trees = False
    nothing = False
    learned = False
    goes_on = False

    def suits(self, setting: Setting) -> bool:
        """Return whether it can be tried at all, and is worth it."""
        return True

    def from_best(self, setting: Setting) -> bool:
        """Return whether it starts from the best model of the strategies before it, instead of from the warm-up."""
        return False

    def rows(self, setting: Setting) -> Rows | None:
        """Return the rows to train on, if they are others than those of the fold, perhaps by their weights."""
        return None

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the losses to follow, one model each, of which the best on validation rows is kept; perhaps none."""
        return []

    def named(self, loss: nn.Module) -> str:
        """Return what one of its losses is called."""
        return self.name
