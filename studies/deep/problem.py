"""What a task of this study is: rows to draw sets from, a network, and its values on validation and test rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from studies.deep.losses import Batch, Objective

Values = dict[str, float]


class Problem(Protocol):
    """One split of the data of a task."""

    def network(self) -> nn.Module:
        """Return an untrained network, the same for the same seed."""

    def batch(self, generator: torch.Generator) -> Batch:
        """Draw what a step sees."""

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scores of a batch, `(sets, n)`."""

    def validated(self, model: nn.Module) -> Values:
        """Return every metric on the validation rows, higher is better."""

    def tested(self, model: nn.Module) -> Values:
        """Return every metric on the test rows, with thresholds from the validation rows, and what else to store."""

    def held_out(self, model: nn.Module) -> tuple[Tensor, Batch]:
        """Return scores of sets of validation rows, to measure fidelity on."""

    def reach(self, model: nn.Module, objective: Objective) -> Values:
        """Return which rows the gradient of a loss reaches, if that is asked."""


@dataclass(frozen=True)
class Plan:
    """A task: its splits, losses and numbers of steps; `extra` losses are run only where they are asked for."""

    problem: Callable[[int], Problem]
    losses: Mapping[str, Callable[[Any, int], Objective]]
    early: int
    late: int
    steps: int
    check_every: int = 50
    warmup_rate: float = 1e-3
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stratified:
    """Draws sets with a fixed number of positives, weighted as they occur in the data."""

    targets: Tensor
    size: int
    positives: int

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows `(size,)`, their targets and weights; positives are drawn without replacement."""
        positive = torch.nonzero(self.targets == 1)[:, 0]
        negative = torch.nonzero(self.targets != 1)[:, 0]
        some = positive[torch.randperm(len(positive), generator=generator)[: self.positives]]
        others = negative[torch.randint(len(negative), (self.size - self.positives,), generator=generator)]
        rows, share = torch.cat((some, others)), len(positive) / len(self.targets)
        weights = torch.full((self.size,), (1 - share) * self.size / (self.size - self.positives))
        weights[: self.positives] = share * self.size / self.positives
        return rows, self.targets[rows], weights


@torch.no_grad()
def in_parts(model: nn.Module, inputs: Tensor, rows: int = 500) -> Tensor:
    """Return the scores of many rows, some at a time."""
    return torch.cat([model(part) for part in inputs.split(rows)])
