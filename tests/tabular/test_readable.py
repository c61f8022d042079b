"""Additive models of tables: what columns add, in their own units, and the folder they are saved in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from recipes import READABLE

from metricgrad import TableClassifier, TableRegressor, additive, load, save
from metricgrad.tabular.cells import words

RNG = np.random.default_rng(0)
ROWS = 500
TABLE = pd.DataFrame(
    {
        "age": RNG.normal(50, 10, ROWS),
        "member": RNG.choice(["yes", "no"], ROWS),
        "plan": RNG.choice(["a", "b", "c"], ROWS),
        "income": RNG.exponential(size=ROWS) * 1e5,
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, ROWS), unit="D"),
    }
)
TABLE.loc[:30, ["income", "plan"]] = None
SCORE = np.abs(TABLE["age"] - 50) / 10 + (TABLE["plan"] == "a") - TABLE["income"].fillna(0) / 1e5
TABLE["churn"] = np.where(SCORE + RNG.normal(size=ROWS) / 3 > 0.3, "yes", "no")


def fitted(model: Any) -> TableClassifier:
    return TableClassifier("f1", "cross-entropy", model, READABLE).fit(TABLE, "churn")


ADDITIVE = fitted("additive")


def contributions(model: TableClassifier | TableRegressor, frame: pd.DataFrame) -> np.ndarray:
    """Add up the explanation of every row by hand."""
    found = model.explain()
    dates = frame["since"].dt
    days = (frame["since"] - pd.Timestamp("1970-01-01")).dt.days
    parts = {"days": days, "month": dates.month, "weekday": dates.day_of_week, "hour": dates.hour}
    cells = {**frame, **{f"since ({name})": part for name, part in parts.items()}}
    total = np.full(len(frame), found.base)
    for feature, own in found.frame.groupby("feature", sort=False):
        values, table = cells[feature], own.set_index("level")["contribution"]
        if own["place"].notna().any():
            line = own.dropna(subset="place")
            numbers = values.map({"yes": 1.0, "no": 0.0}) if feature == "member" else values
            numbers = pd.Series(numbers).to_numpy(float)
            here = np.interp(numbers, line["place"], line["contribution"])
            total += np.where(np.isnan(numbers), table.get("missing", np.nan), here)
        else:
            total += np.array([table["missing" if word is None else word] for word in words(values)])
    return total


def test_contributions_of_columns_add_up_to_the_score() -> None:
    np.testing.assert_allclose(contributions(ADDITIVE, TABLE), ADDITIVE.decision_function(TABLE), atol=1e-4)


@pytest.mark.parametrize("units", ["log", "standardised"])
def test_contributions_of_columns_add_up_to_the_number(units: str, tmp_path: Path) -> None:
    prices = TABLE.drop(columns="churn").assign(price=np.exp(1 + SCORE / 4))
    fitted = TableRegressor("mae", "mse", "additive", READABLE, units=units, folds=1).fit(prices, "price")
    assert fitted.explain().of == {"log": "logarithms", "standardised": "numbers"}[units]
    total = contributions(fitted, prices)
    sums = np.exp(total) if units == "log" else total
    np.testing.assert_allclose(fitted.model_.correction_.apply(sums), fitted.predict(prices), rtol=1e-3)
    loaded = load(save(fitted, tmp_path / "model"))
    pd.testing.assert_frame_equal(loaded.explain(prices).frame, fitted.explain(prices).frame)


def test_shares_of_a_column_are_those_of_the_training_rows() -> None:
    frame = ADDITIVE.explain().frame
    np.testing.assert_allclose(frame.groupby("feature")["share"].sum(), 1)
    gaps = frame[(frame["feature"] == "income") & (frame["level"] == "missing")]["share"].item()
    assert gaps == pytest.approx(31 / ROWS, abs=0.03)


def test_a_line_has_the_same_terms_with_rows_and_without() -> None:
    model = fitted("linear")
    with_rows, without = (found.frame for found in (model.explain(TABLE), model.explain()))
    levels = with_rows[with_rows["feature"] == "plan"].set_index("level")["contribution"]
    others = without[without["feature"] == "plan"].set_index("level")["contribution"]
    pd.testing.assert_series_equal(levels, others)


def test_monotone_columns_are_found_by_name_and_kept() -> None:
    model = fitted(additive(monotone={"income": -1}))
    grid = pd.concat([TABLE.iloc[[40]]] * 60, ignore_index=True)
    grid["income"] = np.linspace(-1e5, 9e5, 60)
    assert (np.diff(model.decision_function(grid)) <= 1e-12).all()
    with pytest.raises(ValueError, match=r"monotone: expected features of the table \(age, .*\), got 'height'"):
        fitted(additive(monotone={"height": 1}))


# ---- the folder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", ["additive", additive(bins=4, interactions=2, monotone={"age": 1})], ids=["", "options"]
)
def test_a_saved_model_predicts_and_explains_the_same(model: Any, tmp_path: Path) -> None:
    saved = fitted(model)
    loaded = load(save(saved, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.decision_function(TABLE), saved.decision_function(TABLE))
    pd.testing.assert_frame_equal(loaded.explain(TABLE).frame, saved.explain(TABLE).frame)
    assert loaded.model_.network_.name == "additive"
    assert "| age | " in (tmp_path / "model" / "README.md").read_text().split("## What counts")[1]


def forged(folder: Path, **changes: Any) -> None:
    """Change tensors of a folder, and leave out the digest that would show it."""
    path, manifest = folder / "weights.safetensors", folder / "model.json"
    tensors = safetensors.torch.load_file(path)
    tensors |= {name: change(tensors[name]) for name, change in changes.items()}
    path.write_bytes(safetensors.torch.save(tensors))
    state = json.loads(manifest.read_text())
    del state["weights_sha256"]
    manifest.write_text(json.dumps(state))


@pytest.mark.parametrize(
    ("tensor", "change", "message"),
    [
        ("network.encoding.source", lambda t: t - 1, "encoding: expected knots of every feature in order"),
        ("network.encoding.source", lambda t: t + 2**40, "encoding: expected knots of every feature in order"),
        ("network.encoding.start", lambda t: t + 2**40, "encoding.start: expected knots that have a next one"),
        ("network.encoding.knots", lambda t: t * torch.nan, "finite numbers"),
        ("network.encoding.knots", lambda t: t.flip(0), "encoding: expected knots of every feature in order"),
        ("network.head.weight", lambda t: t + 1e300, "every score is finite"),
        ("network.head.weight", lambda t: t[:, 1:].contiguous(), "bytes of tensors|expected the shape"),
    ],
)
def test_a_forged_folder_is_refused(tensor: str, change: Any, message: str, tmp_path: Path) -> None:
    folder = save(ADDITIVE, tmp_path / "model")
    forged(folder, **{tensor: change})
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_sizes_in_the_manifest_are_limited(tmp_path: Path) -> None:
    folder = save(ADDITIVE, tmp_path / "model")
    state = json.loads((folder / "model.json").read_text())
    state["model"]["sizes"]["pieces"] = 10**12
    (folder / "model.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=r"model.sizes.pieces: expected at most 10,000 for each of"):
        load(folder)
