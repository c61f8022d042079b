"""The page about uplift says what is stored, its arithmetic is right, and rivals are what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from studies.uplift import page, run


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_the_best_rival_is_chosen_on_held_out_rows_split_by_split() -> None:
    records = []
    for seed, (held_out, values) in enumerate([((0.2, 0.1), (0.30, 0.50)), ((0.1, 0.2), (0.31, 0.51))]):
        scored = dict(zip(("two models", "transformation"), zip(held_out, values, strict=True), strict=True))
        scored |= dict.fromkeys(("response", "interactions"), (0.0, 0.1)) | {page.OURS: (0.3, 0.4)}
        for method, (kept, value) in scored.items():
            run_of = {"table": "insurance", "method": method, "seed": seed}
            records.append({"run": run_of, "value": value, "held_out": kept})
    frame = page.frame_of(records)
    assert frame[page.BEST].tolist() == [0.30, 0.51]
    assert "-0.0050 in the mean" in page.difference(frame, page.BEST)
    assert "ahead by more than a standard error on insurance (+0.300 ± 0.000)" in page.difference(frame, "response")


def test_the_true_effect_ranks_best_and_the_response_hides_it() -> None:
    table = run.made_up(0, steps=False)
    assert table.effect is not None
    assert table.value(table.effect) > 0.1 > table.value(table.X[:, 0])
    assert abs(table.y[table.treated == 1].mean() - table.y[table.treated == 0].mean() - table.effect.mean()) < 0.03


@pytest.mark.parametrize("name", ["two models", "interactions", "transformation"])
def test_a_rival_finds_most_of_an_effect_that_is_linear_in_log_odds(name: str) -> None:
    table = run.made_up(1, steps=False)
    rows = np.arange(len(table.y))
    train, test = table.of(rows < 3_000), table.of(rows >= 3_000)
    scores = run.RIVALS[name](0.3, train, test.X)
    assert pd.Series(scores).corr(pd.Series(test.effect)) > 0.7
    assert test.value(scores) > test.value(run.by_response(0.3, train, test.X)) + 0.03
