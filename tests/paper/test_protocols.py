"""The two protocols on cases small enough to work out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, f1_score, jaccard_score, matthews_corrcoef, roc_curve

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import PAPER, error_rate, f1, get_metric, jaccard
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.paper.protocols import PROTOCOLS, Protocol, Scored, best_percentile, get_protocol

GENERATOR = np.random.default_rng(0)
VALIDATION, TEST = ((s, GENERATOR.random(60) < 1 / (1 + np.exp(1 - s))) for s in GENERATOR.normal(size=(2, 60)))
LOSSES = {
    "error_rate": lambda y, called: 1 - accuracy_score(y, called),
    "f1": lambda y, called: 1 - f1_score(y, called),
    "mcc": lambda y, called: (1 - matthews_corrcoef(y, called)) / 2,
    "jaccard": lambda y, called: 1 - jaccard_score(y, called),
}


def paper(metric: Any, scores: Any, targets: Any) -> float:
    return PROTOCOLS["paper"].score(metric, *VALIDATION, scores, targets)


def honest(metric: Any, scores: Any, targets: Any) -> float:
    return PROTOCOLS["honest"].score(metric, *VALIDATION, scores, targets)


# ---- paper ---------------------------------------------------------------------------------------------------------


def test_the_paper_calls_one_percent_positive_even_where_fewer_are() -> None:
    """15 of 10,000 rows are positive and ranked first, yet 100 are called: 85 false alarms."""
    scores = np.arange(10_000.0)
    targets = scores >= 10_000 - 15
    assert paper("error_rate", scores, targets) == pytest.approx(0.0085)
    assert paper("f1", scores, targets) == pytest.approx(1 - 2 * 15 / (15 + 100))
    assert round(paper("f1", scores, targets), 3) == 0.739
    assert np.mean(targets) == 0.0015  # what calling nothing positive would lose


def test_an_honest_threshold_finds_those_few_exactly() -> None:
    scores = np.arange(10_000.0)
    targets = scores >= 10_000 - 15
    protocol = PROTOCOLS["honest"]
    for metric in ("error_rate", "f1", "jaccard", "mcc"):
        assert protocol.score(metric, scores, targets, scores, targets) == 0


def test_the_paper_calls_accuracy_jaccard() -> None:
    scores, targets = np.array([4.0, 3, 2, 1]), np.array([1, 1, 0, 0])
    assert paper("jaccard", scores, targets) == 0
    noisy = np.array([1, 0, 0, 1])
    # Calling the first alone positive is right about three rows of four; of the two positives it finds one.
    assert paper("jaccard", scores, noisy) == 0.25
    assert paper("jaccard", scores, noisy) == paper("error_rate", scores, noisy)
    assert float(jaccard([1.0, -1, -1, -1], noisy)) == 0.5
    assert paper("jaccard", *TEST) == paper("error_rate", *TEST)


def test_the_paper_trains_jaccard_as_accuracy_too() -> None:
    assert PROTOCOLS["paper"].measured("jaccard") is error_rate
    assert PROTOCOLS["paper"].measured("f1") is f1
    assert PROTOCOLS["honest"].measured("jaccard") is jaccard


@pytest.mark.parametrize("metric", ["error_rate", "f1", "mcc"])
def test_the_paper_takes_the_best_of_100_percentiles_of_the_test_scores(metric: str) -> None:
    scores, targets = TEST
    cuts = [np.percentile(scores, percentile) for percentile in range(100)]
    assert paper(metric, *TEST) == pytest.approx(min(LOSSES[metric](targets, scores >= cut) for cut in cuts))


def test_the_threshold_of_the_paper_looks_at_test_labels() -> None:
    scores, targets = (tensors(part) for part in (VALIDATION, TEST))
    flipped = Scored(targets.scores, ~targets.targets)
    assert best_percentile(f1, scores, targets) != best_percentile(f1, scores, flipped)


def test_the_paper_does_not_look_at_validation_rows() -> None:
    scores, targets = VALIDATION
    protocol = PROTOCOLS["paper"]
    assert protocol.score("f1", scores, ~targets, *TEST) == protocol.score("f1", *VALIDATION, *TEST)


def test_a_row_on_the_percentile_is_called_positive() -> None:
    """With equal scores every percentile is that score: all rows are called positive, whatever that loses."""
    assert paper("error_rate", np.zeros(10), np.arange(10) < 2) == pytest.approx(0.8)


# ---- honest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", LOSSES)
def test_an_honest_loss_is_that_of_the_exact_validation_threshold(metric: str) -> None:
    scores, targets = TEST
    candidates = np.concatenate(([-np.inf], np.sort(VALIDATION[0])))
    least = min(LOSSES[metric](VALIDATION[1], VALIDATION[0] > cut) for cut in candidates)
    cut = best_threshold(get_metric(metric), *VALIDATION)
    assert LOSSES[metric](VALIDATION[1], VALIDATION[0] >= cut) == pytest.approx(least)
    assert honest(metric, *TEST) == pytest.approx(LOSSES[metric](targets, scores >= cut))


def test_permuted_test_labels_do_not_change_an_honest_threshold() -> None:
    validation, test = (tensors(part) for part in (VALIDATION, TEST))
    permuted = Scored(test.scores, test.targets.flip(0))
    threshold = PROTOCOLS["honest"].threshold
    assert threshold(f1, validation, test) == threshold(f1, validation, permuted)


def test_an_honest_loss_is_never_below_what_the_test_labels_could_have_chosen() -> None:
    for metric in LOSSES:
        assert honest(metric, *TEST) >= float(get_metric(metric).best(*TEST)) - 1e-12


# ---- both ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["auc", "eer", "average_precision"])
def test_losses_of_the_ranking_need_no_threshold_and_are_the_same_in_both(metric: str) -> None:
    expected = float(get_metric(metric)(*TEST))
    assert paper(metric, *TEST) == honest(metric, *TEST) == expected


def test_the_equal_error_rate_is_the_mean_of_both_rates_where_they_are_nearest() -> None:
    fpr, tpr, _ = roc_curve(TEST[1], TEST[0], drop_intermediate=False)
    nearest = np.argmin(np.abs(fpr - (1 - tpr)))
    assert paper("eer", *TEST) == pytest.approx((fpr[nearest] + 1 - tpr[nearest]) / 2)


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("metric", PAPER)
def test_a_perfect_ranking_loses_nothing_where_classes_are_common(name: str, metric: str) -> None:
    perfect = np.arange(100.0), np.arange(100) >= 60
    assert PROTOCOLS[name].score(metric, *perfect, *perfect) == pytest.approx(0)


def test_a_protocol_is_found_by_name() -> None:
    assert get_protocol("paper") is PROTOCOLS["paper"]
    assert isinstance(get_protocol(PROTOCOLS["honest"]), Protocol)
    with pytest.raises(ValueError, match="protocol: expected one of paper, honest or a Protocol, got 'strict'"):
        get_protocol("strict")


def test_no_rows_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"scores: expected at least one row, \(n,\), got the shape \(0,\)"):
        honest("f1", np.zeros(0), np.zeros(0))


def tensors(part: tuple[Any, Any]) -> Scored:

    return Scored(torch.as_tensor(part[0]), torch.as_tensor(part[1]))


@given(
    scores=st.lists(st.integers(-30, 30).map(lambda i: i / 7), min_size=1, max_size=60),
    seed=st.integers(0, 99),
    name=st.sampled_from(["f1", "mcc", "error_rate", "balanced_error"]),
)
def test_rows_between_two_percentiles_may_be_counted_instead_of_listed(
    scores: list[float], seed: int, name: str
) -> None:
    targets = np.random.default_rng(seed).integers(0, 2, len(scores))
    test = np.array(scores), targets
    metric = get_metric(name)
    every = [float(metric(test[0] - t, targets)) for t in np.percentile(test[0], range(100))]
    assert PROTOCOLS["paper"].score(name, *test, *test) == pytest.approx(min(every), abs=1e-9)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_metric_without_a_threshold_judges_the_scores_as_they_are(name: str) -> None:
    metric = black_box(brier_score_loss, higher_is_better=False, probabilities=True)
    expected = brier_score_loss(TEST[1], 1 / (1 + np.exp(-TEST[0])))
    assert PROTOCOLS[name].score(metric, *VALIDATION, *TEST) == pytest.approx(expected)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_scores_with_a_gradient_are_taken(name: str) -> None:
    scores = torch.tensor(TEST[0], requires_grad=True)
    assert PROTOCOLS[name].score("f1", *VALIDATION, scores, TEST[1]) == PROTOCOLS[name].score("f1", *VALIDATION, *TEST)


def test_single_scores_that_are_neighbours_are_cut_between_them() -> None:
    scores = np.array([1.0, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    rows = scores, np.array([0, 1])
    assert PROTOCOLS["honest"].score("error_rate", *rows, *rows) == 0


def test_protocols_can_be_members_of_a_set() -> None:
    assert len({*PROTOCOLS.values(), get_protocol("paper")}) == len(PROTOCOLS)


def test_a_protocol_shows_its_name_and_what_it_does_and_no_more() -> None:
    for name, protocol in PROTOCOLS.items():
        assert repr(protocol).startswith(f"Protocol(name={name!r}, explanation={protocol.explanation!r}")
        assert "<function" not in repr(protocol)
        assert "Metric(" not in repr(protocol)
