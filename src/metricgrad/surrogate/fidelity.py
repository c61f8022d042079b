"""How well a surrogate follows its metric: its values, and its gradient against the smoothed gradient of the metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.metrics.tasks import RANKING, Task
from metricgrad.surrogate.network import Surrogate

if TYPE_CHECKING:
    from metricgrad.surrogate.loss import SurrogateLoss

PROBE_WIDTH = 0.2
"""How far a probe moves scores, in units of their spread in the set."""
PROBE_PAIRS = 64
"""Probes, each in both directions."""
PROBED_SETS = 4
"""Of the sets given, those on which the gradient of the metric is probed."""
COSTLY_PAIRS, MIN_COSTLY_PAIRS = 12, 6
"""Probes of a black box for one look, each in both directions."""
PROBING_SHARE, PROBING_LOOKS = 0.1, 3
"""Share of the calls of a run that may be probes, and looks that the rest has to last for at each."""
MIN_RELATIVE_SPREAD = 0.003
"""Sets whose true losses spread less than this share of their range have no order to get right."""


@torch.no_grad()
def measure_fidelity(surrogate: Surrogate, metric: Metric, sets: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
    """Return mean gap, Spearman correlation (NaN where all sets have one loss) and the spread of the true losses.

    A surrogate that gives all sets one loss while their true losses differ does not correlate: 0.

    Where many sets have exactly the same loss, no surrogate without ties correlates fully: `ceiling` is the highest
    possible Spearman correlation.
    """
    parts = zip(*(column.split(256) for column in sets), strict=True)  # thousands of sets at once would fill memory
    true, smooth = metric(*sets).cpu().numpy(), torch.cat([surrogate(*part) for part in parts]).cpu().numpy()
    constant, dead = len(true) < 2 or not np.ptp(true), len(smooth) > 1 and not np.ptp(smooth)
    spearman = math.nan if constant else 0.0 if dead else float(spearmanr(true, smooth).statistic)
    return {
        "gap": float(np.abs(true - smooth).mean()) if len(true) else math.nan,
        "spearman": spearman,
        "spread": float(true.std()) if len(true) else math.nan,
        "ceiling": math.nan if constant else float(rankdata(true).std() / np.arange(len(true)).std()),
    }


@torch.no_grad()
def smoothed_gradients(
    metric: Metric,
    scores: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    pairs: int = PROBE_PAIRS,
    width: float = PROBE_WIDTH,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return two independent estimates of the gradient of a metric, smoothed by noise on the scores.

    Parameters
    ----------
    metric : Metric
        The metric to probe; `2 * pairs` calls for every set.
    scores, targets, weights : tensor of shape (sets, n)
        The sets.
    pairs : int
        Probes, half of them for each estimate.
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
    """Return the standard deviation of the scores of every set, broadcastable to it; padding does not count."""
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
    """Return the cosine between the gradients of a surrogate and of its smoothed metric; NaN if that is zero.

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
        (gradient,) = torch.autograd.grad(loss.surrogate(leaf, targets, weights).sum(), leaf)
    one, other = smoothed_gradients(loss.metric, scores.detach(), targets, weights, **probes)
    # Sets count the same whatever the scale of their scores, to which gradients are inversely proportional.
    spread = spread_of(scores.detach(), loss.metric.task, weights)
    gradient, one, other = (each * spread for each in (gradient, one, other))
    length = (one * other).sum()
    if not float(length) > 0 or not float(gradient.norm()) > 0:
        return float("nan")
    cosine = (gradient * (one + other)).sum() / 2 / (gradient.norm() * length.sqrt())
    return float(cosine.clamp(-1, 1))


