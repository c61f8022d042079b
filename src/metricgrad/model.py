"""Prediction models: the network of the paper, a linear one, or the user's own."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

PAPER_WIDTHS = (100, 30, 10)


class Scorer(nn.Module):
    """A model whose single output has no axis of its own: `(..., features)` -> `(...)`."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Score rows, however many axes they lie on."""
        scores: Tensor = self.body(x.reshape(-1, x.shape[-1]))
        if scores.shape not in ((x.numel() // x.shape[-1],), (x.numel() // x.shape[-1], 1)):
            rows = x.numel() // x.shape[-1]
            raise ValueError(f"model: expected an output of shape ({rows},) or ({rows}, 1), got {tuple(scores.shape)}")
        return scores.reshape(x.shape[:-1])


def mlp(features: int, widths: tuple[int, ...] = PAPER_WIDTHS, dropout: float = 0.2) -> nn.Module:
    """Build the paper's network: dense, leaky ReLU, batch norm, dropout at each width, then one dense output."""
    layers: list[nn.Module] = []
    for before, after in pairwise((features, *widths)):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2), nn.BatchNorm1d(after), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1))


def small(features: int) -> nn.Module:
    """Build a network of 30 units, without dropout."""
    return mlp(features, (30,), 0.0)


def linear(features: int) -> nn.Module:
    """Build a linear model."""
    return nn.Linear(features, 1)


MODELS: dict[str, Callable[[int], nn.Module]] = {"mlp": mlp, "small": small, "linear": linear}


def build_model(spec: Any, features: int, seed: int = 0) -> Scorer:
    """Build a model from a name, a module (copied) or a factory `features -> module`; its weights follow the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(spec, nn.Module):
            return Scorer(deepcopy(spec))
        if isinstance(spec, str):
            if spec not in MODELS:
                raise ValueError(f"model: expected one of {', '.join(MODELS)}, a module or a factory, got {spec!r}")
            return Scorer(MODELS[spec](features))
        if callable(spec):
            built = spec(features)
            if not isinstance(built, nn.Module):
                raise TypeError(f"model: expected the factory to return a torch module, got {type(built).__name__}")
            return Scorer(built)
    raise TypeError(f"model: expected a name, a torch module or a factory, got {spec!r}")
