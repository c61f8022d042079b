"""Intervals over repeated splits, ranks and tests: against formulas, scipy, a simulation and hand arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import friedmanchisquare, wilcoxon

from metricgrad.evaluation.statistics import (
    Interval,
    cliques,
    common_methods,
    corrected_interval,
    holm,
    rank_methods,
    sentence,
    signed,
)
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.printed import LOSSES, MODES, TABLE2

F1, ERROR = get_metric("f1"), get_metric("error_rate")
DIFFERENCES = st.lists(st.integers(-1000, 1000).map(lambda i: i / 1000), min_size=2, max_size=20)


@given(DIFFERENCES, st.floats(0.01, 2))
def test_the_interval_is_scipys_t_interval_widened_as_nadeau_and_bengio_say(given: list[float], ratio: float) -> None:
    found = corrected_interval(given, ratio)
    splits = len(given)
    plain = stats.t.interval(0.95, splits - 1, loc=np.mean(given), scale=stats.sem(given)) if np.ptp(given) else (0, 0)
    factor = math.sqrt((1 / splits + ratio) / (1 / splits))
    assert found.mean == pytest.approx(np.mean(given))
    assert found.high - found.low == pytest.approx(factor * (plain[1] - plain[0]), abs=1e-9)
    assert found.high + found.low == pytest.approx(2 * found.mean, abs=1e-9)


@given(DIFFERENCES, st.floats(0.01, 2))
def test_turning_the_methods_round_turns_the_interval_round(given: list[float], ratio: float) -> None:
    one, other = corrected_interval(given, ratio), corrected_interval([-d for d in given], ratio)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low))
    assert (one.better, one.worse) == (other.worse, other.better)
    assert one.reliable == (one.better or one.worse)


def test_overlapping_splits_fool_a_plain_interval_but_hardly_the_corrected_one() -> None:
    """Two ways to guess a mean, on splits of one small table: how often do intervals hold the true difference?"""
    rng = np.random.default_rng(0)
    rows, splits, tables = 40, 10, 400
    found = []
    for _ in range(tables):
        table, differences = rng.normal(size=rows), []
        for _ in range(splits):
            order = rng.permutation(rows)
            train, test = table[order[8:]], table[order[:8]]
            differences.append(((test - np.median(train)) ** 2).mean() - ((test - train.mean()) ** 2).mean())
        found.append((corrected_interval(differences, 8 / 32), stats.sem(differences)))
    true, reach = np.mean([interval.mean for interval, _ in found]), stats.t.ppf(0.975, splits - 1)
    plain = np.mean([abs(interval.mean - true) <= reach * error for interval, error in found])
    corrected = np.mean([interval.low <= true <= interval.high for interval, _ in found])
    assert plain < 0.8
    assert corrected > 0.9


@pytest.mark.parametrize(
    ("differences", "ratio", "level", "message"),
    [
        ([0.1], 0.25, 0.95, "differences: expected at least 2 finite numbers, one a split, got"),
        ([0.1, float("nan")], 0.25, 0.95, "differences: expected at least 2 finite numbers"),
        ([0.1, 0.2], 0.0, 0.95, "ratio: expected a positive number, got 0.0"),
        ([0.1, 0.2], 0.25, 1.0, "level: expected a number between 0 and 1, got 1.0"),
    ],
)
def test_what_has_no_interval_is_refused(differences: list[float], ratio: float, level: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrected_interval(differences, ratio, level)


# ---- the sentence --------------------------------------------------------------------------------------------------


def test_the_sentence_names_gain_rival_and_interval_and_advises_only_what_is_sure() -> None:
    better, none, worse = Interval(0.031, 0.012, 0.049), Interval(0.004, -0.006, 0.014), Interval(-0.03, -0.05, -0.01)
    assert sentence(F1, "ours", {"ce": better}) == "+0.031 F1 over ce, 95 % interval +0.012 to +0.049"
    assert sentence(F1, "ours", {"ce": none}).startswith("no reliable difference: use ce (+0.004 F1, 95 % interval")
    assert sentence(F1, "ours", {"ce": worse}) == "-0.030 F1 against ce, 95 % interval -0.050 to -0.010: use ce"


def test_a_rival_that_surely_is_better_is_what_to_use_whatever_the_first_one_says() -> None:
    main, trees = Interval(0.031, 0.012, 0.049), Interval(-0.03, -0.05, -0.01)
    verdict = sentence(F1, "ours", {"ce": main, "trees": trees, "focal": Interval(-0.01, -0.03, 0.01)})
    assert verdict.startswith("+0.031 F1 over ce, 95 % interval +0.012 to +0.049; trees is better than ours, +0.030 F1")
    assert verdict.endswith("95 % interval +0.010 to +0.050: use trees")
    none = sentence(F1, "ours", {"ce": Interval(0.0, -0.01, 0.01), "trees": trees})
    assert "use ce" not in none
    assert none.endswith("use trees")


def test_a_gain_in_an_error_rate_is_a_fall() -> None:
    assert signed(ERROR, Interval(0.02, 0.01, 0.03)) == ("-0.020", "-0.030", "-0.010")
    assert sentence(ERROR, "ours", {"ce": Interval(0.02, 0.01, 0.03)}).startswith("-0.020 error rate over ce")


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3))
def test_numbers_keep_signs_and_two_digits_that_count(mean: float, reach: float) -> None:
    written = signed(F1, Interval(mean, mean - reach, mean + reach))
    for text, value in zip(written, (mean, mean - reach, mean + reach), strict=True):
        assert text[0] in "+-"
        assert float(text.replace(",", "")) == pytest.approx(value, abs=max(0.06 * max(abs(mean) + reach, 1e-6), 1e-6))


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
