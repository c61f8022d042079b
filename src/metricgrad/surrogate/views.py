"""Views: how a surrogate looks at a set. Each turns it into one or several plain sets, `(..., n)` or `(..., m, n)`.

Several outputs become one set for each of them, which a surrogate judges by the same network whatever their number, and
whose order does not matter (but for ordered classes, seen by where they are parted). The cuts that people make lie at
zero in every view: of a class, where it beats the best other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

See = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
LEVELS = 4
"""Grades told apart; higher ones count as the last."""


class View(NamedTuple):
    """How to see `(scores, targets, weights)`, and what the sets are to each other.

    Parameters
    ----------
    see : callable
        The same three, of one or several plain sets.
    parts : str
        `"one"` set; `"alike"`: several in no order; `"told apart"`: several in order.
    outputs : bool
        Whether it takes several outputs, `(..., n, c)`.
    sized : bool
        Whether the number of rows matters: it does to metrics of ranks.
    """

    see: See
    parts: str = "one"
    outputs: bool = False
    sized: bool = False


def rows(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See a set as it is."""
    return scores, targets, weights


def labels(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See every output by itself: `(..., n, c)` -> `(..., c, n)`."""
    return scores.mT, targets.mT, weights.unsqueeze(-2).expand_as(scores.mT)


def margins(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See by how much every class beats the best other one."""
    top = scores.topk(2, -1)
    other = torch.where(scores == top.values[..., :1], top.values[..., 1:], top.values[..., :1])
    return labels(scores - other, targets, weights)


def log_odds(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the log-odds of every class against all others."""
    chances = scores.log_softmax(-1)
    return labels(chances - _log1m(chances), targets, weights)


def ordered(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the log-odds of being above, for every place where ordered classes can be parted: `(..., c - 1, n)`."""
    chances = scores.log_softmax(-1)
    above = chances.flip(-1).logcumsumexp(-1).flip(-1)[..., 1:]
    below = chances.logcumsumexp(-1)[..., :-1]
    return labels(above - below, targets.flip(-1).cumsum(-1).flip(-1)[..., 1:], weights)


def samples(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the labels of every row as a set: `(..., n, c)`, as it is."""
    return scores, targets, weights.unsqueeze(-1).expand_as(scores)


def weightings(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See a set as it is, and once more for every column, by which its rows then weigh: `(..., t, n)`."""
    columns = targets.mT.clone()
    columns[..., 0, :] = 1
    heavy = weights.unsqueeze(-2) * columns
    return scores.unsqueeze(-2).expand_as(heavy), targets[..., 0].unsqueeze(-2).expand_as(heavy), heavy


def grades(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the rows of at least each grade as the positives: `(..., 4, n)`."""
    least = torch.arange(1, LEVELS + 1, device=targets.device, dtype=targets.dtype).unsqueeze(-1)
    positive = (targets.unsqueeze(-2) >= least).to(scores.dtype)
    return scores.unsqueeze(-2).expand_as(positive), positive, weights.unsqueeze(-2).expand_as(positive)


def residuals(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See targets, and how far the scores are from them, in units of the spread of the targets."""
    share = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
    centred = targets - (share * targets).sum(-1, keepdim=True)
    spread = (share * centred.square()).sum(-1, keepdim=True).sqrt().clamp(min=1e-12)
    return (8 * (scores - targets) / spread).asinh(), centred / spread, weights


def _log1m(chances: Tensor) -> Tensor:
    """Return log(1 - exp(x)) of x < 0, exact near either end."""
    chances = chances.clamp(max=-torch.finfo(chances.dtype).tiny)
    near = chances > -0.693
    return torch.where(
        near, (-torch.expm1(chances.where(near, -1.0))).log(), torch.log1p(-chances.where(~near, -1.0).exp())
    )


VIEWS = {
    "rows": View(rows),
    "labels": View(labels, "alike", outputs=True),
    "margins": View(margins, "alike", outputs=True),
    "log_odds": View(log_odds, "alike", outputs=True),
    "ordered": View(ordered, "alike", outputs=True),
    "samples": View(samples, "alike", outputs=True),
    "weightings": View(weightings, "told apart"),
    "grades": View(grades, "told apart", sized=True),
    "residuals": View(residuals),
}
OF_TASK = {
    "binary": "rows",
    "columns": "weightings",
    "multiclass": "margins",
    "multilabel": "labels",
    "ranking": "grades",
    "regression": "residuals",
}
