"""Where does the metric itself point? Its gradient, smoothed, by probing; and whether a surrogate points there too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import Task
from metricgrad.surrogate.loss import SurrogateLoss

WIDTH = 0.2
"""How far a probe moves scores, in units of their spread in the set."""
PAIRS = 64
"""Probes, each taken forth and back."""


@torch.no_grad()
def smoothed_gradients(
    metric: Metric,
    scores: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    pairs: int = PAIRS,
    width: float = WIDTH,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return two independent estimates of the gradient of a metric, smoothed by noise on the scores.

    Parameters
    ----------
    metric : Metric
        What to probe; `2 * pairs` calls for every set.
    scores, targets, weights : tensor of shape (sets, n)
        Where.
    pairs : int
        Probes, half of them for either estimate.
    width : float
        Noise in units of the spread of each set.
    generator : torch.Generator, optional
        Of the noise.

    Returns
    -------
    tensor of shape (2, sets, n)
        Each is `E[(L(s + e) - L(s - e)) / 2 * e] / sigma^2` over noise e of size sigma.
    """
    spread = spread_of(scores, metric.task, weights).clamp(min=torch.finfo(scores.dtype).tiny)
    probes = (2, max(pairs // 2, 1))
    noise = torch.randn(*probes, *scores.shape, generator=generator, dtype=scores.dtype)
    moved = noise * (width * spread)
    sets = [None if rows is None else rows.expand(*probes, *rows.shape) for rows in (targets, weights)]
    slopes = (metric(scores + moved, *sets) - metric(scores - moved, *sets)) / 2
    return (slopes.view(*slopes.shape, *[1] * metric.task.axes) * noise).mean(1) / (width * spread)


def spread_of(scores: Tensor, task: Task, weights: Tensor | None = None) -> Tensor:
    """Return the standard deviation of the scores of every set, with axes to spread over it; padding does not count."""
    if task.outputs or weights is None or bool((weights > 0).all()):
        return scores.std((-2, -1) if task.outputs else -1, keepdim=True)
    present = (weights > 0).to(scores.dtype)
    rows = present.sum(-1, keepdim=True)
    centred = (scores - (present * scores).sum(-1, keepdim=True) / rows.clamp(min=1)) * present
    return (centred.square().sum(-1, keepdim=True) / (rows - 1).clamp(min=1)).sqrt()


def gradient_cosine(
    loss: SurrogateLoss,
    scores: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    **probes: Any,
) -> float:
    """Return the cosine between where a surrogate points and where its smoothed metric does; NaN if that is nowhere.

    The noise of probing does not lower it: the length of the metric's gradient comes from two independent estimates.

    Parameters
    ----------
    loss : SurrogateLoss
        The surrogate and its metric.
    scores, targets, weights : tensor of shape (sets, n)
        Sets kept out of refining.
    **probes
        `pairs`, `width` and `generator` of `smoothed_gradients`.
    """
    leaf = scores.detach().clone().requires_grad_()
    with torch.enable_grad():
        (own,) = torch.autograd.grad(loss.surrogate(leaf, targets, weights).sum(), leaf)
    one, other = smoothed_gradients(loss.metric, scores.detach(), targets, weights, **probes)
    # Sets count alike, whatever the size of their scores; a gradient is as much larger as they are smaller.
    spread = spread_of(scores.detach(), loss.metric.task, weights)
    own, one, other = (gradient * spread for gradient in (own, one, other))
    length = (one * other).sum()
    if not float(length) > 0 or not float(own.norm()) > 0:
        return float("nan")
    cosine = (own * (one + other)).sum() / 2 / (own.norm() * length.sqrt())
    return float(cosine.clamp(-1, 1))
