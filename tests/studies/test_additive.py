"""The page about additive models says what is stored, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from metricgrad.evaluation.store import Store
from studies.additive import page
from studies.additive.run import minimum

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


def test_the_minimum_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = (x[:, 0] + rng.normal(size=300) > 0.5).astype(float)
    found = minimum(x, y, np.ones(4), 0.01, np.zeros(5))
    other = LogisticRegression(C=1 / (0.01 * 300), tol=1e-8).fit(x, y)
    np.testing.assert_allclose(found, [*other.coef_[0], other.intercept_[0]], atol=1e-4)
    scaled = minimum(x / 3, y, np.full(4, 1 / 9), 0.01, np.zeros(5))  # a penalty is a unit of its column
    np.testing.assert_allclose(scaled, found, atol=1e-4)
