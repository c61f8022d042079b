"""The page about precision at high recall says what is stored, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_curve

from metricgrad.evaluation.store import Store
from studies.ico import page, run
from studies.ico.search import Area, search

SEARCHED_SEEDS = 3
"""Of the search of known rows, which takes as long as all others of a seed."""
PAGE = Path(__file__).parents[2] / "docs" / "ico.md"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    store = Store(tmp_path / "ico.jsonl")
    for seed, test in enumerate((27.0, 28.0, 29.0)):
        for method in run.METHODS:
            own = test - (1 + seed if method == "cross-entropy" else 0)
            outcome = {"known": test + 0.5, "searched": test + 1, "test": own, "positives": 200, "methods": "direct 5"}
            outcome["starts"] = {"first": test + 0.2, "second": test + 0.5}
            store.add({"dataset": "ijcnn1", "model": "linear", "method": method, "seed": seed}, outcome)
    return store.path


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == PAGE.read_text("utf-8")


def test_five_seeds_are_stored_of_every_cell() -> None:
    found = page.outcomes()
    seeds = found.groupby(["method", "dataset", "model"])["seed"].nunique()
    assert set(seeds.drop(run.SEARCH, level="method")) == {5}
    assert set(seeds.loc[run.SEARCH]) == {SEARCHED_SEEDS}
    assert len(found) == len({Store.key(record["run"]) for record in Store(page.RESULTS)})


def test_ours_is_set_against_the_printed_value(stored: Path) -> None:
    text = page.page(stored)
    error = np.std([27, 28, 29], ddof=1) / 3**0.5
    words = " ".join(text.split())
    assert f"as it comes above by 0.72 ± {error:.2f}; surrogate, five folds above by 0.72 ± {error:.2f};" in words
    assert f"Over cross-entropy: as it comes +2.00 ± {error:.2f}, ICO +6.10." in words
    assert "cross-entropy has +4.82 from the printed one" in words
    assert "the 2 starts end within 0.30 of each other" in words
    assert "it won by direct in 3 of these runs" in words
    assert "- Adult, 40.34 printed: not run yet." in text
    assert f"| IJCNN1 | 28.50 ± {error:.2f} | 29.00 ± {error:.2f} | 28.50 ± {error:.2f} | 28.50 ± {error:.2f} |" in text
    assert text.count("| 10 |") == 1  # 5 % of 200 positives


def test_a_search_finds_a_direction_that_scores_lack_and_never_loses() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = X[:, 0] + X[:, 1] > 0.5
    scores = X[:, 0] + 0.3 * X[:, 1]
    before = run.value(scores, y)
    after = run.searched(scores, X, y, 300, seed=0)
    assert after > before + 5
    assert run.searched(scores, X, y, 0, seed=0) == pytest.approx(before)


def test_the_value_is_the_area_over_high_recalls_in_percent() -> None:
    rng = np.random.default_rng(1)
    y = rng.random(4_000) < 0.3
    scores = rng.normal(size=4_000) + y
    precision, recall, _ = precision_recall_curve(y, scores)
    grid = np.linspace(0.95, 1, 2_001)
    expected = 100 * np.interp(grid, recall[::-1], precision[::-1]).mean()
    assert run.value(scores, y) == pytest.approx(expected, abs=0.2)


def test_the_exact_area_of_the_search_is_the_metric_and_the_smooth_one_comes_near_it() -> None:
    X, y = _rows()
    area, weights = Area(X, y), np.array([1.0, 0.2, 0.0])
    scores = (X @ (area.basis @ weights / area.scale)).astype(np.float64)
    assert area.exact(weights) == pytest.approx(run.value(scores, y), abs=0.05)
    assert 100 * float(1 - area.smooth(torch.tensor(weights).float(), 1e-3)) == pytest.approx(
        area.exact(weights), abs=1
    )


def test_a_search_from_many_starts_finds_a_model_that_cross_entropy_does_not() -> None:
    X, y = _rows()
    reached = search(X, y, seed=0)
    area = Area(X, y)
    assert reached.best > area.exact(area.logistic(1)) + 2
    assert reached.best >= max(reached.starts.values())
    assert run.value(X @ reached.weights, y) == pytest.approx(reached.best, abs=0.05)


def _rows() -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose last positives another direction finds than most of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_500, 3)).astype(np.float32)
    y = rng.random(1_500) < 0.2
    X[y, 0] += 3 * (rng.random(y.sum()) < 0.8)
    X[y, 1] += 1.5
    return X, y
