"""Views: how a surrogate sees a set. Each turns it into one or several plain sets, `(..., n)` or `(..., m, n)`.

Several outputs become one set for each of them; the surrogate uses the same network for all, whatever their number, and
their order does not matter (except for ordered classes, seen at each boundary between them). The decision lies at zero
in every view: of a class, where it beats the best other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

See = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
GRADE_LEVELS = 4
"""Grades that are distinguished; higher ones count as the last."""


class View(NamedTuple):
    """A function of `(scores, targets, weights)`, and how the sets it makes relate.

    Parameters
    ----------
    see : callable
        Returns the same three, of one or several plain sets.
    parts : str
        `"one"` set, or several that are `"unordered"` or `"ordered"`.
    outputs : bool
        Whether it takes several outputs, `(..., n, c)`.
    sized : bool
        Whether the number of rows matters, as it does for metrics of ranks.
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
    log_p = scores.log_softmax(-1)
    return labels(log_p - _log1m(log_p), targets, weights)


def ordered(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the log-odds of being above each boundary between ordered classes: `(..., c - 1, n)`."""
    log_p = scores.log_softmax(-1)
    above = log_p.flip(-1).logcumsumexp(-1).flip(-1)[..., 1:]
    below = log_p.logcumsumexp(-1)[..., :-1]
    return labels(above - below, targets.flip(-1).cumsum(-1).flip(-1)[..., 1:], weights)


def samples(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the labels of every row as a set: `(..., n, c)`, as it is."""
    return scores, targets, weights.unsqueeze(-1).expand_as(scores)


def weightings(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See a set as it is, and once more weighted by every column: `(..., t, n)`."""
    columns = targets.mT.clone()
    columns[..., 0, :] = 1
    weighted = weights.unsqueeze(-2) * columns
    return scores.unsqueeze(-2).expand_as(weighted), targets[..., 0].unsqueeze(-2).expand_as(weighted), weighted


def grades(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See the rows of at least each grade as the positives: `(..., 4, n)`."""
    least = torch.arange(1, GRADE_LEVELS + 1, device=targets.device, dtype=targets.dtype).unsqueeze(-1)
    positive = (targets.unsqueeze(-2) >= least).to(scores.dtype)
    return scores.unsqueeze(-2).expand_as(positive), positive, weights.unsqueeze(-2).expand_as(positive)


def residuals(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See targets, and how far the scores are from them, in units of the spread of the targets."""
    share = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
    centred = targets - (share * targets).sum(-1, keepdim=True)
    spread = (share * centred.square()).sum(-1, keepdim=True).sqrt().clamp(min=1e-12)
    return (8 * (scores - targets) / spread).asinh(), centred / spread, weights


def _log1m(x: Tensor) -> Tensor:
    """Return log(1 - exp(x)) for x < 0, accurate at both ends."""
    x = x.clamp(max=-torch.finfo(x.dtype).tiny)
    near = x > -0.693
    return torch.where(near, (-torch.expm1(x.where(near, -1.0))).log(), torch.log1p(-x.where(~near, -1.0).exp()))


VIEWS = {
    "rows": View(rows),
    "labels": View(labels, "unordered", outputs=True),
    "margins": View(margins, "unordered", outputs=True),
    "log_odds": View(log_odds, "unordered", outputs=True),
    "ordered": View(ordered, "unordered", outputs=True),
    "samples": View(samples, "unordered", outputs=True),
    "weightings": View(weightings, "ordered"),
    "grades": View(grades, "ordered", sized=True),
    "residuals": View(residuals),
}
TASK_VIEWS = {
    "binary": "rows",
    "columns": "weightings",
    "multiclass": "margins",
    "multilabel": "labels",
    "ranking": "grades",
    "regression": "residuals",
}
