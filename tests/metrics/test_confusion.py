from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.metrics import confusion as curves
from metricgrad.metrics.confusion import (
    MIN_PACKED_SCORES,
    Confusion,
    comparable,
    confusion_at_zero,
    confusion_curve,
    confusion_parts,
    descending_order,
)
from metricgrad.metrics.registry import builtin_metrics
from metricgrad.metrics.thresholds import best_threshold

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30)


def test_counts_at_zero_call_a_score_of_zero_positive() -> None:
    counts = confusion_at_zero(torch.tensor([0.0, -0.0, -1.0, 2.0]), torch.tensor([1, 0, 1, 0]))
    assert [c.item() for c in counts] == [1, 2, 1, 0]


def test_the_curve_starts_with_nothing_called_positive_and_ends_with_everything() -> None:
    curve = confusion_curve(torch.tensor([0.1, 0.9, 0.5]), torch.tensor([0, 1, 1]))
    assert curve.tp.tolist() == [0, 1, 2, 2]
    assert curve.fp.tolist() == [0, 0, 0, 1]
    assert curve.fn.tolist() == [2, 1, 0, 0]
    assert curve.tn.tolist() == [1, 1, 1, 0]


def test_the_curve_never_cuts_through_equal_scores() -> None:
    curve = confusion_curve(torch.tensor([2.0, 1.0, 1.0, 1.0, 0.0]), torch.tensor([1, 0, 1, 0, 1]))
    assert curve.tp.tolist() == [0, 1, 1, 1, 2, 3]
    assert curve.fp.tolist() == [0, 0, 0, 0, 2, 2]


def test_the_curve_of_a_set_of_equal_scores_is_a_single_step() -> None:
    targets, weights = torch.tensor([1, 0, 1]).expand(2, 3), torch.tensor([2.0, 0.0, 4.0]).expand(2, 3)
    curve = confusion_curve(torch.zeros(2, 3), targets, weights)
    assert (curve.tp[:, :3] == 0).all()
    assert (curve.fp == 0).all()
    assert (curve.tp[:, 3] == curve.fn[:, 0]).all()


@given(ROWS, st.integers(1, 7), st.integers(1, 2), st.sampled_from([1, 10**6]))
def test_parts_of_a_curve_are_the_whole(rows: list[tuple[int, bool]], length: int, sets: int, many: int) -> None:
    scores, targets = (torch.tensor(column).float().expand(sets, -1) for column in zip(*rows, strict=True))
    scores = scores * torch.tensor([1.0, -1.0])[torch.arange(len(rows)) % 2]  # zeros of both signs are equal
    whole = confusion_curve(scores, targets)
    with patch.object(curves, "ROWS_PER_PART", length), patch.object(curves, "MIN_PACKED_SCORES", many):
        parts = list(confusion_parts(scores, targets))
        assert len(parts) == -(-len(rows) // length)
        assert [part.tp.shape[-1] for part in parts[:-1]] == [length + 1] * (len(parts) - 1)
        for name in Confusion._fields:
            first, *others = (getattr(part, name) for part in parts)
            joined = torch.cat((first, *(other[..., 1:] for other in others)), -1)
            assert torch.equal(joined, getattr(whole, name))
            assert all(torch.equal(a[..., -1], b[..., 0]) for a, b in pairwise((first, *others)))


@given(ROWS, st.integers(1, 7), st.sampled_from([1, 10**6]))
def test_a_metric_of_parts_is_that_of_the_whole(rows: list[tuple[int, bool]], length: int, many: int) -> None:
    scores, targets = (torch.tensor(column).float() for column in zip(*rows, strict=True))
    for metric in builtin_metrics():
        judge = metric.best if metric.thresholded else metric
        whole, cut = judge(scores, targets), best_threshold(metric, scores, targets)
        with patch.object(curves, "ROWS_PER_PART", length), patch.object(curves, "MIN_PACKED_SCORES", many):
            torch.testing.assert_close(judge(scores, targets), whole, rtol=1e-12, atol=1e-12)
            assert best_threshold(metric, scores, targets) == cut


def test_an_empty_set_has_the_single_point_that_calls_nothing_positive() -> None:
    curve = confusion_curve(torch.zeros(4, 0), torch.zeros(4, 0), torch.zeros(4, 0))
    assert all(counts.shape == (4, 1) and not counts.any() for counts in curve)


def test_a_million_rows_are_counted_without_rounding() -> None:
    rows = 2**24 + 3  # one more than single precision can count
    counts = confusion_at_zero(torch.ones(rows, dtype=torch.float16), torch.ones(rows, dtype=torch.bool))
    assert counts.tp.item() == rows


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_scores_are_ranked_from_high_to_low_in_any_float_type(dtype: torch.dtype) -> None:
    scores = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert (scores.gather(-1, descending_order(scores)).diff() <= 0).all()


@pytest.mark.parametrize("shape", [(MIN_PACKED_SCORES,), (3, MIN_PACKED_SCORES), (700, 9)])
def test_many_scores_are_ranked_as_few_are(shape: tuple[int, ...]) -> None:
    rng = torch.Generator().manual_seed(1)
    scores = torch.randn(shape, generator=rng) * 10.0 ** torch.randint(-44, 38, shape, generator=rng)
    scores.flatten()[:6] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 0.0, -0.0])
    order = descending_order(scores)
    assert (order.sort(-1).values == torch.arange(shape[-1])).all()
    assert torch.equal(scores.gather(-1, order), scores.sort(-1, descending=True).values)


def test_scaled_weights_keep_their_ratios_exactly() -> None:
    weights = torch.tensor([[3.0, 1.0, 7.0], [3e300, 1e300, 7e300], [0.0, 0.0, 0.0]], dtype=torch.float64)
    scaled = comparable(weights, torch.zeros(2, 3))
    assert (scaled[0] * 8 == weights[0]).all()
    assert ((scaled[1] >= 0) & (scaled[1] < 1)).all()
    assert (scaled[1] / scaled[1, 1] == weights[1] / weights[1, 1]).all()
    assert (scaled[2] == 0).all()


def test_the_smallest_weights_there_are_still_count() -> None:
    counts = confusion_at_zero(torch.ones(2), torch.tensor([1, 0]), torch.tensor([5e-324, 5e-324], dtype=torch.float64))
    assert counts.tp == counts.fp > 0
    assert counts.tp * counts.fp > 0
