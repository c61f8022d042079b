"""Metrics of rankings: a set is a query, targets are grades of at least 0, and only the order of the scores counts.

Grade 0 is irrelevant, more is better. Queries of unequal size are padded by rows of weight 0; any weight above 0 only
marks a document as present: a document is shown once, whatever its weight.

Documents of equal score are shown in random order, and a query loses the mean over these orders (McSherry and Najork
2008); for NDCG scikit-learn does the same. A query without a relevant document cannot be served well or badly: it
loses 0. Neither can one whose documents all have one grade, though it may lose something. `RANKING.informative` masks
the others, and only these belong in a mean over queries. (scikit-learn counts a query without relevant documents as the
worst, LightGBM as the best; both move a mean by what no model can change.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Function, counting_dtype, descending_order, ratio
from metricgrad.metrics.metric import Metric, integer_setting
from metricgrad.metrics.tasks import RANKING


def ndcg_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, k: int | None = None) -> Tensor:
    """One minus the discounted gain of the first k documents over that of the best order: gains 2^grade - 1."""
    shown = rank_documents(scores, targets, weights)
    gain = gains(shown.grades)
    discount = discounts(shown.rank, k)
    best = (gain.sort(-1, descending=True).values * discount).sum(-1)
    return 1 - ratio((shown.tied_sum(gain) / shown.ties * discount).sum(-1), best, empty=1.0).clamp(0, 1)


def map_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the mean precision at each relevant document: every grade above 0 is relevant."""
    shown = rank_documents(scores, targets, weights)
    relevant = (shown.grades > 0).to(shown.grades)
    tied = shown.tied_sum(relevant)
    above = (relevant.cumsum(-1) - relevant).gather(-1, shown.begin)
    # This rank holds a relevant tie by chance; then the ties ranked before it share the other relevant ones evenly.
    found = above + 1 + ratio((shown.turn - 1) * (tied - 1), shown.ties - 1)
    return 1 - ratio((tied / shown.ties * found / shown.rank).sum(-1), relevant.sum(-1), empty=1.0).clamp(0, 1)


