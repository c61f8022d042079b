"""A keeper: the best models of one member of a fleet by one metric, and its history."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import astuple
from typing import Any, NamedTuple

from torch import nn

from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.networks import Scorer
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Best, Selection, Verdict
from metricgrad.training.trainer import Round


class Trained(NamedTuple):
    """The best models by one metric: the one kept, and the one that followed the loss, which may be the same.

    With the rounds at each check, and why it was kept.
    """

    model: Scorer
    history: list[Round]
    verdict: Verdict
    followed: Scorer

    @property
    def least(self) -> float:
        """The least loss on validation rows that the model came by."""
        return min((done.validation for done in self.history), default=float("inf"))


class Keeper:
    """One member under one metric: its guard and its history."""

    def __init__(self, model: Scorer, loss: nn.Module, metric: Metric, validation: Rows, recipe: Recipe) -> None:
        self.model, self.metric = model, metric
        self.learned = isinstance(loss, SurrogateLoss)
        self.guard = Selection(validation, metric, recipe)
        self.history: list[Round] = []

    def state(self) -> dict[str, Any]:
        """Return what is kept so far, as plain data and tensors."""
        bests = [(best.least, dict(best.state), best.scores) for best in (self.guard.safe, self.guard.bold)]
        return {"bests": bests, "history": [astuple(done) for done in self.history]}

    def go_on(self, state: dict[str, Any]) -> None:
        """Keep what was kept."""
        self.guard.safe, self.guard.bold = (Best(*best) for best in state["bests"])
        self.history = [Round(*done) for done in state["history"]]

    def trained(self) -> Trained:
        """Choose the model to be kept."""
        return judged(self.guard, self.model, self.learned, self.history)


def judged(guard: Selection, model: Scorer, learned: bool, history: list[Round]) -> Trained:
    """Return the model that a guard keeps, and the one that followed the loss."""
    best = deepcopy(model)
    guard.restore(best, learned)
    assert guard.verdict is not None
    followed = best
    if not guard.verdict.followed:
        followed = deepcopy(best)
        guard.followed(followed)
    return Trained(best.eval(), history, guard.verdict, followed.eval())
