"""Every black box of the gallery trains a model, within its calls; the runner counts and stores what it says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from metricgrad.surrogate import count_emulator as learned_counts
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.pretraining import Fitting
from studies.black_boxes import run as boxes

pytestmark = pytest.mark.slow  # trains for twenty metrics

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "examples" / "black_boxes").glob("*.py") if path.stem != "tables")
ROWS = {"train": 600, "validation": 400, "test": 600}


def test_there_are_twenty() -> None:
    assert boxes.names() == NAMES
    assert len(NAMES) == 20


@pytest.mark.filterwarnings("ignore:the surrogate of .* is not faithful yet:UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_box_trains_a_model_in_few_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(universal, "ON_DEMAND", Fitting(groups=16, steps=20, sizes=(50, 100)))
    monkeypatch.setattr(learned_counts, "FITTING_STEPS", 100)
    recipe = replace(boxes.RECIPE, warmup=20, rounds=4, trust_cap=4, check_every=2)
    taught = boxes.teach(name, recipe=recipe)
    outcome = boxes.carry_out(taught, 1_000, recipe, ROWS)
    assert taught.calls <= 2_200
    assert outcome["calls"] <= taught.calls + 1_500
    assert math.isfinite(outcome["gap"])
    low, high = sorted(taught.metric.known_as) if taught.metric.bounded else (-1, 5)
    for value in (outcome["ours"], outcome["proxy"]):
        assert low <= value <= high
    if not outcome["followed"] and outcome["rival"] == "cross-entropy" and name != "noisy_audit":
        assert outcome["ours"] == pytest.approx(outcome["proxy"])


@pytest.mark.parametrize("name", NAMES)
def test_a_box_says_who_needs_it_and_brings_a_table(name: str) -> None:
    box = boxes.box_of(name)
    assert (box.__doc__ or "").strip().endswith(".")
    X, y, *columns = box.data(3, 500)
    assert X.shape[0] == y.shape[0] == 500
    assert 0.02 < y.mean() < 0.5
    assert [column.shape for more in columns for column in more.values()] == [(500,)] * len(box.metric.columns)


def test_calls_are_counted_one_by_one() -> None:
    counter = boxes.Counted(max)
    assert [counter(1, 2), counter(3, 4)] == [2, 4]
    assert counter.calls == 2
