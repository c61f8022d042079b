"""Offsets of several outputs that lose least: a search class by class, each exact where the loss is one of counts.

An offset is added to the scores of its class, or label, before the decision. Raising it gives the class to rows one at
a time, in the order of their margins, by which it is beaten, so that one sort tells the loss of every offset there is.
Where the metric sees more than counts, quantiles of the margins are tried. Classes are taken in turn, the rarest first,
until none improves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.metrics.binary_formulas import Function
from metricgrad.metrics.confusion import counting_dtype
from metricgrad.metrics.multiclass_formulas import ClassCounts, CountsLoss, class_of, label_counts, row_weights

SWEEPS = 10
FEW = 100
SLACK = 1e-12
"""Losses nearer than this, or this share of them, are equal: sums in other orders round to others."""
COSTLY = 16
"""Trials of a class where each is a call of somebody's function, or where rows are very many."""
CELLS = 2**24
"""Numbers that trials of one class may hold at a time."""


@dataclass(frozen=True)
class Sets:
    """Sets on one leading axis: scores and targets `(b, n, c)`, weights `(b, n)` or none; and what follows of them."""

    scores: Tensor
    targets: Tensor
    weights: Tensor | None

    @cached_property
    def heavy(self) -> Tensor:
        """Weights of about one to count with, `(b, n)`."""
        return row_weights(self.scores, self.weights)

    @cached_property
    def classes(self) -> Tensor:
        """The number of the class of every row, `(b, n)`."""
        return class_of(self.targets)

    @cached_property
    def actual(self) -> Tensor:
        """What the rows of every class weigh, `(b, c)`."""
        return (self.heavy.unsqueeze(-1) * (self.targets == 1)).sum(-2)


