"""Metrics subject to a bound on another one: whatever misses the bound is worse than whatever keeps it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metricgrad.metrics.decided import AtZero, Decided, loss_of
from metricgrad.metrics.decided_metric import check_judged, decided_metric
from metricgrad.metrics.metric import Metric, number_setting, short

PENALTY = 10.0
"""What it costs to miss a bound by the whole range of the bounded metric, in ranges of the metric itself."""
ROUNDING = 1e-9
"""By how much of its range a bound may be missed: counts of weights are rounded."""
PRICES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of the whole range of the bounded metric, in ranges of the metric itself; one of them is about right at the bound."""


@dataclass(frozen=True)
class BoundLoss:
    """The loss of a metric, and a penalty where another one misses its bound.

    The penalty is the range of the metric on the rows, and `penalty` times this range for a miss by the whole range of
    the other one. So it suits shares as well as money, and every threshold that misses the bound is worse than every
    one that keeps it.
    """

    metric: Metric
    other: Metric
    sign: float
    bound: float
    penalty: float

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss."""
        missed = self._missed(decided)
        penalty = (missed > 0) + self.penalty * missed
        loss: Tensor = loss_of(self.metric, decided) + penalty * decided.cut.spread(_range(self.metric, decided))
        return loss

    def _missed(self, decided: Decided) -> Tensor:
        """Return by how much of the range of the other metric the bound is missed; 0 where it is kept."""
        missed = self.beyond(decided)
        return torch.where(missed > ROUNDING, missed, 0.0)

    def beyond(self, decided: Decided) -> Tensor:
        """Return how far the other metric is beyond the bound, in its range; negative where it keeps it."""
        by = self.sign * (self.other.value(loss_of(self.other, decided)) - self.bound)
        size = abs(self.other.known_as[1] - self.other.known_as[0])
        missed: Tensor = by / (size * decided.cut.spread(_range(self.other, decided)))
        return missed

    @property
    def text(self) -> str:
        """The bound as it is written: `precision >= 0.9`."""
        return f"{self.other.name} {'<=' if self.sign > 0 else '>='} {short(self.bound)}"

    def keeps(self, value: float) -> bool:
        """Whether a value of the other metric keeps the bound."""
        return self.sign * (value - self.bound) <= ROUNDING * max(1.0, abs(self.bound))


@dataclass(frozen=True)
class PricedLoss:
    """The loss of a metric with a bound that has a price in place of a penalty: its slope is that of both metrics."""

    loss: BoundLoss
    price: float

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss."""
        metric, unit = self.loss.metric, decided.cut.spread(_range(self.loss.metric, decided))
        return loss_of(metric, decided) + self.price * unit * self.loss.beyond(decided)


def priced(metric: Metric, price: float = 1.0) -> Metric:
    """Return a metric with a price in place of its bound, if it has one; of its loss by decided rows alone.

    A penalty has no slope where the bound is kept, so that what follows from it to first order would not know of it.
    """
    bound = bound_of(metric)
    return metric if bound is None else replace(metric, decided_loss=PricedLoss(bound, price))


def _range(metric: Metric, decided: Decided) -> Tensor:
    """Return how far the losses of calling all rows rightly, wrongly, and all or none lie apart, `(...)`; 1 if not."""
    positive = decided.labels
    every = torch.ones_like(positive)
    calls = torch.stack((positive, ~positive, every, ~every))
    losses = torch.stack(
        [
            loss_of(metric, replace(decided, scores=each.to(decided.weights) - 0.5, cut=AtZero(each))).detach()
            for each in calls
        ]
    )
    found = losses.amax(0) - losses.amin(0)
    return torch.where(found > 0, found, 1.0)


def bound_of(metric: Metric) -> BoundLoss | None:
    """Return the bound of a metric that is subject to one."""
    return metric.decided_loss if isinstance(metric.decided_loss, BoundLoss) else None


def bounded_value(metric: Metric, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> float:
    """Return the value of what is bounded on rows: of the precision of "recall subject to precision >= 0.9"."""
    loss = metric.decided_loss
    assert isinstance(loss, BoundLoss)
    decided = Decided.at_zero(scores, targets, weights, metric.columns)
    return float(loss.other.value(loss_of(loss.other, decided)))


def subject_to(
    metric: Metric,
    other: Metric,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    penalty: float = PENALTY,
    name: str | None = None,
) -> Metric:
    """Return a metric subject to a bound on another one.

    Missing the bound costs the range of the metric on the rows, between the best and the worst of calling all rows
    rightly, wrongly, and all or none, so that it is worse than keeping it; and the penalty times this range for a miss
    by the whole range of the other metric.

    Parameters
    ----------
    metric, other : Metric
        The metric, and the one that is bounded, both at the same threshold.
    at_least, at_most : float, optional
        The bound, one of the two, as the other metric is shown.
    penalty : float
        How steeply a miss costs more, the larger it is.
    name : str, optional
        By default how `get_metric` takes it: `"recall subject to precision >= 0.9"`.

    Returns
    -------
    Metric

    Examples
    --------
    >>> from metricgrad.metrics.binary import precision, recall
    >>> metric = subject_to(recall, precision, at_least=0.9)
    >>> metric.name
    'recall subject to precision >= 0.9'
    >>> metric.shown(metric([1.0, 1.0, -1.0], [1, 0, 0]))  # 1 - 1 - 10 * (0.9 - 0.5)
    'recall subject to precision >= 0.9 -4.0000'
    """
    check_judged(metric)
    check_judged(other)
    if (at_least is None) == (at_most is None):
        raise ValueError(f"at_least, at_most: expected one of the two, got {at_least!r} and {at_most!r}")
    bound = float(at_most if at_least is None else at_least)  # type: ignore[arg-type]
    if not abs(bound) < float("inf"):
        raise ValueError(f"at_least, at_most: expected a finite number, got {bound!r}")
    loss = BoundLoss(
        metric, other, 1.0 if at_least is None else -1.0, bound, number_setting("penalty", penalty, 0, 1e9)
    )
    more = "" if loss.penalty == PENALTY else f" penalty {short(loss.penalty)}"
    told = f"{metric.name} subject to {loss.text}"
    return decided_metric(
        name or told + more,
        loss,
        tuple(dict.fromkeys((*metric.columns, *other.columns))),
        explanation=f"{told}; missing the bound is worse than any value that keeps it.",
        known_as=metric.known_as,
        thresholded=metric.thresholded or other.thresholded,
        groups=tuple(dict.fromkeys((*metric.groups, *other.groups))),
    )
