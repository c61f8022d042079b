"""Losses of pairs: against brute force, against the metrics they stand in for, and on sets that are large or empty."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from torch import Tensor

from metricgrad import get_metric
from metricgrad.losses import pairs
from metricgrad.losses.binary import Pairwise
from metricgrad.losses.pairs import SmoothAveragePrecision, TopPairwise, pair_loss


def random_set(seed: int, rows: int = 40, positives: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.arange(rows) < positives).double()
    scores = torch.randn(rows, generator=generator, dtype=torch.float64) + targets
    return scores, targets, torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1


@pytest.mark.parametrize("weighted", [False, True])
def test_all_negatives_give_the_mean_over_all_pairs(weighted: bool) -> None:
    scores, targets, weights = random_set(0)
    given_weights = weights if weighted else None
    expected = float(Pairwise()(scores, targets, given_weights))
    assert float(TopPairwise()(scores, targets, given_weights)) == pytest.approx(expected)


def test_few_negatives_are_those_of_the_highest_scores() -> None:
    scores, targets, _ = random_set(1)
    highest = sorted(scores[targets == 0].tolist(), reverse=True)[:7]  # a quarter of 28
    pairs_of = [math.log1p(math.exp(n - p)) for p in scores[targets == 1].tolist() for n in highest]
    assert float(TopPairwise(0.25)(scores, targets)) == pytest.approx(sum(pairs_of) / len(pairs_of))


def test_a_row_on_the_edge_of_the_share_counts_in_part() -> None:
    scores, targets = torch.tensor([0.0, 2.0, 1.0, -1.0]), torch.tensor([1.0, 0.0, 0.0, 0.0])
    share = 0.5  # of three negatives: the highest, and half of the next
    expected = (math.log1p(math.exp(2.0)) + 0.5 * math.log1p(math.exp(1.0))) / 1.5
    assert float(TopPairwise(share)(scores, targets)) == pytest.approx(expected)


@given(st.integers(0, 10_000), st.integers(2, 60))
def test_a_narrow_step_gives_average_precision(seed: int, rows: int) -> None:
    scores, targets, weights = random_set(seed, rows, max(1, rows // 3))
    scores = scores.argsort().argsort().double()  # none is nearly tied
    expected = 1 - average_precision_score(targets, scores, sample_weight=weights)
    assert float(SmoothAveragePrecision(1e-3)(scores, targets, weights)) == pytest.approx(expected, abs=1e-6)


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_average_precision_depends_on_neither_scale_nor_shift(seed: int, scale: float, shift: float) -> None:
    scores, targets, _ = random_set(seed)
    loss = SmoothAveragePrecision()
    assert float(loss(scale * scores + shift, targets)) == pytest.approx(float(loss(scores, targets)), rel=1e-4)


@pytest.mark.parametrize("loss", [TopPairwise(), TopPairwise(0.1), SmoothAveragePrecision()])
def test_a_step_down_the_gradient_lowers_the_loss(loss: pairs.PairLoss) -> None:
    scores, targets, weights = random_set(3)
    scores.requires_grad_()
    value = loss(scores, targets, weights)
    (gradient,) = torch.autograd.grad(value, scores)
    assert float(loss(scores.detach() - 1e-3 * gradient, targets, weights)) < float(value.detach())
    assert bool((gradient[targets == 1] <= 0).all())


@pytest.mark.parametrize("loss", [TopPairwise(), TopPairwise(0.1), SmoothAveragePrecision()])
def test_sets_without_pairs_lose_nothing_and_weigh_as_much_as_others(loss: pairs.PairLoss) -> None:
    scores, targets, _ = random_set(4)
    both = torch.stack((scores, scores)), torch.stack((targets, torch.ones_like(targets)))
    assert float(loss(*both)) == pytest.approx(float(loss(scores, targets)) / 2)
    empty = loss(scores, torch.zeros_like(targets))
    assert float(empty) == 0
    assert float(loss(scores, targets, torch.zeros_like(scores))) == 0


def test_of_too_many_pairs_a_part_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, targets, _ = random_set(5, 4_000, 1_000)
    for make in (TopPairwise, SmoothAveragePrecision):
        monkeypatch.setattr(pairs, "MAX_PAIRS", 10_000_000)
        monkeypatch.setattr(pairs, "MAX_POSITIVES", 1_000)
        exact = float(make()(scores, targets))
        monkeypatch.setattr(pairs, "MAX_PAIRS", 500_000)
        monkeypatch.setattr(pairs, "MAX_POSITIVES", 500)
        some = float(make()(scores, targets))
        assert some != exact
        assert some == pytest.approx(exact, rel=0.1)


def test_metrics_of_the_ranking_have_a_loss_of_pairs() -> None:
    assert isinstance(pair_loss(get_metric("average_precision")), SmoothAveragePrecision)
    for name, share in (("auc", 1.0), ("partial_auc(0.05)", 0.05)):
        found = pair_loss(get_metric(name))
        assert isinstance(found, TopPairwise)
        assert found.share == share
    assert pair_loss(get_metric("eer")) is None


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"share: expected a number above 0 and at most 1, got 0"):
        TopPairwise(0)
    with pytest.raises(ValueError, match=r"width: expected a positive finite number, got -1"):
        SmoothAveragePrecision(-1)
