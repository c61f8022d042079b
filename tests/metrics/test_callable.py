from __future__ import annotations

import copy
import functools
import pickle
import threading

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
import torchmetrics.classification as tm
from hypothesis import given
from hypothesis import strategies as st

from metricgrad import MetricClassifier, SurrogateLoss
from metricgrad.metrics.callable import black_box, with_max_calls
from metricgrad.metrics.called_sets import MAX_CALLS, proportional_repeats
from metricgrad.metrics.metric import Budget
from metricgrad.metrics.registry import SKLEARN_NAMES, auc, f1, get_metric

SCORES = torch.randn(3, 2, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = (torch.rand(3, 2, 30, generator=torch.Generator().manual_seed(1)) < 0.4).long()
WEIGHTS = torch.rand(3, 2, 30, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def profit(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return 10 * y_true[y_pred == 1].sum() - 3 * y_pred.sum()


def mean_score(y_true: np.ndarray, y_score: np.ndarray) -> float:
    return float(y_score.mean())


def fails_on_the_fifth(y_true: np.ndarray, y_score: np.ndarray) -> float:
    if np.array_equal(y_score, SCORES[2, 0].numpy()) or np.array_equal(y_score, SCORES[2, 1].numpy()):
        raise ZeroDivisionError("nothing to share")
    return 0.5


# ---- the loss -------------------------------------------------------------------------------------------------------


def test_a_metric_of_scikit_learn_gives_the_loss_of_the_built_in_one() -> None:
    metric = black_box(sk.roc_auc_score, higher_is_better=True, value_range=(0, 1))
    torch.testing.assert_close(metric(SCORES, TARGETS), auc(SCORES, TARGETS))
    torch.testing.assert_close(metric(SCORES, TARGETS, WEIGHTS), auc(SCORES, TARGETS, WEIGHTS))
    assert (metric.name, metric.takes_weights, metric.bounded, metric.thresholded) == (
        "roc_auc_score",
        True,
        True,
        False,
    )


def test_labels_are_what_scores_of_at_least_zero_say() -> None:
    metric = black_box(sk.f1_score, higher_is_better=True, value_range=(0, 1), labels=True)
    torch.testing.assert_close(metric(SCORES, TARGETS, WEIGHTS), f1(SCORES, TARGETS, WEIGHTS))
    assert metric.thresholded


def test_probabilities_are_the_sigmoid_of_scores() -> None:
    metric = black_box(functools.partial(sk.log_loss, labels=[0, 1]), higher_is_better=False, probabilities=True)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(SCORES, TARGETS.double(), reduction="none")
    torch.testing.assert_close(metric(SCORES, TARGETS), expected.mean(-1))
    assert metric.name == "log_loss"


@pytest.mark.parametrize(
    ("higher_is_better", "value_range", "loss"),
    [(False, None, 17.0), (True, None, -17.0), (False, (0, 20), 0.85), (True, (0, 20), 0.15)],
)
def test_a_value_becomes_a_loss_and_back(higher_is_better: bool, value_range, loss: float) -> None:
    metric = black_box(lambda y, s: 17, name="gain", higher_is_better=higher_is_better, value_range=value_range)
    assert float(metric([1.0], [1])) == pytest.approx(loss)
    assert metric.shown(metric([1.0], [1])) == "gain 17.0000"
    assert metric.higher_is_better is higher_is_better
    assert metric.bounded is (value_range is not None)


@pytest.mark.parametrize("value", [1, True, np.float32(1), np.int64(1), np.array(1.0), torch.tensor(1.0)])
def test_any_single_number_will_do(value: object) -> None:
    assert black_box(lambda y, s: value, higher_is_better=False)([0.0], [1]) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scores_of_any_float_type_reach_the_callable_in_double_precision(dtype: torch.dtype) -> None:
    def check(y_true: np.ndarray, y_score: np.ndarray) -> float:
        assert (y_true.dtype, y_score.dtype) == (np.int64, np.float64)
        return 0.25

    assert black_box(check, higher_is_better=False)(SCORES.to(dtype), TARGETS.bool()).dtype == dtype


def test_a_callable_that_sorts_in_place_changes_nothing_for_others() -> None:
    def sorting(y_true: np.ndarray, y_score: np.ndarray) -> float:
        y_true.sort()
        y_score.sort()
        return 0.0

    scores, targets = SCORES.clone(), TARGETS.clone()
    black_box(sorting, higher_is_better=False)(scores, targets)
    black_box(sorting, higher_is_better=False, labels=True).best(scores, targets)
    assert torch.equal(scores, SCORES)
    assert torch.equal(targets, TARGETS)


# ---- weights --------------------------------------------------------------------------------------------------------


def test_rows_of_weight_zero_are_left_out() -> None:
    metric, weights = black_box(mean_score, higher_is_better=False), torch.zeros(30)
    weights[:10] = 3
    torch.testing.assert_close(metric(SCORES, TARGETS, weights), metric(SCORES[..., :10], TARGETS[..., :10]))


def test_unequal_weights_need_a_callable_that_takes_them() -> None:
    metric = black_box(mean_score, higher_is_better=False)
    assert not metric.takes_weights
    with pytest.raises(ValueError, match=r"expected equal weights, because metric 'mean_score' has no argument "):
        metric(SCORES, TARGETS, WEIGHTS)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 9), st.integers(1, 9))
def test_rows_of_two_weights_are_repeated_in_proportion(few: int, many: int, light: int, heavy: int) -> None:
    weights = np.repeat([light, heavy], [few, many]) / 7
    repeats = proportional_repeats(weights)
    if light == heavy:
        assert repeats is None
    else:
        assert repeats is not None
        assert repeats[-1] / repeats[0] == pytest.approx(heavy / light, abs=0.5 * max(heavy / light, 1) / 4)


def test_a_callable_without_weights_judges_stratified_sets_as_natural_ones() -> None:
    rng = np.random.default_rng(0)
    s, y, w = rng.normal(size=50), rng.integers(0, 2, 50), np.where(np.arange(50) < 20, 1.0, 3.0)
    plain = black_box(mean_score, higher_is_better=False)
    assert plain.repeats_rows
    repeated = np.repeat(np.arange(50), w.astype(int))
    assert float(plain(s, y, w)) == pytest.approx(float(plain(s[repeated], y[repeated])))
    assert len(np.repeat(w, proportional_repeats(np.where(w > 1, 1e6, 1.0)))) <= 50_000


# ---- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [None, 2])
def test_an_exception_is_reported_with_the_first_set_that_caused_it(workers: int | None) -> None:
    rows = rf"set \(2, 0\) \(30 rows, {int(TARGETS[2, 0].sum())} positive, scores from -\d\S+ to \d\S+\)"
    message = rf"metric 'fails_on_the_fifth' failed on {rows}: ZeroDivisionError: nothing to share"
    with pytest.raises(ValueError, match=message) as caught:
        black_box(fails_on_the_fifth, higher_is_better=False, workers=workers)(SCORES, TARGETS)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        (float("nan"), "nan"),
        (np.float64("inf"), "inf"),
        (None, "None"),
        ("0.5", "'0.5'"),
        (np.array([0.5]), r"array\(\[0.5\]\)"),
        ((0.5, 1), r"\(0.5, 1\)"),
        (1j, "1j"),
    ],
)
def test_anything_but_one_finite_number_is_reported_with_its_set(value: object, quoted: str) -> None:
    with pytest.raises(
        ValueError, match=rf"'odd': expected one finite number, got {quoted} on the set \(1 rows, 1 pos"
    ):
        black_box(lambda y, s: value, higher_is_better=False, name="odd")([0.5], [1])


