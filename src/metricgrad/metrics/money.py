"""Metrics with money of each row: savings, profit, and what is caught at a capacity.

Settings that are money, such as the cost of a false alarm, are the name of a column or a number that is the same for
all rows. Sums are per row by weight, like the counts of an expression, so that sets of any size are comparable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.confusion import Confusion, ratio
from metricgrad.metrics.decided import Decided, loss_of
from metricgrad.metrics.decided_metric import check_judged, column_setting, decided_metric
from metricgrad.metrics.metric import Metric, number_setting, short

Money = str | float
"""The name of a column, or an amount that is the same for all rows."""

# ---- costs and profits ---------------------------------------------------------------------------------------------


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
    check_judged(metric)
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
    share, column = number_setting("share", share, 0, 1), column_setting(column)
    explanation = f"Share of the {column} of all positives"
    caught = decided_metric(
        f"value({column})", MissedLoss(column), (column,), explanation=explanation, known_as=(1, 0), bounded=True
    )
    metric = at_capacity(caught, share, f"value_at_capacity({short(share)},{column})")
    return replace(metric, label=f"{column}@{share:g}")
