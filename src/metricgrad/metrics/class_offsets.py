"""The search for offsets of several classes or labels: one class at a time, exact where the loss is one of counts.

An offset is added to the scores of its class, or label, before the decision. Raising it gives the class to one row
after another, in the order of their margins (by how much the class is beaten), so that one sort gives the loss of every
offset. Where the metric needs more than counts, quantiles of the margins are tried. Classes are taken in turn, the
rarest first, until none improves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.metrics.confusion import (
    ClassCounts,
    ClassCountsLoss,
    Function,
    class_of,
    counting_dtype,
    label_counts,
    row_weights,
)

MAX_SWEEPS = 10
"""How often all classes are gone through."""
TRIALS = 100
"""Offsets of a class that are tried where there are no counts."""
COSTLY_TRIALS = 16
"""The same where each is a call of a user's function, or where there are very many rows."""
LOSS_TOLERANCE = 1e-12
"""Losses closer than this, absolutely or relatively, are equal: sums in another order round differently."""
MAX_TRIAL_CELLS = 2**24
"""Numbers that trials of one class may hold at a time."""


@dataclass(frozen=True)
class OutputSets:
    """Sets on one leading axis: scores and targets `(b, n, c)`, weights `(b, n)` or None; and what they imply."""

    scores: Tensor
    targets: Tensor
    weights: Tensor | None

    @cached_property
    def counted(self) -> Tensor:
        """The weights to count rows with, of about one, `(b, n)`."""
        return row_weights(self.scores, self.weights)

    @cached_property
    def classes(self) -> Tensor:
        """The index of the class of every row, `(b, n)`."""
        return class_of(self.targets)

    @cached_property
    def actual(self) -> Tensor:
        """The weight of the rows of every class, `(b, c)`."""
        return (self.counted.unsqueeze(-1) * (self.targets == 1)).sum(-2)