def test_a_value_outside_its_range_is_reported_with_its_set() -> None:
    metric = black_box(lambda y, s: 3.0, higher_is_better=False, name="odd", value_range=(0, 1))
    with pytest.raises(ValueError, match=r"'odd': expected a value from 0 to 1, got 3.0 on set 0 "):
        metric(SCORES[0], TARGETS[0])


def test_a_value_that_rounding_put_outside_its_range_is_put_back() -> None:
    assert black_box(lambda y, s: 1 + 1e-12, higher_is_better=True, value_range=(0, 1))(SCORES, TARGETS).max() == 0


def test_an_empty_set_is_reported_as_such_where_the_callable_fails_on_it() -> None:
    with pytest.raises(ValueError, match=r"failed on set 0 \(0 rows, 0 positive, no scores\): ZeroDivisionError"):
        black_box(lambda y, s: 1 / len(y), higher_is_better=False)(SCORES[0], TARGETS[0], torch.zeros(30))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fn": 3}, TypeError, r"fn: expected a callable \(y_true, y_score\) -> float, got 3"),
        ({"fn": dict}, TypeError, "fn: expected a callable .* got <class 'dict'>"),
        ({"value_range": (1, 0)}, ValueError, r"value_range: expected two finite .* lower first, got \(1, 0\)"),
        ({"value_range": (0, np.inf)}, ValueError, r"value_range: expected two finite numbers"),
        ({"value_range": 3}, ValueError, "value_range: expected two finite numbers, the lower first, got 3"),
        ({"candidates": 0}, ValueError, "candidates: expected an integer of at least 1, got 0"),
        ({"workers": 0}, ValueError, "workers: expected an integer of at least 1, or None, got 0"),
        ({"workers": 1.5}, ValueError, "workers: expected an integer of at least 1, or None, got 1.5"),
        ({"pool": "fibre"}, ValueError, "pool: expected 'thread' or 'process', got 'fibre'"),
        ({"labels": True, "probabilities": True}, ValueError, "probabilities: expected False where labels is True"),
        ({"fn": lambda y, s: 0, "pool": "process"}, ValueError, "fn: expected a callable that can be pickled .*lambda"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        black_box(options.pop("fn", mean_score), higher_is_better=False, **options)


# ---- the best threshold ---------------------------------------------------------------------------------------------


def test_the_best_form_is_exact_where_there_are_no_more_positives_than_candidates() -> None:
    metric = black_box(sk.f1_score, higher_is_better=True, value_range=(0, 1), labels=True, candidates=30)
    torch.testing.assert_close(metric.best(SCORES, TARGETS, WEIGHTS), f1.best(SCORES, TARGETS, WEIGHTS))
    assert metric.best.name == "best_f1_score"
    assert not metric.best.thresholded


def test_the_best_form_lies_between_the_exact_one_and_the_extremes() -> None:
    metric = black_box(sk.f1_score, higher_is_better=True, value_range=(0, 1), labels=True, candidates=3)
    losses = metric.best(SCORES, TARGETS)
    assert (losses >= f1.best(SCORES, TARGETS) - 1e-12).all()
    assert (losses <= f1(torch.ones_like(SCORES), TARGETS) + 1e-12).all()


def test_the_best_form_costs_at_most_two_calls_more_than_candidates() -> None:
    calls = []
    metric = black_box(
        lambda y, labels: calls.append(labels.sum()) or len(calls), higher_is_better=False, labels=True, candidates=5
    )
    metric.best(SCORES[0, 0], TARGETS[0, 0])
    assert len(calls) <= 7
    assert {0, 30} <= set(calls)


def test_the_best_form_of_a_set_without_positives_tries_nothing_and_everything() -> None:
    metric = black_box(profit, higher_is_better=True, labels=True)
    assert metric.best(SCORES, torch.zeros_like(TARGETS)).tolist() == [[0, 0]] * 3


# ---- workers --------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # starts worker processes
@pytest.mark.parametrize("pool", ["thread", "process"])
def test_workers_give_what_one_would(pool) -> None:
    options = {"higher_is_better": True, "labels": True}
    serial, parallel = black_box(profit, **options), black_box(profit, **options, workers=2, pool=pool)
    assert torch.equal(parallel(SCORES, TARGETS), serial(SCORES, TARGETS))
    assert torch.equal(parallel.best(SCORES, TARGETS), serial.best(SCORES, TARGETS))


@pytest.mark.slow  # starts worker processes
def test_a_failure_in_another_process_names_the_set() -> None:
    metric = black_box(fails_on_the_fifth, higher_is_better=False, workers=2, pool="process")
    with pytest.raises(ValueError, match=r"failed on set \(2, 0\) .*: ZeroDivisionError: nothing to share"):
        metric(SCORES, TARGETS)


def test_threads_end_with_the_call() -> None:
    before = threading.active_count()
    black_box(mean_score, higher_is_better=False, workers=4)(SCORES, TARGETS)
    assert threading.active_count() <= before


# ---- get_metric -----------------------------------------------------------------------------------------------------


def test_names_and_metrics_are_taken_as_they_are() -> None:
    assert get_metric("f1") is f1
    assert get_metric(f1) is f1
    assert get_metric("best_f_beta(3)").name == "best_f_beta(3)"


@pytest.mark.parametrize("spec", [None, 3, ["f1"], tm.BinaryF1Score])
def test_anything_else_is_a_type_error(spec: object) -> None:
    with pytest.raises(TypeError, match="expected a name, a Metric, a torchmetrics object, a scorer or a callable"):
        get_metric(spec)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (tm.BinaryAUROC(), "auc"),
        (tm.BinaryAveragePrecision(), "average_precision"),
        (tm.BinaryF1Score(), "f1"),
        (tm.BinaryF1Score(threshold=0.9), "f1"),
        (tm.BinaryMatthewsCorrCoef(), "mcc"),
        (tm.BinaryJaccardIndex(), "jaccard"),
    ],
)
def test_a_torchmetrics_object_is_taken_and_left_as_it_was(theirs: tm.BinaryF1Score, ours: str) -> None:
    theirs.update(torch.tensor([0.9, 0.1, 0.8]), torch.tensor([1, 0, 0]))
    before = float(theirs.compute())
    wrapped, metric = get_metric(theirs), get_metric(ours)
    value = wrapped.value(wrapped(SCORES, TARGETS))
    torch.testing.assert_close(value, metric.value(metric(SCORES, TARGETS)), atol=1e-6, rtol=0)
    assert wrapped.thresholded is metric.thresholded
    assert wrapped.higher_is_better
    theirs._computed = None
    assert float(theirs.compute()) == before


