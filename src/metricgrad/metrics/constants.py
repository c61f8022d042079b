"""The best constant of a metric of numbers: a shift or a factor of all predictions, or a monotone map of them.

It is to regression what a threshold is to two classes: chosen on held-out rows, part of every model, and a strong
rival of any loss by itself. For metrics that are piecewise linear or quadratic in the error (`row_costs.py`) it is
exact; for others it is searched on a grid that is refined once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.regression import OF_ORDER
from metricgrad.metrics.sets import checked_sets

KINDS = ("none", "shift", "factor", "isotonic")
"""Maps of predictions, the simplest first."""
TRIALS, COSTLY_TRIALS, REFINED = 101, 15, 2
"""Constants tried where no exact search is known, fewer of a costly metric, and how often the grid is refined."""
PARTS, MIN_ISOTONIC_ROWS = 5, 300
"""Parts of the held-out rows by which the kind of a map is chosen, and rows for an isotonic one."""
NUDGE = 1e-12
"""Relative distance from a jump of the loss, beyond the rounding of predictions."""


@dataclass(frozen=True, eq=False)
class Correction:
    """A map of predictions: `factor * map(x) + shift`, where the map interpolates between knots, if there are any.

    Parameters
    ----------
    kind : {"none", "shift", "factor", "isotonic"}
        Which of them.
    shift, factor : float
        What is added, after what is multiplied by.
    knots : ndarray of shape (2, k), optional
        Predictions, rising, and what they become; beyond the first and the last the map is constant.

    Examples
    --------
    >>> Correction("shift", shift=2.0).apply(np.array([1.0, 3.0])).tolist()
    [3.0, 5.0]
    """

    kind: str = "none"
    shift: float = 0.0
    factor: float = 1.0
    knots: NDArray[np.float64] | None = None

    def apply(self, predictions: NDArray[Any]) -> NDArray[np.float64]:
        """Return corrected predictions: `(n,)` -> `(n,)`."""
        values: NDArray[np.float64] = np.asarray(predictions, np.float64)
        values = values if self.knots is None else np.interp(values, *self.knots)
        return values if self.kind == "none" else self.factor * values + self.shift

    def __str__(self) -> str:
        if self.kind == "factor":
            return f"times {self.factor:.4g}"
        if self.kind == "none":
            return "as predicted"
        moved = f"{'plus' if self.shift >= 0 else 'less'} {abs(self.shift):.4g}"
        return moved if self.kind == "shift" else f"an isotonic map of {self._knot_count} knots, {moved}"

    @property
    def _knot_count(self) -> int:
        return 0 if self.knots is None else self.knots.shape[1]


def best_constant(
    metric: Any, predictions: Any, targets: Any, weights: Any = None, *, kind: str = "shift"
) -> Correction:
    """Return the map of a kind that loses least on some rows.

    Parameters
    ----------
    metric : str, Metric or callable
        Whatever `get_metric` takes, of numbers. One of their order alone needs no map.
    predictions, targets, weights : array-like of shape (n,)
        Of the rows, which should be held out: not those that the model was trained on.
    kind : {"shift", "factor", "isotonic", "none"}
        What is looked for. A factor takes predictions above 0, otherwise it is 1. An isotonic map is the monotone one
        of least squares, shifted.

    Returns
    -------
    Correction

    Examples
    --------
    >>> best_constant("pinball(0.9)", [0.0] * 10, list(range(10))).shift
    8.5
    """
    metric = get_metric(metric)
    if kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {kind!r}")
    predictions, targets, weights = checked_sets(predictions, targets, weights, metric.task)
    if predictions.ndim != 1 or not len(predictions):
        raise ValueError(f"predictions: expected at least one row, (n,), got the shape {tuple(predictions.shape)}")
    if kind == "none" or metric.name in OF_ORDER:
        return Correction()
    predictions = predictions.double()
    if kind == "isotonic":
        knots = _isotonic_knots(predictions, metric.task.label(targets), weights)
        moved = torch.from_numpy(np.interp(predictions.numpy(), *knots))
        return Correction("isotonic", _beside(metric, moved, targets, weights, "shift"), knots=knots)
    if kind == "factor" and not bool((predictions > 0).all()):
        return Correction()
    constant = _beside(metric, predictions, targets, weights, kind)
    return Correction("factor", factor=constant) if kind == "factor" else Correction("shift", constant)


def _beside(metric: Metric, predictions: Tensor, targets: Tensor, weights: Tensor | None, kind: str) -> float:
    """Return the best constant of one set, on the right side of a jump whichever way predictions are rounded."""
    best = best_along(metric, predictions, targets, weights, kind)[0]
    if metric.costly:
        return float(best)
    reach = NUDGE * (best.abs() + (predictions.abs().max() if kind == "shift" else 1))
    tried = torch.stack((best, best - reach, best + reach))
    losses = torch.stack([_moved_loss(metric, predictions, targets, weights, kind, each) for each in tried])
    better = losses < losses[0] - NUDGE * (1 + losses[0].abs())  # not by rounding alone
    return float(tried[int(losses.argmin()) if bool(better.any()) else 0])


@torch.no_grad()
def best_along(
    metric: Metric, predictions: Tensor, targets: Tensor, weights: Tensor | None, kind: str
) -> tuple[Tensor, Tensor]:
    """Return the best shift or factor of every set, and its loss: `(..., n)` -> twice `(...)`."""
    search = getattr(metric.function, "best_along", None)
    if search is not None:
        moved = (predictions - targets, torch.ones_like(predictions)) if kind == "shift" else (-targets, predictions)
        constant, loss = search(*moved, targets, weights)
        return constant, loss
    return _on_grid(metric, predictions.double(), targets, weights, kind)


def _on_grid(
    metric: Metric, predictions: Tensor, targets: Tensor, weights: Tensor | None, kind: str
) -> tuple[Tensor, Tensor]:
    """Search quantiles of what would be best for single rows, then between the neighbours of the best of them."""
    labels = metric.task.label(targets).double()
    own = labels - predictions if kind == "shift" else labels / predictions
    count = COSTLY_TRIALS if metric.costly else TRIALS
    levels = torch.linspace(0, 1, count, dtype=own.dtype, device=own.device)
    tried = torch.quantile(own, levels, dim=-1)  # (count, ...)
    tried = torch.cat((torch.full_like(tried[:1], float(kind == "factor")), tried))
    for turn in range(1 + REFINED):
        losses = torch.stack([_moved_loss(metric, predictions, targets, weights, kind, each) for each in tried])
        least, where = losses.min(0, keepdim=True)
        best = tried.gather(0, where)
        if turn == REFINED:
            break
        step = (tried.amax(0, keepdim=True) - tried.amin(0, keepdim=True)) / (count - 1)
        spread = torch.linspace(-1, 1, max(count // 5, 5), dtype=own.dtype, device=own.device)
        tried = torch.cat((best, best + spread.view(-1, *[1] * (best.ndim - 1)) * step))
    return best[0], least[0]


def _moved_loss(
    metric: Metric, predictions: Tensor, targets: Tensor, weights: Tensor | None, kind: str, constant: Tensor
) -> Tensor:
    each = constant.unsqueeze(-1)
    moved = predictions + each if kind == "shift" else predictions * each
    return metric.function(moved, targets, weights).double()


def _isotonic_knots(predictions: Tensor, targets: Tensor, weights: Tensor | None) -> NDArray[np.float64]:
    """Return the corners of the monotone map of least squares: `(2, k)`."""
    from sklearn.isotonic import IsotonicRegression  # only here: predicting needs none of it

    own = None if weights is None else weights.numpy()
    fitted = IsotonicRegression().fit(predictions.numpy(), targets.double().numpy(), own)
    return np.stack((fitted.X_thresholds_, fitted.y_thresholds_)).astype(np.float64)


def chosen_correction(
    metric: Metric, predictions: Tensor, targets: Tensor, weights: Tensor | None = None, seed: int = 0
) -> tuple[Correction, float]:
    """Return the map of predictions that loses least on parts of the held-out rows that it was not fitted to.

    It is then fitted to all of them, and is none if that makes them lose more. The loss is that on parts left out; with
    few rows there is no map.
    """
    count = len(predictions)
    plain = float(metric(predictions, targets, weights))
    if metric.name in OF_ORDER or count < 2 * PARTS:
        return Correction(), plain
    kinds = [kind for kind in KINDS if kind != "isotonic" or (count >= MIN_ISOTONIC_ROWS and not metric.costly)]
    part_of = torch.from_numpy(np.random.default_rng(seed).permutation(count) % PARTS)
    losses = {kind: _crossed_loss(metric, kind, predictions, targets, weights, part_of) for kind in kinds[1:]}
    losses["none"] = plain
    best = min(kinds, key=lambda kind: losses[kind])
    found = best_constant(metric, predictions, targets, weights, kind=best)
    worse = float(metric(torch.from_numpy(found.apply(predictions.numpy())), targets, weights)) > plain
    return (Correction(), plain) if worse else (found, losses[best])


def _crossed_loss(
    metric: Metric, kind: str, predictions: Tensor, targets: Tensor, weights: Tensor | None, part_of: Tensor
) -> float:
    moved = predictions.double().clone()
    for part in range(PARTS):
        fitted, left_out = part_of != part, part_of == part
        own = None if weights is None else weights[fitted]
        found = best_constant(metric, predictions[fitted], targets[fitted], own, kind=kind)
        moved[left_out] = torch.from_numpy(found.apply(predictions[left_out].numpy()))
    return float(metric(moved, targets, weights))


# ---- metrics in the units that a model is trained in ---------------------------------------------------------------


@dataclass(frozen=True)
class Units:
    """The units that a model is trained in: less a centre and divided by a scale, of targets or of their logarithms.

    Examples
    --------
    >>> Units(0.0, 1.0, log=True).to_targets(torch.tensor([0.0])).tolist()
    [1.0]
    """

    centre: float = 0.0
    scale: float = 1.0
    log: bool = False

    @classmethod
    def of(cls, targets: NDArray[Any], weights: NDArray[Any] | None = None, *, log: bool = False) -> Units:
        """Return the units in which some targets have mean 0 and standard deviation 1."""
        values = np.log(targets) if log else np.asarray(targets, np.float64)
        centre = float(np.average(values, weights=weights))
        spread = float(np.sqrt(np.average(np.square(values - centre), weights=weights)))
        return cls(centre, spread if spread > 1e-12 * max(abs(centre), 1e-300) else 1.0, log)

    def from_targets(self, targets: NDArray[Any]) -> NDArray[np.float64]:
        """Return targets in these units."""
        values = np.log(targets) if self.log else np.asarray(targets, np.float64)
        return np.asarray((values - self.centre) / self.scale)

    def to_targets(self, scores: Tensor) -> Tensor:
        """Return predictions in the units of the targets, in double; those beyond all floats become the largest."""
        values = self.centre + self.scale * scores.double()
        return values.clamp(-700, 700).exp() if self.log else values

    @property
    def name(self) -> str:
        """What they are called."""
        return "log" if self.log else "standardised"

    @property
    def kind(self) -> str:
        """What a shift in these units is in those of the targets."""
        return "factor" if self.log else "shift"


@dataclass(frozen=True, eq=False)
class InUnits:
    """A metric as a function of scores and targets in some units."""

    metric: Metric
    units: Units

    def __call__(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of every set: `(..., n)` -> `(...)`."""
        return self.metric.function(self.units.to_targets(scores), self.converted(targets), weights)

    def at_best(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of every set at its best shift: `(..., n)` -> `(...)`."""
        predictions, kind = self.units.to_targets(scores), self.units.kind
        return best_along(self.metric, predictions, self.converted(targets), weights, kind)[1]

    def best_shift(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> float:
        """Return the best shift of the scores of one set, whose targets are in their own unit."""
        predictions, kind = self.units.to_targets(scores), self.units.kind
        constant = float(best_along(self.metric, predictions, targets, weights, kind)[0])
        return float(np.log(max(constant, 1e-300)) if self.units.log else constant) / self.units.scale

    def converted(self, targets: Tensor) -> Tensor:
        """Return targets in their own unit."""
        if not self.metric.task.several:
            return self.units.to_targets(targets)
        return torch.cat((self.units.to_targets(targets[..., :1]), targets[..., 1:].double()), -1)


def in_units(metric: Metric, units: Units) -> Metric:
    """Return a metric that takes scores and targets in some units, and whose best form is at the best shift there."""
    view = metric.view
    if view is not None and view.startswith(("errors(", "ratios(")):
        log = int(units.log)
        view = f"{view.removesuffix(')')},{units.centre!r},{units.scale!r},{log})"
    inside, ordered = InUnits(metric, units), metric.name in OF_ORDER
    best = None if ordered else inside.at_best
    return replace(metric, function=inside, view=view, thresholded=not ordered, best_function=best)
