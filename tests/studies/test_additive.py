"""The page about additive models says what is stored, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricgrad.evaluation.store import Store
from studies.additive import page
from studies.tables import table, user_split

PAGE = (Path(__file__).parents[2] / "docs" / "additive.md").read_text("utf-8")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    store = Store(tmp_path / "additive.jsonl")
    losses = {"linear": [0.4, 0.5, 0.6], "additive": [0.3, 0.3, 0.5], "additive, 5 pairs": [0.2, 0.2, 0.2]}
    for dataset, sign in (("good", 1), ("bad", -1)):
        for metric in page.METRICS:
            for model, own in losses.items():
                for seed, loss in enumerate(own):
                    run = {"dataset": dataset, "metric": metric, "model": model, "seed": seed}
                    store.add(run, {"loss": 0.5 + sign * (loss - 0.5), "command": "python x"})
    return store.path


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == PAGE


def test_models_are_compared_seed_by_seed(stored: Path) -> None:
    found = page.cells(Store(stored), "f1")
    assert found["saved"].to_dict() == pytest.approx({"good": 0.4 / 3, "bad": -0.4 / 3})
    assert found["error"].tolist() == pytest.approx([np.std([0.1, 0.2, 0.1], ddof=1) / 3**0.5] * 2)


def test_the_page_says_where_it_is_worse_and_how_many_would_be_by_chance(stored: Path) -> None:
    text = " ".join(page.part(stored).split())
    assert "better by more than one standard error on 1 of 2 tables and worse on 1: bad (-0.133 ± 0.033)" in text
    assert page.expected_worse(page.cells(Store(stored), "f1"))[0] == pytest.approx(2 * 0.2113, abs=1e-3)


def test_penalties_are_compared_table_by_table() -> None:
    values = {("a", 1.0): 0.2, ("a", 10.0): 0.4, ("b", 1.0): 0.3, ("b", 10.0): 0.1}
    records = [
        {"run": {"dataset": dataset, "seed": 800, "penalty": penalty}, "cross_entropy": value}
        for (dataset, penalty), value in values.items()
    ]
    found = page.penalties(records)
    assert found["mean"].tolist() == pytest.approx([0.25, 0.25])
    assert found["median"].tolist() == pytest.approx([2.0, 1.5])  # of 1 and 3, and of 2 and 1


def test_the_cost_of_rounding_is_that_of_the_same_model() -> None:
    records = [
        {
            "run": {"dataset": dataset, "seed": 300, "levels": levels},
            "model": 0.2,
            "20": {"loss": loss, "size": 40},
            "made_by": {"metricgrad": "0", "date": "today"},
        }
        for levels, dataset, loss in (
            (page.BEFORE, "wilt", 0.4),
            (page.NOW, "wilt", 0.25),
            (page.BEFORE, "b", 0.2),
            (page.NOW, "b", 0.2),
        )
    ]
    text = " ".join(page.card_part(records).split())
    assert "| nearest knot | 20 | +0.1000 | +0.1000 | wilt (+0.200) | 1 | 40 |" in text
    assert "F1 0.80 became 0.60 with 20 points" in text
    assert "On wilt 0.75 remains." in text


def test_a_users_rows_and_test_rows_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rt30").mkdir()
    frame = pd.DataFrame({"x": np.arange(100.0), "target": np.arange(100) % 4 == 0, "fold": 0})
    frame.astype({"target": int}).to_parquet(tmp_path / "rt30" / "t.parquet")
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path))
    table.cache_clear()
    rows = user_split("t", 3)
    table.cache_clear()
    assert sorted([*rows.X[:, 0], *rows.test_X[:, 0]]) == list(range(100))
    assert (len(rows.X), int(rows.validation.sum()), len(rows.test_y)) == (80, 16, 20)
    assert (rows.test_y == (rows.test_X[:, 0] % 4 == 0)).all()
