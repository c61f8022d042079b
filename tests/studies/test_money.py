"""The page about money and groups says what is stored, and leaves out what was looked at."""

from __future__ import annotations

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.money import page


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_the_seed_that_was_looked_at_is_left_out() -> None:
    seeds = {record["run"]["seed"] for record in Store(page.RESULTS)}
    assert page.LOOKED_AT in seeds
    assert set(page.frame_of()["seed"]) == seeds - {page.LOOKED_AT}


def test_a_choice_behind_the_best_is_named() -> None:
    rows = [
        {"cell": "churn", "model": "linear", "seed": seed, "proper": 0.1, "plug-in": best, "default": 0.1}
        for seed, best in ((1, 0.3), (2, 0.32))
    ]
    frame = pd.DataFrame(rows)
    assert "churn, linear (plug-in rule, 0.210 ± 0.010); of 1 cells" in page.bars(frame)
    assert "deviation: none; of 1" in page.bars(frame.assign(default=0.5)).replace("error", "deviation")
