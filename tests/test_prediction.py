"""Predictions of files: the same in parts as at once, whole or not there, harmless to a spreadsheet."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricgrad import Recipe, TableClassifier, prediction
from metricgrad.prediction import harmless, judged, write_predictions
from metricgrad.reading import TableError, read_chunks, read_table

RNG = np.random.default_rng(0)
N = 150
FRAME = pd.DataFrame(
    {
        "user_id": [f"u{i}" for i in range(N)],
        "age": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(40, 9, N).round(2)),
        "plan": RNG.choice(["a", "b", "c"], N),
        "weight": RNG.integers(1, 3, N),
        "churn": np.where(RNG.random(N) < 0.4, "left", "stayed"),
    }
)


@pytest.fixture(scope="module")
def model() -> TableClassifier:
    quick = Recipe(warmup=30, rounds=0, learning_rate=0.05)
    return TableClassifier("f1", "cross-entropy", "linear", quick).fit(FRAME, "churn", sample_weight="weight")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    return tmp_path / "data.csv"


def test_row_numbers_ids_scores_and_labels_are_written(model: TableClassifier, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert write_predictions(model, data, out) == N
    written = pd.read_csv(out)
    assert list(written.columns) == ["row", "user_id", "score", "label"]
    assert written["row"].tolist() == list(range(1, N + 1))
    assert written["user_id"].tolist() == FRAME["user_id"].tolist()
    np.testing.assert_array_equal(written["label"], model.predict(FRAME))
    np.testing.assert_allclose(written["score"], model.decision_function(FRAME), rtol=1e-12)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_a_file_in_parts_is_scored_as_at_once(
    model: TableClassifier, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, whole, parts = (tmp_path / name for name in ("data", "whole.csv", "parts.csv"))
    FRAME.to_csv(data, index=False) if kind == "csv" else getattr(FRAME, f"to_{kind}")(data)
    write_predictions(model, data, whole)
    monkeypatch.setattr(prediction, "read_chunks", lambda path: read_chunks(path, 40))
    assert write_predictions(model, data, parts) == N
    assert parts.read_bytes() == whole.read_bytes()
    scores, targets, weights = judged(model, data, "weight")
    np.testing.assert_allclose(scores, model.decision_function(FRAME), rtol=1e-12)
    np.testing.assert_array_equal(targets, FRAME["churn"] == "left")
    np.testing.assert_array_equal(weights, FRAME["weight"])


def test_missing_columns_are_refused_and_extra_ones_told_of(model: TableClassifier, tmp_path: Path) -> None:
    told: list[str] = []
    FRAME[["plan", "age"]].assign(zip=1).to_csv(tmp_path / "a.csv", index=False)
    write_predictions(model, tmp_path / "a.csv", tmp_path / "out.csv", tell=told.append)
    assert told == ["not used, for the model was fitted without: zip"]
    assert list(pd.read_csv(tmp_path / "out.csv").columns) == ["row", "score", "label"]
    FRAME[["user_id"]].assign(Plan="a").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(
        TableError, match="expected the columns the model was fitted on, missing: age, plan; not known: Plan"
    ):
        write_predictions(model, tmp_path / "b.csv", tmp_path / "new.csv")
    with pytest.raises(TableError, match="id: expected the name of a column, got 'nobody'"):
        write_predictions(model, tmp_path / "a.csv", tmp_path / "new.csv", ids=["nobody"])
    with pytest.raises(TableError, match="target: expected the name of a column, got 'churn'"):
        judged(model, tmp_path / "a.csv")
    assert not (tmp_path / "new.csv").exists()


def test_a_file_that_breaks_off_leaves_the_old_predictions_as_they_were(
    model: TableClassifier, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    data.write_text(data.read_text() + "one,cell,too,many,in,this,row\n")
    monkeypatch.setattr(prediction, "read_chunks", lambda path: read_chunks(path, 40))
    with pytest.raises(TableError, match="row 152: expected 5 cells"):
        write_predictions(model, data, out)
    assert out.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["data.csv", "out.csv"]
    with pytest.raises(TableError, match="out: expected a file, got the folder"):
        write_predictions(model, data, tmp_path)


def test_rows_without_a_target_are_not_judged(model: TableClassifier, data: Path) -> None:
    FRAME.assign(churn=FRAME["churn"].where(FRAME.index < 50)).to_csv(data, index=False)
    assert [len(part) for part in judged(model, data)[:2]] == [50, 50]
    FRAME.assign(churn=None).to_csv(data, index=False)
    with pytest.raises(TableError, match="target: expected labels in 'churn', got none in"):
        judged(model, data)


@given(
    st.one_of(st.text(max_size=6), st.sampled_from("=+-@\t\r").flatmap(lambda c: st.text(max_size=5).map(c.__add__)))
)
def test_no_cell_begins_a_formula_and_nothing_else_changes(text: str) -> None:
    safe = harmless(text)
    assert safe in (text, f"'{text}")
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        assert safe == text
    elif safe == text:
        assert np.isfinite(float(text)) or "e" in text.lower()


@pytest.mark.parametrize("value", ["-3.5", "+1", "-.5", "1e9", "-1E-3", 7, -7.5, None, "plain"])
def test_numbers_stay_as_they_are(value: Any) -> None:
    assert harmless(value) == value


def test_ids_and_names_of_any_kind_come_back_from_the_file(model: TableClassifier, tmp_path: Path) -> None:
    strange = 'a,b "c"\n<script>'
    ids = ["=cmd|'/C calc'!A0", "-5", 'say "hi", twice\nor not', "<b>"]
    frame = FRAME.head(4).assign(**{strange: ids, "=evil": ids})
    frame.to_csv(tmp_path / "data.csv", index=False)
    assert read_table(tmp_path / "data.csv")[strange].tolist() == ids
    write_predictions(model, tmp_path / "data.csv", tmp_path / "out.csv", ids=[strange, "=evil"])
    rows = list(csv.reader(io.StringIO((tmp_path / "out.csv").read_text(), newline="")))
    assert rows[0] == ["row", strange, "'=evil", "score", "label"]
    assert [row[1] for row in rows[1:]] == [f"'{ids[0]}", *ids[1:]]
