"""Adam for small models and surrogates: torch's own arithmetic without the class around it.

Building a `torch.optim.Adam` imports torch's compiler, which takes a second and 70 MB, and each of its steps takes
nearly twice as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Adam:
    """Steps of Adam, to the bit those of `torch.optim.Adam(parameters, learning_rate, fused=fused)`.

    Parameters
    ----------
    parameters : iterable of Tensor
        What is moved.
    learning_rate : float
        The rate.
    weight_decay : float
        Share of the rate that a step takes off every parameter first, as `torch.optim.AdamW` does.
    fused : bool
        Whether each step is one operation a parameter; without it, sums are rounded as by torch's default.
    """

    def __init__(
        self, parameters: Iterable[Tensor], learning_rate: float, weight_decay: float = 0.0, fused: bool = True
    ) -> None:
        self.parameters = list(parameters)
        self.learning_rate, self.weight_decay, self.fused = learning_rate, weight_decay, fused
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [parameter.new_zeros((), dtype=torch.float32) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor | None]) -> None:
        """Move the parameters against their gradients, one for each, in order; None leaves one where it is."""
        there = [place for place, gradient in enumerate(gradients) if gradient is not None]
        if self.weight_decay:
            for place in there:
                self.parameters[place].mul_(1 - self.learning_rate * self.weight_decay)
        adam(
            [self.parameters[place] for place in there],
            [gradient for gradient in gradients if gradient is not None],
            [self.means[place] for place in there],
            [self.squares[place] for place in there],
            [],
            [self.steps[place] for place in there],
            foreach=False,
            fused=self.fused,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=EPSILON,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state in the form of torch's class."""
        moments = zip(self.steps, self.means, self.squares, strict=True)
        state = [{"step": step, "exp_avg": mean, "exp_avg_sq": square} for step, mean, square in moments]
        group = {"lr": self.learning_rate, "params": list(range(len(state)))}
        return {"state": dict(enumerate(state)) if any(map(float, self.steps)) else {}, "param_groups": [group]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state, also one that torch's class wrote; moments go where their parameters are."""
        self.learning_rate = float(state["param_groups"][0]["lr"])
        for number, parameter in enumerate(self.parameters):
            known = state["state"].get(number)
            like = torch.zeros_like(parameter)
            self.means[number] = like if known is None else known["exp_avg"].to(like)
            self.squares[number] = torch.zeros_like(like) if known is None else known["exp_avg_sq"].to(like)
            step = 0.0 if known is None else float(known["step"])
            self.steps[number] = torch.full((), step, dtype=torch.float32, device=parameter.device)
