"""The page about censored times says what is stored, and its arithmetic is right."""

from __future__ import annotations

import pandas as pd
import pytest

from studies.survival import page


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_a_difference_is_that_of_the_same_splits() -> None:
    rows = [("one", 1, 0.7, 0.6), ("one", 2, 0.8, 0.72), ("two", 1, 0.5, 0.6), ("two", 2, 0.6, 0.65)]
    frame = pd.DataFrame(rows, columns=["table", "seed", "linear", "cox"]).set_index(["table", "seed"])
    found = page.difference(frame, "linear", "cox")
    assert "+0.0075 in the mean" in found
    assert "ahead by more than a standard error on one (+0.090 ± 0.010), behind on two (-0.075 ± 0.025)" in found


def test_settings_are_chosen_on_folds_of_the_training_rows() -> None:
    pytest.importorskip("sksurv")
    from studies.survival import run

    table = run.load("veterans")
    assert table.X.shape[0] == len(table.times) == 137
    assert table.value(-table.times) > 0.999  # ties of an event and a censored row count by half
    setting, model = run.chosen({alpha: run.CoxPHSurvivalAnalysis(alpha=alpha) for alpha in (1.0, 1e6)}, table, 0)
    assert setting == 1.0
    assert table.value(model.predict(table.X)) > 0.7
