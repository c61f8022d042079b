"""Rows whose calls are decided: at zero, at every threshold, or the top share; sums over them, and losses of these.

A sum over rows depends on the decision only by two numbers per row: what it adds where it is called positive, and what
it adds where it is not. So the sum at every threshold is one cumulative sum, and the best threshold of any metric made
of such sums is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Confusion, comparable, counting_dtype, cumulated, descending_order, ratio

SHARE_SLACK = 1e-12
"""Of the weight of all rows: a cut nearer than this to a row does not go through it."""


class Cut(Protocol):
    """Which rows are called positive."""

    def total(self, called: Tensor, passed: Tensor) -> Tensor:
        """Sum what rows add where they are called, and where they are passed over: `(..., n)` -> `(...)`, or more."""
        ...

    def divided(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the rows that are called, and over the others: both in the shape of a total."""
        ...

    def spread(self, losses: Tensor) -> Tensor:
        """Return losses that depend on no decision, `(...)`, in the shape of a total."""
        ...


@dataclass(frozen=True)
class AtZero:
    """Rows with `scores >= 0` are called: totals are `(...)`."""

    called: Tensor

    def total(self, called: Tensor, passed: Tensor) -> Tensor:
        """Sum over the rows of every set."""
        return torch.where(self.called, called, passed).sum(-1)

    def divided(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the rows that are called, and over the others."""
        return (values * self.called).sum(-1), (values * ~self.called).sum(-1)

    def spread(self, losses: Tensor) -> Tensor:
        """Return losses as they are."""
        return losses


@dataclass(frozen=True)
class Fractional:
    """A share of every row is called, `(..., n)`, which may carry a gradient: totals are `(...)`."""

    share: Tensor

    def total(self, called: Tensor, passed: Tensor) -> Tensor:
        """Sum over the rows of every set."""
        return (self.share * called + (1 - self.share) * passed).sum(-1)

    def divided(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the shares of rows that are called, and over the others."""
        return (self.share * values).sum(-1), ((1 - self.share) * values).sum(-1)

    def spread(self, losses: Tensor) -> Tensor:
        """Return losses as they are."""
        return losses


@dataclass(frozen=True)
class EveryThreshold:
    """The i highest scores are called, for every i: totals are `(..., n + 1)`, as in `confusion_curve`.

    A point inside a group of equal scores repeats the last point before the group; `held` is its index, `(..., n + 1)`,
    or None where no scores are equal.
    """

    order: Tensor
    held: Tensor | None

    @classmethod
    def of(cls, scores: Tensor) -> EveryThreshold:
        """Sort the scores of every set."""
        order = descending_order(scores)
        ranked = scores.gather(-1, order)
        tied = ranked[..., :-1] == ranked[..., 1:]
        if not bool(tied.any()):
            return cls(order, None)
        points = torch.arange(scores.shape[-1] + 1, device=scores.device).expand(*scores.shape[:-1], -1).clone()
        points[..., 1:-1].masked_fill_(tied, 0)
        return cls(order, points.cummax(-1).values)

    def total(self, called: Tensor, passed: Tensor) -> Tensor:
        """Sum over the rows of every set, at every threshold."""
        above, beyond = self._cumulated(called), self._cumulated(passed)
        return above + (beyond[..., -1:] - beyond)  # exactly zero where nothing is called, or nothing passed over

    def divided(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the rows that are called, and over the others, at every threshold."""
        above = self._cumulated(values)
        return above, above[..., -1:] - above

    def _cumulated(self, values: Tensor) -> Tensor:
        sums = cumulated(values.expand(self.order.shape).gather(-1, self.order), values.dtype)
        return sums if self.held is None else sums.gather(-1, self.held)

    def spread(self, losses: Tensor) -> Tensor:
        """Return losses that are the same at every threshold."""
        return losses.unsqueeze(-1).expand(*losses.shape, self.order.shape[-1] + 1)


@dataclass(frozen=True)
class TopShare:
    """The top share of the rows by weight is called, ties at the cut in proportion: totals are `(...)`.

    `inside` is the share of each step of a curve that lies within the top, `(..., n)`.
    """

    curve: EveryThreshold
    inside: Tensor

    @classmethod
    def of(cls, scores: Tensor, weights: Tensor, share: float) -> TopShare:
        """Find the cut of every set."""
        curve = EveryThreshold.of(scores)
        weight, _ = curve.divided(weights)
        limit = share * (1 + SHARE_SLACK) * weight[..., -1:]
        return cls(curve, ratio(limit - weight[..., :-1], weight.diff()).clamp(0, 1))

    def total(self, called: Tensor, passed: Tensor) -> Tensor:
        """Sum over the rows of every set."""
        return self.divided(called)[0] + self.divided(passed)[1]

    def divided(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Sum over the rows that are called, and over the others."""
        steps = self.curve.divided(values)[0].diff()
        return (steps * self.inside).sum(-1), (steps * (1 - self.inside)).sum(-1)

    def spread(self, losses: Tensor) -> Tensor:
        """Return losses as they are."""
        return losses


@dataclass(frozen=True)
class Decided:
    """Sets of rows, and which of them are called positive.

    Parameters
    ----------
    scores : Tensor of shape (..., n)
        Raw scores.
    labels : Tensor of shape (..., n)
        Whether a row is positive.
    weights : Tensor of shape (..., n)
        How much each row counts, in the precision of counts.
    columns : mapping of str to Tensor of shape (..., n)
        What else is known of the rows.
    cut : Cut
        Which rows are called.
    """

    scores: Tensor
    labels: Tensor
    weights: Tensor
    columns: Mapping[str, Tensor]
    cut: Cut

    @classmethod
    def at_zero(cls, scores: Tensor, targets: Tensor, weights: Tensor | None, columns: tuple[str, ...]) -> Decided:
        """Call the rows with `scores >= 0`."""
        labels = targets[..., 0] if columns else targets
        dtype = counting_dtype(scores)
        weights = torch.ones_like(scores, dtype=dtype) if weights is None else comparable(weights, scores)
        named = {name: targets[..., 1 + place].to(dtype) for place, name in enumerate(columns)}
        return cls(scores, labels == 1, weights, named, AtZero(scores >= 0))

    def at_every_threshold(self) -> Decided:
        """Return the same rows, called at every threshold."""
        return replace(self, cut=EveryThreshold.of(self.scores))

    def top(self, share: float) -> Decided:
        """Return the same rows, of which the top share is called."""
        return replace(self, cut=TopShare.of(self.scores, self.weights, share))

    def within(self, mask: Tensor) -> Decided:
        """Return the rows of a group: the others weigh nothing, and the calls stay as they are."""
        return replace(self, weights=self.weights * mask)

    def total(self, called: Tensor, passed: Tensor) -> Tensor:
        """Sum what rows add where they are called and where they are not, by weight."""
        return self.cut.total(self.weights * called, self.weights * passed)

    @property
    def weight(self) -> Tensor:
        """The weight of all rows of every set, in the shape of a total."""
        return self.cut.spread(self.weights.sum(-1))

    @property
    def confusion(self) -> Confusion:
        """The confusion counts, each in the shape of a total."""
        tp, fn = self.cut.divided(self.weights * self.labels)
        fp, tn = self.cut.divided(self.weights * ~self.labels)
        return Confusion(tp, fp, fn, tn)

    def targets(self, columns: tuple[str, ...]) -> Tensor:
        """Return the targets of a metric with some of the columns: `(..., n)` or `(..., n, 1 + columns)`."""
        labels = self.labels.to(self.weights)
        return torch.stack([labels, *(self.columns[name] for name in columns)], -1) if columns else labels


DecidedLoss = Callable[[Decided], Tensor]
"""A loss of decided rows, in the shape of a total."""


def loss_at_zero(
    scores: Tensor, targets: Tensor, weights: Tensor | None, loss: DecidedLoss, columns: tuple[str, ...]
) -> Tensor:
    """Return the loss of the labels `scores >= 0`: `(..., n)` -> `(...)`."""
    return loss(Decided.at_zero(scores, targets, weights, columns))


def losses_by_threshold(
    scores: Tensor, targets: Tensor, weights: Tensor | None, loss: DecidedLoss, columns: tuple[str, ...]
) -> Tensor:
    """Return the loss at every threshold, from the highest down: `(..., n)` -> `(..., n + 1)`."""
    return loss(Decided.at_zero(scores, targets, weights, columns).at_every_threshold())


def lowest_loss(
    scores: Tensor, targets: Tensor, weights: Tensor | None, loss: DecidedLoss, columns: tuple[str, ...]
) -> Tensor:
    """Return the lowest loss over all thresholds: `(..., n)` -> `(...)`."""
    return losses_by_threshold(scores, targets, weights, loss, columns).amin(-1)


def loss_of(metric: Any, decided: Decided) -> Tensor:
    """Return the loss of a metric on decided rows; one that depends on no decision is the same for all."""
    if metric.decided_loss is not None:
        loss: Tensor = metric.decided_loss(decided)
        return loss
    if metric.counts is not None:
        counted: Tensor = metric.counts(decided.confusion)
        return counted
    whole: Tensor = metric.function(decided.scores, decided.targets(metric.columns), decided.weights)
    return decided.cut.spread(whole.to(decided.weights.dtype))
