"""The study of competing models: its arithmetic, and a page that says what is stored."""

from __future__ import annotations

import pandas as pd
import pytest

from studies.auto import page


def frame(losses: dict[str, list[float]], metric: str = "f1") -> pd.DataFrame:
    """Return runs of models on tables, of which the last is one of the paper's."""
    names = ["wilt", "yeast", "a9a"]
    rows = [
        {
            "run": {"dataset": name, "fold": 0, "metric": metric, "model": model, "candidates": "linear, mixtures"},
            "loss": loss,
            "one model": {"loss": 2 * loss},
            "cpu": 1.0,
        }
        for model, own in losses.items()
        for name, loss in zip(names, own, strict=False)
    ]
    return page.frame_of(rows)


def test_what_is_saved_is_a_share_of_the_other_loss_and_small_differences_are_level() -> None:
    runs = frame({"lightgbm": [0.4, 0.5, 0.2], "auto": [0.3, 0.5, 0.22]})
    found = page.saved(page.losses(runs, "f1"), "auto", "lightgbm")
    assert found["mean"] == pytest.approx((25 + 0 - 10) / 3)
    assert found["median"] == pytest.approx(0)
    assert found["total"] == pytest.approx(100 * (1 - 1.02 / 1.1))
    assert (found["better"], found["level"], found["worse"]) == (1, 1, 1)


def test_only_folds_that_every_model_of_a_source_has_are_compared() -> None:
    runs = frame({"lightgbm": [0.4, 0.5, 0.2], "auto": [0.3]})
    assert list(page.losses(runs, "f1").index) == [("paper", "a9a"), ("rt30", "wilt")]
    assert set(runs["source"]) == {"rt30", "paper"}


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.PAGE.read_text("utf-8") == page.page()
    assert page.PICTURE.exists()
