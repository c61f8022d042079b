"""The arrays behind the figures of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricgrad.loss import SurrogateLoss
from metricgrad.metrics import get_metric

Array = NDArray[Any]


FIGURE1 = ("auc", "average_precision", "error_rate", "eer", "f1")
"""The five losses whose surfaces the paper draws."""


@dataclass(frozen=True)
class Figure1:
    """Loss surfaces: the shifts of two predictions, and every loss on the grid of both, `(shifts, shifts)`."""

    shifts: Array
    losses: dict[str, Array]


def figure1(points: int = 121, reach: float = 3.0, seed: int = 0) -> Figure1:
    """Perturb two predictions of a random set of ten, one of a negative and one of a positive, and judge every pair.

    Rows of a surface shift the negative, columns the positive; what is called positive is cut at zero.
    """
    generator = torch.Generator().manual_seed(seed)
    scores, targets = torch.randn(10, generator=generator), (torch.arange(10) % 2).float()
    shifts = torch.linspace(-reach, reach, points)
    sets = scores.repeat(points, points, 1)
    sets[..., 0] += shifts[:, None]
    sets[..., 1] += shifts
    return Figure1(shifts.numpy(), {name: get_metric(name)(sets, targets).numpy() for name in FIGURE1})


@dataclass(frozen=True)
class Figure2:
    """The one-parameter example: the data, and true and surrogate loss over all alpha after some rounds."""

    x: Array
    y: Array
    alphas: Array
    true: Array
    rounds: tuple[int, ...]
    alpha: Array
    surrogate: Array


def figure2(rounds: tuple[int, ...] = (0, 10, 40, 120), seed: int = 0) -> Figure2:
    """Run the paper's minimal example: the model `alpha * x - 1`, started at 0.3, learns the error rate at zero.

    At each of the given rounds the current alpha and the surrogate loss over the whole range of alpha are kept: the
    surrogate is true near the current alpha, and alpha walks down it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        y = (torch.arange(200) % 2).float()
        x = torch.randn(200) * 0.5 + torch.where(y == 1, 2.4, 1.0)
        alphas = torch.linspace(0.05, 1.5, 300)
        model = nn.Parameter(torch.tensor(0.3))
        optimizer = torch.optim.Adam([model], 0.01)
        loss = SurrogateLoss("error_rate", "scratch", form="zero", learning_rate=3e-3)
        kept: list[tuple[float, Tensor]] = []
        _refine_near(loss, model, x, y, 100)
        for done in range(max(rounds) + 1):
            if done in rounds:
                kept.append((model.item(), _landscape(loss, alphas, x, y)))
            optimizer.zero_grad()
            loss(model * x - 1, y).backward()
            optimizer.step()
            _refine_near(loss, model, x, y, 10)
    true = get_metric("error_rate")(alphas[:, None] * x - 1, y)
    alpha, surrogate = np.array([a for a, _ in kept]), torch.stack([s for _, s in kept]).numpy()
    return Figure2(x.numpy(), y.numpy(), alphas.numpy(), true.numpy(), tuple(sorted(rounds)), alpha, surrogate)


def _refine_near(loss: SurrogateLoss, model: Tensor, x: Tensor, y: Tensor, steps: int) -> None:
    """Refine on half of the rows at a time, scored by models near the current one."""
    rows = torch.stack([torch.randperm(len(x))[: len(x) // 2] for _ in range(8 * steps)])
    near = model.detach() * (1 + 0.1 * torch.randn(8 * steps, 1))
    loss.refine(near * x[rows] - 1, y[rows], steps=steps)


@torch.no_grad()
def _landscape(loss: SurrogateLoss, alphas: Tensor, x: Tensor, y: Tensor) -> Tensor:
    losses: Tensor = loss.surrogate(alphas[:, None] * x - 1, y.expand(len(alphas), -1))
    return losses
