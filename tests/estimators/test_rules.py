"""Rules that decide by the columns of a metric, from `fit` to a saved model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from metricgrad import MetricClassifier, TableClassifier, get_metric, load
from metricgrad.tabular.persistence import save
from metricgrad.training.recipe import get_recipe

QUICK = get_recipe("linear", trust=-1.0, rounds=1)
METRIC = "value_at_capacity(0.1, amount)"


def payments(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose amounts have nothing to do with their features or class: the best rank is p * amount."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    y = (rng.random(rows) < 1 / (1 + np.exp(2 - 2 * X[:, 0]))).astype(int)
    return X, y, np.exp(1.5 * rng.normal(size=rows))


def test_probability_times_amount_is_found_and_decides() -> None:
    X, y, amount = payments(1500, 0)
    model = MetricClassifier(METRIC, model="linear", recipe=QUICK, random_state=0).fit(X, y, columns={"amount": amount})
    assert model.verdict_.strategy == "plug-in"
    assert model.verdict_.followed
    assert model.rule_ is not None
    assert model.rule_.columns == ("amount",)
    usual = MetricClassifier(METRIC, "cross-entropy", "linear", random_state=0).fit(X, y, columns={"amount": amount})
    assert usual.rule_ is None
    new_X, new_y, new_amount = payments(4000, 1)
    known = {"amount": new_amount}
    bayes = np.asarray(1 / (1 + np.exp(2 - 2 * new_X[:, 0]))) * new_amount
    best = float(get_metric(METRIC).value(get_metric(METRIC)(bayes, np.column_stack((new_y, new_amount)))))
    found = model.score(new_X, new_y, columns=known)
    assert found > usual.score(new_X, new_y, columns=known) + 0.1
    assert found == pytest.approx(best, abs=0.03)
    decided = model.rule_.apply(model._raw_scores(new_X).numpy(), known) - model.threshold_
    assert np.array_equal(model.decision_function(new_X, known), decided)
    with pytest.raises(ValueError, match="columns: expected amount for the metric"):
        model.predict(new_X)
    # Probabilities are those of the class, whatever the amount.
    assert np.abs(model.predict_proba(new_X)[:, 1] - bayes / new_amount).mean() < 0.03
    assert model.rule_.calibration == model.calibration_.calibrations[0]


def two_kinds(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of which few have large amounts, and other reasons to be positive: no linear model fits both kinds."""
    rng = np.random.default_rng(seed)
    X, large = rng.normal(size=(rows, 3)), rng.random(rows) < 0.15
    y = (np.where(large, X[:, 0], X[:, 1]) + 0.3 * rng.normal(size=rows) > 1).astype(int)
    return X, y, np.where(large, 100.0, 1.0)


def test_weights_of_cost_make_a_model_accurate_where_the_money_is() -> None:
    X, y, amount = two_kinds(3000, 0)
    metric = "value_at_capacity(0.1, amount)"
    model = MetricClassifier(metric, model="linear", recipe=QUICK, random_state=0).fit(X, y, columns={"amount": amount})
    board = model.leaderboard().set_index("methods")["value"]
    assert board["cost-weighted"] > board["proper"] + 0.2


@pytest.mark.parametrize("columns", [True, False])
def test_trees_are_weighted_and_decided_by_columns_too(columns: bool) -> None:
    X, y, amount = two_kinds(1200, 1)
    metric = METRIC if columns else "f1"
    given = {"columns": {"amount": amount}} if columns else {}
    model = MetricClassifier(metric, model="lightgbm", random_state=0).fit(X, y, **given)
    names = set(model.leaderboard()["methods"])
    assert names == ({"proper", "plug-in", "cost-weighted"} if columns else {"log loss 5"})


def test_a_rule_is_saved_with_the_model_and_finds_its_columns(tmp_path: Path) -> None:
    X, y, amount = payments(800, 2)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(Amount=amount, target=y)
    model = TableClassifier(METRIC, model="linear", recipe=QUICK).fit(frame, "target", columns={"amount": "Amount"})
    assert model.model_.rule_ is not None
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.model_.rule_ == model.model_.rule_
    assert np.array_equal(again.decision_function(frame), model.decision_function(frame))
    assert np.array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="Amount"):
        again.predict(frame.drop(columns="Amount"))


def test_the_lowest_recall_of_groups_is_trained_for_by_default_without_calling_every_row() -> None:
    rng = np.random.default_rng(0)
    sex, ability = rng.random(1500) < 0.4, rng.normal(size=1500)
    X = ability[:, None] + 0.5 * rng.normal(size=(1500, 3)) - 0.8 * sex[:, None]
    y = (ability + 0.3 * rng.normal(size=1500) > 1).astype(int)
    metric, columns = "min over sex of recall", {"sex": np.where(sex, "f", "m")}
    model = MetricClassifier(metric, model="linear", recipe=QUICK)
    with pytest.warns(UserWarning, match="some threshold satisfies 'min over sex of recall' whatever the model"):
        model.fit(X, y, columns=columns)
    usual = MetricClassifier("f1", "cross-entropy", "linear").fit(X, y)
    recalls = [[each.predict(X, **known)[(y == 1) & (sex == group)].mean() for group in (False, True)]
               for each, known in ((model, {"columns": columns}), (usual, {}))]  # fmt: skip
    assert model.predict(X, columns).mean() == pytest.approx(y.mean(), abs=0.02)
    assert min(recalls[0]) > min(recalls[1]) + 0.2
    assert model.validation_loss_ == pytest.approx(1 - min(recalls[0]), abs=0.06)
    with pytest.raises(ValueError, match="metric: expected one that depends on the model, got 'equal_opportunity_gap"):
        MetricClassifier("equal_opportunity_gap(sex)", model="linear").fit(X, y, columns=columns)
