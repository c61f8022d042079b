"""Metrics of regression: scores and targets are finite numbers, judged by how far or in which order they are.

A row of weight w counts as w equal rows do; one of weight 0 is as good as absent. A set whose targets are all the same
has no order and loses 0.5, as chance does; a set without rows misses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.metrics.confusion import comparable, counting_dtype, ratio
from metricgrad.metrics.metric import Metric, number_setting, short
from metricgrad.metrics.tasks import REGRESSION


def within_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, share: float) -> Tensor:
    """Weight of the rows that are missed by more than a share of their target."""
    scores, targets, weights = _in_counting_dtype(scores, targets, weights)
    missed = (scores - targets).abs() > share * targets.abs()
    return ratio((weights * missed).sum(-1), weights.sum(-1)).clamp(0, 1)


def spearman_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Spearman's rank correlation turned into a loss, (1 - rho) / 2; ties share their mean rank."""
    scores, targets, weights = _in_counting_dtype(scores, targets, weights)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    ours, theirs = (_centred(ranks(values, weights), weights) for values in (scores, targets))
    spread = ((weights * ours.square()).sum(-1) * (weights * theirs.square()).sum(-1)).sqrt()
    spread = spread.where(spread > 1e-9, torch.zeros_like(spread))  # ranks that differ only by rounding have no order
    return (1 - ratio((weights * ours * theirs).sum(-1), spread).clamp(-1, 1)) / 2


def concordance_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the concordance index: how often, of two rows, the one of the higher target scores higher.

    Pairs of equal targets do not count, and of equal scores by half.
    """
    scores, targets, weights = _in_counting_dtype(scores, targets, weights)
    concordant, discordant = (rising_pairs(sign * scores, targets, weights) for sign in (1, -1))
    below, _ = weight_below(targets, weights)
    return (1 - ratio(concordant - discordant, (weights * below).sum(-1)).clamp(-1, 1)) / 2


def ranks(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weight below each row plus half of the weight tied with it: `(..., n)` -> `(..., n)`."""
    below, up_to = weight_below(values, weights)
    return (below + up_to) / 2


def weight_below(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of the rows below each, and of those not above it: `(..., n)` -> twice `(..., n)`."""
    ranked, order = values.sort(-1)
    cumulative = _from_zero(weights.gather(-1, order).cumsum(-1))
    values = values.contiguous()
    below, up_to = (cumulative.gather(-1, torch.searchsorted(ranked, values, right=right)) for right in (False, True))
    return below, up_to


def rising_pairs(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return the weight of all pairs in which both target and score rise: `(..., n)` -> `(...)`.

    A merge sort of rows in the order of their targets, blocks doubling in size: n log(n)^2 operations.
    """
    # Within equal targets scores fall, so that no pair of them rises.
    order = scores.argsort(dim=-1, descending=True, stable=True)
    order = order.gather(-1, targets.gather(-1, order).argsort(dim=-1, stable=True))
    rows = order.shape[-1]
    width = 1 << max(rows - 1, 0).bit_length()
    s = pad(scores.gather(-1, order), (0, width - rows))
    w = pad(weights.gather(-1, order), (0, width - rows))
    total, block = s.new_zeros(s.shape[:-1]), 1
    while block < width:
        shape = (*s.shape[:-1], -1, 2, block)
        (left, right), (left_weights, right_weights) = s.view(shape).unbind(-2), w.view(shape).unbind(-2)
        left, order = left.sort(-1)
        below = _from_zero(left_weights.gather(-1, order).cumsum(-1))
        found = torch.searchsorted(left.contiguous(), right.contiguous())
        total = total + (right_weights * below.gather(-1, found)).sum((-1, -2))
        block *= 2
    return total


def _in_counting_dtype(scores: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return all three in the dtype to count in, weights of about one."""
    dtype = counting_dtype(scores)
    scores, targets = scores.to(dtype), targets.to(dtype)
    return scores, targets, torch.ones_like(scores) if weights is None else comparable(weights, scores)


def _centred(values: Tensor, weights: Tensor) -> Tensor:
    return values - (weights * values).sum(-1, keepdim=True)


def _from_zero(rising: Tensor) -> Tensor:
    return torch.cat((rising.new_zeros((*rising.shape[:-1], 1)), rising), -1)


# ---- the metrics ---------------------------------------------------------------------------------------------------


spearman = Metric(
    "spearman",
    spearman_loss,
    "Spearman",
    "Rank correlation of scores and targets; the loss is (1 - rho) / 2.",
    (1, -1),
    task=REGRESSION,
)
concordance = Metric(
    "concordance",
    concordance_loss,
    "C-index",
    "How often, of two rows, the one of the higher target scores higher.",
    task=REGRESSION,
)


def within(share: float = 0.1) -> Metric:
    """Share of the rows that are missed by no more than a share of their target."""
    share = number_setting("share", share, 0, 10)
    return Metric(
        f"within({short(share)})",
        partial(within_loss, share=share),
        f"within {100 * share:g} %",
        f"Share of the rows missed by no more than {100 * share:g} % of their target.",
        task=REGRESSION,
    )


REGRESSION_METRICS = (spearman, concordance)
REGRESSION_PARAMETRIC: tuple[Callable[..., Metric], ...] = (within,)
REGRESSION_ALIASES = {"c_index": "concordance", "concordance_index": "concordance"}
