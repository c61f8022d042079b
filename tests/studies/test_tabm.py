"""The page about the ensemble network says what is stored, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from metricgrad.evaluation.store import Store
from studies.tabm import page


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    store = Store(tmp_path / "tabm.jsonl")
    losses = {page.MLP: [0.4, 0.2, 0.005], page.TABM: [0.3, 0.201, 0.001], page.TREES: [0.2, 0.3, 0.005]}
    for model, own in losses.items():
        for number, loss in enumerate(own):
            for metric in page.METRICS:
                run = {"table": f"t{number}", "metric": metric, "model": model, "seed": 400}
                store.add(run, {"loss": loss, "kept": "surrogate", "seconds": 1.0, "command": "python x"})
    store.add(
        {"table": "t3", "metric": "f1", "model": page.MLP, "seed": 400}, {"loss": 1.0, "kept": "", "seconds": 1.0}
    )
    return store.path


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_only_cells_of_all_models_count(stored: Path) -> None:
    found = page.losses(Store(stored))
    assert len(found) == 6
    cells = page.saved(found.xs("f1", level="metric"), page.MLP)
    assert cells["sum"] == pytest.approx(100 * (1 - 0.502 / 0.605))
    assert cells["mean"] == cells["median"] == pytest.approx((25 - 0.5) / 2)
    assert [cells[name] for name in ("better", "tied", "worse")] == [2, 1, 0]


def test_the_page_says_whether_the_bars_were_met_and_by_which_measure(stored: Path) -> None:
    store = Store(stored)
    store.add(
        {"table": "t4", "metric": "f1", "model": page.MLP, "seed": 1},
        {"loss": 1.0, "kept": "", "seconds": 1.0, "command": "python x"},
    )
    text = " ".join(page.verdict(stored).split())
    assert "one seed of 3 of 38 tables" in text
    assert "Against mlp the bar was at least 8 % less loss: in sum tabm has **17.0 % less**" in text
    assert "in the mean of the cells **12.3 % less**" in text
    assert "Against LightGBM the bar was at most 3 % more loss: in sum tabm has **0.6 % less**" in text
    assert "in the mean of the cells **8.5 % more** (-50.0 to +33.0; missed)" in text
    assert "better, tied and worse in 4, 2 and 0 cells" in text


def test_an_interval_by_tables_is_wider_than_nothing_and_holds_the_estimate(stored: Path) -> None:
    found = page.losses(Store(stored))
    for other in (page.MLP, page.TREES):
        for measure in ("sum", "mean"):
            low, high = page.interval(found, other, measure)
            assert low < page.saved(found, other)[measure] < high


def test_five_folds_are_compared_where_both_were_run(stored: Path) -> None:
    assert "## Five folds\n\nNot measured yet." in page.part(stored)
    for model, loss in ((page.TABM_FOLDS, 0.1), (page.TREES_FOLDS, 0.2)):
        for metric in page.METRICS:
            run = {"table": "t0", "metric": metric, "model": model, "seed": 400}
            Store(stored).add(run, {"loss": loss, "kept": "", "seconds": 1.0, "command": "python x"})
    text = " ".join(page.part(stored).split())
    assert "on one of the smallest of 38 tables only" in text
    assert "| mlp, one split | 1 | +75.0 % | +75.0 ± 0.0 % | +75.0 to +75.0 | +75.0 % | 2 : 0 : 0 |" in text
    assert "| LightGBM, five folds | 1 | +50.0 % |" in text
    assert page.MLP_FOLDS not in text
    assert "on one of the 38 tables: in the mean of the cells 75.0 % less than mlp on one split" in " ".join(
        page.verdict(stored).split()
    )
