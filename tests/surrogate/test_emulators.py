from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from black_boxes import FIRST_CALLS, SETS, Counted, of_scores
from metricgrad.metrics.callable import black_box
from metricgrad.metrics.confusion import Confusion, confusion_at_zero
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.cache import emulator_for
from metricgrad.surrogate.emulators import (
    CALLS_TO_FIT,
    CountEmulator,
    ScoreEmulator,
    curve_points,
    emulated,
    fit_emulator,
    guided,
    random_cuts,
    rates,
)
from metricgrad.surrogate.pretraining import Fitting
from metricgrad.surrogate.synthetic import GROUP_SIZE, sets_for

COUNTS = st.tuples(*[st.integers(0, 50)] * 4)


def of_the_first_rows(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float((y_true * y_pred)[:20].sum() / max(1, y_true[:20].sum()))


@pytest.fixture(scope="module")
def learned() -> CountEmulator:
    return fit_emulator(black_box(Counted(), higher_is_better=True, value_range=(0, 1), labels=True))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(universal, "ON_DEMAND", Fitting(groups=2, steps=10, sizes=(50,)))
    return tmp_path / "universal"


# ---- learning --------------------------------------------------------------------------------------------------------


def test_what_is_learned_from_some_calls_is_the_metric_at_every_threshold_and_with_weights(
    learned: CountEmulator,
) -> None:
    metric = emulated(black_box(Counted(), higher_is_better=True, value_range=(0, 1), labels=True), learned)
    assert learned.explained > 0.99
    for name, form in (("f1", metric), ("best_f1", metric.best)):
        assert float((form(*SETS) - get_metric(name)(*SETS)).abs().mean()) < 0.02
    assert not metric.costly
    assert metric.takes_weights
    assert metric.shown(metric(*SETS)[0]).startswith("counted 0.")


def test_dice_are_learned_as_what_they_say_on_average(learned: CountEmulator) -> None:
    noisy = fit_emulator(black_box(Counted(dice=0.05), higher_is_better=True, labels=True))
    assert noisy.is_accurate
    counts = confusion_at_zero(*SETS)
    assert float((1 + noisy(counts) - learned(counts)).abs().mean()) < 0.03  # unbounded, so that its loss is -F1


def test_what_is_asked_about_is_what_was_counted() -> None:
    scores, targets, counts = random_cuts(64, torch.Generator().manual_seed(0))
    for ours, theirs in zip(confusion_at_zero(scores, targets), counts, strict=True):
        torch.testing.assert_close(ours, theirs)
    called = counts.tp + counts.fp
    assert bool((called == 0).any())
    assert bool((counts.fn == 0).any())


@pytest.mark.parametrize(
    "fn", [of_the_first_rows, lambda y, called: 0.25], ids=["a metric of some rows", "a constant one"]
)
def test_what_is_no_function_of_the_counts_is_not_learned(fn) -> None:
    assert not fit_emulator(black_box(fn, higher_is_better=False, labels=True, name="fn")).is_accurate


@given(COUNTS, st.sampled_from([0.25, 3.0, 1000.0]))
def test_rates_do_not_depend_on_the_size_of_a_set_and_are_finite(counts: tuple[int, ...], size: float) -> None:
    known = Confusion(*(torch.tensor(float(count), dtype=torch.float64) for count in counts))
    larger = Confusion(*(size * count for count in known))
    assert bool(rates(known).isfinite().all())
    torch.testing.assert_close(rates(known), rates(larger))


def amount_found(y_true: np.ndarray, y_score: np.ndarray, amount: np.ndarray) -> float:
    first = np.argsort(-y_score, kind="stable")[: max(1, len(y_score) // 10)]
    return float((y_true * amount)[first].sum() / (y_true * amount).sum()) if (y_true * amount).any() else 0.0


@pytest.mark.parametrize(("fn", "columns"), [(of_scores, ()), (amount_found, ("amount",))])
def test_a_function_of_scores_is_known_after_a_hundred_calls(fn, columns) -> None:
    metric = black_box(fn, higher_is_better=True, columns=columns, max_calls=300)
    emulator = fit_emulator(metric)
    assert metric.calls == 120
    assert emulator.explained > 0.95
    unseen = sets_for(metric)(8, GROUP_SIZE, 400, torch.Generator().manual_seed(11))
    true, ours = metric(*unseen), emulated(metric, emulator)(*unseen)
    assert float(torch.stack((true, ours)).corrcoef()[0, 1]) > 0.97


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_points_of_curves_are_finite_do_not_depend_on_order_and_count_weights(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    scores = torch.tensor(rng.integers(-3, 4, size) / 2.0)
    targets, times = (torch.tensor(rng.integers(0, most, size)) for most in (2, 3))
    points, order = curve_points(scores, targets, times), torch.tensor(rng.permutation(size))
    assert bool(points.isfinite().all())
    torch.testing.assert_close(points, curve_points(scores[order], targets[order], times[order]))
    if bool(times.any()):
        repeated = torch.arange(size).repeat_interleave(times)
        torch.testing.assert_close(points, curve_points(scores[repeated], targets[repeated], None))


def test_points_of_curves_are_what_the_metrics_say() -> None:
    points = curve_points(*SETS)
    for name, place in (("ap", -5), ("auc", -4), ("ks", -3), ("best_f1", -6)):
        torch.testing.assert_close(points[:, place], 1 - get_metric(name)(*SETS).double(), atol=1e-6, rtol=0)


def test_more_calls_bring_an_emulator_to_where_they_were() -> None:
    metric = black_box(of_scores, higher_is_better=True, max_calls=300)
    emulator = fit_emulator(metric)
    assert isinstance(emulator, ScoreEmulator)
    sets, wanted = tuple(rows[:16] for rows in SETS), torch.linspace(-3, -2, 16)
    before = float((emulator(*sets) - wanted).abs().mean())
    emulator.add(*sets, wanted)
    assert float((emulator(*sets) - wanted).abs().mean()) < before / 5


# ---- being used ------------------------------------------------------------------------------------------------------


def labels_of(fn: Counted, **options: object) -> Metric:
    return black_box(fn, higher_is_better=False, labels=True, **options)


def test_a_black_box_is_called_once_and_then_known_from_the_cache(cache: Path) -> None:
    fn, again = Counted(), Counted()
    first = emulator_for(labels_of(fn))
    assert fn.calls == FIRST_CALLS + CALLS_TO_FIT
    second = emulator_for(labels_of(again))
    assert again.calls == FIRST_CALLS
    counts = confusion_at_zero(*SETS)
    assert torch.equal(first(counts), second(counts))
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert torch.equal(emulator_for(labels_of(Counted()))(counts), first(counts))
    assert path.stat().st_size > 100


def test_a_metric_that_is_no_black_box_or_not_known_from_its_counts_has_no_emulator(cache: Path) -> None:
    assert emulator_for(get_metric("f1")) is None
    assert emulator_for(black_box(amount_found, higher_is_better=True, labels=True, columns=("amount",))) is None
    assert not emulator_for(black_box(of_the_first_rows, higher_is_better=False, labels=True)).is_accurate


def test_the_emulator_proposes_thresholds_and_the_function_decides(learned: CountEmulator) -> None:
    fn = Counted()
    metric = black_box(fn, higher_is_better=True, value_range=(0, 1), labels=True)
    judge = guided(metric, emulated(metric, learned))
    scores, targets = SETS.scores.double(), SETS.targets
    f1 = get_metric("f1")
    assert float((judge.best(scores, targets) - f1.best(scores, targets)).mean()) < 0.01
    assert metric.calls == fn.calls <= 3 * len(scores)
    before = fn.calls
    cut = best_threshold(judge, scores[0], targets[0])
    assert fn.calls - before <= 3
    assert float(f1(scores[0] - cut, targets[0])) < float(f1.best(scores[0], targets[0])) + 0.03
    assert judge.best.stand_in is not None
    assert not judge.best.stand_in.costly
