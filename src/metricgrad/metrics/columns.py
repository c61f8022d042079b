"""Metrics with columns: money of each row, what is caught at a capacity, groups, and bounds on another metric.

Settings that are money, such as the cost of a false alarm, are the name of a column or a number that is the same for
all rows. Sums are per row by weight, like the counts of an expression, so that sets of any size are comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.binary import recall
from metricgrad.metrics.confusion import Confusion, ratio
from metricgrad.metrics.decided import Decided, DecidedLoss, loss_at_zero, loss_of, lowest_loss
from metricgrad.metrics.metric import Metric, number_setting, short
from metricgrad.metrics.tasks import BINARY, COLUMNS

MAX_GROUPS = 50
"""Values of a column of groups; each is judged by itself."""
GROUP_SUMMARIES = ("min", "max", "mean", "gap")
"""What is told of the values of all groups; the gap is the highest less the lowest."""
PENALTY = 10.0
"""Loss for every unit by which a bound is missed."""
Money = str | float
"""The name of a column, or an amount that is the same for all rows."""


def decided_metric(
    name: str,
    loss: DecidedLoss,
    columns: tuple[str, ...],
    *,
    explanation: str,
    known_as: tuple[float, float],
    label: str | None = None,
    bounded: bool = False,
    thresholded: bool = True,
    groups: tuple[str, ...] = (),
    decision: Callable[[Any], Tensor] | None = None,
) -> Metric:
    """Make a metric of a loss of decided rows."""
    return Metric(
        name,
        partial(loss_at_zero, loss=loss, columns=columns),
        label or name,
        explanation,
        known_as,
        thresholded,
        bounded=bounded,
        task=COLUMNS if columns else BINARY,
        columns=columns,
        groups=groups,
        decision=decision,
        decided_loss=loss,
        best_function=partial(lowest_loss, loss=loss, columns=columns) if thresholded else None,
    )


# ---- money of each row ---------------------------------------------------------------------------------------------


def money_setting(name: str, value: Any) -> Money:
    """Return the name of a column, or a number of at least 0, or raise an error that quotes it."""
    if isinstance(value, str) and value.strip().isidentifier():
        return value.strip()
    try:
        amount = float(value)
    except (TypeError, ValueError):
        amount = -1.0
    if isinstance(value, bool) or not 0 <= amount < float("inf"):
        raise ValueError(f"{name}: expected the name of a column, or a number of at least 0, got {value!r}")
    return amount


def _amounts(decided: Decided, money: Money) -> Tensor:
    """Return the amount of every row: `(..., n)`."""
    return decided.columns[money] if isinstance(money, str) else torch.full_like(decided.weights, money)


def _named(*money: Money) -> tuple[str, ...]:
    """Return the columns among some settings, each once."""
    return tuple(dict.fromkeys(each for each in money if isinstance(each, str)))


def _shown(money: Money) -> str:
    return money if isinstance(money, str) else short(money)


@dataclass(frozen=True)
class SavingsLoss:
    """The cost of the calls, over that of calling nothing or everything positive, whichever is cheaper."""

    fp: Money
    fn: Money
    tp: Money
    tn: Money

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss; 1 where there is nothing to save."""
        positive = decided.labels
        called = torch.where(positive, _amounts(decided, self.tp), _amounts(decided, self.fp))
        passed = torch.where(positive, _amounts(decided, self.fn), _amounts(decided, self.tn))
        all_called, none_called = (decided.weights * called).sum(-1), (decided.weights * passed).sum(-1)
        least = decided.cut.spread(torch.minimum(all_called, none_called))
        return ratio(decided.total(called, passed), least, empty=1.0)


def savings(fp: Money = "c_fp", fn: Money = "c_fn", tp: Money = 0, tn: Money = 0) -> Metric:
    """Share of the cost that a model saves: one minus its cost over the cheaper of calling nothing and everything.

    Parameters
    ----------
    fp, fn, tp, tn : str or float
        Cost of a false alarm, of a miss, of a hit and of a correct rejection: names of columns, or numbers.

    Returns
    -------
    Metric
        1 if nothing is lost, 0 if as much as without a model; see Bahnsen et al., 2014.

    Examples
    --------
    >>> metric = savings(50, "amount")
    >>> metric.columns
    ('amount',)
    >>> metric.shown(metric([1.0, -1.0, -1.0], [[1, 90], [1, 10], [0, 40]]))  # 10 lost, 50 by calling everything
    'savings(50,amount) 0.8000'
    """
    fp, fn = money_setting("fp", fp), money_setting("fn", fn)
    tp, tn = money_setting("tp", tp), money_setting("tn", tn)
    costs = [fp, fn, *([tp, tn] if tp or tn else [])]
    name = f"savings({','.join(map(_shown, costs))})"
    explanation = "Share of the cost of calling nothing or everything positive, whichever is cheaper, that is saved."
    loss = SavingsLoss(fp, fn, tp, tn)
    return decided_metric(name, loss, _named(fp, fn, tp, tn), explanation=explanation, known_as=(1, 0))


