"""Metrics of regression: scores and targets are finite numbers, judged by how far or in which order they are.

A row of weight w counts as w equal rows do; one of weight 0 is as good as absent. A set whose targets are all the same
has no order and loses 0.5, as chance does; a set without rows misses nothing. Costs are in the unit that they are given
in; an error is the prediction less the target, so that one below 0 is short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.metrics.confusion import ratio
from metricgrad.metrics.metric import Metric, number_setting, short
from metricgrad.metrics.row_costs import RowCost, SquaredCost, in_counting_dtype
from metricgrad.metrics.tasks import CENSORED, REGRESSION

# ---- losses of single rows -----------------------------------------------------------------------------------------


def within_loss(scores: Tensor, targets: Tensor, weights: Tensor | None, share: float) -> Tensor:
    """Weight of the rows that are missed by more than a share of their target."""
    return _tolerance(share, relative=True)(scores, targets, weights)


def rmsle_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Root of the mean squared error of log(1 + x); numbers below 0 count as 0."""
    scores, targets, weights = in_counting_dtype(scores, targets, weights)
    error = scores.clamp(min=0).log1p() - targets.clamp(min=0).log1p()
    return ratio((weights * error.square()).sum(-1), weights.sum(-1)).sqrt()


def _tolerance(limit: float, relative: bool) -> RowCost:
    return RowCost((-limit, limit), (1.0, 0.0, 1.0), (0.0, 0.0, 0.0), relative)


# ---- losses of the order of rows -----------------------------------------------------------------------------------


def spearman_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Spearman's rank correlation turned into a loss, (1 - rho) / 2; ties share their mean rank."""
    scores, targets, weights = in_counting_dtype(scores, targets, weights)
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    ours, theirs = (_centred(ranks(values, weights), weights) for values in (scores, targets))
    spread = ((weights * ours.square()).sum(-1) * (weights * theirs.square()).sum(-1)).sqrt()
    spread = spread.where(spread > 1e-9, torch.zeros_like(spread))  # ranks that differ only by rounding have no order
    return (1 - ratio((weights * ours * theirs).sum(-1), spread).clamp(-1, 1)) / 2


def concordance_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus the concordance index: how often, of two rows, the one of the higher target scores higher.

    Pairs of equal targets do not count, and of equal scores by half.
    """
    scores, targets, weights = in_counting_dtype(scores, targets, weights)
    return _concordance(scores, targets, weights, weights)


def censored_concordance_loss(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """One minus Harrell's concordance index of times, some of which are censored: targets `(..., n, 2)`.

    The second column is 1 where the event was seen at that time, 0 where the row was only followed until then. A pair
    counts if its earlier time is that of an event. Of equal times an event comes before a censored row.
    """
    times, events = targets.unbind(-1)
    scores, times, weights = in_counting_dtype(scores, times, weights)
    times = times.contiguous()
    place = torch.searchsorted(times.sort(-1).values, times).to(times.dtype)
    return _concordance(scores, 2 * place + (1 - events.to(times.dtype)), weights * events.to(times.dtype), weights)


def _concordance(scores: Tensor, targets: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return the loss of pairs, each of the weight of its lower row as such times that of its upper row."""
    concordant, discordant = (rising_pairs(sign * scores, targets, lower, upper) for sign in (1, -1))
    below, _ = weight_below(targets, lower)
    return (1 - ratio(concordant - discordant, (upper * below).sum(-1)).clamp(-1, 1)) / 2


