"""Ranks and tests: scipy and hand arithmetic as oracles."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import friedmanchisquare, wilcoxon

from metricgrad.evaluation.ranks import cliques, common_methods, holm, rank_methods
from metricgrad.paper.printed import LOSSES, MODES, TABLE2

PRINTED = [TABLE2[dataset][metric] for dataset in TABLE2 for metric in LOSSES]


def test_ranks_and_tests_of_the_printed_table_are_those_of_scipy() -> None:
    ranking = rank_methods(PRINTED, MODES)
    assert ranking is not None
    assert ranking.cells == 63
    columns = {mode: np.array([row[mode] for row in PRINTED]) for mode in MODES}
    assert ranking.friedman == pytest.approx(tuple(friedmanchisquare(*columns.values())))
    for pair in ranking.pairs:
        one, other = columns[pair.one], columns[pair.other]
        assert pair.p == pytest.approx(wilcoxon(one, other, zero_method="wilcox").pvalue)
        assert (pair.lower, pair.higher) == ((one < other).sum(), (one > other).sum())
    assert list(ranking.ranks) == sorted(ranking.ranks, key=lambda mode: ranking.ranks[mode])
    assert ranking.cliques == (("sl-s", "sl-r"),)


def test_holms_correction_is_the_textbooks() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_wilcoxon_test_of_six_cells_by_hand() -> None:
    ranking = rank_methods([{"a": i / 100, "b": i / 100 + i**2 / 1000} for i in range(1, 7)], ["a", "b"])
    assert ranking is not None
    [pair] = ranking.pairs
    assert pair.p == pair.corrected == 2 / 2**6
    assert ranking.friedman is None
    assert ranking.cliques == ()


def test_pairs_are_not_told_apart_where_friedman_tells_nothing() -> None:
    rows = [{"a": 0.1, "b": 0.2, "c": 0.15}, {"a": 0.2, "b": 0.1, "c": 0.15}]
    ranking = rank_methods(rows, ["a", "b", "c"])
    assert ranking is not None
    assert ranking.cliques == (tuple(ranking.ranks),)


def test_methods_that_never_differ_are_one_clique() -> None:
    ranking = rank_methods([{"a": 0.1, "b": 0.1, "c": 0.1}] * 3, ["a", "b", "c"])
    assert ranking is not None
    assert ranking.friedman == (0.0, 1.0)
    assert [pair.p for pair in ranking.pairs] == [1.0] * 3
    assert ranking.cliques == (("a", "b", "c"),)


def test_only_cells_with_every_method_count() -> None:
    rows = [{"a": 0.1, "b": 0.2}, {"a": 0.1}, {"a": 0.3, "b": 0.2, "c": 0.1}]
    ranking = rank_methods(rows, ["a", "b"])
    assert ranking is not None
    assert ranking.cells == 2
    assert rank_methods(rows, ["a", "c"]) is None
    with pytest.raises(ValueError, match="methods: expected at least two, got a"):
        rank_methods(rows, ["a"])


def test_cliques_are_runs_of_neighbours() -> None:
    def differ(*pairs: str) -> list[frozenset[str]]:
        return [frozenset(pair) for pair in pairs]

    assert cliques("abcd", []) == (("a", "b", "c", "d"),)
    assert cliques("abcd", differ("ad", "ac")) == (("a", "b"), ("b", "c", "d"))
    assert cliques("abcd", differ("ab", "ac", "ad", "bc", "bd", "cd")) == ()


def test_methods_run_wherever_the_modes_were_join_them() -> None:
    rows = [{"a": 0.1, "b": 0.2, "c": 0.1}, {"a": 0.1, "b": 0.2, "c": 0.1, "d": 0.3}, {"c": 0.1}]
    assert common_methods(rows, ["a", "b", "z"]) == ["a", "b", "c"]
    assert common_methods(rows, ["z"]) == []
    assert common_methods([], ["a"]) == []
