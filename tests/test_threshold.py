"""The exact threshold, against trying everything."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from metricgrad.black_box import black_box
from metricgrad.metrics import Metric, builtin_metrics
from metricgrad.threshold import FEW, best_threshold

CUT = [metric for metric in builtin_metrics() if metric.thresholded]
WHOLE = [metric for metric in builtin_metrics() if not metric.thresholded]
HUGE, TINY = sys.float_info.max, 5e-324
NEXT = math.nextafter(1.0, 2.0)
levels = st.sampled_from([-3.0, -1.0, 0.0, 1.0, NEXT, 1.5, TINY, -TINY, 1e-300, 1e300, HUGE / 4, -HUGE / 4])
numbers = st.floats(-1e6, 1e6) | levels
rows = st.tuples(numbers, st.booleans(), st.integers(0, 3))


def losses_of_all_cuts(metric: Metric, scores: Any, targets: Any, weights: Any) -> list[float]:
    """Return the loss of calling the highest scores positive, for every set of highest scores there is."""
    cuts = [math.inf, *np.unique(scores)]
    return [float(metric(np.where(scores >= cut, 1.0, -1.0), targets, weights)) for cut in cuts]


@given(metric=st.sampled_from(CUT), data=st.lists(rows, min_size=1, max_size=12), weighted=st.booleans())
@example(metric=CUT[1], data=[(1.0, False, 1), (NEXT, True, 1)], weighted=False)
@example(metric=CUT[1], data=[(HUGE / 4, False, 1), (-HUGE / 4, True, 1)], weighted=True)
@example(metric=CUT[1], data=[(TINY, True, 1), (0.0, False, 1)], weighted=False)
@example(metric=CUT[1], data=[(2.0, True, 1)], weighted=False)
@example(metric=CUT[1], data=[(2.0, True, 1), (2.0, False, 1), (2.0, True, 1)], weighted=False)
def test_no_cut_loses_less(metric: Metric, data: list[tuple[float, bool, int]], weighted: bool) -> None:
    scores, targets, weights = (np.array(column, float) for column in zip(*data, strict=True))
    given_weights = weights if weighted else None
    threshold = best_threshold(metric, scores, targets, given_weights)
    assert math.isfinite(threshold)
    lost = float(metric(np.where(scores >= threshold, 1.0, -1.0), targets, given_weights))
    assert lost == pytest.approx(min(losses_of_all_cuts(metric, scores, targets, given_weights)), abs=1e-12)
    # Shifting the scores cuts them at the same place.
    assert float(metric(scores - threshold, targets, given_weights)) == lost


@given(st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.booleans()), min_size=1, max_size=12))
def test_a_threshold_is_never_on_a_score(data: list[tuple[float, bool]]) -> None:
    scores, targets = (np.array(column, np.float32) for column in zip(*data, strict=True))
    for metric in CUT[:3]:
        assert best_threshold(metric, scores, targets) not in scores.astype(float)


@pytest.mark.parametrize("scores", [[1.0, NEXT], [TINY, 0.0], [HUGE, math.nextafter(HUGE, 0)]])
def test_between_neighbouring_floats_the_upper_one_parts_them(scores: list[float]) -> None:
    f1 = CUT[1]
    targets = (np.array(scores) == max(scores)).astype(int)
    assert best_threshold(f1, scores, targets) == max(scores)


@pytest.mark.parametrize("target", [0, 1])
def test_the_largest_numbers_there_are_can_be_cut(target: int) -> None:
    for scores in ([HUGE, -HUGE], [HUGE / 1.0001, -HUGE / 1.0001], [-HUGE, -HUGE]):
        threshold = best_threshold(CUT[0], scores, [target, target])
        assert {s >= threshold for s in scores} == {bool(target)}
        assert not math.isnan(threshold)


def test_of_equally_good_thresholds_the_highest_is_taken() -> None:
    error_rate = CUT[0]
    assert best_threshold(error_rate, [1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1]) == 3.5
    assert best_threshold(error_rate, [1.0, 2.0], [0, 0]) > 2


def test_rows_of_weight_zero_do_not_choose() -> None:
    scores, targets = [0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]
    assert 0 < best_threshold(CUT[0], scores, targets, [1, 1, 0, 1]) < 1
    assert best_threshold(CUT[0], scores, targets, [1, 0, 1, 1]) == 2.5


@pytest.mark.parametrize("metric", WHOLE, ids=lambda metric: metric.name)
def test_a_metric_without_a_threshold_is_cut_at_zero(metric: Metric) -> None:
    assert best_threshold(metric, [3.0, 4.0], [0, 1]) == 0


# ---- black boxes ---------------------------------------------------------------------------------------------------


def profit(y_true: Any, y_pred: Any) -> float:
    return float(10 * y_true[y_pred == 1].sum() - 3 * y_pred.sum())


@given(st.lists(st.tuples(numbers.filter(lambda s: abs(s) < 1e200), st.booleans()), min_size=1, max_size=12))
def test_a_black_box_is_tried_at_every_cut_of_a_few_rows(data: list[tuple[float, bool]]) -> None:
    metric = black_box(profit, higher_is_better=True, labels=True)
    scores, targets = (np.array(column, float) for column in zip(*data, strict=True))
    threshold = best_threshold(metric, scores, targets)
    lost = float(metric(scores - threshold, targets))
    assert lost == min(losses_of_all_cuts(metric, scores, targets, None))


def test_a_black_box_is_called_a_hundred_times_at_most() -> None:
    calls = []

    def counted(y_true: Any, y_pred: Any) -> float:
        calls.append(1)
        return profit(y_true, y_pred)

    generator = np.random.default_rng(0)
    targets = generator.integers(0, 2, 5_000)
    scores = targets + generator.normal(size=5_000)
    metric = black_box(counted, higher_is_better=True, labels=True)
    threshold = best_threshold(metric, scores, targets)
    assert len(calls) == FEW
    found, best = (
        metric(scores - threshold, targets),
        min(float(metric(scores - cut, targets)) for cut in np.quantile(scores, np.linspace(0, 1, 1_000))),
    )
    assert float(found) < 0.995 * best  # losses are negative: nearly all of the profit there is


# ---- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "targets", "weights", "message"),
    [
        ([], [], None, "scores: expected at least one row, got none"),
        ([[1.0, 2.0]], [[0, 1]], None, r"scores: expected one set, \(n,\), got the shape \(1, 2\)"),
        ([1.0, math.nan], [0, 1], None, "scores: expected finite numbers, got nan at index 1"),
        ([1.0, 2.0], [0, 2], None, "targets: expected 0 or 1, got 2 at index 1"),
        ([1.0, 2.0], [0, 1], [1, -1], "weights: expected finite numbers of at least 0, got -1 at index 1"),
    ],
)
def test_bad_input_is_named(scores: Any, targets: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        best_threshold(CUT[0], scores, targets, weights)


def test_tensors_with_a_gradient_are_taken() -> None:
    scores = torch.tensor([0.1, 0.4, 0.35, 0.8], requires_grad=True)
    assert best_threshold(CUT[1], scores, torch.tensor([0, 0, 1, 1])) == pytest.approx(0.225)
