"""Regression metrics against scipy, and against their definitions pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, rankdata, spearmanr

from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.regression import concordance_loss, ranks, rising_pairs, spearman_loss, within, within_loss
from metricgrad.metrics.tasks import REGRESSION

NUMBERS = st.one_of(st.integers(-4, 4).map(float), st.floats(-1e6, 1e6, allow_subnormal=False))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), min_size=1, max_size=40)


def columns(rows: list[tuple[float, float, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    scores, targets, weights = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    return scores, targets, weights


def repeated(rows: list[tuple[float, float, int]]) -> tuple[np.ndarray, np.ndarray]:
    scores, targets, weights = np.array(rows).T
    return np.repeat(scores, weights.astype(int)), np.repeat(targets, weights.astype(int))


def pair_by_pair(scores: np.ndarray, targets: np.ndarray) -> float:
    """Harrell's concordance index by its definition."""
    pairs = [(i, j) for i, j in combinations(range(len(targets)), 2) if targets[i] != targets[j]]
    if not pairs:
        return 0.5
    won = [np.sign(targets[i] - targets[j]) * np.sign(scores[i] - scores[j]) for i, j in pairs]
    return float(np.mean([(1 + sign) / 2 for sign in won]))


# ---- against oracles -------------------------------------------------------------------------------------------------


@given(ROWS)
def test_a_rank_correlation_is_that_of_scipy_and_a_weight_repeats_a_row(rows: list[tuple[float, float, int]]) -> None:
    scores, targets = repeated(rows)
    constant = len(scores) < 2 or not (np.ptp(scores) and np.ptp(targets))
    expected = 0.0 if constant else spearmanr(scores, targets).statistic
    assert float(spearman_loss(*columns(rows))) == pytest.approx((1 - expected) / 2, abs=1e-9)


@given(ROWS)
def test_a_concordance_index_is_counted_pair_by_pair(rows: list[tuple[float, float, int]]) -> None:
    expected = pair_by_pair(*repeated(rows))
    assert float(concordance_loss(*columns(rows))) == pytest.approx(1 - expected, abs=1e-9)


@given(ROWS, st.sampled_from([0.1, 0.25, 1.0]))
def test_within_is_the_share_of_rows_that_are_near(rows: list[tuple[float, float, int]], share: float) -> None:
    scores, targets = repeated(rows)
    expected = np.mean(np.abs(scores - targets) > share * np.abs(targets)) if len(scores) else 0.0
    assert float(within_loss(*columns(rows), share=share)) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30))
def test_ranks_are_those_of_scipy_but_for_a_half(values: list[int]) -> None:
    found = ranks(torch.tensor(values).double(), torch.ones(len(values)).double())
    np.testing.assert_allclose(found + 0.5, rankdata(values))


def test_without_ties_concordance_is_kendalls_tau() -> None:
    rng = np.random.default_rng(0)
    scores, targets = rng.normal(size=(2, 3_000))
    loss = concordance_loss(torch.from_numpy(scores), torch.from_numpy(targets), None)
    assert float(loss) == pytest.approx((1 - kendalltau(scores, targets).statistic) / 2)


# ---- shapes and edges ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["within(0.1)", "spearman", "concordance"])
def test_several_sets_are_judged_as_each_by_itself_and_rows_without_weight_are_absent(name: str) -> None:
    metric, draw = get_metric(name), torch.Generator().manual_seed(0)
    scores, targets = (torch.randn(2, 3, 37, generator=draw, dtype=torch.float64).round(decimals=1) for _ in range(2))
    weights = torch.rand(2, 3, 37, generator=draw, dtype=torch.float64).round()
    together = metric(scores, targets, weights)
    assert together.shape == (2, 3)
    for place in np.ndindex(2, 3):
        there = weights[place] > 0
        assert float(together[place]) == pytest.approx(float(metric(scores[place][there], targets[place][there])))


def test_sets_that_cannot_be_told_lose_as_chance_does_and_nothing_is_missed_where_nothing_is() -> None:
    scores, same, nothing = torch.arange(4.0), torch.ones(4), torch.zeros(4)
    for loss in (spearman_loss, concordance_loss):
        assert float(loss(scores, same, None)) == 0.5
        assert float(loss(same, scores, None)) == 0.5
        assert float(loss(scores, scores, nothing)) == 0.5
        assert float(loss(torch.zeros(0), torch.zeros(0), None)) == 0.5
    assert float(within_loss(scores, scores + 9, nothing, share=0.1)) == 0


def test_rising_pairs_are_those_in_which_both_rise() -> None:
    targets, scores = torch.tensor([1.0, 1.0, 2.0, 3.0]), torch.tensor([0.0, 5.0, 5.0, 6.0])
    assert float(rising_pairs(scores, targets, torch.ones(4))) == 4
    assert float(rising_pairs(scores, targets, torch.tensor([1.0, 1.0, 1.0, 2.0]))) == 7


# ---- records ---------------------------------------------------------------------------------------------------------


def test_metrics_of_regression_are_found_by_name() -> None:
    assert [metric.name for metric in builtin_metrics(REGRESSION)] == ["spearman", "concordance", "within(0.1)"]
    assert get_metric("C-index").name == "concordance"
    assert get_metric("within(0.25)").label == "within 25 %"
    assert get_metric("within(1)").name == "within(1)"
    assert get_metric("spearman").shown(0.25) == "Spearman 0.5000"


@pytest.mark.parametrize("share", [0, -1, 11, "x", None, True, float("nan")])
def test_a_share_is_a_positive_number(share: object) -> None:
    with pytest.raises(ValueError, match="share: expected a number above 0 and at most 10, got"):
        within(share)  # type: ignore[arg-type]
