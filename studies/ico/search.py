"""How high the area under precision-recall of a linear model can be on rows it knows: a search from many starts.

From each start a smooth form of the area is raised, with steps that become narrower; from the best model so far CMA-ES
goes on with the true area, in coordinates in which scores change about as much in every direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

Array = NDArray[Any]
LO = 0.95
"""Recall from which on the area counts, to 1."""
FACTORS = (1, 10, 100, 1_000)
"""Weights of a positive row in the logistic regressions that are starts."""
RANDOM = 4
"""Starts of random directions."""
WIDTHS = (0.3, 0.1, 0.03)
"""Widths of the smooth step, in standard deviations of the scores, one after the other."""
ITERATIONS = 40
"""Of L-BFGS for one width."""
LEVELS = 24
"""Thresholds at which the smooth area is taken."""
EVALUATIONS = 2_000
"""Of CMA-ES."""
RIDGE = 1e-4
"""Of the logistic regressions."""
MAX_FULL = 100
"""Columns up to which CMA-ES learns how coordinates depend on each other."""


class Reached(NamedTuple):
    """The values that a search reached from each start, percent, the best of all, and its weights of the features."""

    starts: dict[str, float]
    best: float
    weights: Array


class Area:
    """The area of linear models on some rows, exact and smooth, by their weights of whitened columns.

    Parameters
    ----------
    X, y : array of shape (rows, features), (rows,)
        Features and whether rows are positive.
    """

    def __init__(self, X: Array, y: Array) -> None:
        spread = X.std(0)
        self.scale = np.where(spread > 0, spread, 1)
        columns = (X - X.mean(0)) / self.scale
        gram = np.cov(columns.T) + 1e-3 * np.eye(X.shape[1])
        self.basis = np.linalg.inv(np.linalg.cholesky(gram)).T
        white = torch.from_numpy(columns @ self.basis).float()
        self.positives, self.negatives = white[torch.from_numpy(y)], white[torch.from_numpy(~y)]
        found = torch.arange(1, len(self.positives) + 1)
        recalls = (found.double() / len(found)).clamp(min=LO)
        share = recalls.diff(prepend=torch.tensor([LO], dtype=torch.float64)) / (1 - LO)
        self.found, self.share = found[share > 0].float(), share[share > 0].float()

    def levels(self, weights: Tensor) -> Tensor:
        """Return the scores of the lowest positives, the highest of them first."""
        lowest = (self.positives @ weights).topk(len(self.found), largest=False).values
        return lowest.sort(descending=True).values

    @torch.no_grad()
    def exact(self, weights: Array) -> float:
        """Return the area in percent."""
        own = torch.from_numpy(weights).float()
        negatives = (self.negatives @ own).sort().values
        alarms = len(negatives) - torch.searchsorted(negatives, self.levels(own))
        return 100 * float(self.share @ (self.found / (self.found + alarms)))

    def smooth(self, weights: Tensor, width: float) -> Tensor:
        """Return one minus the area, with a step of some width for whether a negative is above a positive."""
        levels, found, share = self.levels(weights), self.found, self.share
        if len(levels) > LEVELS:
            some = ((torch.arange(LEVELS) + 0.5) * len(levels) / LEVELS).long()
            levels, found, share = levels[some], found[some], share[some] / share[some].sum()
        scores = self.negatives @ weights
        alarms = ((scores - levels.unsqueeze(-1)) / (width * scores.std())).sigmoid().sum(-1)
        return 1 - share @ (found / (found + alarms))

    def logistic(self, factor: float) -> Array:
        """Return the weights of a logistic regression in which a positive row weighs some times as much."""
        total = factor * len(self.positives) + len(self.negatives)

        def loss(given: Tensor) -> Tensor:
            weights, bias = given[:-1], given[-1]
            lost = factor * F.softplus(-self.positives @ weights - bias).sum()
            return (lost + F.softplus(self.negatives @ weights + bias).sum()) / total + RIDGE * weights.square().sum()

        return _lowered(loss, np.zeros(len(self.basis) + 1), 60)[:-1]

    def descend(self, weights: Array) -> Array:
        """Return the best weights on the way along the smooth area from some weights."""
        tried = [weights]
        for width in WIDTHS:
            start = tried[-1] / np.linalg.norm(tried[-1])
            tried.append(_lowered(lambda given, width=width: self.smooth(given, width), start, ITERATIONS))
        return max(tried, key=self.exact)

    def evolve(self, weights: Array, seed: int) -> Array:
        """Return the best weights that CMA-ES finds near some."""
        import cma

        options = {
            "seed": seed + 1,
            "verbose": -9,
            "maxfevals": EVALUATIONS,
            "CMA_diagonal": len(weights) > MAX_FULL,
            **dict.fromkeys(("tolfun", "tolfunhist"), 0),
            **dict.fromkeys(("tolflatfitness", "tolstagnation"), EVALUATIONS),
        }
        start = weights / np.linalg.norm(weights)
        strategy = cma.CMAEvolutionStrategy(start, 0.1 / len(weights) ** 0.5, options)
        while not strategy.stop():
            points = strategy.ask()
            strategy.tell(points, [-self.exact(point) for point in points])
        return max((np.asarray(strategy.result.xbest), weights), key=self.exact)


def _lowered(loss: Callable[[Tensor], Tensor], start: Array, iterations: int) -> Array:
    """Return where some iterations of L-BFGS lead."""

    def value_and_gradient(given: Array) -> tuple[float, Array]:
        weights = torch.from_numpy(given).float().requires_grad_()
        value = loss(weights)
        (gradient,) = torch.autograd.grad(value, weights)
        return float(value.detach()), gradient.double().numpy()

    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return np.asarray(found.x)


def search(X: Array, y: Array, seed: int) -> Reached:
    """Return what was reached from logistic regressions and from random directions, and by CMA-ES from the best."""
    area, rng = Area(X, y), np.random.default_rng(seed)
    starts = {f"positives times {factor}": area.logistic(factor) for factor in FACTORS}
    for number in range(RANDOM):
        weights = rng.normal(size=len(area.basis))
        ahead = float((area.positives.mean(0) - area.negatives.mean(0)) @ torch.from_numpy(weights).float())
        starts[f"random {number}"] = weights if ahead > 0 else -weights
    reached = {name: area.descend(weights) for name, weights in starts.items()}
    values = {name: area.exact(weights) for name, weights in reached.items()}
    best = area.evolve(reached[max(values, key=values.__getitem__)], seed)
    return Reached(values, area.exact(best), area.basis @ best / area.scale)
