"""Losses of numbers made by hand: absolute errors, Huber's, quantiles, soft tolerances, Cox's; and the best again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.losses.default import SquaredError, SquaredErrorOfEvents
from metricgrad.losses.regression import AbsoluteError, Huber, PartialLikelihood, Pinball, SoftWithin, Welsch
from metricgrad.metrics.constants import InUnits
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.regression import OF_ORDER
from metricgrad.metrics.row_costs import RowCost
from metricgrad.strategies.strategy import Known, Setting, Strategy
from metricgrad.surrogate.network import Progress

QUANTILE_STEP = 0.6
"""Distance of the quantiles that are tried beside the likeliest one, in log-odds."""


class ByHand(Strategy):
    """Follow a loss of single rows, where a target is one number."""

    def suits(self, setting: Setting) -> bool:
        """Return whether targets have no columns."""
        return not setting.metric.task.several


class Absolute(ByHand):
    """Follow absolute errors: the median."""

    name, by_trees = "mae", True

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the loss."""
        return [AbsoluteError()]


class Robust(ByHand):
    """Follow Huber's loss, as wide as the median error of squared error on the held-out rows."""

    name = "huber"

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the loss."""
        assert setting.known is not None
        errors = _errors(setting.known)
        return [Huber(float(errors.abs().median().clamp(min=1e-3)))]


class Quantiles(ByHand):
    """Follow pinball losses, which suit a cost that differs by side.

    The likeliest quantile is the one that the best constant of squared error is of its errors.
    """

    name, by_trees = "pinball", True

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the losses of that quantile and of one on each side."""
        assert setting.known is not None
        known = setting.known
        level = quantile_of_constant(setting.metric, known.usual(known.kept.x), known.kept.y, known.truth, known.kept.w)
        odds = np.log(level / (1 - level)) + QUANTILE_STEP * np.array([0.0, -1.0, 1.0])
        return [Pinball(float(quantile)) for quantile in 1 / (1 + np.exp(-odds))]

    def named(self, loss: nn.Module) -> str:
        """Return the name with the quantile."""
        return f"{self.name}-{loss.quantile:.3g}"


class Tolerances(ByHand):
    """Follow soft steps at the tolerances of the metric, in units of training."""

    name = "tolerance"

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric has a tolerance."""
        return super().suits(setting) and bool(_limits(setting.metric))

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return two losses for each tolerance."""
        assert setting.known is not None
        widths = tolerances(setting.metric, setting.known.truth)
        return [make(width) for width in widths for make in (SoftWithin, Welsch)]

    def named(self, loss: nn.Module) -> str:
        """Return the name of the loss with its width."""
        return f"{'welsch' if isinstance(loss, Welsch) else 'soft-within'}-{loss.width:.2g}"


class Cox(Strategy):
    """Follow Cox's partial likelihood, which knows what a censored time says."""

    name = "cox"

    def suits(self, setting: Setting) -> bool:
        """Return whether times may be censored."""
        return setting.metric.task.name == "censored"

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the loss."""
        return [PartialLikelihood()]


NAMES: dict[type[nn.Module], str] = {
    SquaredError: "squared error",
    SquaredErrorOfEvents: "squared error",
    AbsoluteError: Absolute.name,
    Huber: Robust.name,
    Pinball: Quantiles.name,
    SoftWithin: "soft-within",
    Welsch: "welsch",
    PartialLikelihood: Cox.name,
}
"""What losses are called where they go on."""


class Longer(ByHand):
    """Follow the best loss so far again, from its model: a surrogate has to be better than that."""

    name, goes_on = "longer", True

    def suits(self, setting: Setting) -> bool:
        """Return whether the model takes steps; one that is solved for has arrived."""
        return not setting.solved

    def from_best(self, setting: Setting) -> bool:
        """Return that it does."""
        return True

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return that loss."""
        assert setting.known is not None
        return [setting.known.followed]

    def named(self, loss: nn.Module) -> str:
        """Return the name of the loss that goes on: `pinball, longer`."""
        return f"{NAMES[type(loss)]}, {self.name}" if type(loss) in NAMES else self.name


def _errors(known: Known) -> Tensor:
    """Return what the model of squared error lacks on the held-out rows."""
    return known.kept.y.double() - known.usual(known.kept.x)


def quantile_of_constant(
    metric: Metric, scores: Tensor, targets: Tensor, truth: Tensor, weights: Tensor | None
) -> float:
    """Return the level of the best shift of scores among their own errors: 0.5 if half of the rows need less.

    The metric is one in units of training (`in_units`), and so are scores and targets; `truth` are targets as given.
    """
    if metric.name in OF_ORDER or metric.costly:
        return 0.5
    assert isinstance(metric.function, InUnits)
    needed = (targets.double() - scores <= metric.function.best_shift(scores, truth, weights)).double()
    shares = torch.ones_like(needed) if weights is None else weights.double()
    return float(((needed * shares).sum() / shares.sum()).clamp(0.03, 0.97))


def tolerances(metric: Metric, truth: Tensor) -> list[float]:
    """Return the narrowest and the widest tolerance of a metric in units of training; none if it has none.

    `truth` are targets as given.
    """
    limits, inside = _limits(metric), metric.function
    if not limits or not isinstance(inside, InUnits):
        return []
    units, relative = inside.units, getattr(inside.metric.function, "relative", False)
    typical = float(truth.abs().median().clamp(min=1e-12))
    size = 1.0 if relative == units.log else typical if relative else 1 / typical
    return [float(np.clip(limit * size / units.scale, 1e-3, 1e3)) for limit in sorted({limits[0], limits[-1]})]


def _limits(metric: Metric) -> list[float]:
    """Return the errors at which the cost of a metric in units of training jumps or bends, in its own unit."""
    cost = metric.function.metric.function if isinstance(metric.function, InUnits) else None
    return sorted({abs(limit) for limit in cost.limits if limit}) if isinstance(cost, RowCost) else []
