"""Ranks over cells, and which methods cells tell apart: Friedman's test, Wilcoxon's for pairs, Holm's correction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, wilcoxon

LEVEL = 0.05
"""The level of the tests."""


@dataclass(frozen=True)
class Pair:
    """Wilcoxon's signed-rank test of two methods over the cells, as it is and after Holm's correction.

    In `lower` cells the first of the two loses less, in `higher` cells more.
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

    Parameters
    ----------
    ranks : mapping
        Mean rank of each method, best first.
    cells : int
        Over how many cells.
    friedman : (float, float), optional
        Statistic and p of Friedman's test; None for two methods.
    pairs : tuple of Pair
        Every two methods.
    cliques : tuple of tuples of str
        Largest groups of methods, neighbours by rank, of which no two are told apart.
    level : float
        Of the tests.
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


def rank_methods(cells: Iterable[Mapping[str, float]], methods: Sequence[str], level: float = LEVEL) -> Ranking | None:
    """Rank methods over the cells in which all of them were run, and test which differ; None under two such cells.

    Pairs are tested only if Friedman's test tells that some methods differ at all. Cells are taken as independent,
    which those of one dataset are not quite: p-values are a little too small.

    Parameters
    ----------
    cells : iterable of mappings
        Losses by method, a mapping for each cell.
    methods : sequence of str
        At least two.
    level : float
        Of the tests, after correction.
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
    found = list(combinations(losses, 2))
    differences = [losses[one] - losses[other] for one, other in found]
    ps = [float(wilcoxon(d[d != 0]).pvalue) if d.any() else 1.0 for d in differences]
    return tuple(
        Pair(*names, int((d < 0).sum()), int((d > 0).sum()), p, corrected)
        for names, d, p, corrected in zip(found, differences, ps, holm(ps), strict=True)
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
    """Return the largest runs of neighbours by rank, of two methods or more, of which no two differ.

    >>> cliques(["a", "b", "c"], [frozenset("ac")])
    (('a', 'b'), ('b', 'c'))
    """
    differ = set(differ)
    found: list[tuple[str, ...]] = []
    for start in range(len(ranked)):
        end = start + 1
        while end < len(ranked) and not any(frozenset((m, ranked[end])) in differ for m in ranked[start:end]):
            end += 1
        run = tuple(ranked[start:end])
        if len(run) > 1 and not any(set(run) <= set(longer) for longer in found):
            found.append(run)
    return tuple(found)


def mean_ranks(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean rank of each method over rows of losses; the least loss is first, ties share their ranks.

    >>> mean_ranks([{"a": 0.1, "b": 0.2, "c": 0.2}, {"a": 0.3, "b": 0.1, "c": 0.2}])
    {'a': 2.0, 'b': 1.75, 'c': 2.25}
    """
    methods, losses = _matrix(rows)
    return dict(zip(methods, rankdata(losses, axis=1).mean(0).tolist(), strict=True))


def wins(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return in how many rows of losses each method loses least; the best of a row share its win.

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
