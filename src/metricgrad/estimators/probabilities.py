"""Probabilities of classes from scores: calibrated on rows that the model did not learn from, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.training.calibration import Calibration, calibrate, platt

Array = NDArray[Any]
SIGMOID, ISOTONIC = "sigmoid", "isotonic"
"""Methods of calibration, as scikit-learn calls them."""

MAX_LOG_ODDS = 1e6
"""Of one of several classes, so that their differences are finite."""


@dataclass(frozen=True)
class Probabilities:
    """How scores become probabilities, and how good these are on held-out rows.

    Two classes have one calibration, that of the second, which never falls as the score rises. Of several classes, each
    is calibrated against the others, by how far its score is above the highest other one, and all are divided by
    their sum. Each of several labels has its own.

    Parameters
    ----------
    calibrations : tuple of Calibration
        One of two classes, else one for each class or label.
    labels : bool
        Whether rows have several labels, whose probabilities do not sum to one.
    rows : int
        Held-out rows that they were fitted to.
    brier, base_brier : float
        Brier score on these rows, each by calibrations that were fitted without it; and that of the shares of the
        classes, which know nothing of the features. The mean over labels, if there are several.

    Examples
    --------
    >>> scores, y = np.array([-3.0, -1.0, 0.0, 1.0, 2.0, 4.0] * 20), np.array([0, 0, 1, 0, 1, 1] * 20)
    >>> found = fit_probabilities(scores, y)
    >>> found.of(np.array([-3.0, 0.5, 4.0])).round(1).tolist()
    [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
    >>> print(found)
    sigmoid calibration: Brier score 0.1434 on 120 held-out rows (0.2500 by the shares of the classes)
    """

    calibrations: tuple[Calibration, ...]
    labels: bool
    rows: int
    brier: float
    base_brier: float

    @property
    def method(self) -> str:
        """How scores are calibrated: `"sigmoid"` (Platt), `"isotonic"`, or both, of some classes each."""
        found = {ISOTONIC if each.points else SIGMOID for each in self.calibrations}
        return " and ".join(sorted(found, reverse=True))

    def of(self, scores: Array) -> Array:
        """Return probabilities: of scores `(n,)` those of the two classes, `(n, 2)`; else `(n, c)` -> `(n, c)`."""
        columns = _margins(np.asarray(scores, float), self.labels)
        odds = [each.log_odds(column) for each, column in zip(self.calibrations, columns, strict=True)]
        return _probabilities(np.column_stack(odds), self.labels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        known = {"labels": self.labels, "rows": self.rows, "brier": self.brier, "base_brier": self.base_brier}
        return {"calibrations": [each.to_dict() for each in self.calibrations], **known}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Probabilities:
        """Build from the plain data of `to_dict`."""
        calibrations = tuple(Calibration.from_dict(each) for each in data["calibrations"])
        brier, base = float(data["brier"]), float(data["base_brier"])
        return cls(calibrations, bool(data["labels"]), int(data["rows"]), brier, base)

    def __str__(self) -> str:
        where = f"{self.rows:,} held-out rows ({self.base_brier:.4f} by the shares of the classes)"
        return f"{self.method} calibration: Brier score {self.brier:.4f} on {where}"


def fit_probabilities(scores: Array, y: Array, w: Array | None = None, *, labels: bool = False) -> Probabilities:
    """Fit probabilities to the scores of rows that the model did not learn from.

    Parameters
    ----------
    scores : ndarray of shape (n,) or (n, c)
        Scores: of the positive one of two classes, of several classes, or of several labels.
    y : ndarray of shape (n,) or (n, c)
        Targets of 0 and 1; of several classes, a single 1 in every row.
    w : ndarray of shape (n,), optional
        How much each row counts; only their ratios matter.
    labels : bool
        Whether the columns are several labels.

    Returns
    -------
    Probabilities
    """
    scores, y = np.asarray(scores, float), np.asarray(y, float)
    w = np.ones(len(y)) if w is None else np.asarray(w, float) * len(y) / np.sum(w)
    columns = _margins(scores, labels)
    targets = y if y.ndim > 1 and len(columns) > 1 else y.reshape(len(y), -1)[:, -1:]
    fitted = [calibrate(column, target, w) for column, target in zip(columns, targets.T, strict=True)]
    crossed = _probabilities(np.column_stack([odds for _, odds in fitted]), labels)
    wanted = crossed.shape[1] > targets.shape[1]  # of two classes, the first has targets too
    targets = np.column_stack((1 - targets, targets)) if wanted else targets
    shares = np.average(targets, axis=0, weights=w)
    brier, base = (_brier(each, targets, w, labels) for each in (crossed, np.broadcast_to(shares, targets.shape)))
    return Probabilities(tuple(each for each, _ in fitted), labels, len(y), brier, base)


def log_odds_slope(scores: Array, y: Array, w: Array | None = None) -> float:
    """Return by how much the log-odds of a class rise when its score does by one; always above 0."""
    columns = _margins(np.asarray(scores, float), labels=False)
    y = np.asarray(y, float)
    targets = y if len(columns) > 1 else y.reshape(len(y), -1)[:, -1:]
    w = np.ones(len(y)) if w is None else np.asarray(w, float) * len(y) / np.sum(w)
    return platt(np.concatenate(columns), targets.T.ravel(), np.tile(w, len(columns))).slope


def _margins(scores: Array, labels: bool) -> Sequence[Array]:
    """Return what is calibrated: scores of one axis, of every label, or how far every class is above the others."""
    if scores.ndim == 1:
        return [scores]
    if labels:
        return list(scores.T)
    if scores.shape[1] == 2:
        return [scores[:, 1] - scores[:, 0]]
    return [column - np.delete(scores, place, 1).max(1) for place, column in enumerate(scores.T)]


def _probabilities(odds: Array, labels: bool) -> Array:
    """Return the probabilities of log-odds, `(n, c)`; with one column, those of both classes."""
    if labels:
        return _sigmoid(odds)
    if odds.shape[1] == 1:
        return np.column_stack((_sigmoid(-odds), _sigmoid(odds)))
    logs = -np.logaddexp(0, -np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS))
    found = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def _sigmoid(odds: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -odds)))


def _brier(p: Array, targets: Array, w: Array, labels: bool) -> float:
    """Return the Brier score as scikit-learn defines it: of two classes that of one of them, of more the sum."""
    squares = np.average((p - targets) ** 2, axis=0, weights=w)
    return float(squares.mean() if labels or len(squares) == 2 else squares.sum())