def test_a_torchmetrics_object_that_gives_no_number_is_reported() -> None:
    with pytest.raises(ValueError, match="metric: expected a torchmetrics object with higher_is_better, got BinaryROC"):
        get_metric(tm.BinaryROC())


def test_a_torchmetrics_object_has_a_best_form_by_search() -> None:
    metric = get_metric(tm.BinaryF1Score())
    assert (metric.best(SCORES, TARGETS) <= metric(SCORES, TARGETS)).all()


@pytest.mark.parametrize(
    ("theirs", "ours", "thresholded"),
    [
        (sk.get_scorer("roc_auc"), "auc", False),
        (sk.get_scorer("average_precision"), "average_precision", False),
        (sk.get_scorer("f1"), "f1", True),
        (sk.make_scorer(sk.fbeta_score, beta=2), "f_beta(2)", True),
        (sk.get_scorer("matthews_corrcoef"), "mcc", True),
        (sk.get_scorer("neg_log_loss"), None, False),
    ],
)
def test_a_scorer_of_scikit_learn_is_asked_for_what_it_judges(theirs: object, ours: str, thresholded: bool) -> None:
    scorer = get_metric(theirs)
    assert scorer.thresholded is thresholded
    assert scorer.higher_is_better
    if ours:
        metric = get_metric(ours)
        expected = metric.value(metric(SCORES, TARGETS))
    else:
        rows = zip(SCORES.sigmoid().reshape(-1, 30), TARGETS.reshape(-1, 30), strict=True)
        expected = torch.tensor([-sk.log_loss(y, p.double(), labels=[0, 1]) for p, y in rows]).view(TARGETS.shape[:-1])
    torch.testing.assert_close(scorer.value(scorer(SCORES, TARGETS)).double(), expected.double(), atol=1e-5, rtol=0)


