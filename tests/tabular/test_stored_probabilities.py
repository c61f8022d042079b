"""Probabilities of a table, saved with the model and written to a file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss
from typer.testing import CliRunner

from metricgrad import Recipe, TableClassifier, TableRegressor, load
from metricgrad.cli.app import app
from metricgrad.estimators.probabilities import Probabilities, fit_probabilities
from metricgrad.tabular.batch_predict import predicted
from metricgrad.tabular.cells import TableError
from metricgrad.tabular.manifest import Field
from metricgrad.tabular.persistence import STATE, save
from metricgrad.tabular.stored_probabilities import read_probabilities

DATA = Path(__file__).parents[1] / "data"
RNG = np.random.default_rng(0)
AGE = RNG.normal(40, 9, 300).round(1)
FRAME = pd.DataFrame(
    {
        "age": AGE,
        "plan": RNG.choice(["a", "b"], 300),
        "probability": [f"u{number}" for number in range(300)],  # an id of an awkward name
        "left": np.where(AGE + 9 * RNG.normal(size=300) > 46, "yes", "no"),
    }
)


@pytest.fixture(scope="module")
def model() -> TableClassifier:
    return TableClassifier("f1", "cross-entropy", "linear", Recipe(warmup=60, rounds=0)).fit(FRAME, "left")


def test_a_saved_model_has_the_same_probabilities(model: TableClassifier, tmp_path: Path) -> None:
    p = model.predict_proba(FRAME)
    assert p.shape == (300, 2)
    assert np.allclose(p.sum(1), 1)
    assert brier_score_loss(FRAME["left"] == "yes", p[:, 1]) == pytest.approx(model.model_.calibration_.brier, abs=0.05)
    folder = save(model, tmp_path / "model")
    again = load(folder)
    assert again.model_.calibration_ == model.model_.calibration_
    np.testing.assert_array_equal(again.predict_proba(FRAME), p)
    assert f"Brier score {model.model_.calibration_.brier:.4f}" in (folder / "README.md").read_text()


def test_a_folder_of_an_older_version_loads_and_has_none() -> None:
    stored = pd.read_csv(DATA / "model-0.1.0.csv")
    old = load(DATA / "model-0.1.0")
    with pytest.raises(ValueError, match="predict_proba: expected a model that was calibrated"):
        old.predict_proba(stored)


def test_the_command_writes_them_beside_the_labels(model: TableClassifier, tmp_path: Path) -> None:
    save(model, tmp_path / "model")
    FRAME.to_csv(tmp_path / "new.csv", index=False)
    given_paths = [str(tmp_path / name) for name in ("model", "new.csv")]
    done = CliRunner().invoke(app, ["predict", *given_paths, "--proba", "--out", str(tmp_path / "scores.csv")])
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "scores.csv")
    assert written.columns.tolist() == ["row", "probability (id)", "score", "label", "probability"]
    np.testing.assert_allclose(written["probability"], model.predict_proba(FRAME)[:, 1])
    assert written["probability"].rank().equals(written["score"].rank())


@given(st.integers(2, 400), st.integers(1, 4), st.integers(0, 99))
def test_what_is_stored_is_read_again(rows: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=rows) if classes == 1 else rng.normal(size=(rows, classes))
    y = rng.integers(0, 2, rows) if classes == 1 else np.eye(classes)[rng.integers(0, classes, rows)]
    found = fit_probabilities(scores, y)
    text = json.loads(json.dumps(found.to_dict()))
    assert read_probabilities(Field(text), classes) == found == Probabilities.from_dict(text)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["rows"], -1, "model.probabilities.rows: expected an integer of at least 0"),
        (["brier"], "low", "model.probabilities.brier: expected a finite number"),
        (["labels"], 3, "model.probabilities.labels: expected true or false"),
        (["labels"], True, "model.probabilities.labels: expected true for several labels, else false"),
        (["calibrations"], [], "model.probabilities.calibrations: expected 1"),
        (["calibrations"], [{}] * 9, "model.probabilities.calibrations: expected a list of at most 1"),
        (["calibrations", 0], {"intercept": 1.0}, "expected a field 'slope'"),
        (["calibrations", 0, "slope"], -1.0, "slope: expected a number above 0, got -1.0"),
        (["calibrations", 0, "points"], [2.0, 1.0], "points: expected numbers that do not fall"),
        (["calibrations", 0, "points"], [1.0, 2.0], "levels: expected one for each of 2 points, got 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    model: TableClassifier, tmp_path: Path, path: list[Any], value: Any, message: str
) -> None:
    folder = save(model, tmp_path / "model")
    state = json.loads((folder / STATE).read_text())
    inner = state["model"]["probabilities"]
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    (folder / STATE).write_text(json.dumps(state))
    with pytest.raises(ValueError, match=re.escape(message)):
        load(folder)


@pytest.mark.parametrize("target", ["plan", ["left", "old"]])
def test_classes_and_labels_have_a_column_each(target: Any, tmp_path: Path) -> None:
    old = AGE + 5 * np.sin(np.arange(300)) > 50
    frame = FRAME.assign(plan=np.array(["a", "b", "c"])[np.digitize(AGE, [36, 44])], old=old)
    metric = "macro_f1" if target == "plan" else "sample_f1"
    fitted = TableClassifier(metric, "cross-entropy", "linear", Recipe(warmup=60, rounds=0)).fit(frame, target)
    save(fitted, tmp_path / "model")
    again = load(tmp_path / "model")
    p = fitted.predict_proba(frame)
    np.testing.assert_array_equal(again.predict_proba(frame), p)
    written = predicted(again, frame, proba=True)
    names = [name for name in written.columns if name.startswith("probability (")]
    assert len(names) == p.shape[1] == (3 if target == "plan" else 2)
    np.testing.assert_array_equal(written[names], p)
    if target == "plan":
        assert np.allclose(p.sum(1), 1)


def test_numbers_have_no_probabilities() -> None:
    numbers = TableRegressor("mae", "usual", "linear").fit(FRAME, "age")
    with pytest.raises(TableError, match="proba: expected a model of classes or labels, got one of numbers"):
        predicted(numbers, FRAME, proba=True)