@dataclass(frozen=True)
class ProfitLoss:
    """The gains of the positives found, less what calling costs, negated."""

    gain: Money
    cost: Money

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss per row."""
        called = torch.where(decided.labels, _amounts(decided, self.gain), 0.0) - _amounts(decided, self.cost)
        return -ratio(decided.total(called, torch.zeros_like(called)), decided.weight)


def expected_profit(gain: Money = "gain", cost: Money = "cost") -> Metric:
    """Profit per row of acting on the rows called positive: the gain of each positive, less the cost of each call.

    Parameters
    ----------
    gain, cost : str or float
        What a positive row brings if it is called, and what any call costs: names of columns, or numbers.

    Returns
    -------
    Metric

    Examples
    --------
    >>> metric = expected_profit("amount", 5)
    >>> metric.shown(metric([1.0, -1.0, 1.0, -1.0], [[1, 90], [1, 10], [0, 40], [0, 0]]))
    'expected_profit(amount,5) 20.0000'
    """
    gain, cost = money_setting("gain", gain), money_setting("cost", cost)
    name = f"expected_profit({_shown(gain)},{_shown(cost)})"
    explanation = f"Profit per row: {_shown(gain)} of each positive found, less {_shown(cost)} for each row called."
    return decided_metric(
        name, ProfitLoss(gain, cost), _named(gain, cost), explanation=explanation, known_as=(0.0, -1.0)
    )


# ---- a capacity ----------------------------------------------------------------------------------------------------


def beside_capacity(c: Confusion, share: float) -> Tensor:
    """Return how far the share of the rows called is from the capacity; more if it is exceeded."""
    called = ratio(c.tp + c.fp, c.tp + c.fp + c.fn + c.tn)
    return torch.where(called <= share * (1 + 1e-9), share - called, 1 + called)


@dataclass(frozen=True)
class TopLoss:
    """A loss of the calls of the top share of the rows by weight; ties at the cut count in proportion."""

    share: float
    metric: Metric

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss, the same for every threshold."""
        return decided.cut.spread(loss_of(self.metric, decided.top(self.share)))


def at_capacity(metric: Metric, share: float, name: str | None = None) -> Metric:
    """Return a metric of the calls of the top share of the rows by score, whatever the scores themselves."""
    share = number_setting("share", share, 0, 1)
    _check_judged(metric)
    if not metric.thresholded:
        raise ValueError(f"metric: expected one that depends on which rows are called, got {metric.name!r}")
    name = name or f"top({short(share)}): {metric.name}"
    return decided_metric(
        name,
        TopLoss(share, metric),
        metric.columns,
        label=name,
        explanation=f"{metric.explanation.rstrip('.')}, where the top {share:.3g} of the rows are called positive.",
        known_as=metric.known_as,
        bounded=metric.bounded,
        thresholded=False,
        groups=metric.groups,
        decision=partial(beside_capacity, share=share),
    )


