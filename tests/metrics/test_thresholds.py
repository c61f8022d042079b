"""The exact threshold, against trying everything."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.class_offsets import COSTLY_TRIALS
from metricgrad.metrics.registry import Metric, builtin_metrics, get_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL
from metricgrad.metrics.thresholds import best_offsets, best_threshold

CUT = [metric for metric in builtin_metrics() if metric.thresholded]
WHOLE = [metric for metric in builtin_metrics() if not metric.decides]
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


@pytest.mark.parametrize(
    ("scores", "middle"),
    [
        ([1.0, 2.0], 1.5),
        ([-HUGE, HUGE], 0.0),
        ([-HUGE, HUGE / 2], -HUGE / 4),
        ([-HUGE / 2, HUGE], HUGE / 4),
        ([TINY, 5 * TINY], 3 * TINY),
    ],
)
def test_a_threshold_is_the_middle_of_two_scores(scores: list[float], middle: float) -> None:
    assert best_threshold(CUT[1], scores, [0, 1]) == middle


@pytest.mark.parametrize(
    ("scores", "margin"),
    [
        ([1.0, 2.0], 0.5),
        ([-4.0, -1.0, 2.0], 2.0),
        ([0.0, 0.0], 1e-6),
        ([0.25, 0.25], 1e-6),
        ([1.5, 1.5], 1.5e-6),
        ([-7.0], 7e-6),
        ([-100.0, -100.0 + 1e-5], 1e-4),
        ([100.0 - 1e-5, 100.0], 1e-4),
    ],
)
def test_beyond_the_extremes_there_is_room_for_the_mean_gap_or_for_a_millionth(
    scores: list[float], margin: float
) -> None:
    error_rate = CUT[0]
    above = best_threshold(error_rate, scores, [0] * len(scores))
    below = best_threshold(error_rate, scores, [1] * len(scores))
    assert above - max(scores) == pytest.approx(margin, abs=1e-12)
    assert min(scores) - below == pytest.approx(margin, abs=1e-12)


@given(
    st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=1, max_size=30),
    st.integers(1, 9),
    st.sampled_from(CUT[:3]),
)
@example([(3, True), (3, False), (2, True), (1, False), (0, True)], 2, CUT[0])
@example([(0, False), (1, False), (2, False), (3, False), (4, True)], 1, CUT[0])
@example([(0, False), (1, True), (2, False), (3, True)], 2, CUT[0])
@example([(number, number < 5) for number in range(9)], 2, CUT[1])
def test_a_curve_in_parts_is_cut_where_the_highest_of_the_best_thresholds_cuts_it(
    data: list[tuple[int, bool]], part: int, metric: Metric
) -> None:
    scores, targets = (np.array(column, float) for column in zip(*data, strict=True))
    cuts = [math.inf, *np.unique(scores)[::-1]]
    lost = [float(metric(np.where(scores >= cut, 1.0, -1.0), targets)) for cut in cuts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metricgrad.metrics.confusion.ROWS_PER_PART", part)
        threshold = best_threshold(metric, scores, targets)
    expected = cuts[int(np.argmin(lost))]
    np.testing.assert_array_equal(scores >= threshold, scores >= expected)


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
    assert len(calls) == 100
    found, best = (
        metric(scores - threshold, targets),
        min(float(metric(scores - cut, targets)) for cut in np.quantile(scores, np.linspace(0, 1, 1_000))),
    )
    assert float(found) < 0.995 * best  # losses are negative: nearly all of the profit there is


@pytest.mark.parametrize("count", [1, 2, 5, 98, 99, 150])
def test_a_black_box_is_asked_at_a_hundred_quantiles_or_at_every_cut(count: int) -> None:
    called = []

    def counted(y_true: Any, y_pred: Any) -> float:
        called.append(int(y_pred.sum()))
        return 0.0

    best_threshold(black_box(counted, higher_is_better=False, labels=True), np.arange(count), np.arange(count) % 2)
    quantiles = np.linspace(0, count, 100) if count > 98 else np.arange(count + 1)
    assert called == np.round(quantiles).astype(int).tolist()


def test_a_black_box_sees_single_scores_cut_between_neighbours() -> None:
    scores = np.array([1.0, np.nextafter(np.float32(1), np.float32(2))], np.float32)
    threshold = best_threshold(black_box(profit, higher_is_better=True, labels=True), scores, [0, 1])
    assert float(scores[0]) < threshold < float(scores[1])


def test_a_black_box_that_takes_weights_is_given_them() -> None:
    def weighted_error(y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
        return float(np.average(y_true != y_pred, weights=sample_weight))

    metric = black_box(weighted_error, higher_is_better=False, labels=True)
    scores, targets = [0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1]
    assert best_threshold(metric, scores, targets, [1, 3, 1, 1]) == 0.5
    assert best_threshold(metric, scores, targets, [1, 1, 3, 1]) == 2.5


def test_a_black_box_that_takes_columns_is_given_them() -> None:
    def missed(y_true: Any, y_pred: Any, amount: Any) -> float:
        return float((amount * (y_true != y_pred)).sum())

    metric = black_box(missed, higher_is_better=False, labels=True, columns=["amount"])
    scores = [0.0, 1.0, 2.0, 3.0]
    assert best_threshold(metric, scores, [[0, 1.0], [1, 3.0], [0, 1.0], [1, 1.0]]) == 0.5
    assert best_threshold(metric, scores, [[0, 1.0], [1, 1.0], [0, 3.0], [1, 1.0]]) == 2.5


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


# ---- offsets of several classes or labels ----------------------------------------------------------------------------


def skewed(rows: int = 400, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores and classes, of which the last are rare, as a model trained by cross-entropy gives them."""
    rng = np.random.default_rng(seed)
    share = 0.4 ** np.arange(classes)
    actual = rng.choice(classes, rows, p=share / share.sum())
    return rng.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[actual] + np.log(share), actual


