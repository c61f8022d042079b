"""Which method is better: intervals of differences over repeated splits, and ranks over many datasets and metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import friedmanchisquare, rankdata, t, wilcoxon

from metricgrad.metrics.registry import Metric

CONFIDENCE = 0.95
"""Coverage of an interval."""
SIGNIFICANCE = 0.05
"""Level of the tests."""

# ---- intervals over repeated splits --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A mean difference and its confidence interval; positive is better for the first of two methods."""

    mean: float
    low: float
    high: float

    @property
    def reliable(self) -> bool:
        """Whether the interval excludes zero."""
        return self.better or self.worse

    @property
    def better(self) -> bool:
        """Whether the first is reliably better."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """Whether the first is reliably worse."""
        return self.high < 0


def corrected_interval(differences: ArrayLike, ratio: float, level: float = CONFIDENCE) -> Interval:
    """Return the mean of paired differences over repeated splits, `(splits,)`, and its corrected resampled t interval.

    Splits of one table overlap, so that their results are not independent, and a plain t interval is far too narrow.
    Nadeau and Bengio (2003) widen it: the variance of the mean is `(1/J + ratio)` times that of a difference instead of
    `1/J` times, for J splits and `ratio` test rows for each row a model learned from.

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


def sentence(metric: Metric, method: str, intervals: Mapping[str, Interval]) -> str:
    """Return the verdict on a method in one sentence.

    `intervals` has by how much it is better than each baseline, by their labels; the first is the one to beat.

    >>> from metricgrad.metrics.registry import f1
    >>> sentence(f1, "metricgrad", {"cross-entropy": Interval(0.031, 0.012, 0.049)})
    '+0.031 F1 over cross-entropy, 95 % interval +0.012 to +0.049'
    >>> sentence(f1, "metricgrad", {"cross-entropy": Interval(0.004, -0.006, 0.014)})
    'no reliable difference: use cross-entropy (+0.004 F1, 95 % interval -0.006 to +0.014)'
    """
    baseline, *others = intervals
    main = intervals[baseline]
    ahead = [name for name in others if intervals[name].worse]
    advice = "" if ahead else f": use {baseline}"
    if main.better:
        verdict = _written(metric, main, f" over {baseline}")
    elif main.worse:
        verdict = _written(metric, main, f" against {baseline}") + advice
    else:
        verdict = f"no reliable difference{advice or f' from {baseline}'} ({_written(metric, main)})"
    if not ahead:
        return verdict
    best = min(ahead, key=lambda name: intervals[name].mean)
    lost = intervals[best]
    gain = Interval(-lost.mean, -lost.high, -lost.low)
    return f"{verdict}; {best} is better than {method}, {_written(metric, gain)}: use {best}"


def _written(metric: Metric, interval: Interval, than: str = "") -> str:
    mean, low, high = signed(metric, interval)
    return f"{mean} {metric.label}{than}, {CONFIDENCE * 100:.0f} % interval {low} to {high}"


def signed(metric: Metric, interval: Interval) -> tuple[str, str, str]:
    """Return mean and ends with signs in the usual form of the metric: an improved error rate is a negative number."""
    ends = (interval.low, interval.high) if metric.higher_is_better else (-interval.high, -interval.low)
    values = (interval.mean if metric.higher_is_better else -interval.mean, *ends)
    largest = max(map(abs, values))
    digits = 3 if largest < 1 else 0
    if largest:
        digits = min(max(1 - math.floor(math.log10(largest)), digits), 6)
    mean, low, high = (f"{value:+,.{digits}f}" for value in values)
    return mean, low, high


# ---- ranks over cells: Friedman's test, Wilcoxon's test of pairs, Holm's correction --------------------------------


@dataclass(frozen=True)
class Pair:
    """Wilcoxon's signed-rank test of two methods over the cells, before and after Holm's correction.

    In `lower` cells the first of the two has the lower loss, in `higher` cells the higher.
    """

    one: str
    other: str
    lower: int
    higher: int
    p: float
    corrected: float


@dataclass(frozen=True)
class Ranking:
    """What a critical-difference diagram shows.

    Mean `ranks` of the methods over the `cells`, best first; statistic and p of Friedman's test, None for two methods;
    all `pairs`; and `cliques`, the largest groups of neighbours by rank that do not differ significantly at the
    `level`.
    """

    ranks: Mapping[str, float]
    cells: int
    friedman: tuple[float, float] | None
    pairs: tuple[Pair, ...]
    cliques: tuple[tuple[str, ...], ...]
    level: float


