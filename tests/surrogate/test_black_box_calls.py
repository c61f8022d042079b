from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from black_boxes import FIRST_CALLS, SETS, Counted, of_scores
from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.emulators import CALLS_TO_FIT
from metricgrad.surrogate.fidelity import trust_on
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.pretraining import Fitting


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(universal, "ON_DEMAND", Fitting(groups=2, steps=10, sizes=(50,)))
    return tmp_path / "universal"


def test_a_surrogate_at_the_best_threshold_calls_no_more_after_its_start(cache: Path) -> None:
    fn = Counted()
    loss = SurrogateLoss(black_box(fn, higher_is_better=True, labels=True))
    assert fn.calls == FIRST_CALLS + CALLS_TO_FIT == loss.calls
    scores = SETS.scores.clone().requires_grad_()
    loss.refine(scores, SETS.targets, SETS.weights)
    loss(scores, SETS.targets, SETS.weights).backward()
    assert fn.calls == loss.calls == FIRST_CALLS + CALLS_TO_FIT
    torch.testing.assert_close(1 + loss.metric(*SETS), get_metric("best_f1")(*SETS), atol=0.1, rtol=0)


@pytest.mark.slow  # learns a black box
def test_a_surrogate_of_scores_is_refined_within_its_calls(cache: Path) -> None:
    metric = black_box(of_scores, higher_is_better=True, max_calls=200)
    loss = SurrogateLoss(metric)
    assert loss.judge.stand_in is not None
    assert loss.calls == metric.calls == FIRST_CALLS + 80
    for _ in range(300):
        assert np.isfinite(loss.refine(SETS.scores[:8], SETS.targets[:8]))
    assert FIRST_CALLS + 80 < loss.calls <= 0.75 * 200
    assert not loss.out_of_calls


def test_refining_without_an_emulator_stops_where_the_calls_for_looks_begin(cache: Path) -> None:
    metric = black_box(lambda y, s: float(s[y == 1].mean()), name="mean", higher_is_better=True, max_calls=200)
    loss = SurrogateLoss(metric)
    assert loss.judge.stand_in is None
    assert loss.calls == FIRST_CALLS + 80  # the calls for the emulator are what the surrogate is fitted to
    gaps = [loss.refine(SETS.scores[:8], SETS.targets[:8]) for _ in range(30)]
    assert np.isfinite(gaps[0])
    assert np.isnan(gaps[-1])
    assert loss.out_of_calls
    assert loss.calls <= 150
    assert np.isnan(trust_on(loss, SETS.scores, SETS.targets, SETS.weights))
    assert loss.calls <= 150


def test_at_zero_the_function_itself_is_called(cache: Path) -> None:
    fn = Counted()
    loss = SurrogateLoss(black_box(fn, higher_is_better=False, labels=True), "scratch", form="zero")
    loss.refine(SETS.scores[:30], SETS.targets[:30])
    assert fn.calls == 30
    loss.refine(SETS.scores, SETS.targets)  # never more than a hundredth of the calls of a run
    assert fn.calls == 30 + 40
