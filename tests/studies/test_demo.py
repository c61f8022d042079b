"""The page about the demonstration says what is stored, and what is stored is what its code is for."""

from __future__ import annotations

import re

import numpy as np
import pytest

from metricgrad.demo.bikes import load_bikes
from metricgrad.demo.trial import BEST_USUAL, METHODS, METRIC, OURS, SPLITS, SQUARED
from metricgrad.evaluation.statistics import corrected_interval
from studies.demo import page, run
from studies.pages import ROOT


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_the_stored_saving_follows_from_the_stored_costs() -> None:
    record = page.stored()
    assert record["metric"] == METRIC
    assert record["hours"] == len(load_bikes().y)
    costs = {method: np.array(record["costs"][method]) for method in METHODS}
    assert {len(own) for own in costs.values()} == {SPLITS}
    for over in (SQUARED, BEST_USUAL):
        saved = corrected_interval(1 - costs[OURS] / costs[over], 1 / (SPLITS - 1))
        assert record["saved"][over] == pytest.approx([saved.mean, saved.low, saved.high], abs=2e-5)
        assert f"{100 * saved.mean:.1f} %" in record["verdict"]
    assert {"commit", "date", "metricgrad"} <= set(record["made_by"])


def test_the_picture_is_drawn_from_what_is_stored(tmp_path) -> None:  # type: ignore[no-untyped-def]
    page.draw_picture(page.stored(), tmp_path / "demo.svg")
    drawn, kept = (path.read_text("utf-8") for path in (tmp_path / "demo.svg", page.PICTURE))
    assert drawn.partition("<defs>")[2] == kept.partition("<defs>")[2]  # before it stands the version of matplotlib


def test_features_without_separate_hours_are_the_same_hours() -> None:
    joined = run.features(split_hours=False)
    both = run.features(split_hours=True)
    hours = joined.filter(regex="^hour=")
    assert hours.shape[1] == 24
    assert (hours.sum(axis=1) == 1).all()
    assert joined.shape == (len(both), both.shape[1] - 24 + 1)
    working = both.filter(regex="^hour of a working day=").sum(axis=1)
    assert np.array_equal(joined["working day"], working)


def test_the_readme_shows_numbers_of_the_page() -> None:
    readme, page = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/demo.md"))
    caption = readme.split("*`make demo`:")[1].split("*\n")[0]
    shown = re.findall(r"\d+\.\d (?:± \d+\.\d )?%|\d+\.\d to \d+\.\d %", caption)
    assert len(shown) == 6
    flat = re.sub(r"\s+", " ", page).replace(" | ", " % ")
    assert [number for number in shown if number not in flat] == []