def common_methods(cells: Iterable[Mapping[str, float]], among: Sequence[str]) -> list[str]:
    """Return the given methods that were run anywhere, then all others that were run wherever all of those were.

    >>> common_methods([{"a": 0.1, "b": 0.2, "c": 0.3}, {"a": 0.1}], ["a", "b"])
    ['a', 'b', 'c']
    """
    cells = list(cells)
    first = [method for method in among if any(method in row for row in cells)]
    rows = [row for row in cells if first and all(method in row for method in first)]
    others = sorted(set.intersection(*(set(row) for row in rows)) - set(first)) if rows else []
    return [*first, *others]


def rank_methods(
    cells: Iterable[Mapping[str, float]], methods: Sequence[str], level: float = SIGNIFICANCE
) -> Ranking | None:
    """Rank two methods or more over the cells that have all of them, and test which differ; None under two such cells.

    Each cell maps methods to losses. Pairs are tested only if Friedman's test finds that some methods differ. Cells
    are treated as independent, which those of one dataset are not quite: p-values are a little too small.
    """
    if len(set(methods)) < 2:
        raise ValueError(f"methods: expected at least two, got {', '.join(methods) or 'none'}")
    rows = [{method: row[method] for method in methods} for row in cells if set(methods) <= set(row)]
    if len(rows) < 2:
        return None
    ranks = dict(sorted(mean_ranks(rows).items(), key=lambda item: item[1]))
    losses = {method: np.array([row[method] for row in rows]) for method in ranks}
    friedman = _friedman(list(losses.values())) if len(ranks) > 2 else None
    pairs = _pairs(losses)
    differ = {frozenset((pair.one, pair.other)) for pair in pairs if pair.corrected < level}
    if friedman and not friedman[1] < level:
        differ = set()
    return Ranking(ranks, len(rows), friedman, pairs, cliques(list(ranks), differ), level)


def _friedman(losses: Sequence[np.ndarray]) -> tuple[float, float]:
    if all((column == losses[0]).all() for column in losses):
        return 0.0, 1.0
    statistic, p = friedmanchisquare(*losses)
    return float(statistic), float(p)


def _pairs(losses: Mapping[str, np.ndarray]) -> tuple[Pair, ...]:
    names = list(combinations(losses, 2))
    differences = [losses[one] - losses[other] for one, other in names]
    ps = [float(wilcoxon(d[d != 0]).pvalue) if d.any() else 1.0 for d in differences]
    return tuple(
        Pair(*pair, int((d < 0).sum()), int((d > 0).sum()), p, corrected)
        for pair, d, p, corrected in zip(names, differences, ps, holm(ps), strict=True)
    )


def holm(ps: Sequence[float]) -> list[float]:
    """Return p-values after Holm's step-down correction, in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    corrected, least = [0.0] * len(ps), 0.0
    for left, i in zip(range(len(ps), 0, -1), sorted(range(len(ps)), key=ps.__getitem__), strict=True):
        least = corrected[i] = min(1.0, max(least, left * ps[i]))
    return corrected


def cliques(ranked: Sequence[str], differ: Iterable[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """Return the largest groups of neighbours by rank, of two methods or more, of which no two differ.

    >>> cliques(["a", "b", "c"], [frozenset("ac")])
    (('a', 'b'), ('b', 'c'))
    """
    differ = set(differ)
    found: list[tuple[str, ...]] = []
    for start in range(len(ranked)):
        end = start + 1
        while end < len(ranked) and not any(frozenset((m, ranked[end])) in differ for m in ranked[start:end]):
            end += 1
        group = tuple(ranked[start:end])
        if len(group) > 1 and not any(set(group) <= set(longer) for longer in found):
            found.append(group)
    return tuple(found)


def mean_ranks(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean rank of each method over rows of losses; the lowest loss is first, ties share their ranks.

    >>> mean_ranks([{"a": 0.1, "b": 0.2, "c": 0.2}, {"a": 0.3, "b": 0.1, "c": 0.2}])
    {'a': 2.0, 'b': 1.75, 'c': 2.25}
    """
    methods, losses = _matrix(rows)
    return dict(zip(methods, rankdata(losses, axis=1).mean(0).tolist(), strict=True))


def wins(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return in how many rows of losses each method has the lowest; methods that tie share the win.

    >>> wins([{"a": 0.1, "b": 0.2}, {"a": 0.3, "b": 0.3}])
    {'a': 1.5, 'b': 0.5}
    """
    methods, losses = _matrix(rows)
    best = losses == losses.min(1, keepdims=True)
    return dict(zip(methods, (best / best.sum(1, keepdims=True)).sum(0).tolist(), strict=True))


def _matrix(rows: Iterable[Mapping[str, float]]) -> tuple[list[str], np.ndarray]:
    rows = list(rows)
    if not rows:
        raise ValueError("rows: expected at least one row of losses, got none")
    methods = list(rows[0])
    for row in rows:
        if set(row) != set(methods):
            raise ValueError(f"rows: expected the methods {', '.join(methods)} in every row, got {', '.join(row)}")
    return methods, np.array([[row[method] for method in methods] for row in rows])
