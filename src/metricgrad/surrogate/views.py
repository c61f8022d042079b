"""Views: how a surrogate sees a set. Each turns it into one or several plain sets, `(..., n)` or `(..., m, n)`.

Several outputs become one set for each of them; the surrogate uses the same network for all, whatever their number, and
their order does not matter (except for ordered classes, seen at each boundary between them). The decision lies at zero
in every view: of a class, where it beats the best other one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

See = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
GRADE_LEVELS = 4
"""Grades that are distinguished; higher ones count as the last."""
MAX_UNITS = 30.0
"""Errors, in units of the metric's own tolerance, up to which they are seen as they are, not only compressed."""
MAX_EXPONENT = 20.0
"""Of logarithms of ratios; beyond, predictions are as wrong as can be."""


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
    summary : callable, optional
        What the surrogate sees of a set as a whole: `(scores, targets, weights)` -> `(..., summaries)`.
    summaries : int
        How many numbers that is.
    """

    see: See
    parts: str = "one"
    outputs: bool = False
    sized: bool = False
    summary: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    summaries: int = 0


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
    mean, spread = _mean_and_spread(targets, weights)
    return (8 * (scores - targets) / spread).asinh(), (targets - mean) / spread, weights


def level_and_spread(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Return what `residuals` leave out, compressed: mean and spread of the targets, `(..., n)` -> `(..., 2)`."""
    mean, spread = _mean_and_spread(targets, weights)
    return torch.cat((mean.asinh(), spread.log()), -1)


def _mean_and_spread(targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    share = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
    mean = (share * targets).sum(-1, keepdim=True)
    return mean, (share * (targets - mean).square()).sum(-1, keepdim=True).sqrt().clamp(min=1e-12)


def censored(scores: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See residuals of all rows, and of those whose event was seen: `(..., 2, n)`."""
    seen = residuals(scores, targets[..., 0], weights)
    both = torch.stack((weights, weights * targets[..., 1]), -2)
    return seen[0].unsqueeze(-2).expand_as(both), seen[1].unsqueeze(-2).expand_as(both), both


def errors(
    scores: Tensor,
    targets: Tensor,
    weights: Tensor,
    unit: float = 1.0,
    centre: float = 0.0,
    scale: float = 1.0,
    log: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See only how far scores are from targets, in units of the metric, as they are and compressed.

    Scores and targets are those of a model trained in other units: `centre + scale * x` is the number itself, or its
    logarithm.
    """
    if log:
        number = (centre + scale * targets).clamp(max=80).exp()
        return _in_tolerances(number * _expm1(scale * (scores - targets)), unit, weights)
    return _in_tolerances(scale * (scores - targets), unit, weights)


def ratios(
    scores: Tensor,
    targets: Tensor,
    weights: Tensor,
    unit: float = 1.0,
    centre: float = 0.0,
    scale: float = 1.0,
    log: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """See only how far scores are from targets as a share of these, as `errors` does."""
    if log:
        return _in_tolerances(_expm1(scale * (scores - targets)), unit, weights)
    size = (centre + scale * targets).abs().clamp(min=1e-12)
    return _in_tolerances(scale * (scores - targets) / size, unit, weights)


def _expm1(x: Tensor) -> Tensor:
    return x.clamp(max=MAX_EXPONENT).expm1()


def _in_tolerances(error: Tensor, unit: float, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    share = error / unit
    return (4 * share).asinh(), share.clamp(-MAX_UNITS, MAX_UNITS), weights


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
    "levels": View(residuals, summary=level_and_spread, summaries=2),
    "censored": View(censored, "ordered"),
}
PARAMETRIC_VIEWS = {"errors": errors, "ratios": ratios}
TASK_VIEWS = {
    "binary": "rows",
    "columns": "weightings",
    "multiclass": "margins",
    "multilabel": "labels",
    "ranking": "grades",
    "regression": "levels",
    "censored": "censored",
}


def view_named(name: str) -> View:
    """Return a view by its name, which may have settings: `"ratios(0.1)"`, `"errors(5,21.4,12.9,0)"`.

    >>> view_named("ratios(0.1)").see(torch.tensor([1.2]), torch.tensor([1.0]), torch.ones(1))[1]
    tensor([2.0000])
    """
    if name in VIEWS:
        return VIEWS[name]
    head, _, settings = name.partition("(")
    try:
        see = PARAMETRIC_VIEWS[head]
        given = tuple(float(setting) for setting in settings.removesuffix(")").split(","))
        unit, centre, scale, log = (*given, *(0.0, 1.0, 0.0)[len(given) - 1 :])
        return View(partial(see, unit=unit, centre=centre, scale=scale, log=bool(log)))
    except (KeyError, ValueError):
        known = ", ".join((*VIEWS, *PARAMETRIC_VIEWS))
        raise ValueError(f"view: expected one of {known}, got {name!r}") from None
