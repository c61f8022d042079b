"""Intervals of differences over repeated splits: whether one method is better than another, and in one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t

from metricgrad.metrics.registry import Metric

LEVEL = 0.95
"""How often an interval should hold the truth."""


@dataclass(frozen=True)
class Interval:
    """A mean difference and where it may lie; positive is better for the first of two methods."""

    mean: float
    low: float
    high: float

    @property
    def reliable(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0

    @property
    def better(self) -> bool:
        """Whether the first is reliably better."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """Whether the first is reliably worse."""
        return self.high < 0


def corrected_interval(differences: ArrayLike, ratio: float, level: float = LEVEL) -> Interval:
    """Return the mean of paired differences over repeated splits with its interval, by the corrected resampled t.

    Splits of one table overlap, so that their results are not independent, and a plain t interval is far too narrow.
    Nadeau and Bengio (2003) widen it: the variance of the mean is `(1/J + ratio)` times that of a difference instead of
    `1/J` times, for J splits.

    Parameters
    ----------
    differences : array-like of shape (splits,)
        How much better one method is than the other, a number for each split; at least two.
    ratio : float
        Test rows for each row a model learned from.
    level : float
        How often the interval should hold the truth.

    Examples
    --------
    >>> found = corrected_interval([0.02, 0.04, 0.03, 0.05], ratio=0.25)
    >>> round(found.mean, 4), round(found.low, 4), round(found.high, 4)
    (0.035, 0.0059, 0.0641)
    """
    given = np.asarray(differences, float)
    if given.ndim != 1 or len(given) < 2 or not np.isfinite(given).all():
        raise ValueError(f"differences: expected at least 2 finite numbers, one a split, got {differences!r}")
    if not ratio > 0:
        raise ValueError(f"ratio: expected a positive number, got {ratio!r}")
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
    error = math.sqrt((1 / len(given) + ratio) * given.var(ddof=1))
    reach = float(t.ppf((1 + level) / 2, len(given) - 1)) * error
    mean = float(given.mean())
    return Interval(mean, mean - reach, mean + reach)


def sentence(metric: Metric, ours: str, intervals: Mapping[str, Interval]) -> str:
    """Say in one sentence whether a method was worth it; the first rival is the one to beat.

    Parameters
    ----------
    metric : Metric
        What was compared.
    ours : str
        How the method is called.
    intervals : mapping
        How much better it is than each rival, by how people call that.

    Examples
    --------
    >>> from metricgrad.metrics.registry import f1
    >>> sentence(f1, "metricgrad", {"cross-entropy": Interval(0.031, 0.012, 0.049)})
    '+0.031 F1 over cross-entropy, 95 % interval +0.012 to +0.049'
    >>> sentence(f1, "metricgrad", {"cross-entropy": Interval(0.004, -0.006, 0.014)})
    'no reliable difference: use cross-entropy (+0.004 F1, 95 % interval -0.006 to +0.014)'
    """
    rival, *others = intervals
    main = intervals[rival]
    ahead = [name for name in others if intervals[name].worse]
    advice = "" if ahead else f"use {rival}"
    if main.better:
        said = f"{_written(metric, main, f' over {rival}')}"
    elif main.worse:
        said = f"{_written(metric, main, f' against {rival}')}{advice and f': {advice}'}"
    else:
        said = f"no reliable difference{f': {advice}' if advice else f' from {rival}'} ({_written(metric, main)})"
    if not ahead:
        return said
    best = min(ahead, key=lambda name: intervals[name].mean)
    lost = intervals[best]
    gain = Interval(-lost.mean, -lost.high, -lost.low)
    return f"{said}; {best} is better than {ours}, {_written(metric, gain)}: use {best}"


def _written(metric: Metric, interval: Interval, than: str = "") -> str:
    mean, low, high = signed(metric, interval)
    return f"{mean} {metric.label}{than}, {LEVEL * 100:.0f} % interval {low} to {high}"


def signed(metric: Metric, interval: Interval) -> tuple[str, str, str]:
    """Write mean and ends with signs as people know the metric: a gain in an error rate is a fall."""
    ends = (interval.low, interval.high) if metric.higher_is_better else (-interval.high, -interval.low)
    values = (interval.mean if metric.higher_is_better else -interval.mean, *ends)
    largest = max(map(abs, values))
    digits = 3 if largest < 1 else 0
    if largest:
        digits = min(max(1 - math.floor(math.log10(largest)), digits), 6)
    mean, low, high = (f"{value:+,.{digits}f}" for value in values)
    return mean, low, high
