from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad import SurrogateLoss
from metricgrad.metrics.callable import black_box
from metricgrad.metrics.confusion import Confusion, confusion_at_zero
from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.cache import cheap_form
from metricgrad.surrogate.count_emulator import (
    CALLS_TO_CHECK,
    CALLS_TO_FIT,
    CountEmulator,
    _random_cuts,
    emulated,
    fit_counts,
    rates,
)
from metricgrad.surrogate.pretraining import Fitting
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets

pytestmark = pytest.mark.slow  # fits an emulator of every metric

SETS = BroadSets()(30, GROUP_SIZE, 300, torch.Generator().manual_seed(7))
COUNTS = st.tuples(*[st.integers(0, 50)] * 4)


class Counted:
    """F1 of labels, plus what dice say; counts its calls."""

    __name__ = "counted"

    def __init__(self, dice: float = 0.0) -> None:
        self.calls, self.dice, self.rng = 0, dice, np.random.default_rng(0)

    def __call__(self, y_true: np.ndarray, y_pred: np.ndarray) -> float:
        self.calls += 1
        found = 2 * (y_true * y_pred).sum() / max(1, y_true.sum() + y_pred.sum())
        return float(found + self.dice * self.rng.normal())


def of_the_first_rows(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    return float((y_true * y_pred)[:20].sum() / max(1, y_true[:20].sum()))


@pytest.fixture(scope="module")
def learned() -> CountEmulator:
    return fit_counts(black_box(Counted(), higher_is_better=True, value_range=(0, 1), labels=True))


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
    assert float(learned.explained) > 0.99
    for name, form in (("f1", metric), ("best_f1", metric.best)):
        assert float((form(*SETS) - get_metric(name)(*SETS)).abs().mean()) < 0.02
    assert not metric.costly
    assert metric.takes_weights
    assert metric.shown(metric(*SETS)[0]).startswith("counted 0.")


def test_dice_are_learned_as_what_they_say_on_average(learned: CountEmulator) -> None:
    noisy = fit_counts(black_box(Counted(dice=0.05), higher_is_better=True, labels=True))
    assert noisy.is_accurate
    counts = confusion_at_zero(*SETS)
    assert float((1 + noisy(counts) - learned(counts)).abs().mean()) < 0.03  # unbounded, so that its loss is -F1


def test_what_is_asked_about_is_what_was_counted() -> None:
    scores, targets, counts = _random_cuts(64, torch.Generator().manual_seed(0))
    for ours, theirs in zip(confusion_at_zero(scores, targets), counts, strict=True):
        torch.testing.assert_close(ours, theirs)
    called = counts.tp + counts.fp
    assert bool((called == 0).any())
    assert bool((counts.fn == 0).any())


@pytest.mark.parametrize(
    "fn", [of_the_first_rows, lambda y, called: 0.25], ids=["a metric of some rows", "a constant one"]
)
def test_what_is_no_function_of_the_counts_is_not_learned(fn) -> None:
    assert not fit_counts(black_box(fn, higher_is_better=False, labels=True, name="fn")).is_accurate


@given(COUNTS, st.sampled_from([0.25, 3.0, 1000.0]))
def test_rates_do_not_depend_on_the_size_of_a_set_and_are_finite(counts: tuple[int, ...], size: float) -> None:
    known = Confusion(*(torch.tensor(float(count), dtype=torch.float64) for count in counts))
    larger = Confusion(*(size * count for count in known))
    assert bool(rates(known).isfinite().all())
    torch.testing.assert_close(rates(known), rates(larger))


# ---- being used ------------------------------------------------------------------------------------------------------


def test_a_black_box_of_labels_is_asked_once_and_then_known_from_the_cache(cache: Path) -> None:
    fn, again = Counted(), Counted()
    first = cheap_form(black_box(fn, higher_is_better=False, labels=True))
    assert fn.calls == 5 * GROUP_SIZE + CALLS_TO_FIT + CALLS_TO_CHECK
    second = cheap_form(black_box(again, higher_is_better=False, labels=True))
    assert again.calls == 5 * GROUP_SIZE
    assert torch.equal(first(*SETS), second(*SETS))
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    assert torch.equal(cheap_form(black_box(Counted(), higher_is_better=False, labels=True))(*SETS), first(*SETS))
    assert path.stat().st_size > 100


def test_any_other_metric_stays_as_it_is(cache: Path) -> None:
    others = (
        get_metric("f1"),
        black_box(Counted(), higher_is_better=False),
        black_box(of_the_first_rows, higher_is_better=False, labels=True),
    )
    for metric in others:
        assert cheap_form(metric) is metric


def test_a_surrogate_at_the_best_threshold_asks_no_more_after_its_start(cache: Path) -> None:
    fn = Counted()
    loss = SurrogateLoss(black_box(fn, higher_is_better=True, labels=True))
    asked = fn.calls
    assert asked == 5 * GROUP_SIZE + CALLS_TO_FIT + CALLS_TO_CHECK
    scores = SETS.scores.clone().requires_grad_()
    loss.refine(scores, SETS.targets, SETS.weights)
    loss(scores, SETS.targets, SETS.weights).backward()
    assert fn.calls == asked
    torch.testing.assert_close(1 + loss.metric(*SETS), get_metric("best_f1")(*SETS), atol=0.1, rtol=0)


def test_at_zero_the_function_itself_is_asked(cache: Path) -> None:
    fn = Counted()
    loss = SurrogateLoss(black_box(fn, higher_is_better=False, labels=True), "scratch", form="zero")
    loss.refine(SETS.scores, SETS.targets)
    assert fn.calls == len(SETS.scores)
