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


def test_the_page_says_whether_targets_were_reached(stored: Path) -> None:
    store = Store(stored)
    store.add(
        {"table": "t4", "metric": "f1", "model": page.MLP, "seed": 1},
        {"loss": 1.0, "kept": "", "seconds": 1.0, "command": "python x"},
    )
    text = " ".join(page.part(stored).split())
    assert "Against mlp it has **17.0 % less loss** over all cells, in the mean of the cells 12.3 % less" in text
    assert "at least 8 % less, was reached by the first measure and reached by the second" in text
    assert "Against LightGBM it has **0.6 % less loss** over all cells, in the mean of the cells 8.5 % more" in text
    assert "at most 3 % more, was reached by the first measure and missed by the second" in text
