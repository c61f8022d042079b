"""An optimizer of the user's own in the place of Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Factory = Callable[[list[Tensor]], torch.optim.Optimizer]


class OwnOptimizer:
    """What a factory makes of some parameters, with the interface of `metricgrad.surrogate.adam.Adam`.

    Parameters
    ----------
    factory : callable
        Parameters -> optimizer of torch.
    parameters : list of Tensor
        What is moved.
    learning_rate : float
        Rate of the recipe. Where its schedule lowers it, the rates of the optimizer are lowered by the same factor.
    """

    def __init__(self, factory: Factory, parameters: list[Tensor], learning_rate: float) -> None:
        self.parameters, self.of_recipe = parameters, learning_rate
        made: Any = factory(parameters)
        if not isinstance(made, torch.optim.Optimizer):
            got = type(made).__name__
            raise TypeError(f"optimizer: expected a function of parameters that returns a torch optimizer, got {got}")
        self.optimizer: torch.optim.Optimizer = made
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def learning_rate(self) -> float:
        """The rate of the recipe, lowered as far as those of the optimizer."""
        return self.of_recipe * float(self.optimizer.param_groups[0]["lr"]) / self.rates[0]

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        for group, start in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = start * rate / self.of_recipe

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Move the parameters against their gradients, which they hold already."""
        self.optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimizer."""
        found: dict[str, Any] = self.optimizer.state_dict()
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state."""
        self.optimizer.load_state_dict(state)
