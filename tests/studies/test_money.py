"""The page about money and groups says what is stored, of seeds that were not looked at."""

from __future__ import annotations

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.money import page


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_no_seed_is_reported_whose_test_rows_were_looked_at() -> None:
    seeds = {record["run"]["seed"] for record in Store(page.RESULTS)}
    assert seeds
    assert seeds.isdisjoint(range(100, 308))


def test_the_model_is_chosen_by_held_out_rows_on_seeds_that_all_models_have() -> None:
    runs = [("linear", 1, 0.1, 0.9), ("lightgbm", 1, 0.2, 0.3), ("linear", 2, 0.4, 0.5), ("lightgbm", 2, 0.3, 0.8)]
    frame = pd.DataFrame([*runs, ("linear", 3, 0.9, 0.1)], columns=["model", "seed", "judged", "default"])
    assert page.best_model(frame)[["seed", "default"]].to_numpy().tolist() == [[1, 0.3], [2, 0.5]]


def test_a_choice_behind_the_best_is_named() -> None:
    rows = [
        {"cell": "churn", "model": "linear", "seed": seed, "proper": 0.1, "plug-in": best, "default": 0.1}
        for seed, best in ((1, 0.3), (2, 0.32))
    ]
    frame = pd.DataFrame(rows)
    assert "churn, linear (plug-in rule, 0.210 ± 0.010); of 1 cells" in page.bars(frame)
    assert "deviation: none; of 1" in page.bars(frame.assign(default=0.5)).replace("error", "deviation")


def test_cells_without_runs_are_named() -> None:
    frame = pd.DataFrame([{"cell": "churn", "model": model} for model in ("linear", "additive", "lightgbm")])
    told = page.not_run(frame)
    assert "churn (network)" in told
    assert "fraud-0.5 (all models)" in told
    full = [{"cell": cell, "model": model} for cell in page.CELLS for model in page.MODELS]
    assert page.not_run(pd.DataFrame(full)) == ""