def test_a_scorer_written_by_hand_is_known_by_its_first_argument() -> None:
    def found(estimator, X, y):
        return float(((estimator.predict(X) == 1) & (y == 1)).sum())

    metric = get_metric(found)
    assert metric.name == "found"
    assert metric.value(metric(SCORES, TARGETS)).equal(((SCORES >= 0) & (TARGETS == 1)).sum(-1).to(SCORES.dtype))
    assert metric.best is not None

    def odd(estimator, X, y):
        return estimator.nothing

    with pytest.raises(ValueError, match=r"metric: the scorer cannot be called: AttributeError: .* 'nothing'"):
        get_metric(odd)

    def both(estimator, X, y):
        return float(estimator.predict(X).sum() + estimator.decision_function(X).sum())

    with pytest.raises(ValueError, match=r"a scorer that uses one kind of prediction, got \['labels', 'scores'\]"):
        get_metric(both)


# ---- the record -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metric",
    [
        black_box(profit, higher_is_better=False, labels=True),
        black_box(profit, higher_is_better=False, labels=True).best,
    ],
)
def test_a_black_box_survives_copying_and_pickling(metric) -> None:
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert torch.equal(other(SCORES, TARGETS), metric(SCORES, TARGETS))


@pytest.mark.parametrize("theirs", [tm.BinaryAUROC(), sk.get_scorer("roc_auc")])
def test_a_metric_of_another_package_survives_copying_and_pickling(theirs: object) -> None:
    metric = get_metric(theirs)
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert torch.equal(other(SCORES, TARGETS), metric(SCORES, TARGETS))


