"""Scores to log-odds of the positive class: by a line (Platt) or rising steps, whichever fits left-out rows better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FOLDS = 5
MAX_LOG_ODDS = 12.0
"""Of rising steps, which reach shares of 0 and 1."""
MAX_STEPS = 200
"""Of rising steps, so that a rule stays small."""
MIN_POSITIVES_PER_STEPS = 100
"""Rows of the rarer class from which on rising steps are tried."""


@dataclass(frozen=True)
class Calibration:
    """The log-odds of a row as a function of its score: a line, or with `points` straight lines between points.

    Parameters
    ----------
    slope, intercept : float
        Of the line.
    points, levels : tuple of float
        Rising scores, and the log-odds there; outside of them they stay as they are.
    """

    slope: float = 1.0
    intercept: float = 0.0
    points: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()

    def log_odds(self, scores: Any) -> Array:
        """Return the log-odds of rows: `(n,)` -> `(n,)`."""
        scores = np.asarray(scores, float)
        if self.points:
            # A little of the score itself keeps apart the rows of one step.
            return np.asarray(np.interp(scores, self.points, self.levels) + self.slope * np.arctan(scores))
        return np.asarray(self.slope * scores + self.intercept)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        if self.points:
            return {"points": list(self.points), "levels": list(self.levels), "slope": self.slope}
        return {"slope": self.slope, "intercept": self.intercept}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibration:
        """Build from the plain data of `to_dict`."""
        points, levels = data.get("points", ()), data.get("levels", ())
        if len(points) != len(levels):
            raise ValueError(f"levels: expected one for each of {len(points)} points, got {len(levels)}")
        numbers = float(data.get("slope", 1.0)), float(data.get("intercept", 0.0))
        return cls(*numbers, tuple(map(float, points)), tuple(map(float, levels)))


def calibrate(scores: Array, y: Array, w: Array | None = None) -> tuple[Calibration, Array]:
    """Fit a calibration to the scores of rows that the model did not learn from.

    Parameters
    ----------
    scores, y : ndarray of shape (n,)
        Scores, and targets of 0 and 1.
    w : ndarray of shape (n,), optional
        How much each row counts.

    Returns
    -------
    tuple
        The calibration, and the log-odds of each row by one that was fitted without its fold, `(n,)`.
    """
    w = np.ones(len(y)) if w is None else np.asarray(w, float)
    makers = [platt]
    if min((y == 1).sum(), (y == 0).sum()) >= MIN_POSITIVES_PER_STEPS:
        makers.append(rising_steps)
    fold = _folds(y)
    crossed = [_cross_fitted(make, scores, y, w, fold) for make in makers]
    best = int(np.argmin([_log_loss(odds, y, w) for odds in crossed]))
    return makers[best](scores, y, w), crossed[best]


def platt(scores: Array, y: Array, w: Array) -> Calibration:
    """Fit a line by weighted logistic regression, a little shrunk, by Newton's method."""
    centre, spread = np.average(scores, weights=w), np.sqrt(np.average((scores - scores.mean()) ** 2, weights=w))
    spread = spread if spread > 0 else 1.0
    design = np.column_stack((np.ones(len(y)), (scores - centre) / spread))
    positives, total = w[y == 1].sum(), w.sum()
    # Platt's targets: as if each class had one more row, so that separable classes have a finite line.
    target = np.where(y == 1, (positives + 1) / (positives + 2), 1 / (total - positives + 2))
    beta = np.array([np.log((positives + 1) / (total - positives + 1)), 1.0])
    for _ in range(50):
        p = _sigmoid(design @ beta)
        slope = design.T @ (w * (target - p))
        curve = (design * (w * p * (1 - p))[:, None]).T @ design + 1e-9 * total * np.eye(2)
        step = np.linalg.solve(curve, slope)
        beta = beta + step * min(1.0, 4 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-10:
            break
    slope_of_scores = max(
        float(beta[1]) / spread, 1e-6 / spread
    )  # a model that ranks the wrong way is not turned round
    return Calibration(slope_of_scores, float(beta[0] - slope_of_scores * centre))


def rising_steps(scores: Array, y: Array, w: Array) -> Calibration:
    """Fit rising steps (isotonic regression), joined by straight lines."""
    from sklearn.isotonic import IsotonicRegression

    fitted = IsotonicRegression(out_of_bounds="clip").fit(scores, y, sample_weight=w)
    points, shares = np.asarray(fitted.X_thresholds_, float), np.asarray(fitted.y_thresholds_, float)
    if len(points) > MAX_STEPS:
        kept = np.unique(np.linspace(0, len(points) - 1, MAX_STEPS).round().astype(int))
        points, shares = points[kept], shares[kept]
    edge = _sigmoid(np.array([-MAX_LOG_ODDS]))[0]
    levels = np.log(np.clip(shares, edge, 1 - edge) / (1 - np.clip(shares, edge, 1 - edge)))
    return Calibration(1e-6, 0.0, tuple(points.tolist()), tuple(levels.tolist()))


def _folds(y: Array) -> Array:
    """Return a fold of every row, the classes spread evenly over them: `(n,)`."""
    fold, rng = np.empty(len(y), int), np.random.default_rng(0)
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        fold[rng.permutation(rows)] = np.arange(len(rows)) % FOLDS
    return fold


def _cross_fitted(make: Any, scores: Array, y: Array, w: Array, fold: Array) -> Array:
    odds = np.empty(len(y))
    for number in np.unique(fold):
        held, kept = fold == number, fold != number
        both = len(np.unique(y[kept & (w > 0)])) == 2
        kept = kept if both else np.ones(len(y), bool)
        odds[held] = make(scores[kept], y[kept], w[kept]).log_odds(scores[held])
    return odds


def _log_loss(odds: Array, y: Array, w: Array) -> float:
    return float(np.average(np.logaddexp(0, np.where(y == 1, -odds, odds)), weights=w))


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))