def test_rare_classes_are_given_more_often_where_all_count_the_same() -> None:
    scores, actual = skewed()
    offsets = best_offsets("macro_f1", scores, actual).numpy()
    plain, tuned = scores.argmax(-1), (scores + offsets).argmax(-1)
    gained = sk.f1_score(actual, tuned, average="macro") - sk.f1_score(actual, plain, average="macro")
    assert gained > 0.05
    assert offsets[-1] > offsets[0]


def test_labels_are_each_cut_where_they_are_best() -> None:
    rng = np.random.default_rng(1)
    targets = (rng.random((90, 3)) < [0.1, 0.3, 0.6]).astype(int)
    scores = rng.normal(size=(90, 3)) + 2 * targets - [3, 2, 1]
    offsets = best_offsets("label_macro_f1", scores, targets).numpy()
    for k in range(3):
        every = [sk.f1_score(targets[:, k], scores[:, k] >= cut, zero_division=0) for cut in [*scores[:, k], np.inf]]
        assert sk.f1_score(targets[:, k], scores[:, k] + offsets[k] >= 0) == pytest.approx(max(every))


@pytest.mark.parametrize("name", [m.name for t in (MULTICLASS, MULTILABEL) for m in builtin_metrics(t)])
def test_the_best_form_of_a_metric_loses_what_its_best_offsets_do(name: str) -> None:
    metric, (scores, actual) = get_metric(name), skewed(60)
    targets = np.eye(4)[actual]
    offsets = best_offsets(metric, scores, targets)
    lost = float(metric(torch.tensor(scores) + offsets, targets))
    assert float(metric.best(scores, targets)) == pytest.approx(lost)
    assert lost <= float(metric(scores, targets))


@pytest.mark.parametrize("name", ["macro_auc", "label_map", "best_macro_f1"])
def test_a_metric_that_decides_nothing_needs_no_offsets(name: str) -> None:
    assert best_offsets(name, torch.randn(5, 3), torch.eye(3)[[0, 1, 2, 0, 1]]).tolist() == [0, 0, 0]


def test_the_same_rows_have_the_same_offsets_however_they_are_held() -> None:
    scores, actual = skewed(80)
    offsets = best_offsets("cohen_kappa", scores, actual)
    assert offsets.dtype == torch.float64
    for held in ((scores.tolist(), actual.tolist()), (torch.tensor(scores), np.eye(4)[actual])):
        assert torch.equal(best_offsets("cohen_kappa", *held, np.ones(80)), offsets)


def test_single_precision_is_searched_in_double() -> None:
    scores, actual = skewed(300)
    single = torch.tensor(scores).float()
    assert torch.equal(best_offsets("macro_f1", single, actual), best_offsets("macro_f1", single.double(), actual))


def test_a_black_box_is_asked_sparingly() -> None:
    calls = []

    def profit(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        calls.append(len(y_true))
        return float((10 * (y_true == 3) * (y_pred == 3) - (y_pred == 3)).sum())

    metric, (scores, actual) = black_box(profit, higher_is_better=True, labels=True, task="multiclass"), skewed(200)
    offsets = best_offsets(metric, scores, actual)
    assert 0 < len(calls) <= 10 * 4 * (COSTLY_TRIALS + 1) + 2
    assert float(metric(scores + offsets.numpy(), actual)) < float(metric(scores, actual))


def test_the_best_form_of_a_black_box_is_that_at_its_best_offsets() -> None:
    averaged = functools.partial(sk.f1_score, average="macro", zero_division=0)
    metric = black_box(averaged, name="f", higher_is_better=True, labels=True, task="multilabel", value_range=(0, 1))
    rng = np.random.default_rng(1)
    targets = (rng.random((2, 30, 3)) < 0.4).astype(int)
    scores = rng.normal(size=(2, 30, 3)) + 2 * targets - 2
    found = metric.best(scores, targets)
    assert (found < metric(scores, targets) - 0.05).all()
    for i in range(2):
        offsets = best_offsets(metric, scores[i], targets[i]).numpy()
        assert float(found[i]) == pytest.approx(1 - averaged(targets[i], scores[i] + offsets >= 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["macro_f1", "quadratic_kappa"])
def test_many_rows_of_many_classes_are_searched(name: str) -> None:
    scores, actual = skewed(20_000, 26)
    metric, offsets = get_metric(name), best_offsets(name, scores, actual).numpy()
    assert float(metric(scores + offsets, actual)) < float(metric(scores, actual)) - 0.01


@pytest.mark.parametrize(
    ("metric", "scores", "targets", "message"),
    [
        ("f1", [[0.1, 0.2]], [1], "metric: expected one of several classes or labels, got 'f1' of one score a row"),
        ("macro_f1", torch.zeros(2, 3, 4), torch.eye(4)[:3], r"scores: expected one set, \(n, c\), got .*\(2, 3, 4\)"),
        ("macro_f1", torch.zeros(0, 4), torch.zeros(0, 4), r"scores: expected at least one row, got .*\(0, 4\)"),
        ("macro_f1", [[0.1, 0.2]], [[1, 1]], "targets: expected a single 1 in every row, else 0, got 1"),
        ("hamming", [[0.1, np.inf]], [[1, 1]], r"scores: expected finite numbers, got inf at index \(0, 1\)"),
    ],
)
def test_bad_rows_raise_an_error_that_names_argument_expectation_and_value(metric, scores, targets, message) -> None:
    with pytest.raises(ValueError, match=message):
        best_offsets(metric, scores, targets)
