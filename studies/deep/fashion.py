"""Fashion-MNIST with one class at 1 %: shirts among all other pictures, a small convolutional network.

Of the 7,000 shirts 200 are for training and 100 for validation, at 1 % as the others; all that are left are test rows,
weighted to 1 % of them, so that a difference on test rows has little noise.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad import get_metric
from studies.deep.losses import RIVALS, Batch, learned
from studies.deep.problem import Plan, Stratified, Values, in_parts

SHIRT = 6
METRICS = ("average_precision", "recall_at_precision(0.9)", "precision_at(0.01)")
TRAIN, VALIDATION, TEST = (200, 19_800), (100, 9_900), (6_700, 33_300)
"""Shirts and others."""
SET_SIZE, POSITIVES = 300, 60


@lru_cache(maxsize=1)
def pictures() -> tuple[Tensor, Tensor]:
    """Return all pictures `(70000, 1, 28, 28)`, from 0 to 1, and whether each is a shirt."""
    with np.load(Path(os.environ["METRICGRAD_DATA"]) / "extra" / "fashion_mnist.npz") as data:
        x, y = (np.concatenate((data[f"{name}_train"], data[f"{name}_test"])) for name in "xy")
    return torch.from_numpy(x).unsqueeze(1).float() / 255, torch.from_numpy(y == SHIRT).float()


class Fashion:
    """One split: rows of every part."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        x, y = pictures()
        generator = torch.Generator().manual_seed(seed)
        classes = [torch.nonzero(y == label)[:, 0] for label in (1, 0)]
        shuffled = [rows[torch.randperm(len(rows), generator=generator)] for rows in classes]
        sizes = zip(TRAIN, VALIDATION, TEST, strict=True)
        parts = zip(*(rows.split(each) for rows, each in zip(shuffled, sizes, strict=True)), strict=True)
        (self.x, self.y), self.validation, self.test = ((x[rows], y[rows]) for rows in map(torch.cat, parts))
        self.sets = Stratified(self.y, SET_SIZE, POSITIVES)
        share = TRAIN[0] / sum(TRAIN)
        self.test_weights = torch.where(self.test[1] == 1, share / TEST[0], (1 - share) / TEST[1]) * sum(TEST)

    def network(self) -> nn.Module:
        """Return three convolutions of stride two, and two dense layers."""
        torch.manual_seed(self.seed)
        layers: list[nn.Module] = []
        for before, after in ((1, 8), (8, 16), (16, 32)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
        return model.to(memory_format=torch.channels_last)

    def batch(self, generator: torch.Generator) -> Batch:
        """Draw one stratified set."""
        rows, targets, weights = self.sets.draw(generator)
        return Batch(self.x[rows], targets[None], weights[None], rows)

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scores of the set, `(1, n)`."""
        scores: Tensor = model(batch.inputs)[None]
        return scores

    def validated(self, model: nn.Module) -> Values:
        """Return every metric on the validation rows."""
        return values(in_parts(model, self.validation[0]), self.validation[1])

    def tested(self, model: nn.Module) -> Values:
        """Return every metric on the test rows."""
        return values(in_parts(model, self.test[0]), self.test[1], self.test_weights)

    def held_out(self, model: nn.Module) -> tuple[Tensor, Batch]:
        """Return 64 stratified sets of validation rows."""
        x, y = self.validation
        generator = torch.Generator().manual_seed(self.seed)
        drawn = [Stratified(y, SET_SIZE, POSITIVES).draw(generator) for _ in range(64)]
        rows, targets, weights = (torch.stack(each) for each in zip(*drawn, strict=True))
        return in_parts(model, x)[rows], Batch(x[:1], targets, weights)

    def reach(self, model: nn.Module, objective: object) -> Values:
        """Return nothing: rows have no places."""
        return {}


def values(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Values:
    """Return every metric of some rows, in the form people know."""
    metrics = map(get_metric, METRICS)
    return {metric.name: float(metric.value(metric(scores.double(), targets, weights))) for metric in metrics}


PLAN = Plan(
    Fashion,
    {
        **RIVALS,
        "surrogate-ap": lambda problem, seed: learned("average_precision", seed),
        "surrogate-recall": lambda problem, seed: learned("recall_at_precision(0.9)", seed),
        "surrogate-top": lambda problem, seed: learned("precision_at(0.01)", seed),
    },
    early=600,
    late=2_400,
    steps=300,
    warmup_rate=3e-3,
    rates=(1e-3, 3e-3, 1e-2),
)