@dataclass(frozen=True)
class Decision:
    """What is judged, and how scores decide: the highest of a row, or each label by itself.

    Parameters
    ----------
    function : callable
        `(scores, targets, weights) -> loss`, `(..., n, c)` -> `(...)`.
    labels : bool
        Whether each output is a label, given where its score is at least 0.
    counts : callable, optional
        The same loss from counts, which makes the search exact.
    trials : int
        How many offsets of a class to try where there are no counts; fewer, down to 16, of very many rows.
    """

    function: Function
    labels: bool = False
    counts: CountsLoss | None = None
    trials: int = FEW

    def least(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of every set at the best offsets found for it: `(..., n, c)` -> `(...)`."""
        return self.search(scores, targets, weights)[1]

    def search(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the offsets that lose least, `(..., c)`, and what they lose, `(...)`, every set by itself.

        They lose no more than no offsets do. Those of classes have a mean of zero.
        """
        *sets, n, c = scores.shape
        many = math.prod(sets)
        scores = scores.to(counting_dtype(scores)).reshape(many, n, c)
        targets = targets.expand(*sets, n, c).reshape(many, n, c)
        weights = None if weights is None else weights.expand(*sets, n).reshape(many, n)
        offsets, losses = self._searched(Sets(scores, targets, weights))
        return offsets.reshape(*sets, c), losses.reshape(sets)

    def _searched(self, sets: Sets) -> tuple[Tensor, Tensor]:
        none = sets.scores.new_zeros(len(sets.scores), sets.scores.shape[-1])
        at_none = self.judged(sets, none)
        if not sets.scores.numel():
            return none, at_none
        turns = sets.actual.argsort(dim=-1, stable=True)
        classes, idle = none.shape[-1], 0
        offsets, losses = none, at_none
        for turn in range(SWEEPS * classes):
            k = turns[:, turn % classes].unsqueeze(-1)
            value, promised = self.best_step(sets, offsets, k)
            better = promised < losses - _slack(losses)
            if bool(better.any()):
                tried = offsets.scatter(-1, k, value)
                lost = self.judged(sets, tried)
                better = lost < losses - _slack(losses)
                offsets = torch.where(better.unsqueeze(-1), tried, offsets)
                losses = torch.where(better, lost, losses)
            idle = 0 if bool(better.any()) else idle + 1
            if idle == classes:
                break
        if not self.labels:
            offsets = offsets - offsets.mean(-1, keepdim=True)
            losses = self.judged(sets, offsets)
        # Of numbers of very different sizes a sum may round away what was found.
        kept = losses <= at_none
        return torch.where(kept.unsqueeze(-1), offsets, none), torch.where(kept, losses, at_none)

    def judged(self, sets: Sets, offsets: Tensor) -> Tensor:
        """Return the losses with offsets `(b, c)`, or of several trials `(b, m, c)`; infinity where scores overflow."""
        scores, targets, weights = sets.scores, sets.targets, sets.weights
        if offsets.ndim == 3:
            scores, targets = scores.unsqueeze(1), targets.unsqueeze(1).expand(-1, offsets.shape[1], -1, -1)
            weights = None if weights is None else weights.unsqueeze(1).expand(targets.shape[:-1])
        shifted = scores + offsets.unsqueeze(-2)
        finite = shifted.isfinite()
        losses = self.function(shifted.where(finite, torch.zeros_like(shifted)), targets, weights)
        return losses.masked_fill(~finite.all(-1).all(-1), torch.inf)

    def best_step(self, sets: Sets, offsets: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the offset of class k, `(b, 1)`, that loses least while the others stay as they are, and its loss.

        It lies in the middle between two margins; of equally good ones it is the nearest to what it was.
        """
        cuts = self._cuts(sets, offsets, k)
        if self.counts is not None:
            losses = self.counts(self._counts_at_cuts(sets, offsets, k, cuts))
            losses, values = losses.masked_fill(cuts.tied, torch.inf), cuts.values
        else:
            values = self._few(cuts, sets.scores[0].numel())
            tried = offsets.unsqueeze(1).expand(-1, values.shape[-1], -1)
            tried = tried.scatter(-1, k.unsqueeze(1).expand(-1, values.shape[-1], 1), values.unsqueeze(-1))
            size = max(1, CELLS // sets.scores.numel())
            losses = torch.cat([self.judged(sets, some) for some in tried.split(size, 1)], 1)
        least = losses.amin(-1, keepdim=True)
        far = (values - offsets.gather(-1, k)).abs().masked_fill(losses > least + _slack(least), torch.inf)
        return values.gather(-1, far.argmin(-1, keepdim=True)), least[:, 0]

    def _cuts(self, sets: Sets, offsets: Tensor, k: Tensor) -> Cuts:
        """Sort the rows by the offset from which on they are given class k."""
        at = k.unsqueeze(-1).expand(-1, sets.scores.shape[1], 1)
        own = sets.scores.gather(-1, at)[..., 0]
        if self.labels:
            margins, rivals = -own, torch.zeros_like(at[..., 0])
        else:
            best, rivals = (sets.scores + offsets.unsqueeze(1)).scatter_(-1, at, -torch.inf).max(-1)
            margins = best - own
        # Rows that weigh nothing choose nothing: they go with the first that does.
        present = sets.heavy > 0
        first = margins.masked_fill(~present, -torch.inf).amax(-1, keepdim=True)
        limit = torch.finfo(margins.dtype).max / 4
        margins = torch.where(present, margins, first).clamp(-limit, limit)
        margins, rows = margins.sort(-1, descending=True)
        high, low = margins[:, :1], margins[:, -1:]
        size = torch.maximum(low.abs(), high.abs()).clamp(min=1)
        step = torch.maximum((high - low) / present.sum(-1, keepdim=True).clamp(min=1), 1e-6 * size)
        middles = margins[:, :-1] / 2 + margins[:, 1:] / 2
        tied = pad(margins[:, :-1] == margins[:, 1:], (1, 1))
        return Cuts(torch.cat((high + step, middles, low - step), -1), tied, rows, rivals.gather(-1, rows))

    def _counts_at_cuts(self, sets: Sets, offsets: Tensor, k: Tensor, cuts: Cuts) -> ClassCounts:
        """Count, for every number of first rows that are not given class k, `(b, n + 1, c)`.

        Weights are summed from both ends rather than taken away, so that where no row is left the sum is zero.
        """
        heavy, actual = sets.heavy.gather(-1, cuts.rows), sets.classes.gather(-1, cuts.rows)
        at = k.unsqueeze(1).expand(-1, heavy.shape[-1] + 1, 1)
        own = (sets.targets == 1).gather(-1, at[:, 1:])[..., 0].gather(-1, cuts.rows)
        if self.labels:
            now = label_counts(sets.scores + offsets.unsqueeze(1), sets.targets, sets.weights)
            tp, predicted = (count.unsqueeze(1).repeat(1, at.shape[1], 1) for count in (now.tp, now.predicted))
            astray = torch.zeros_like(cuts.values)
        else:
            tp = _up_to_here(heavy * (actual == cuts.rivals), cuts.rivals, offsets.shape[-1])
            predicted = _up_to_here(heavy, cuts.rivals, offsets.shape[-1])
            astray = pad((heavy * (cuts.rivals - actual).square()).cumsum(-1), (1, 0))
            astray += _from_here_on(heavy * (k - actual).square())
        tp.scatter_(-1, at, _from_here_on(heavy * own).unsqueeze(-1))
        predicted.scatter_(-1, at, _from_here_on(heavy).unsqueeze(-1))
        total = sets.heavy.sum(-1, keepdim=True).expand_as(astray)
        return ClassCounts(tp, predicted, sets.actual.unsqueeze(1).expand_as(tp), total, astray)

    def _few(self, cuts: Cuts, cells: int) -> Tensor:
        """Return offsets at quantiles of the margins, `(b, m)`; a cut through ties becomes the last one before them."""
        places = torch.arange(cuts.tied.shape[-1], device=cuts.tied.device)
        whole = places.expand_as(cuts.tied).masked_fill(cuts.tied, 0).cummax(-1).values
        last = cuts.tied.shape[-1] - 1
        trials = min(self.trials, last + 1, max(COSTLY, CELLS // cells))
        tried = torch.linspace(0, last, trials, device=places.device).round().long()
        return cuts.values.gather(-1, whole[:, tried])


class Cuts(NamedTuple):
    """Offsets of a class, `(b, n + 1)`, from high to low, each giving it to one row less; and which ties forbid.

    Beside them the rows in the order in which they leave it, `(b, n)`, and the classes they are given then.
    """

    values: Tensor
    tied: Tensor
    rows: Tensor
    rivals: Tensor


def _up_to_here(weights: Tensor, classes: Tensor, c: int) -> Tensor:
    """Sum the weights of each class before every row, `(b, n)` -> `(b, n + 1, c)`."""
    sums = weights.new_zeros(len(weights), weights.shape[1] + 1, c)
    sums[:, 1:].scatter_(-1, classes.unsqueeze(-1), weights.unsqueeze(-1))
    return sums.cumsum_(1)


def _from_here_on(weights: Tensor) -> Tensor:
    """Sum the weights from every row on, `(b, n)` -> `(b, n + 1)`."""
    return pad(weights.flip(-1).cumsum(-1).flip(-1), (0, 1))


def _slack(losses: Tensor) -> Tensor:
    return SLACK * losses.abs().clamp(min=1)