def ranks(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weight below each row plus half of the weight tied with it: `(..., n)` -> `(..., n)`."""
    below, up_to = weight_below(values, weights)
    return (below + up_to) / 2


def weight_below(values: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weight of the rows below each, and of those not above it: `(..., n)` -> twice `(..., n)`."""
    ranked, order = values.sort(-1)
    cumulative = _from_zero(weights.gather(-1, order).cumsum(-1))
    values = values.contiguous()
    below, up_to = (cumulative.gather(-1, torch.searchsorted(ranked, values, right=right)) for right in (False, True))
    return below, up_to


def rising_pairs(scores: Tensor, targets: Tensor, lower: Tensor, upper: Tensor | None = None) -> Tensor:
    """Return the weight of all pairs in which both target and score rise: `(..., n)` -> `(...)`.

    A row weighs `lower` in pairs with higher ones and `upper` in pairs with lower ones, by default the same. It is a
    merge sort of rows in the order of their targets, blocks doubling in size: n log(n)^2 operations.
    """
    # Within equal targets scores fall, so that no pair of them rises.
    order = scores.argsort(dim=-1, descending=True, stable=True)
    order = order.gather(-1, targets.gather(-1, order).argsort(dim=-1, stable=True))
    rows = order.shape[-1]
    width = 1 << max(rows - 1, 0).bit_length()
    columns = (scores, lower, lower if upper is None else upper)
    s, below, above = (pad(column.gather(-1, order), (0, width - rows)) for column in columns)
    total, block = s.new_zeros(s.shape[:-1]), 1
    while block < width:
        shape = (*s.shape[:-1], -1, 2, block)
        (left, right), left_weights, right_weights = s.view(shape).unbind(-2), below.view(shape), above.view(shape)
        left, order = left.sort(-1)
        cumulative = _from_zero(left_weights.select(-2, 0).gather(-1, order).cumsum(-1))
        found = torch.searchsorted(left.contiguous(), right.contiguous())
        total = total + (right_weights.select(-2, 1) * cumulative.gather(-1, found)).sum((-1, -2))
        block *= 2
    return total


def _centred(values: Tensor, weights: Tensor) -> Tensor:
    return values - (weights * values).sum(-1, keepdim=True)


def _from_zero(rising: Tensor) -> Tensor:
    return torch.cat((rising.new_zeros((*rising.shape[:-1], 1)), rising), -1)


# ---- the metrics ---------------------------------------------------------------------------------------------------


spearman = Metric(
    "spearman",
    spearman_loss,
    "Spearman",
    "Rank correlation of scores and targets; the loss is (1 - rho) / 2.",
    (1, -1),
    task=REGRESSION,
    view="residuals",
)
concordance = Metric(
    "concordance",
    concordance_loss,
    "C-index",
    "How often, of two rows, the one of the higher target scores higher.",
    task=REGRESSION,
    view="residuals",
)


censored_concordance = Metric(
    "censored_concordance",
    censored_concordance_loss,
    "C-index",
    "How often, of two rows, the one whose event comes later scores higher; rows of event 0 were followed until then.",
    task=CENSORED,
    columns=("event",),
)


def _number_metric(name: str, function: Any, label: str, explanation: str, **more: Any) -> Metric:
    """Return an unbounded metric of which less is better."""
    return Metric(name, function, label, explanation, **{"known_as": (0, 1), "bounded": False, **more}, task=REGRESSION)


mae = _number_metric("mae", RowCost((0.0,), (0.0, 0.0), (-1.0, 1.0)), "MAE", "Mean absolute error.")
mape = _number_metric(
    "mape",
    RowCost((0.0,), (0.0, 0.0), (-1.0, 1.0), True),
    "MAPE",
    "Mean error as a share of the target.",
    view="ratios(0.1)",
)
mse = _number_metric("mse", SquaredCost("mse"), "MSE", "Mean squared error.")
rmse = _number_metric("rmse", SquaredCost("rmse"), "RMSE", "Root of the mean squared error.")
rmsle = _number_metric("rmsle", rmsle_loss, "RMSLE", "Root of the mean squared error of log(1 + x).")
r2 = _number_metric(
    "r2", SquaredCost("r2"), "R2", "Share of the variance that is explained.", known_as=(1, 0), view="residuals"
)


def within(share: float = 0.1) -> Metric:
    """Share of the rows that are missed by no more than a share of their target."""
    share = number_setting("share", share, 0, 10)
    return Metric(
        f"within({short(share)})",
        _tolerance(share, relative=True),
        f"within {100 * share:g} %",
        f"Share of the rows missed by no more than {100 * share:g} % of their target.",
        task=REGRESSION,
        view=f"ratios({short(share)})",
    )


def within_units(limit: float = 1.0) -> Metric:
    """Share of the rows that are missed by no more than a limit, in units of the target."""
    limit = number_setting("limit", limit, 0, MAX_UNITS)
    return Metric(
        f"within_units({short(limit)})",
        _tolerance(limit, relative=False),
        f"within {limit:g}",
        f"Share of the rows missed by no more than {limit:g} units.",
        task=REGRESSION,
        view=f"errors({short(limit)})",
    )


def bands(*fines: Any) -> Metric:
    """Mean fine of errors in units of the target: `bands("5:1", "15:4")` fines errors above 5 by 1, above 15 by 4.

    A limit with a sign holds for one side: `"-5:3"` fines predictions that are more than 5 short.
    """
    return _banded("bands", fines or ("1:1", "2:3"), relative=False)


def relative_bands(*fines: Any) -> Metric:
    """Mean fine of errors as shares of the target: `relative_bands("0.05:1", "0.2:4")`; signs as of `bands`."""
    return _banded("relative_bands", fines or ("0.1:1", "0.2:3"), relative=True)


def _banded(name: str, given: tuple[Any, ...], relative: bool) -> Metric:
    """Return the metric of fines; its loss is in units of the highest one."""
    found = [_fine(text) for text in given]
    sides = [_side([(limit, fine) for sign, limit, fine in found if sign in ("", side)]) for side in "-+"]
    fines = [0.0, *(fine for side in sides for _, fine in side)]
    most = max(fines)
    if not most > 0:
        raise ValueError(f"fines: expected one above 0, got {', '.join(map(str, given))}")
    short_side, over_side = sides
    cost = RowCost(
        (*(-limit for limit, _ in reversed(short_side)), *(limit for limit, _ in over_side)),
        (*(fine / most for _, fine in reversed(short_side)), 0.0, *(fine / most for _, fine in over_side)),
        (0.0,) * (len(short_side) + len(over_side) + 1),
        relative,
    )
    text = ",".join(f"{sign}{short(limit)}:{short(fine)}" for sign, limit, fine in found)
    unit = min(limit for _, limit, _ in found)
    return Metric(
        f"{name}({text})",
        cost,
        "mean fine",
        f"Mean fine, by how far {'(as a share of its target) ' if relative else ''}a row is missed: {text}.",
        (0, most),
        task=REGRESSION,
        view=f"{'ratios' if relative else 'errors'}({short(unit)})",
    )


def _fine(given: Any) -> tuple[str, float, float]:
    """Return sign, limit and fine of `"-5:3"`, or of a pair `(-5, 3)`, which has the sign of its limit."""
    limit, _, fine = (str(given) if isinstance(given, str) else ":".join(map(str, given))).partition(":")
    sign = limit[:1] if limit[:1] in ("-", "+") else ""
    try:
        found = sign, number_setting("limit", limit.removeprefix(sign), 0, MAX_UNITS), float(fine)
    except ValueError:
        found = "", 0.0, math.nan
    if not 0 <= found[2] <= MAX_UNITS:
        raise ValueError(f"fines: expected a limit above 0 and a fine of at least 0, such as '5:1', got {given!r}")
    return found


def _side(limits: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if len({limit for limit, _ in limits}) < len(limits):
        raise ValueError(f"fines: expected different limits, got {', '.join(f'{a:g}:{b:g}' for a, b in limits)}")
    rising = sorted(limits)
    if any(wider < fine for (_, fine), (_, wider) in pairwise(rising)):
        raise ValueError(f"fines: expected none lower than that of a narrower limit, got {rising}")
    return rising


def pinball(quantile: float = 0.5) -> Metric:
    """Loss of a quantile: a unit short costs the quantile, a unit over the rest of 1."""
    quantile = number_setting("quantile", quantile, 0, 1)
    if quantile == 1:
        raise ValueError("quantile: expected a number above 0 and below 1, got 1")
    return _number_metric(
        f"pinball({short(quantile)})",
        RowCost((0.0,), (0.0, 0.0), (-quantile, 1 - quantile)),
        f"pinball {quantile:g}",
        f"Loss of the quantile {quantile:g}: {quantile:g} a unit short, {1 - quantile:g} a unit over.",
    )


def step_cost(short_unit: float = 5.0, over_unit: float = 1.0, if_short: float = 0.0, if_over: float = 0.0) -> Metric:
    """Mean cost: so much a unit short, so much a unit over, and a fixed sum where it is short or over at all."""
    names = ("short_unit", "over_unit", "if_short", "if_over")
    costs = [_cost(name, cost) for name, cost in zip(names, (short_unit, over_unit, if_short, if_over), strict=True)]
    if not max(costs[0], costs[2]) > 0 or not max(costs[1], costs[3]) > 0:
        raise ValueError(f"short_unit, over_unit: expected a cost above 0 on both sides, got {costs}")
    while len(costs) > 2 and not costs[-1]:
        costs.pop()
    per_short, per_over, fixed_short, fixed_over = (*costs, 0.0, 0.0)[:4]
    fixed = "".join(f", {cost:g} if {side}" for cost, side in ((fixed_short, "short"), (fixed_over, "over")) if cost)
    return _number_metric(
        f"step_cost({','.join(map(short, costs))})",
        RowCost((0.0,), (fixed_short, fixed_over), (-per_short, per_over)),
        "cost",
        f"Mean cost: {per_short:g} a unit short, {per_over:g} a unit over{fixed}.",
    )


def _cost(name: str, given: Any) -> float:
    try:
        cost = float(given)
    except (TypeError, ValueError):
        cost = math.nan
    if isinstance(given, bool) or not 0 <= cost <= MAX_UNITS:
        raise ValueError(f"{name}: expected a number from 0 to {MAX_UNITS:g}, got {given!r}")
    return cost


MAX_UNITS = 1e12
"""Largest tolerance, fine or cost."""
OF_ORDER = ("spearman", "concordance", "censored_concordance")
"""Metrics of the order of predictions only, which no constant changes."""
METRICS = (spearman, concordance, censored_concordance, mae, mape, mse, rmse, rmsle, r2)
PARAMETRIC: tuple[Callable[..., Metric], ...] = (
    within,
    within_units,
    bands,
    relative_bands,
    pinball,
    step_cost,
)
ALIASES = {"c_index": "concordance", "concordance_index": "concordance"}
