"""Hand-made losses of queries, plain modules called as `loss(scores, targets, weights=None)`, `(..., n)` -> scalar.

Targets are grades of at least 0; a row of weight 0 is absent, any other weight counts the same, as in
`metrics.ranking`. The loss is the mean over the queries whose documents differ in grade; where there are none it is 0.

| name | what it is | published by |
|---|---|---|
| `ranknet` | logistic loss of pairs | Burges et al. 2005 |
| `listnet` | cross-entropy of shares of gain | Cao et al. 2007, with the gains of Bruch et al. 2019 |
| `lambdarank` | logistic loss of pairs, weighted by the change of NDCG | Burges et al. 2006, Wang et al. 2018 |
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.metrics.confusion import ratio
from metricgrad.metrics.ranking import discounts, gains
from metricgrad.metrics.tasks import RANKING


class RankNet(nn.Module):
    """Mean logistic loss of all pairs of documents of different grade."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over queries; memory grows with the square of the documents."""
        scores, grades, present = _documents(scores, targets, weights)
        pairs = _better(grades, present)
        loss = ratio(_pair_losses(scores, pairs).sum((-1, -2)), pairs.sum((-1, -2)))
        return _query_mean(loss, grades, present)


class ListNet(nn.Module):
    """Cross-entropy between the shares of gain in a query and the softmax of its scores."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over queries."""
        scores, grades, present = _documents(scores, targets, weights)
        gain = gains(grades)
        share = ratio(gain, gain.sum(-1, keepdim=True)).to(scores)
        # The lowest number instead of minus infinity, so that a query without documents has a softmax too.
        log_p = scores.masked_fill(~present, torch.finfo(scores.dtype).min).log_softmax(-1)
        return _query_mean(-(share * log_p.masked_fill(share == 0, 0)).sum(-1), grades, present)


class LambdaRank(nn.Module):
    """Logistic losses of pairs, each weighted by the change of NDCG if the two documents were swapped.

    Parameters
    ----------
    k : int, optional
        Cut-off rank of that NDCG; by default all ranks count. Ties rank in the order of their rows.
    """

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        if k is not None and (k is True or k != int(k) or k < 1):
            raise ValueError(f"k: expected an integer of at least 1 or None, got {k!r}")
        self.k = k

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean over queries; memory grows with the square of the documents."""
        scores, grades, present = _documents(scores, targets, weights)
        swaps = swap_changes(scores.detach(), grades, present, self.k).to(scores)
        pairs = _better(grades, present) & (swaps > 0)
        return _query_mean((swaps * _pair_losses(scores, pairs)).sum((-1, -2)), grades, present)


def swap_changes(scores: Tensor, grades: Tensor, present: Tensor, k: int | None = None) -> Tensor:
    """Return the change of NDCG if two documents of a query are swapped: `(..., n)` -> `(..., n, n)`."""
    order = scores.masked_fill(~present, -math.inf).argsort(stable=True, dim=-1, descending=True)
    discount = discounts(order.argsort(-1).to(grades) + 1, k)
    gain = gains(grades)
    best = (gain.sort(-1, descending=True).values * discount.sort(-1, descending=True).values).sum(-1)
    moved = (gain.unsqueeze(-1) - gain.unsqueeze(-2)) * (discount.unsqueeze(-1) - discount.unsqueeze(-2))
    return ratio(moved.abs(), best[..., None, None])


# ---- what they share -----------------------------------------------------------------------------------------------


def _documents(scores: Tensor, targets: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return scores and grades, 0 for padding, and the mask of present documents."""
    present = torch.ones_like(scores, dtype=torch.bool) if weights is None else weights > 0
    grades = targets.to(torch.promote_types(scores.dtype, torch.float32))
    return scores.masked_fill(~present, 0), grades.masked_fill(~present, 0), present


def _better(grades: Tensor, present: Tensor) -> Tensor:
    """Mask of the pairs whose first document has the higher grade: `(..., n)` -> `(..., n, n)`."""
    both = present.unsqueeze(-1) & present.unsqueeze(-2)
    return (grades.unsqueeze(-1) > grades.unsqueeze(-2)) & both


def _pair_losses(scores: Tensor, pairs: Tensor) -> Tensor:
    """Return the logistic losses of pairs whose first document should rank higher, 0 for others: `(..., n, n)`."""
    return F.softplus(scores.unsqueeze(-2) - scores.unsqueeze(-1)).masked_fill(~pairs, 0)


def _query_mean(loss: Tensor, grades: Tensor, present: Tensor) -> Tensor:
    informative = RANKING.informative(grades, present).to(loss)
    return (loss * informative).sum() / informative.sum().clamp(min=1)


QUERY_LOSSES: dict[str, Callable[[], nn.Module]] = {
    "ranknet": RankNet,
    "listnet": ListNet,
    "lambdarank": LambdaRank,
}
