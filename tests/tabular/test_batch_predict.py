"""Predictions of files: equal in chunks and at once, complete or absent, harmless to a spreadsheet; and the export."""

from __future__ import annotations

import copy
import csv
import io
import json
import os
import stat
import sys
import threading
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from metricgrad import Recipe, TableClassifier, load, save
from metricgrad.cli.app import app
from metricgrad.tabular import batch_predict as prediction
from metricgrad.tabular.batch_predict import FEATURE_NAMES, harmless, scored, write_predictions
from metricgrad.tabular.cells import TableError
from metricgrad.tabular.io import read_chunks, read_table

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
    scores, targets, weights, *_ = scored(model, data, "weight")
    np.testing.assert_allclose(scores, model.decision_function(FRAME), rtol=1e-12)
    np.testing.assert_array_equal(targets, FRAME["churn"] == "left")
    np.testing.assert_array_equal(weights, FRAME["weight"])


def test_columns_of_weights_groups_and_times_are_not_called_unused(
    model: TableClassifier, data: Path, tmp_path: Path
) -> None:
    lines: list[str] = []
    stored = load(save(model, tmp_path / "model"))
    assert stored.columns_aside_ == ("weight",)
    by_user = TableClassifier("f1", "cross-entropy", "linear", model.recipe).fit(FRAME, "churn", groups="user_id")
    for each in (model, stored, by_user):
        write_predictions(each, data, tmp_path / "out.csv", report=lines.append)
        scored(each, data, report=lines.append)
    assert lines == []


def test_missing_columns_are_refused_and_extra_ones_reported(model: TableClassifier, tmp_path: Path) -> None:
    lines: list[str] = []
    FRAME[["plan", "age"]].assign(zip=1).to_csv(tmp_path / "a.csv", index=False)
    write_predictions(model, tmp_path / "a.csv", tmp_path / "out.csv", report=lines.append)
    assert lines == ["columns not seen in training are not used: zip"]
    assert list(pd.read_csv(tmp_path / "out.csv").columns) == ["row", "score", "label"]
    FRAME[["user_id"]].assign(Plan="a").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(
        TableError, match="expected the columns the model was fitted on, missing: age, plan; not known: Plan"
    ):
        write_predictions(model, tmp_path / "b.csv", tmp_path / "new.csv")
    with pytest.raises(TableError, match="id: expected the name of a column, got 'nobody'"):
        write_predictions(model, tmp_path / "a.csv", tmp_path / "new.csv", ids=["nobody"])
    with pytest.raises(TableError, match="target: expected the name of a column, got 'churn'"):
        scored(model, tmp_path / "a.csv")
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
    assert [len(part) for part in scored(model, data)[:2]] == [50, 50]
    FRAME.assign(churn=None).to_csv(data, index=False)
    with pytest.raises(TableError, match="target: expected values in 'churn', got none in"):
        scored(model, data)


