"""Cards of table models in notebooks: metric, verdict and shapes by the columns of the table, fitted or loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from recipes import READABLE

from metricgrad import Recipe, TableClassifier, TableRanker, TableRegressor, black_box, load, save
from metricgrad.tabular.table_model import TableModel

RNG = np.random.default_rng(0)
ROWS = 300
EVIL = "<script>alert(1)</script>"
TABLE = pd.DataFrame(
    {"age": RNG.normal(50, 10, ROWS), "plan": RNG.choice(["a", "b"], ROWS), EVIL: RNG.normal(size=ROWS)}
)
TABLE["price"] = np.abs(TABLE["age"] - 50) + 5 * (TABLE["plan"] == "a") + TABLE[EVIL]
TABLE["churn"] = np.where(TABLE["price"] + RNG.normal(size=ROWS) > 10, "yes", "no")
QUICK = Recipe(warmup=30, rounds=0, learning_rate=0.05)
FEATURES = ["age", "plan", EVIL]


def card(model: TableModel) -> str:
    page: str = model._repr_mimebundle_()["text/html"]
    assert "metricgrad-card" in page
    return page[page.index("metricgrad-card") :]


def classifier(**how: Any) -> TableClassifier:
    known = {"metric": "f1", "method": "cross-entropy", "model": "additive", "recipe": READABLE, **how}
    return TableClassifier(**known).fit(TABLE[[*FEATURES, "churn"]], "churn")


def regressor() -> TableRegressor:
    return TableRegressor("mae", "usual", "additive", folds=2).fit(TABLE[[*FEATURES, "price"]], "price")


@pytest.mark.parametrize("fit", [classifier, regressor])
def test_an_additive_model_shows_its_metric_verdict_and_columns_before_and_after_it_is_saved(
    fit: Any, tmp_path: Path
) -> None:
    model = fit()
    for shown in (card(model), card(load(save(model, tmp_path / "model")))):
        assert model.judge_.shown(model.model_.validation_loss_) in shown
        assert escape(str(model.model_.verdict_)) in shown
        assert shown.count('data-series="age"') == 1
        for name in ("age", "plan", "&lt;script&gt;"):
            assert name in shown
        assert EVIL not in shown


def test_a_model_that_is_not_fitted_has_no_card() -> None:
    assert "metricgrad-card" not in TableClassifier()._repr_mimebundle_()["text/html"]


def test_other_models_have_a_card_without_shapes() -> None:
    frame = TABLE.assign(query=np.arange(ROWS) // 10, grade=(TABLE["price"] > 10).astype(int))
    ranker = TableRanker("ndcg(5)", "listnet", "linear").fit(frame[["age", "query", "grade"]], "grade", groups="query")
    for model in (ranker, classifier(model="small", recipe=QUICK), classifier(model="linear")):
        shown = card(model)
        assert model.judge_.label in shown
        assert 'aria-label="age"' not in shown


def test_a_loaded_model_whose_metric_was_code_shows_its_loss(tmp_path: Path) -> None:
    gain = black_box(lambda y, p: float((p * (2 * y - 1)).mean()), higher_is_better=True, labels=True, name="own gain")
    model = load(save(classifier(metric=gain), tmp_path / "model"))
    shown = card(model)
    assert f"loss by own gain {model.model_.validation_loss_:.4f}" in shown
    assert "age" in shown


def test_every_colour_of_a_drawing_is_defined_beside_it() -> None:
    model = classifier()
    for shown in (model._repr_mimebundle_()["text/html"], model.explain()._repr_html_()):
        used = set(re.findall(r"var\((--[a-z0-9]+)\)", shown[shown.index("<svg") :]))
        assert {"--c0", "--soft"} <= used
        assert all(f"{name}:" in shown for name in used)
