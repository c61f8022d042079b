"""The comparison of readable models says what is stored, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.evaluation.store import Store
from metricgrad.training.splits import Split
from studies.readable import cells, page, rivals, run

PAGE = Path(__file__).parents[2] / "docs" / "readable.md"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    store = Store(tmp_path / "readable.jsonl")
    for table, (own, other) in {"rt30/a_b": (0.2, 0.4), "c": (0.5, 0.4), "d": (0.3, 0.3)}.items():
        for seed, shift in ((800, 0.0), (801, 0.1)):
            kept = {"command": "python x", "rows": 100, "positives": 10}
            every = dict.fromkeys(cells.METRICS, other + shift)
            both = {cells.EBM: (every, 6.0), cells.OURS_FOR_LOG_LOSS: (every, 1.0), "optimal bins": (every, 3.0)}
            for model, (losses, time) in both.items():
                run_ = {"table": table, "model": model, "seed": seed}
                store.add(run_, {"losses": losses, "log_loss": 0.5, "cpu_seconds": time, **kept})
            for metric in cells.METRICS:
                run_ = {"table": table, "model": cells.OURS, "seed": seed, "metric": metric}
                outcome = {"losses": {metric: own + shift}, "log_loss": 9.0, "cpu_seconds": 1.5}
                store.add(run_, {**outcome, **kept})
    return store.path


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == PAGE.read_text("utf-8")


def test_no_run_is_stored_twice_and_all_are_of_fresh_seeds() -> None:
    runs = [record["run"] for record in Store(cells.RESULTS)]
    assert len({Store.key(one) for one in runs}) == len(runs)
    assert {one["seed"] for one in runs} <= set(range(cells.FIRST_SEED, cells.FIRST_SEED + 3))


def test_models_are_compared_by_table_and_metric_over_seeds_both_have(stored: Path) -> None:
    store = Store(stored)
    extra = {"table": "c", "model": cells.OURS, "seed": 802, "metric": "f1"}  # a seed EBM does not have
    store.add(extra, {"losses": {"f1": 0.0}, "log_loss": 0.0, "cpu_seconds": 1.5, "command": "python x"})
    found = cells.cells(cells.losses(store), cells.OURS, cells.EBM)
    assert len(found) == 3 * len(cells.METRICS)
    assert found.loc[("rt30/a_b", "f1")].to_dict() == pytest.approx(
        {"own": 0.25, "other": 0.45, "seeds": 2, "saved": 0.2 / 0.45}
    )
    assert found.loc[("c", "f1"), "saved"] == pytest.approx(-0.1 / 0.55)
    assert cells.ahead(found) == pytest.approx(0.5)  # one ahead, one behind, one level


def test_log_loss_is_that_of_models_that_aim_at_it(stored: Path) -> None:
    found = cells.losses(Store(stored))
    at_log_loss = found.xs(cells.LOG_LOSS, level="metric")
    assert at_log_loss[cells.OURS].isna().all()
    assert (at_log_loss[cells.EBM] == 0.5).all()


def test_the_page_says_which_aims_are_met(stored: Path) -> None:
    text = page.page(stored)
    assert "without pairs: additive, for the metric | 60 % of the cells | 50 % of 15, seeds: 2 | **no** |" in text
    assert "additive, for the metric: +8.8 ± 18.6 %, ahead in 50 % of the cells" in " ".join(text.split())
    assert "units of EBM without pairs: additive, for the metric | at most 0.33 | 0.25 | yes |" in text
    assert "| F1 | +8.8 ± 18.6 | 1 : 1 | 50 % |" in text
    assert "| a\\_b | **0.250** / 0.450" in text


@given(st.floats(0, 1), st.floats(0, 1))
def test_what_is_saved_is_bounded_and_turns_with_the_models(own: float, other: float) -> None:
    found = float(cells.saved(own, other))
    assert -1 <= found <= 1
    assert found == -float(cells.saved(other, own))
    assert np.sign(found) == np.sign(other - own)


def test_a_table_is_worth_one_however_many_metrics_it_has() -> None:
    index = pd.MultiIndex.from_product([("a", "b"), (800,), cells.METRICS], names=["table", "seed", "metric"])
    losses = pd.DataFrame({cells.OURS: [0.1] * 5 + [0.2] * 5, cells.EBM: 0.2}, index=index)
    text = page.comparison(losses, cells.OURS, cells.EBM, cells.METRICS)
    assert "| **all** | +25.0 ± 25.0 | 5 : 0 | 75 % |" in text  # two tables, not ten cells


def test_out_of_bag_scores_come_from_bags_that_held_the_row_out() -> None:
    y = (np.arange(200) % 5 == 0).astype(float)
    bags = rivals.bags_of(y, seed=3)
    assert bags.shape == (200, rivals.BAGS)
    assert ((bags < 0).sum(0) == 30).all()
    assert ((bags < 0)[y == 1].sum(0) == 6).all()
    assert len({tuple(bag) for bag in bags.T}) == rivals.BAGS
    by_bag = np.arange(200.0)[:, None] + np.where(bags < 0, 0.0, 1e6)
    scores, held_out = rivals.out_of_bag(by_bag, bags)
    np.testing.assert_allclose(scores, np.flatnonzero(held_out))
    np.testing.assert_array_equal(held_out, (bags < 0).any(1))


def test_f1_is_judged_at_the_threshold_of_the_tuning_rows() -> None:
    y = np.array([0.0, 0, 1, 1, 0, 0, 1, 1])
    halves = Split(np.arange(0), np.arange(4), np.arange(4, 8))
    found = rivals.Judged(test=np.array([0.0, 3, 2, 4]), tuning=np.array([0.0, 1, 2, 3]), tuning_rows=np.arange(4))
    assert run.judged("f1", found, y, halves) == pytest.approx(1 - 2 * 2 / (2 * 2 + 1))  # cut between 1 and 2
    assert run.judged("average_precision", found, y, halves) == pytest.approx(1 - (1 / 2 + 2 / 3 / 2))
