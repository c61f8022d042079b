"""Regression metrics against scipy, and against their definitions pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, rankdata, spearmanr
from sklearn import metrics as sk

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.regression import (
    bands,
    censored_concordance_loss,
    concordance_loss,
    ranks,
    rising_pairs,
    spearman_loss,
    step_cost,
    within,
    within_loss,
)
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


THEIRS = {
    "mae": sk.mean_absolute_error,
    "mape": sk.mean_absolute_percentage_error,
    "mse": sk.mean_squared_error,
    "rmse": sk.root_mean_squared_error,
    "r2": sk.r2_score,
    "pinball(0.2)": lambda y, s: sk.mean_pinball_loss(y, s, alpha=0.2),
    "rmsle": lambda y, s: sk.root_mean_squared_log_error(y.clip(min=0), s.clip(min=0)),
}


@given(ROWS, st.sampled_from(sorted(THEIRS)))
def test_metrics_of_scikit_learn_are_the_same_and_a_weight_repeats_a_row(
    rows: list[tuple[float, float, int]], name: str
) -> None:
    scores, targets = repeated(rows)
    if len(scores) < 2:
        return
    metric = get_metric(name)
    found = float(metric.value(metric(*columns(rows))))
    assert found == pytest.approx(THEIRS[name](targets, scores), rel=1e-6, abs=1e-9)


def fine_of(error: float) -> float:
    """The fines of the metric below, written by hand."""
    if error > 15:
        return 4
    return 1 if error > 5 else 0 if error >= -5 else 1 if error >= -10 else 7


@given(ROWS)
def test_the_fine_of_a_row_is_that_of_the_widest_limit_it_is_beyond(rows: list[tuple[float, float, int]]) -> None:
    metric = get_metric("bands(5:1, +15:4, -10:7)")
    scores, targets = repeated(rows)
    expected = np.mean([fine_of(error) for error in scores - targets]) if len(scores) else 0.0
    assert float(metric.value(metric(*columns(rows)))) == pytest.approx(expected, abs=1e-9)


@given(ROWS)
def test_a_unit_short_and_a_unit_over_have_their_cost_and_being_short_a_fixed_one(
    rows: list[tuple[float, float, int]],
) -> None:
    scores, targets = repeated(rows)
    error = scores - targets
    each = np.where(error < 0, 10 - 5 * error, error)
    expected = each.mean() if len(each) else 0.0
    assert float(get_metric("step_cost(5,1,10)")(*columns(rows))) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def censored_pair_by_pair(scores: np.ndarray, times: np.ndarray, events: np.ndarray) -> float:
    """Harrell's index by its definition: of two rows the first is known to come before the second."""
    won = [
        (1 + np.sign(scores[j] - scores[i])) / 2
        for i in range(len(times))
        for j in range(len(times))
        if events[i] and (times[i] < times[j] or (times[i] == times[j] and not events[j]))
    ]
    return float(np.mean(won)) if won else 0.5


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4), st.booleans(), st.integers(0, 2)), max_size=25))
def test_censored_rows_count_only_as_the_later_of_a_pair(rows: list[tuple[int, int, bool, int]]) -> None:
    scores, times, events, weights = np.array(rows, float).reshape(-1, 4).T
    copies = [np.repeat(column, weights.astype(int)) for column in (scores, times, events)]
    targets = torch.from_numpy(np.stack((times, events), -1))
    found = censored_concordance_loss(torch.from_numpy(scores), targets, torch.from_numpy(weights))
    assert float(found) == pytest.approx(1 - censored_pair_by_pair(*copies), abs=1e-9)


def test_without_censoring_the_concordance_index_is_the_plain_one() -> None:
    scores, times = torch.randn(2, 500, generator=torch.Generator().manual_seed(0)).double()
    targets = torch.stack((times, torch.ones(500)), -1)
    found = get_metric("censored_concordance")(scores, targets)
    assert float(found) == pytest.approx(float(concordance_loss(scores, times, None)))


def test_any_function_of_numbers_is_a_metric() -> None:
    metric = black_box(sk.median_absolute_error, higher_is_better=False, task="regression")
    scores, targets = torch.randn(2, 4, 31, dtype=torch.float64)
    theirs = [sk.median_absolute_error(y.numpy(), s.numpy()) for y, s in zip(targets, scores, strict=True)]
    np.testing.assert_allclose(metric(scores, targets), theirs)


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


@pytest.mark.parametrize("name", [metric.name for metric in builtin_metrics(REGRESSION)])
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
    names = {metric.name for metric in builtin_metrics(REGRESSION)}
    assert {"spearman", "concordance", "mae", "mape", "mse", "rmse", "rmsle", "r2", "within(0.1)"} <= names
    assert {"within_units(1)", "pinball(0.5)", "step_cost(5,1)", "bands(1:1,2:3)"} <= names
    for name in names:
        assert get_metric(name) == get_metric(get_metric(name).name)
    assert get_metric("C-index").name == "concordance"
    assert get_metric("within(0.25)").label == "within 25 %"
    assert get_metric("within(1)").name == "within(1)"
    assert get_metric("spearman").shown(0.25) == "Spearman 0.5000"


@pytest.mark.parametrize("share", [0, -1, 11, "x", None, True, float("nan")])
def test_a_share_is_a_positive_number(share: object) -> None:
    with pytest.raises(ValueError, match="share: expected a number above 0 and at most 10, got"):
        within(share)  # type: ignore[arg-type]


def test_a_mean_fine_is_shown_in_its_own_unit() -> None:
    metric = get_metric("relative_bands(0.05:1,0.2:4)")
    assert metric.shown(metric([110.0, 101.0, 50.0], [100.0, 100.0, 100.0])) == f"mean fine {5 / 3:.4f}"
    assert bands((5, 1), ("-10", 2)).name == "bands(5:1,-10:2)"


@pytest.mark.parametrize(
    ("fines", "match"),
    [
        (("5",), "fines: expected a limit above 0 and a fine of at least 0, such as '5:1', got '5'"),
        (("0:1",), "fines: expected a limit above 0"),
        (("5:-1",), "fines: expected a limit above 0"),
        (("5:0",), "fines: expected one above 0, got 5:0"),
        (("5:3", "9:2"), "fines: expected none lower than that of a narrower limit, got"),
        (("5:1", "+5:2"), "fines: expected different limits, got 5:1, 5:2"),
    ],
)
def test_fines_are_checked(fines: tuple[str, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        bands(*fines)


@pytest.mark.parametrize("costs", [(0, 1), (5, 0), (-1, 1), ("x", 1), (True, 1), (float("nan"), 1)])
def test_costs_are_checked(costs: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="short_unit"):
        step_cost(*costs)  # type: ignore[arg-type]


def test_a_quantile_lies_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="quantile: expected a number above 0 and below 1, got 1"):
        get_metric("pinball(1)")
    with pytest.raises(ValueError, match="metric: expected at most 4 setting"):
        get_metric("step_cost(1,2,3,4,5)")
