"""How sure a difference on some rows is: the paired bootstrap."""

from __future__ import annotations

import torch
from torch import Tensor

from metricgrad.metrics import Metric

DRAWS = 64
"""Resamples, where rows are few."""
CELLS = 5_000_000
"""Rows of all resamples together, where they are many."""
LEAST = 16
"""Resamples, however many rows there are."""
AT_ONCE = 1_000_000
"""Rows of resamples judged at a time."""


@torch.no_grad()
def standard_error(
    metric: Metric,
    first: Tensor,
    second: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    draws: int | None = None,
    seed: int = 0,
) -> float:
    """Return the standard error of the difference between two losses of the same rows, drawn anew many times.

    Every resample counts the rows anew, for both alike: by weights that sum to about one each (the Bayesian bootstrap,
    which leaves no class out), or by drawing rows with replacement where the metric takes no weights.

    Parameters
    ----------
    metric : Metric
        What is judged by.
    first, second : tensor of shape (rows,)
        Scores of two models.
    targets, weights : tensor of shape (rows,)
        Of the rows; weights if any.
    draws : int, optional
        How many resamples; by default 64, fewer for many rows or a costly metric.
    seed : int
        Of the resamples.
    """
    rows = len(targets)
    if draws is None:
        draws = LEAST if metric.costly else max(min(DRAWS, CELLS // max(rows, 1)), LEAST)
    generator = torch.Generator().manual_seed(seed)
    differences = []
    for part in torch.arange(draws).split(max(AT_ONCE // max(rows, 1), 1)):
        shape = (len(part), rows)
        if metric.takes_weights:
            counts = torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
            sets = (targets, counts if weights is None else counts * weights)
            losses = [metric(scores.double().expand(shape), *sets) for scores in (first, second)]
        else:
            drawn = torch.randint(rows, shape, generator=generator)
            losses = [metric(scores.double()[drawn], targets[drawn]) for scores in (first, second)]
        differences.append(losses[0] - losses[1])
    return float(torch.cat(differences).std())
