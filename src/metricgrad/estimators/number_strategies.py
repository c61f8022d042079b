"""Strategies that compete for a metric of numbers: usual losses, hand-made ones, direct search and the surrogate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metricgrad.estimators.metric_estimator import Array, Trained
from metricgrad.estimators.numbers_verdict import DIRECT as DIRECT
from metricgrad.estimators.numbers_verdict import MSE as MSE
from metricgrad.estimators.numbers_verdict import SURROGATE as SURROGATE
from metricgrad.estimators.numbers_verdict import NumbersVerdict as NumbersVerdict
from metricgrad.losses.regression import AbsoluteError, Huber, Pinball, SoftWithin, Welsch
from metricgrad.metrics.constants import KINDS, Correction, Units, best_along, best_constant
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.regression import OF_ORDER
from metricgrad.metrics.row_costs import RowCost
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Progress, config_for
from metricgrad.surrogate.pretraining import Fitting, fit_universal
from metricgrad.surrogate.synthetic import ModelSets
from metricgrad.training.data import Rows
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Best, standard_error

QUANTILE_STEP = 0.6
"""Distance of the quantiles that are tried beside the likeliest one, in log-odds."""
FITTING = Fitting(steps=600)
"""How a surrogate is fitted to sets like those of the model it starts from."""
MIN_LEARNED_ROWS = 40
"""Validation rows from which on a learned loss can be judged."""
CORRECTION_FOLDS, MIN_ISOTONIC_ROWS = 5, 300
"""Parts of the validation rows by which the kind of a correction is chosen, and rows for an isotonic one."""
Made = Callable[[], nn.Module]


class Truth(NamedTuple):
    """Targets of the validation rows in their own unit, `(rows,)` or with columns, and weights, if any."""

    y: Tensor
    w: Tensor | None


@dataclass(frozen=True, eq=False)
class Strategy:
    """A model that was trained by one strategy, with its predictions of the validation rows.

    Parameters
    ----------
    name : str
        Of the loss, or of the search.
    units : Units
        What it was trained in.
    trained : Trained
        The network and how it came about.
    scores : Tensor of shape (rows,)
        Of the validation rows, in these units.
    loss : float
        Of the validation rows, at the best constant.
    seconds : float
        That it took.
    kept : bool
        Whether it may be chosen: a learned loss must beat its start by more than the noise.
    """

    name: str
    units: Units
    trained: Trained
    scores: Tensor
    loss: float
    seconds: float
    kept: bool = True

    @property
    def checkpoint(self) -> Best:
        """The model as the start of another one, which then has to beat it."""
        state = {name: value.float() for name, value in self.trained.network.state_dict().items()}
        return Best(self.loss, state, self.scores.float(), self.loss)

    @property
    def predictions(self) -> Tensor:
        """Predictions of the validation rows, without any constant."""
        return self.units.to_targets(self.scores)


def leaderboard(strategies: list[Strategy], chosen: Strategy, metric: Metric, rows: Truth) -> list[dict[str, Any]]:
    """Return a record of every strategy, the chosen one first; `rows` are the validation rows, targets as given."""
    unit = abs(float(metric.value(1.0)) - float(metric.value(0.0)))
    records = []
    for each in strategies:
        behind = 0.0 if each is chosen else unit * (each.loss - chosen.loss)
        error = 0.0 if each is chosen else unit * error_between(metric, each, chosen, rows)
        records.append(
            {
                "method": each.name,
                "units": "log" if each.units.log else "standardised",
                "value": float(metric.value(each.loss)),
                "behind": behind,
                "standard_error": error,
                "seconds": each.seconds,
                "note": "" if each.kept else "not better than its start by more than the noise",
            }
        )
    order = sorted(range(len(records)), key=lambda place: (strategies[place] is not chosen, records[place]["behind"]))
    return [records[place] for place in order]


def as_table(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the records as a table."""
    table: pd.DataFrame = pd.DataFrame.from_records(records)
    return table


def error_between(metric: Metric, one: Strategy, other: Strategy, rows: Truth) -> float:
    """Return the standard error of the difference of two strategies, each at its best constant."""
    first, second = (at_best(metric, each, rows) for each in (one, other))
    return standard_error(metric, first, second, rows.y, rows.w)


def at_best(metric: Metric, strategy: Strategy, rows: Truth) -> Tensor:
    """Return the predictions of the validation rows at the best constant of a strategy."""
    predictions = strategy.predictions
    if metric.name in OF_ORDER or metric.costly:
        return predictions
    constant = best_along(metric, predictions, rows.y, rows.w, strategy.units.kind)[0]
    return predictions * constant if strategy.units.log else predictions + constant


# ---- which losses --------------------------------------------------------------------------------------------------


def usual_losses(errors: Tensor) -> dict[str, Made]:
    """Return the usual losses beside squared error, given errors of a model, `(rows,)`, in units of training."""
    width = float(errors.abs().median().clamp(min=1e-3))
    return {"mae": AbsoluteError, "huber": partial(Huber, width)}