def good_score(y_true: np.ndarray, y_score: np.ndarray) -> float:
    return float((y_true * y_score).sum())


@pytest.mark.parametrize("fn", [profit, good_score, functools.partial(profit), lambda y_true, y_score: 0.0])
@pytest.mark.parametrize(
    "taken", [get_metric, SurrogateLoss, lambda fn: MetricClassifier(fn).fit([[0.0], [1.0]], [0, 1])]
)
def test_a_callable_that_does_not_say_which_way_is_better_has_to_be_wrapped(fn, taken) -> None:
    with pytest.raises(
        ValueError,
        match=r"which way is better, got the callable '\S+'; wrap it: black_box\(\S+, higher_is_better=True\)",
    ):
        taken(fn)
    with pytest.raises(TypeError, match=r"missing 1 required keyword-only argument: 'higher_is_better'"):
        black_box(fn)


def test_a_callable_may_say_which_way_is_better_by_an_attribute() -> None:
    for higher in (True, False):
        fn = functools.partial(profit)
        fn.higher_is_better = higher
        metric = get_metric(fn)
        assert metric.higher_is_better is higher
        assert torch.equal(
            metric.value(metric(SCORES, TARGETS)),
            black_box(profit, higher_is_better=True, labels=True)(SCORES, TARGETS).neg(),
        )


def test_the_direction_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="higher_is_better: expected True or False, got 'yes'"):
        black_box(profit, higher_is_better="yes")


@pytest.mark.parametrize(("name", "ours"), SKLEARN_NAMES.items())
def test_a_function_of_scikit_learn_that_is_built_in_is_the_built_in_metric(name: str, ours: str) -> None:
    metric, fn = get_metric(getattr(sk, name)), getattr(sk, name)
    assert metric == get_metric(ours)
    of_scores = name in ("roc_auc_score", "average_precision_score") or metric.task.name == "regression"
    given = SCORES if of_scores else (SCORES >= 0).long()
    given = given.clamp(min=0) if "log" in name else given  # there scikit-learn takes no number below 0
    rows = zip(*(column.view(-1, 30) for column in (TARGETS, given, WEIGHTS)), strict=True)
    theirs = [fn(y, s, sample_weight=w) for y, s, w in rows]
    found = metric.value(metric(SCORES, TARGETS, WEIGHTS)).view(-1)
    np.testing.assert_allclose(found, theirs, atol=1e-9)


def test_any_other_function_of_scikit_learn_is_passed_what_it_judges_and_has_its_direction() -> None:
    loss, kappa = get_metric(sk.log_loss), get_metric(sk.cohen_kappa_score)
    assert (loss.higher_is_better, kappa.higher_is_better) == (False, True)
    assert (loss.thresholded, kappa.thresholded) == (False, True)
    labels = (SCORES[0, 0] >= 0).long()
    assert float(kappa.value(kappa(SCORES[0, 0], TARGETS[0, 0]))) == pytest.approx(
        sk.cohen_kappa_score(TARGETS[0, 0], labels)
    )
    assert float(loss(SCORES[0, 0], TARGETS[0, 0])) == pytest.approx(sk.log_loss(TARGETS[0, 0], SCORES[0, 0].sigmoid()))


# ---- other targets than 0 and 1 --------------------------------------------------------------------------------------


def test_columns_are_passed_by_name_with_the_rows_they_belong_to() -> None:
    def lost(y_true, y_pred, amount, group):
        assert set(group) <= {0, 1}
        return float((amount * (y_true != y_pred)).sum())

    metric = black_box(lost, higher_is_better=False, labels=True, columns=("amount", "group"))
    targets = torch.tensor([[1, 10.0, 0], [0, 5.0, 1], [1, 2.0, 1], [1, 99.0, 0]])
    weights = torch.tensor([1.0, 1, 1, 0])
    assert float(metric(torch.tensor([-1.0, 1.0, 1.0, -1.0]), targets, weights)) == 15
    assert float(metric.best(torch.tensor([3.0, 1.0, 2.0, -1.0]), targets, weights)) == 0