@dataclass(frozen=True)
class OffsetSearch:
    """A loss, how scores decide (the highest of a row, or each label by itself), and the search for its best offsets.

    Parameters
    ----------
    function : callable
        `(scores, targets, weights) -> loss`, `(..., n, c)` -> `(...)`.
    labels : bool
        Whether each output is a label, predicted where its score is at least 0.
    counts : callable, optional
        The same loss from counts, which makes the search exact.
    trials : int
        How many offsets of a class to try where there are no counts; fewer, down to 16, if there are very many rows.
    """

    function: Function
    labels: bool = False
    counts: ClassCountsLoss | None = None
    trials: int = TRIALS

    def lowest_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of every set at the best offsets found for it: `(..., n, c)` -> `(...)`."""
        return self.search(scores, targets, weights)[1]

    def search(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the best offsets of every set, `(..., c)`, and their losses, `(...)`.

        They lose no more than no offsets do. Those of classes have a mean of zero.
        """
        *sets, n, c = scores.shape
        batch = math.prod(sets)
        scores = scores.to(counting_dtype(scores)).reshape(batch, n, c)
        targets = targets.expand(*sets, n, c).reshape(batch, n, c)
        weights = None if weights is None else weights.expand(*sets, n).reshape(batch, n)
        offsets, losses = self._searched(OutputSets(scores, targets, weights))
        return offsets.reshape(*sets, c), losses.reshape(sets)

    def _searched(self, sets: OutputSets) -> tuple[Tensor, Tensor]:
        zeros = sets.scores.new_zeros(len(sets.scores), sets.scores.shape[-1])
        at_zeros = self.losses(sets, zeros)
        if not sets.scores.numel():
            return zeros, at_zeros
        turns = sets.actual.argsort(dim=-1, stable=True)
        classes, idle = zeros.shape[-1], 0
        offsets, losses = zeros, at_zeros
        for turn in range(MAX_SWEEPS * classes):
            k = turns[:, turn % classes].unsqueeze(-1)
            value, predicted = self.best_step(sets, offsets, k)
            better = predicted < losses - _slack(losses)
            if bool(better.any()):
                tried = offsets.scatter(-1, k, value)
                tried_losses = self.losses(sets, tried)
                better = tried_losses < losses - _slack(losses)
                offsets = torch.where(better.unsqueeze(-1), tried, offsets)
                losses = torch.where(better, tried_losses, losses)
            idle = 0 if bool(better.any()) else idle + 1
            if idle == classes:
                break
        if not self.labels:
            offsets = offsets - offsets.mean(-1, keepdim=True)
            losses = self.losses(sets, offsets)
        # With scores of very different magnitudes, adding an offset may round away what was found.
        kept = losses <= at_zeros
        return torch.where(kept.unsqueeze(-1), offsets, zeros), torch.where(kept, losses, at_zeros)

    def losses(self, sets: OutputSets, offsets: Tensor) -> Tensor:
        """Return the losses with offsets `(b, c)`, or with trials `(b, m, c)`; infinity where scores overflow."""
        scores, targets, weights = sets.scores, sets.targets, sets.weights
        if offsets.ndim == 3:
            scores, targets = scores.unsqueeze(1), targets.unsqueeze(1).expand(-1, offsets.shape[1], -1, -1)
            weights = None if weights is None else weights.unsqueeze(1).expand(targets.shape[:-1])
        shifted = scores + offsets.unsqueeze(-2)
        finite = shifted.isfinite()
        losses = self.function(shifted.where(finite, torch.zeros_like(shifted)), targets, weights)
        return losses.masked_fill(~finite.all(-1).all(-1), torch.inf)

    def best_step(self, sets: OutputSets, offsets: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best offset of class k, `(b, 1)`, while the others stay as they are, and its loss.

        It lies in the middle between two margins; of equally good ones it is the nearest to the current offset.
        """
        cuts = self._cuts(sets, offsets, k)
        if self.counts is not None:
            losses = self.counts(self._counts_at_cuts(sets, offsets, k, cuts))
            losses, values = losses.masked_fill(cuts.tied, torch.inf), cuts.values
        else:
            values = self._trial_offsets(cuts, sets.scores[0].numel())
            tried = offsets.unsqueeze(1).expand(-1, values.shape[-1], -1)
            tried = tried.scatter(-1, k.unsqueeze(1).expand(-1, values.shape[-1], 1), values.unsqueeze(-1))
            size = max(1, MAX_TRIAL_CELLS // sets.scores.numel())
            losses = torch.cat([self.losses(sets, part) for part in tried.split(size, 1)], 1)
        least = losses.amin(-1, keepdim=True)
        far = (values - offsets.gather(-1, k)).abs().masked_fill(losses > least + _slack(least), torch.inf)
        return values.gather(-1, far.argmin(-1, keepdim=True)), least[:, 0]

    def _cuts(self, sets: OutputSets, offsets: Tensor, k: Tensor) -> Cuts:
        """Sort the rows by the offset from which on class k is predicted."""
        at = k.unsqueeze(-1).expand(-1, sets.scores.shape[1], 1)
        own = sets.scores.gather(-1, at)[..., 0]
        if self.labels:
            margins, others = -own, torch.zeros_like(at[..., 0])
        else:
            best, others = (sets.scores + offsets.unsqueeze(1)).scatter_(-1, at, -torch.inf).max(-1)
            margins = best - own
        # Rows of weight zero must not add offsets: they get the margin of the first row that counts.
        present = sets.counted > 0
        first = margins.masked_fill(~present, -torch.inf).amax(-1, keepdim=True)
        limit = torch.finfo(margins.dtype).max / 4
        margins = torch.where(present, margins, first).clamp(-limit, limit)
        margins, rows = margins.sort(-1, descending=True)
        high, low = margins[:, :1], margins[:, -1:]
        size = torch.maximum(low.abs(), high.abs()).clamp(min=1)
        step = torch.maximum((high - low) / present.sum(-1, keepdim=True).clamp(min=1), 1e-6 * size)
        middles = margins[:, :-1] / 2 + margins[:, 1:] / 2
        tied = pad(margins[:, :-1] == margins[:, 1:], (1, 1))
        return Cuts(torch.cat((high + step, middles, low - step), -1), tied, rows, others.gather(-1, rows))

    def _counts_at_cuts(self, sets: OutputSets, offsets: Tensor, k: Tensor, cuts: Cuts) -> ClassCounts:
        """Count at every cut, where the first rows are not predicted as class k: `(b, n + 1, c)`.

        Weights are summed from both ends rather than subtracted, so that the sum is exactly zero where no row is left.
        """
        weights, actual = sets.counted.gather(-1, cuts.rows), sets.classes.gather(-1, cuts.rows)
        at = k.unsqueeze(1).expand(-1, weights.shape[-1] + 1, 1)
        own = (sets.targets == 1).gather(-1, at[:, 1:])[..., 0].gather(-1, cuts.rows)
        if self.labels:
            now = label_counts(sets.scores + offsets.unsqueeze(1), sets.targets, sets.weights)
            tp, predicted = (count.unsqueeze(1).repeat(1, at.shape[1], 1) for count in (now.tp, now.predicted))
            distance = torch.zeros_like(cuts.values)
        else:
            tp = _sums_before(weights * (actual == cuts.others), cuts.others, offsets.shape[-1])
            predicted = _sums_before(weights, cuts.others, offsets.shape[-1])
            distance = pad((weights * (cuts.others - actual).square()).cumsum(-1), (1, 0))
            distance += _sums_from(weights * (k - actual).square())
        tp.scatter_(-1, at, _sums_from(weights * own).unsqueeze(-1))
        predicted.scatter_(-1, at, _sums_from(weights).unsqueeze(-1))
        total = sets.counted.sum(-1, keepdim=True).expand_as(distance)
        return ClassCounts(tp, predicted, sets.actual.unsqueeze(1).expand_as(tp), total, distance)

    def _trial_offsets(self, cuts: Cuts, cells: int) -> Tensor:
        """Return offsets at quantiles of the margins, `(b, m)`; a cut through ties moves to the one before them."""
        index = torch.arange(cuts.tied.shape[-1], device=cuts.tied.device)
        untied = index.expand_as(cuts.tied).masked_fill(cuts.tied, 0).cummax(-1).values
        last = cuts.tied.shape[-1] - 1
        trials = min(self.trials, last + 1, max(COSTLY_TRIALS, MAX_TRIAL_CELLS // cells))
        tried = torch.linspace(0, last, trials, device=index.device).round().long()
        return cuts.values.gather(-1, untied[:, tried])


class Cuts(NamedTuple):
    """Offsets of a class, `(b, n + 1)`, from high to low, each predicting it for one row less; and a mask of ties.

    Then the rows in the order in which they leave the class, `(b, n)`, and the classes predicted for them then.
    """

    values: Tensor
    tied: Tensor
    rows: Tensor
    others: Tensor


def _sums_before(weights: Tensor, classes: Tensor, c: int) -> Tensor:
    """Sum the weights of each class before every row, `(b, n)` -> `(b, n + 1, c)`."""
    sums = weights.new_zeros(len(weights), weights.shape[1] + 1, c)
    sums[:, 1:].scatter_(-1, classes.unsqueeze(-1), weights.unsqueeze(-1))
    return sums.cumsum_(1)


def _sums_from(weights: Tensor) -> Tensor:
    """Sum the weights from every row on, `(b, n)` -> `(b, n + 1)`."""
    return pad(weights.flip(-1).cumsum(-1).flip(-1), (0, 1))


def _slack(losses: Tensor) -> Tensor:
    return LOSS_TOLERANCE * losses.abs().clamp(min=1)
