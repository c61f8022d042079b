"""The standard error of a difference between two models: the paired bootstrap."""

from __future__ import annotations

import torch
from torch import Tensor

from metricgrad.metrics.registry import Metric

MAX_DRAWS, MIN_DRAWS = 64, 16
MAX_TOTAL_ROWS = 5_000_000
"""Rows of all resamples together, which limits the draws if there are many rows."""
ROWS_PER_BATCH = 1_000_000
"""Rows of resamples evaluated at a time."""


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
    """Return the standard error of the difference between two losses of the same rows, by resampling.

    Every resample is the same for both: random weights of mean one (the Bayesian bootstrap, which leaves no class out),
    or rows drawn with replacement where the metric takes no weights.

    Parameters
    ----------
    metric : Metric
        The metric.
    first, second : tensor of shape (rows,)
        Scores of two models; with another axis for several outputs.
    targets, weights : tensor of shape (rows,)
        Of the rows; weights if any. Where there are several sets, `(sets, n)`, sets are resampled.
    draws : int, optional
        How many resamples; by default 64, fewer for many rows or a costly metric.
    seed : int
        Of the resamples.
    """
    if first.ndim > metric.task.axes:
        return _error_of_sets(metric, first, second, targets, weights)
    rows, cells = len(targets), first.numel()
    if draws is None:
        draws = MIN_DRAWS if metric.costly else max(min(MAX_DRAWS, MAX_TOTAL_ROWS // max(cells, 1)), MIN_DRAWS)
    generator = torch.Generator().manual_seed(seed)
    differences = []
    for part in torch.arange(draws).split(max(ROWS_PER_BATCH // max(cells, 1), 1)):
        shape = (len(part), rows)
        if metric.takes_weights:
            counts = torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
            sets = (targets, counts if weights is None else counts * weights)
            losses = [metric(s.double().expand(len(part), *s.shape), *sets) for s in (first, second)]
        else:
            drawn = torch.randint(rows, shape, generator=generator)
            losses = [metric(scores.double()[drawn], targets[drawn]) for scores in (first, second)]
        differences.append(losses[0] - losses[1])
    return float(torch.cat(differences).std())


def _error_of_sets(metric: Metric, first: Tensor, second: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return the standard error of the mean difference over informative sets."""
    ones = torch.ones_like(metric.task.rows(first)) if weights is None else weights
    kept = metric.task.informative(targets, ones)
    one, other = (metric(scores.double(), targets, weights)[kept] for scores in (first, second))
    return float((one - other).std() / max(len(one), 1) ** 0.5)