SIGNS = "=+-@＝＋－＠"
BLANKS = " \t\r\n\x00\x0b\x1b\xa0\u2003\u200b\u2028\u202e\ufeff"
hostile = st.one_of(
    st.text(max_size=6),
    st.tuples(st.text(BLANKS, max_size=2), st.sampled_from(SIGNS), st.text(max_size=4)).map("".join),
    st.text("\",;\t\r\n\0 =a'-", max_size=8),
)


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet might run a cell, judged without the code under test."""
    shown = unicodedata.normalize("NFKC", cell)
    while shown and (shown[0].isspace() or unicodedata.category(shown[0]) in ("Cc", "Cf")):
        if shown[0] in "\t\r\n":
            return True
        shown = shown[1:]
    try:
        return shown[:1] in ("=", "+", "-", "@") and not np.isfinite(float(cell))
    except ValueError:
        return True


@given(hostile)
def test_no_cell_begins_a_formula_and_nothing_else_changes(text: str) -> None:
    safe = harmless(text)
    assert safe in (text.replace("\0", "\ufffd"), "'" + text.replace("\0", "\ufffd"))
    assert not is_formula(safe)
    if text[:1].isalnum() or text[:1] in ("'", '"', "<", "é"):
        assert not safe.startswith("'") or text.startswith("'")


RUN = ("=1+1", "+cmd", "-2+3+cmd|' /C calc'!A0", "@sum(1)", "\tx", "\rx", "\nx", " =1", "\xa0=1", "\ufeff=1", "\0=1")
RUN_TOO = ("\u200b=1", "＝1", "＋1+1", "－1-1", "＠x", " ＝1", "-5\n", "-٣", "+\uff11", "-inf", pd.Timedelta(-1, "s"))


@pytest.mark.parametrize("text", [*RUN, *RUN_TOO])
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: Any) -> None:
    assert harmless(text) == "'" + str(text).replace("\0", "\ufffd")


@pytest.mark.parametrize("value", ["-3.5", "+1", "-.5", "1e9", "-1E-3", " -5", "-5 ", 7, -7.5, None, "plain", "a=b"])
def test_numbers_stay_as_they_are(value: Any) -> None:
    assert harmless(value) == value


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(hostile, min_size=1, max_size=4), hostile, hostile)
def test_what_is_written_is_read_as_the_same_cells_by_every_reader_and_none_is_a_formula(
    model: TableClassifier, tmp_path: Path, ids: list[str], name: str, label: str
) -> None:
    named = {column: FRAME[column] for column in FRAME if column != name}
    frame = pd.DataFrame({**named}).head(len(ids)).assign(**{name: ids})
    frame.to_parquet(tmp_path / "data.parquet")
    renamed = copy.copy(model)
    renamed.classes_ = np.array([label, f"not {label}"], dtype=object)
    ids_and_names = [name] if name not in ("age", "plan") else []
    assert write_predictions(renamed, tmp_path / "data.parquet", tmp_path / "out.csv", ids_and_names) == len(ids)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    # Without names the column of ids is found: row, id, score, label.
    assert [len(row) for row in rows] == [4] * (len(ids) + 1)
    assert not [cell for row in rows for cell in row if is_formula(cell)]
    if ids_and_names:
        assert [row[1].removeprefix("'") for row in rows[1:]] == [
            text.replace("\0", "\ufffd").removeprefix("'") for text in ids
        ]
    by_pandas = pd.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False, header=None)
    assert by_pandas.to_numpy().tolist() == rows
    by_arrow = pyarrow.csv.read_csv(
        tmp_path / "out.csv",
        pyarrow.csv.ReadOptions(column_names=[str(number) for number in range(len(rows[0]))]),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(column_types={str(number): pa.string() for number in range(len(rows[0]))}),
    )
    assert [list(row.values()) for row in by_arrow.to_pylist()] == rows


def test_ids_named_as_the_columns_of_predictions_are_written_beside_them(
    model: TableClassifier, tmp_path: Path
) -> None:
    FRAME.head(2).assign(row=["a", "b"], score=["c", "d"]).to_parquet(tmp_path / "data.parquet")
    write_predictions(model, tmp_path / "data.parquet", tmp_path / "out.csv", ids=["row", "score"])
    written = pd.read_csv(tmp_path / "out.csv")
    assert list(written.columns) == ["row", "row (id)", "score (id)", "score", "label"]
    assert written["row"].tolist() == [1, 2]
    assert written["score (id)"].tolist() == ["c", "d"]


def test_a_device_is_written_and_not_replaced(model: TableClassifier, data: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    assert write_predictions(model, data, tmp_path / "pipe") == N
    reader.join(10)
    assert read[0].startswith("row,user_id,score,label\n1,u0,")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_terminal_is_not_steered_by_ids_but_a_pipe_gets_them_as_they_are(
    model: TableClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    FRAME.head(2).assign(user_id=["\x1b]0;owned\x07", "b\nc"]).to_parquet(tmp_path / "data.parquet")
    for screen, shown in ((Terminal(), "\\x1b]0;owned\\x07,"), (io.StringIO(), "\x1b]0;owned\x07,")):
        monkeypatch.setattr(sys, "stdout", screen)
        write_predictions(model, tmp_path / "data.parquet", "-", ids=["user_id"])
        assert f"\n1,{shown}" in screen.getvalue()
        assert ("\x1b" in screen.getvalue()) != screen.isatty()


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


# ---- export --------------------------------------------------------------------------------------------------------


RNG2 = np.random.default_rng(0)
SMALL = pd.DataFrame({"age": RNG2.normal(40, 9, 80), "plan": RNG2.choice(["a", "b"], 80), "left": ["yes", "no"] * 40})


@pytest.mark.slow  # exports and loads a program
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_exported_program_scores_as_the_model_does(tmp_path: Path) -> None:
    model = TableClassifier("f1", "cross-entropy", "mlp", Recipe(warmup=9, rounds=0)).fit(SMALL, "left")
    save(model, tmp_path / "model")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--out", str(tmp_path / "left.pt2")])
    assert done.exit_code == 0, done.output
    assert "3 features" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["left.pt2", "model"]
    inside = {FEATURE_NAMES: ""}
    program = torch.export.load(tmp_path / "left.pt2", extra_files=inside).module()
    assert json.loads(inside[FEATURE_NAMES]) == ["age", "plan = a", "plan = b"]
    for rows in (1, 3, 80):
        features = model.pipeline_[0].transform(SMALL.head(rows))
        scores = program(torch.from_numpy(features)).detach().numpy()
        np.testing.assert_allclose(scores, model.decision_function(SMALL.head(rows)), atol=1e-9)