def hand_made_losses(metric: Metric, usual: Strategy, targets: Tensor, rows: Truth) -> dict[str, Made]:
    """Return hand-made losses that may suit a metric, given the model of squared error on the validation rows.

    A cost that differs by side wants some quantile: likeliest the one that the best constant of that model is of its
    errors. A tolerance wants a soft step where it is, in units of training.
    """
    level = quantile_of_constant(metric, usual, targets, rows)
    odds = np.log(level / (1 - level)) + QUANTILE_STEP * np.array([0.0, -1.0, 1.0])
    made: dict[str, Made] = {
        f"pinball-{quantile:.3g}": partial(Pinball, float(quantile)) for quantile in 1 / (1 + np.exp(-odds))
    }
    for width in tolerances(metric, usual.units, rows.y):
        made[f"soft-within-{width:.2g}"] = partial(SoftWithin, width)
        made[f"welsch-{width:.2g}"] = partial(Welsch, width)
    return made


def quantile_of_constant(metric: Metric, usual: Strategy, targets: Tensor, rows: Truth) -> float:
    """Return the level of the best constant of a model among its own errors: 0.5 if half of the rows need less."""
    if metric.name in OF_ORDER or metric.costly:
        return 0.5
    constant = float(best_along(metric, usual.predictions, rows.y, rows.w, usual.units.kind)[0])
    shift = np.log(max(constant, 1e-300)) / usual.units.scale if usual.units.log else constant / usual.units.scale
    needed = (targets - usual.scores <= shift).double()
    weights = torch.ones_like(needed) if rows.w is None else rows.w.double()
    return float(((needed * weights).sum() / weights.sum()).clamp(0.03, 0.97))


def tolerances(metric: Metric, units: Units, targets: Tensor) -> list[float]:
    """Return the narrowest and the widest tolerance of a metric, in units of training; none if it has none."""
    cost = metric.function
    limits = sorted({abs(limit) for limit in cost.limits if limit}) if isinstance(cost, RowCost) else []
    if not isinstance(cost, RowCost) or not limits:
        return []
    typical = float(targets.abs().median().clamp(min=1e-12))
    size = {(True, True): 1.0, (False, False): 1.0, (True, False): typical, (False, True): 1 / typical}
    found = sorted({limits[0], limits[-1]})
    return [float(np.clip(limit * size[cost.relative, units.log] / units.scale, 1e-3, 1e3)) for limit in found]


# ---- the surrogate -------------------------------------------------------------------------------------------------


def own_surrogate(
    metric: Metric, inside: Metric, scores: Tensor, rows: Rows, units: Units, recipe: Recipe, progress: Progress | None
) -> SurrogateLoss:
    """Return the surrogate of a metric for a model of numbers, fitted to sets like those of the model.

    `inside` is the metric in the units of training; `scores` and `rows` are those of the training rows.
    """
    plain = replace(inside, thresholded=False, best_function=None)
    if isinstance(metric.function, RowCost) and metric.view is None:
        errors = units.scale * (scores - metric.task.label(rows.y)).abs().median()
        unit = float(errors.clamp(min=1e-9) * (units.to_targets(torch.zeros(1))[0] if units.log else 1.0))
        plain = replace(plain, view=f"errors({unit!r},{units.centre!r},{units.scale!r},{int(units.log)})")
    steps = max(min(FITTING.steps, recipe.trust_cap), 1)
    if metric.budget is not None:
        steps = min(steps, int(0.2 * metric.budget.max_calls) // 16)
    fitting = replace(FITTING, steps=steps, sizes=(min(recipe.set_size, 200),))
    sets = ModelSets(scores.float(), rows.y, metric.takes_weights)
    surrogate = fit_universal(plain, sets, config_for(plain), fitting, progress)
    loss = SurrogateLoss(
        plain,
        surrogate,
        form="zero",
        learning_rate=recipe.surrogate_rate,
        clip=recipe.clip,
        relational=recipe.relational,
    )
    loss.judge = inside
    return loss


# ---- the constant --------------------------------------------------------------------------------------------------


def chosen_correction(metric: Metric, predictions: Tensor, rows: Truth, seed: int) -> tuple[Correction, float]:
    """Return the map of predictions that loses least on parts of the validation rows that it was not fitted to.

    It is then fitted to all of them. The loss is that on parts left out; with few rows there is a shift only.
    """
    count = len(predictions)
    if metric.name in OF_ORDER:
        return Correction(), float(metric(predictions, rows.y, rows.w))
    kinds = [kind for kind in KINDS if kind != "isotonic" or (count >= MIN_ISOTONIC_ROWS and not metric.costly)]
    if count < 2 * CORRECTION_FOLDS:
        kinds = ["none"]
    part_of = np.random.default_rng(seed).permutation(count) % CORRECTION_FOLDS
    losses = {kind: _crossed_loss(metric, kind, predictions, rows, part_of) for kind in kinds}
    best = min(kinds, key=lambda kind: losses[kind])
    return best_constant(metric, predictions, rows.y, rows.w, kind=best), losses[best]


def _crossed_loss(metric: Metric, kind: str, predictions: Tensor, rows: Truth, part_of: Array) -> float:
    moved = predictions.double().clone()
    for part in range(CORRECTION_FOLDS if kind != "none" else 0):
        fitted, left_out = (torch.from_numpy(np.flatnonzero(mask)) for mask in (part_of != part, part_of == part))
        weights = None if rows.w is None else rows.w[fitted]
        found = best_constant(metric, predictions[fitted], rows.y[fitted], weights, kind=kind)
        moved[left_out] = torch.from_numpy(found.apply(predictions[left_out].numpy()))
    return float(metric(moved, rows.y, rows.w))