def test_classes_labels_grades_and_numbers_are_passed_as_people_have_them() -> None:
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def spy_loss(y_true, y_score):
        seen.append((y_true, y_score))
        return 0.0

    scores = torch.tensor([[[0.1, 0.9, 0.2], [3.0, 1.0, 2.0]]])
    black_box(spy_loss, higher_is_better=False, task="multiclass", labels=True)(scores, torch.tensor([[1, 2]]))
    black_box(spy_loss, higher_is_better=False, task="multiclass", probabilities=True)(scores, torch.tensor([[1, 2]]))
    black_box(spy_loss, higher_is_better=False, task="multilabel", labels=True)(scores - 1, (scores > 0.5).float())
    black_box(spy_loss, higher_is_better=False, task="ranking")(torch.zeros(3), torch.tensor([0.0, 2.5, 1.0]))
    black_box(spy_loss, higher_is_better=False, task="regression")(torch.zeros(2), torch.tensor([-1.5, 2.5]))
    assert [seen[0][0].tolist(), seen[0][1].tolist()] == [[1, 2], [1, 0]]
    np.testing.assert_allclose(seen[1][1].sum(-1), 1)
    assert [seen[2][0].tolist(), seen[2][1].tolist()] == [[[0, 1, 0], [1, 1, 1]], [[0, 0, 0], [1, 1, 1]]]
    assert seen[3][0].tolist() == [0, 2.5, 1]
    assert seen[4][0].tolist() == [-1.5, 2.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": "amount"}, "columns: expected names that are valid arguments, got 'amount'"),
        ({"columns": ("an amount",)}, "columns: expected names that are valid arguments"),
        (
            {"task": "columns"},
            "task: expected one of binary, multiclass, .* got 'columns'",
        ),
        ({"task": "ranking", "columns": ("a",)}, "columns: expected none where the task is 'ranking'"),
    ],
)
def test_a_task_or_column_that_cannot_be_is_refused(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        black_box(lambda y_true, y_score: 0.0, higher_is_better=False, **arguments)


# ---- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "pool"), [(None, "thread"), (2, "thread"), (2, "process")])
def test_calls_are_counted_by_all_forms_together_whatever_the_workers(workers: int | None, pool: str) -> None:
    metric = black_box(sk.f1_score, higher_is_better=True, labels=True, candidates=4, workers=workers, pool=pool)
    scores, targets = torch.linspace(-1, 1, 20).expand(3, 20), (torch.arange(20) % 2).expand(3, 20)
    assert metric.calls == 0
    metric(scores, targets)
    assert metric.calls == metric.best.calls == 3
    metric.best(scores, targets)
    assert 3 + 3 * 4 <= metric.calls <= 3 + 3 * 6


def test_a_failed_call_counts_and_a_built_in_metric_has_none() -> None:
    metric = black_box(lambda y, s: 1 / 0, higher_is_better=True, name="fails")
    with pytest.raises(ValueError, match="fails"):
        metric([0.0, 1.0], [0, 1])
    assert metric.calls == 1
    assert get_metric("f1").calls == 0


@pytest.mark.parametrize("limit", [0, 99, 2.5, None])
def test_a_limit_too_low_for_any_training_is_refused(limit: object) -> None:
    with pytest.raises(ValueError, match=f"max_calls: expected an integer of at least 100, got {limit}"):
        black_box(sk.f1_score, higher_is_better=True, max_calls=limit)


def test_a_scorer_gets_another_limit_and_a_count_of_its_own() -> None:
    scorer = get_metric(sk.make_scorer(sk.f1_score))
    scorer([0.5, -1.0], [1, 0])
    limited = with_max_calls(scorer, 300)
    assert (limited.calls, limited.budget.max_calls, scorer.budget.max_calls) == (0, 300, MAX_CALLS)
    limited.best([0.5, -1.0], [1, 0])
    assert limited.calls > 0
    assert scorer.calls == 1
    assert with_max_calls(get_metric("f1"), 300) is get_metric("f1")
    assert with_max_calls(limited).budget == Budget(300, 0)