@dataclass(frozen=True)
class MissedLoss:
    """The share of the total of a column over the positives that is not called."""

    column: str

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss; 1 where there is nothing to catch."""
        held = torch.where(decided.labels, decided.columns[self.column], 0.0)
        caught, nothing = decided.total(held, torch.zeros_like(held)), torch.zeros_like(held)
        return 1 - ratio(caught, caught + decided.total(nothing, held)).clamp(0, 1)


def value_at_capacity(share: float = 0.02, column: str = "amount") -> Metric:
    """Share of the total of a column over the positives that lies in the top share of the rows by score.

    Parameters
    ----------
    share : float
        The share of the rows, by weight, that can be looked at.
    column : str
        What a positive is worth, such as its amount.

    Returns
    -------
    Metric

    Examples
    --------
    >>> metric = value_at_capacity(0.25, "amount")
    >>> metric.shown(metric([3.0, 2.0, 1.0, 0.0], [[1, 90], [1, 10], [0, 40], [0, 0]]))
    'amount@0.25 0.9000'
    """
    share, column = number_setting("share", share, 0, 1), _column_setting(column)
    explanation = f"Share of the {column} of all positives"
    caught = decided_metric(
        f"value({column})", MissedLoss(column), (column,), explanation=explanation, known_as=(1, 0), bounded=True
    )
    metric = at_capacity(caught, share, f"value_at_capacity({short(share)},{column})")
    return replace(metric, label=f"{column}@{share:g}")


def _column_setting(value: Any) -> str:
    if not isinstance(value, str) or not value.strip().isidentifier():
        raise ValueError(f"column: expected the name of a column, got {value!r}")
    return value.strip()


# ---- groups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupLoss:
    """A summary of the values of a metric in every group of rows, as a loss.

    Groups without rows of both classes do not count: most metrics cannot judge them. Where none counts, all rows are
    judged as one group.
    """

    summary: str
    column: str
    metric: Metric

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss of every set."""
        codes = decided.columns[self.column]
        found = codes[decided.weights > 0].unique()
        if len(found) > MAX_GROUPS:
            raise ValueError(f"column {self.column!r}: expected at most {MAX_GROUPS} groups, got {len(found)}")
        values, counted = [self._value(decided)], [decided.cut.spread(torch.zeros_like(codes[..., 0]))]
        for code in found:
            group = decided.within(codes == code)
            present = group.weights > 0
            both = (present & group.labels).any(-1) & (present & ~group.labels).any(-1)
            values.append(self._value(group))
            counted.append(decided.cut.spread(both.to(codes)))
        return self._loss(torch.stack(values), torch.stack(counted) > 0)

    def _value(self, decided: Decided) -> Tensor:
        value: Tensor = self.metric.value(loss_of(self.metric, decided))
        return value

    def _loss(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return the loss of values of all rows and of every group, `(1 + groups, ...)`, some of which count."""
        counted[0] = ~counted.any(0)
        lowest = values.masked_fill(~counted, torch.inf).amin(0)
        highest = values.masked_fill(~counted, -torch.inf).amax(0)
        if self.summary == "gap":
            return highest - lowest
        mean = values.masked_fill(~counted, 0).sum(0) / counted.sum(0)
        value = {"min": lowest, "max": highest, "mean": mean}[self.summary]
        at_zero, at_one = self.metric.known_as
        return (value - at_zero) / (at_one - at_zero)


def over_groups(summary: str, column: str, metric: Metric, name: str | None = None) -> Metric:
    """Return the least, greatest or mean value of a metric over groups of rows, or the gap between them."""
    if summary not in GROUP_SUMMARIES:
        raise ValueError(f"summary: expected one of {', '.join(GROUP_SUMMARIES)}, got {summary!r}")
    column = _column_setting(column)
    _check_judged(metric)
    if metric.groups:
        raise ValueError(f"metric: expected one without groups of its own, got {metric.name!r}")
    name = name or f"{summary} over {column} of {metric.name}"
    gap, columns = summary == "gap", tuple(dict.fromkeys((*metric.columns, column)))
    span = abs(metric.known_as[0] - metric.known_as[1])
    told = {"min": "Lowest", "max": "Highest", "mean": "Mean", "gap": "Highest less lowest"}[summary]
    return decided_metric(
        name,
        GroupLoss(summary, column, metric),
        columns,
        explanation=f"{told} {metric.label} of the groups by {column}.",
        known_as=(0, 1) if gap else metric.known_as,
        bounded=metric.bounded and (not gap or span <= 1),
        thresholded=metric.thresholded,
        groups=tuple(dict.fromkeys((*metric.groups, column))),
        decision=metric.decision if isinstance(metric.decided_loss, TopLoss) else None,
    )


def group_min(metric: Metric = recall, column: str = "group") -> Metric:
    """Value of a metric in the group where it is worst.

    Parameters
    ----------
    metric : Metric
        One of two classes; one that depends on a threshold has the same threshold in all groups.
    column : str
        The groups.

    Returns
    -------
    Metric

    Examples
    --------
    >>> metric = group_min(recall, "sex")
    >>> metric.shown(metric([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], [[1, 0], [1, 0], [0, 0], [0, 1], [1, 1], [1, 1]]))
    'group_min(recall,sex) 0.0000'
    """
    _check_judged(metric)
    summary = "min" if metric.higher_is_better else "max"
    name = f"group_min({metric.name},{_column_setting(column)})"
    return over_groups(summary, column, metric, name)


def equal_opportunity_gap(column: str = "group") -> Metric:
    """Difference between the highest and the lowest recall of the groups; 0 if all positives have the same chance.

    It is reached by calling nothing, so it makes a metric only together with another: `"f1 subject to
    equal_opportunity_gap(sex) <= 0.05"`, or `"f1 - equal_opportunity_gap(sex)"`.

    Parameters
    ----------
    column : str
        The groups.

    Returns
    -------
    Metric

    Examples
    --------
    >>> gap = equal_opportunity_gap("sex")
    >>> gap.shown(gap([1.0, 1.0, 1.0, -1.0, 1.0, -1.0], [[1, 0], [1, 0], [0, 0], [0, 1], [1, 1], [1, 1]]))
    'equal_opportunity_gap(sex) 0.5000'
    """
    return over_groups("gap", column, recall, f"equal_opportunity_gap({_column_setting(column)})")


# ---- a bound on another metric -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoundLoss:
    """The loss of a metric, and a penalty for every unit by which another one misses its bound."""

    metric: Metric
    other: Metric
    sign: float
    bound: float
    penalty: float

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss."""
        missed = self.sign * (self.other.value(loss_of(self.other, decided)) - self.bound)
        loss: Tensor = loss_of(self.metric, decided) + self.penalty * missed.clamp(min=0)
        return loss


def subject_to(
    metric: Metric,
    other: Metric,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    penalty: float = PENALTY,
    name: str | None = None,
) -> Metric:
    """Return a metric subject to a bound on another one: each unit by which the bound is missed costs a penalty.

    Parameters
    ----------
    metric, other : Metric
        The metric, and the one that is bounded, both at the same threshold.
    at_least, at_most : float, optional
        The bound, one of the two, as the other metric is shown.
    penalty : float
        Loss for every unit by which the bound is missed.
    name : str, optional
        By default how `get_metric` takes it: `"recall subject to precision >= 0.9"`.

    Returns
    -------
    Metric

    Examples
    --------
    >>> from metricgrad.metrics.binary import precision
    >>> metric = subject_to(recall, precision, at_least=0.9)
    >>> metric.name
    'recall subject to precision >= 0.9'
    >>> metric.shown(metric([1.0, 1.0, -1.0], [1, 0, 0]))  # 1 - 10 * (0.9 - 0.5)
    'recall subject to precision >= 0.9 -3.0000'
    """
    _check_judged(metric)
    _check_judged(other)
    if (at_least is None) == (at_most is None):
        raise ValueError(f"at_least, at_most: expected one of the two, got {at_least!r} and {at_most!r}")
    bound = float(at_most if at_least is None else at_least)  # type: ignore[arg-type]
    if not abs(bound) < float("inf"):
        raise ValueError(f"at_least, at_most: expected a finite number, got {bound!r}")
    penalty = number_setting("penalty", penalty, 0, 1e9)
    relation = "<=" if at_least is None else ">="
    more = "" if penalty == PENALTY else f" penalty {short(penalty)}"
    told = f"{metric.name} subject to {other.name} {relation} {short(bound)}"
    return decided_metric(
        name or told + more,
        BoundLoss(metric, other, 1.0 if at_least is None else -1.0, bound, penalty),
        tuple(dict.fromkeys((*metric.columns, *other.columns))),
        explanation=f"{told}; each unit by which the bound is missed costs {penalty:g}.",
        known_as=metric.known_as,
        thresholded=metric.thresholded or other.thresholded,
        groups=tuple(dict.fromkeys((*metric.groups, *other.groups))),
    )


def _check_judged(metric: Metric) -> None:
    """Raise an error unless a metric can be judged on decided rows."""
    if not isinstance(metric, Metric):
        raise TypeError(f"metric: expected a Metric, as get_metric returns it, got {metric!r}")
    counted = metric.decided_loss is not None or metric.counts is not None or not metric.thresholded
    if metric.task not in (BINARY, COLUMNS) or not counted:
        raise ValueError(
            f"metric: expected one of two classes that is no callable of labels, got {metric.name!r}; write it as an "
            "expression over tp, fp, fn and tn"
        )


COLUMN_FAMILIES: dict[str, Callable[..., Metric]] = {
    make.__name__: make for make in (savings, expected_profit, value_at_capacity, equal_opportunity_gap, group_min)
}
"""Metrics with columns, by name; their settings are numbers, names of columns or of metrics."""
