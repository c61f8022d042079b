"""Columns of a table that a metric needs: found by name, no features, stored with the model, in the commands too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_validate
from typer.testing import CliRunner

from metricgrad import MetricClassifier, Recipe, TableClassifier, compare, get_metric, load
from metricgrad.cli.app import app
from metricgrad.tabular.batch_predict import scored, write_predictions
from metricgrad.tabular.cells import TableError
from metricgrad.tabular.metric_cells import metric_cells, metric_columns
from metricgrad.tabular.persistence import save

BRIEF = Recipe(warmup=30, rounds=2)
PROFIT = "sum(amount * tp) - 2 * fp"


def table(rows: int = 400) -> pd.DataFrame:
    X, y = make_classification(rows, 4, random_state=0)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["Amount (EUR)"] = np.exp(rng.normal(size=rows)).round(2)
    frame["sex"] = np.where(rng.random(rows) < 0.5, "f", "m")
    frame["bought"] = np.where(y == 1, "yes", "no")
    return frame


TABLE = table()


def quick(metric: str, **how: object) -> TableClassifier:
    return TableClassifier(metric, "cross-entropy", "linear", BRIEF, folds=1, **how)


def profit(called: np.ndarray, frame: pd.DataFrame) -> float:
    gain = np.where(frame["bought"] == "yes", frame["Amount (EUR)"], -2.0)
    return float(np.where(called, gain, 0).mean())


def test_a_model_is_trained_scored_saved_and_loaded_with_columns(tmp_path: Path) -> None:
    model = quick(PROFIT).fit(TABLE, "bought", columns={"amount": "Amount (EUR)"})
    assert list(model.feature_names_in_) == ["a", "b", "c", "d", "sex"]
    assert "of the metric, not features: Amount (EUR)" in model.notes_
    expected = profit(model.predict(TABLE) == "yes", TABLE)
    assert model.score(TABLE) == pytest.approx(expected)
    loaded = load(save(model, tmp_path / "model"))
    assert loaded.metric_columns_ == {"amount": "Amount (EUR)"}
    assert loaded.score(TABLE) == pytest.approx(expected)
    renamed = TABLE.rename(columns={"Amount (EUR)": "paid"})
    assert loaded.score(renamed, columns={"amount": "paid"}) == pytest.approx(expected)
    values = TABLE["Amount (EUR)"].to_numpy()
    assert loaded.score(TABLE.drop(columns="Amount (EUR)"), columns={"amount": values}) == pytest.approx(expected)


def test_columns_of_the_metric_are_not_called_unused(tmp_path: Path) -> None:
    model = quick(PROFIT).fit(TABLE, "bought", columns={"amount": "Amount (EUR)"})
    TABLE.rename(columns={"Amount (EUR)": "paid"}).assign(zip=1).to_csv(tmp_path / "renamed.csv", index=False)
    TABLE.to_csv(tmp_path / "table.csv", index=False)
    lines: list[str] = []
    write_predictions(model, tmp_path / "table.csv", tmp_path / "out.csv", report=lines.append)
    scored(model, tmp_path / "table.csv", report=lines.append, metric=get_metric(PROFIT))
    assert lines == []
    scored(model, tmp_path / "renamed.csv", report=lines.append, columns={"amount": "paid"}, metric=get_metric(PROFIT))
    assert lines == ["columns not seen in training are not used: zip"]


def test_columns_are_features_where_asked_for_and_found_by_their_name(tmp_path: Path) -> None:
    model = quick("min over sex of f1", column_features=True).fit(TABLE, "bought")
    assert "sex" in model.feature_names_in_
    assert load(save(model, tmp_path / "model")).model_.column_codes_ == {"sex": ["f", "m"]}
    assert 0 < model.score(TABLE) <= 1
    assert "sex" not in quick("min over sex of f1").fit(TABLE, "bought").feature_names_in_


def test_what_a_name_stands_for_is_checked() -> None:
    with pytest.raises(TableError, match="expected the column 'amount', which the metric needs, or which one it is"):
        quick(PROFIT).fit(TABLE, "bought")
    with pytest.raises(TableError, match="column: expected the name of a column, got 'Amount'"):
        quick(PROFIT).fit(TABLE, "bought", columns={"amount": "Amount"})
    with pytest.raises(TableError, match="column: expected amount of the metric, such as amount=price, got 'price'"):
        quick(PROFIT).fit(TABLE, "bought", columns={"price": "Amount (EUR)"})
    with pytest.raises(TableError, match="column: expected none, because the metric needs none, got 'amount'"):
        quick("f1").fit(TABLE, "bought", columns={"amount": "Amount (EUR)"})
    with pytest.raises(TableError, match="column: expected a value for each of 400 rows, got 3"):
        quick(PROFIT).fit(TABLE, "bought", columns={"amount": [1, 2, 3]})
    gaps = TABLE.assign(amount=[None, *TABLE["Amount (EUR)"][1:]])
    with pytest.raises(TableError, match="column amount: expected a number of at least 0 in every row, got 'nan'"):
        quick(PROFIT).fit(gaps, "bought")


def test_rows_without_a_target_are_left_out_of_the_columns_too() -> None:
    frame = TABLE.copy()
    frame.loc[:49, "bought"] = None
    frame.index = pd.Index(np.zeros(len(frame)))  # an index says nothing
    model = quick(PROFIT).fit(frame, "bought", columns={"amount": "Amount (EUR)"})
    there = frame["bought"].notna()
    assert model.score(frame) == pytest.approx(profit(model.predict(frame[there]) == "yes", frame[there]))


def test_cells_are_numbers_or_groups() -> None:
    frame = pd.DataFrame({"x": ["1.5", "2"], "g": ["u", "v"]})
    known = metric_columns(("x", "g"), None, frame)
    cells = metric_cells(known, ("g",), frame, [1, 0])
    assert cells["x"].tolist() == [2.0, 1.5]
    assert cells["g"].tolist() == ["v", "u"]


def test_the_commands_take_a_column_and_an_expression(tmp_path: Path) -> None:
    path, out = tmp_path / "table.csv", tmp_path / "model"
    TABLE.to_csv(path, index=False)
    how = ["--target", "bought", "--column", "amount=Amount (EUR)", "--metric-expression", PROFIT]
    quickly = ["--method", "cross-entropy", "--model", "linear", "--recipe", "warmup=30,rounds=2", "--folds", "1"]
    done = CliRunner().invoke(app, ["fit", str(path), *how, *quickly, "--out", str(out)])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["evaluate", str(out), str(path), "--json"])
    values = json.loads(shown.stdout.splitlines()[-1])["metrics"]
    assert values[PROFIT] == pytest.approx(load(out).score(TABLE))
    assert "f1" in values
    assert "not used" not in shown.output  # the metric uses its column
    fair = CliRunner().invoke(app, ["evaluate", str(out), str(path), "--json", "--metric", "min over sex of f1"])
    assert "min over sex of f1" in json.loads(fair.stdout.splitlines()[-1])["metrics"]
    wrong = CliRunner().invoke(app, ["fit", str(path), "--target", "bought", "--column", "=paid", "--metric", PROFIT])
    assert wrong.exit_code == 2
    assert "expected NAME=COLUMN" in wrong.output


def test_a_name_alone_stands_for_the_column_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    TABLE.rename(columns={"Amount (EUR)": "amount"}).to_csv(path, index=False)
    how = ["fit", str(path), "--target", "bought", "--metric", PROFIT, "--value-column"]
    quickly = ["--method", "cross-entropy", "--model", "linear", "--recipe", "warmup=30,rounds=2", "--folds", "1"]
    done = CliRunner().invoke(app, [*how, "amount", *quickly, "--out", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    assert "of the metric, not features: amount" in done.output
    other = CliRunner().invoke(app, [*how, "paid", *quickly])
    assert "expected amount of the metric, such as amount=paid, got 'paid'" in " ".join(other.output.split())


def test_methods_are_compared_by_a_metric_with_columns(tmp_path: Path) -> None:
    found = compare(
        TABLE,
        "bought",
        PROFIT,
        method="balanced",
        baselines=["cross-entropy", "lightgbm"],
        columns={"amount": "Amount (EUR)"},
        model="linear",
        recipe=BRIEF,
        splits=2,
        n_jobs=1,
    )
    assert found.features == 5
    assert np.isfinite(found.values("cross-entropy")).all()
    found.write_page(tmp_path / "index.html", "metricgrad compare")
    assert "amount" in (tmp_path / "index.html").read_text("utf-8")
    features, labels = TABLE[list("abcd")].to_numpy(), (TABLE["bought"] == "yes").to_numpy()
    plain = compare(
        features,
        labels,
        PROFIT,
        method="balanced",
        baselines=["cross-entropy"],
        columns={"amount": TABLE["Amount (EUR)"].to_numpy()},
        model="linear",
        recipe=BRIEF,
        splits=2,
        n_jobs=1,
    )
    assert plain.features == 4


def test_columns_and_weights_are_routed_by_scikit_learn() -> None:
    X, y = TABLE[list("abcd")].to_numpy(), (TABLE["bought"] == "yes").to_numpy()
    columns, weights = pd.DataFrame({"amount": TABLE["Amount (EUR)"]}), np.linspace(0.5, 2, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        model = MetricClassifier(PROFIT, "cross-entropy", "linear", BRIEF)
        model.set_fit_request(columns=True, sample_weight=True).set_score_request(columns=True, sample_weight=True)
        found = cross_validate(
            model,
            X,
            y,
            cv=3,
            params={"columns": columns, "sample_weight": weights},
            return_estimator=True,
            return_indices=True,
        )
    for number, fitted in enumerate(found["estimator"]):
        test = found["indices"]["test"][number]
        gain = np.where(y[test], TABLE["Amount (EUR)"].to_numpy()[test], -2.0) * (fitted.predict(X[test]))
        assert found["test_score"][number] == pytest.approx(np.average(gain, weights=weights[test]))