def trust_on(loss: SurrogateLoss, scores: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return the correlation of surrogate and metric on some sets; NaN if these lose nearly the same, or cost too much.

    Sets cost too much where the calls of a black box are few, and kept for looks at validation rows.
    """
    if loss.metric.costly and loss.calls_left < len(scores):
        return math.nan
    measured = loss.fidelity(scores, targets, weights)
    span = float(loss.surrogate.high - loss.surrogate.low)
    return measured["spearman"] if measured["spread"] >= MIN_RELATIVE_SPREAD * span else math.nan


def cosine_on(loss: SurrogateLoss, scores: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return the cosine between both gradients on the first of some sets; of a black box by few calls.

    Where these have run out it is the last one known, NaN if there is none.
    """
    weights = torch.ones_like(loss.metric.task.rows(scores)) if weights is None else weights
    if loss.metric.costly:
        return _affordable_cosine(loss, scores, targets, weights)
    probed = len(scores) if loss.metric.task == RANKING else PROBED_SETS  # a query has few rows
    some = [rows[:probed] for rows in (scores, targets, weights)]
    return gradient_cosine(loss, *some, generator=torch.Generator().manual_seed(0))


def _affordable_cosine(loss: SurrogateLoss, scores: Tensor, targets: Tensor, weights: Tensor) -> float:
    """Probe one set of a black box with a part of the calls that are left for it, so that later looks have some too."""
    if loss.metric.budget is None or loss.metric.task.outputs:
        return loss.known_cosine
    left = min(PROBING_SHARE * loss.metric.budget.max_calls - loss.probing_calls, loss.calls_left)
    pairs = min(int(left / PROBING_LOOKS / (4 * loss.calls_per_set)), COSTLY_PAIRS)
    informative = loss.metric.task.informative(targets, weights)
    if pairs < MIN_COSTLY_PAIRS or not bool(informative.any()):
        return loss.known_cosine
    first, before = int(informative.int().argmax()), loss.calls
    one = [rows[first : first + 1] for rows in (scores, targets, weights)]
    generator = torch.Generator().manual_seed(loss.probing_calls)
    found = directional_cosine(loss, *one, pairs=pairs, generator=generator)
    loss.probing_calls += loss.calls - before
    loss.known_cosine = loss.known_cosine if math.isnan(found) else found
    return loss.known_cosine


def directional_cosine(
    loss: SurrogateLoss,
    scores: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    pairs: int = COSTLY_PAIRS,
    width: float = PROBE_WIDTH,
    generator: torch.Generator | None = None,
) -> float:
    """Return the cosine between both gradients from few calls: the slope along one, over the length of the other.

    The slope of the metric is probed along the gradient of its surrogate; the length of its own gradient follows from
    its slopes in random directions, without knowing that gradient. With 12 pairs the standard deviation is about 0.1.

    Parameters
    ----------
    loss : SurrogateLoss
        The surrogate and its metric.
    scores, targets, weights : tensor of shape (sets, n)
        Sets kept out of refining.
    pairs : int
        Probes of each kind; `4 * pairs` calls for every set.
    width : float
        Noise in units of the spread of each set.
    generator : torch.Generator, optional
        Of the noise.
    """
    leaf, scores = scores.detach().clone().requires_grad_(), scores.detach()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss.surrogate(leaf, targets, weights).sum(), leaf)
    sigma = width * spread_of(scores, loss.metric.task, weights)
    squares, tiny = gradient.square(), torch.finfo(gradient.dtype).tiny
    # A step of the size of the noise on as many rows as the gradient is spread over.
    rows = squares.sum(-1, keepdim=True).square() / squares.square().sum(-1, keepdim=True).clamp(min=tiny)
    step = sigma * rows.sqrt() * gradient / gradient.norm(dim=-1, keepdim=True).clamp(min=tiny)
    noise = sigma * torch.randn(2, pairs, *scores.shape, generator=generator, dtype=scores.dtype)
    sets = [each.expand(pairs, *each.shape) for each in (targets, weights)]
    anywhere = loss.metric(scores + noise[0], *sets) - loss.metric(scores - noise[0], *sets)
    along = loss.metric(scores + noise[1] + step, *sets) - loss.metric(scores + noise[1] - step, *sets)
    length = (anywhere / 2).square().mean(0).sqrt() / sigma[..., 0]
    cosines = (along / 2).mean(0) / step.norm(dim=-1) / length
    known = cosines[cosines.isfinite()]
    return float(known.mean().clamp(-1, 1)) if len(known) else math.nan
