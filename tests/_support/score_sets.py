"""Sets of scores and targets that tests of the learned loss share."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from metricgrad.training.loader import SetSampler


def random_sets(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(shape, generator=generator) < 0.3).float()
    targets[..., 0], targets[..., 1] = 1, 0
    return (torch.randn(shape, generator=generator) + targets).requires_grad_(), targets


def digits(sets: int, size: int, seed: int, share: float | None = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Sets of real rows, scored by how far an image is from the mean eight, with noise so that sets differ."""
    x, y = load_digits(return_X_y=True)
    features, eights = torch.tensor(x, dtype=torch.float32), torch.tensor(y == 8).float()
    generator = torch.Generator().manual_seed(seed)
    rows, weights = SetSampler(eights, size, share, generator=generator).draw(sets)
    distance = (features - features[eights == 1].mean(0)).norm(dim=-1)
    noise = 8 * torch.rand(sets, 1, generator=generator) * torch.randn(sets, size, generator=generator)
    return noise - distance[rows], eights[rows], weights


def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
    called = y_score >= np.quantile(y_score, 0.8)
    return float(300 * y_true[called].sum() - 20 * called.sum())