def mrr_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus one over the rank of the first relevant document: every grade above 0 is relevant."""
    shown = rank_documents(scores, targets, weights)
    relevant = (shown.grades > 0).to(shown.grades)
    # Chance that the next document is relevant if none before was: ties are drawn without replacement.
    chance = (shown.tied_sum(relevant) / (shown.ties - shown.turn + 1)).clamp(max=1)
    reciprocal = (_before((1 - chance).cumprod(-1)) * chance / shown.rank).sum(-1)
    return torch.where(relevant.sum(-1) > 0, 1 - reciprocal.clamp(0, 1), 0.0)


def err_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, max_grade: float = 4) -> Tensor:
    """One minus the expected reciprocal rank at which a user stops (Chapelle et al. 2009).

    A document satisfies a user who looks at it with probability (2^grade - 1) / 2^max_grade. Even the best order loses
    something.
    """
    shown = rank_documents(scores, targets, weights)
    if bool((shown.grades > max_grade).any()):
        raise ValueError(f"targets: expected grades of at most {max_grade:g}, got {float(shown.grades.max()):g}")
    going = 1 - (torch.exp2(shown.grades - max_grade) - 2.0**-max_grade)
    reached = _before(going.cumprod(-1)).gather(-1, shown.begin)
    after = _mean_products(going, shown)
    earlier = _before(after).masked_fill(shown.turn == 1, 1)
    reciprocal = (reached * (earlier - after) / shown.rank).sum(-1)
    return torch.where((shown.grades > 0).any(-1), 1 - reciprocal.clamp(0, 1), 0.0)


# ---- what they share -----------------------------------------------------------------------------------------------


class Ranked(NamedTuple):
    """Documents of queries in the order of their scores, padding last with grade 0; each `(..., n)`.

    Ties share a group: its number, where it begins, how many there are; a turn counts from 1 within it.
    """

    grades: Tensor
    rank: Tensor
    group: Tensor
    begin: Tensor
    turn: Tensor
    ties: Tensor

    def tied_sum(self, values: Tensor) -> Tensor:
        """Return the sum over each document and those tied with it, `(..., n)`."""
        return _group_sum(values, self.group)


def rank_documents(scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Ranked:
    """Sort queries from high to low score, `(..., n)`."""
    grades = targets.to(counting_dtype(scores))
    if weights is not None:
        grades = grades.where(weights > 0, torch.zeros_like(grades))
        scores = scores.masked_fill(weights <= 0, -math.inf)
    order = descending_order(scores)
    ordered = scores.gather(-1, order)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[..., 1:] = (ordered[..., 1:] < ordered[..., :-1]) | (ordered[..., 1:] == -math.inf)
    index = torch.arange(scores.shape[-1], device=scores.device).expand_as(order)
    begin = index.where(first, 0).cummax(-1).values if scores.shape[-1] else index
    group = first.cumsum(-1) - 1
    rank = (index + 1).to(grades)
    return Ranked(
        grades.gather(-1, order),
        rank,
        group,
        begin,
        (index - begin + 1).to(grades),
        _group_sum(torch.ones_like(rank), group),
    )


def gains(grades: Tensor) -> Tensor:
    """Return 2^grade - 1, divided by a power of two common to the query to avoid overflow: `(..., n)`."""
    if not grades.shape[-1]:
        return grades
    top = grades.amax(-1, keepdim=True).ceil()
    small = torch.expm1(grades.clamp(max=1) * math.log(2)) * torch.exp2(-top)
    return torch.where(grades < 1, small, torch.exp2(grades - top) - torch.exp2(-top))


def discounts(rank: Tensor, k: int | None = None) -> Tensor:
    """Return the discount of a gain by rank: 1 / log2(1 + rank), and 0 after rank k."""
    discount = 1 / (1 + rank).log2()
    return discount if k is None else discount.masked_fill(rank > k, 0)


def _mean_products(values: Tensor, shown: Ranked) -> Tensor:
    """Return the mean product of as many distinct members of each group of ties as the turn says, `(..., n)`.

    Members join one at a time: a product of j out of t either has the newest in it, j times out of t, or it has not.
    """
    means, last = torch.zeros_like(values), max(values.shape[-1] - 1, 0)
    for joined in range(1, 1 + int(shown.ties.max()) if values.numel() else 1):
        newest = values.gather(-1, (shown.begin + joined - 1).clamp(max=last))
        shorter = _before(means).masked_fill(shown.turn == 1, 1)
        with_it = ((joined - shown.turn) * means + shown.turn * newest * shorter) / joined
        means = torch.where(shown.ties >= joined, with_it, means)
    return means


def _before(values: Tensor) -> Tensor:
    """Return at each rank the value of the rank before, 1 at the first: `(..., n)`."""
    return torch.cat((torch.ones_like(values[..., :1]), values[..., :-1]), -1)


def _group_sum(values: Tensor, group: Tensor) -> Tensor:
    return torch.zeros_like(values).scatter_add(-1, group, values).gather(-1, group)


# ---- the metrics ---------------------------------------------------------------------------------------------------


def _of_queries(name: str, function: Function, label: str, explanation: str) -> Metric:
    return Metric(name, function, label, explanation, takes_weights=False, task=RANKING)


mean_average_precision = _of_queries("map", map_loss, "MAP", "Mean precision at each relevant document, of a query.")
mrr = _of_queries("mrr", mrr_loss, "MRR", "One over the rank of the first relevant document.")


def ndcg(k: int = 10) -> Metric:
    """Discounted gain of the first k documents over that of the best order, with gains of 2^grade - 1."""
    k = integer_setting("k", k)
    explanation = f"Gain of the first {k} documents, discounted by rank, over that of the best order."
    return _of_queries(f"ndcg({k})", partial(ndcg_loss, k=k), f"NDCG@{k}", explanation)


def err(max_grade: int = 4) -> Metric:
    """Reciprocal rank at which a user is expected to stop, in grades up to a largest one."""
    max_grade = integer_setting("max_grade", max_grade)
    explanation = f"Reciprocal rank at which a user is expected to stop, by grades from 0 to {max_grade}."
    return _of_queries(f"err({max_grade})", partial(err_loss, max_grade=max_grade), "ERR", explanation)


METRICS = (mean_average_precision, mrr)
PARAMETRIC: tuple[Callable[..., Metric], ...] = (ndcg, err)
ALIASES = {"mean_average_precision": "map", "mean_reciprocal_rank": "mrr", "expected_reciprocal_rank": "err(4)"}
