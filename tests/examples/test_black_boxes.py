"""Every black box of the gallery trains a model, within its calls; the runner counts and stores what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

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
    recipe = replace(boxes.RECIPE, warmup=20, rounds=4, trust_cap=4, check_every=2)
    outcome = boxes.carry_out(name, 1_000, 300, recipe, ROWS)
    assert outcome["taught"] <= 210
    assert outcome["calls"] <= 300
    metric = boxes.box_of(name).metric
    low, high = sorted(metric.known_as) if metric.bounded else (-1, 5)
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
