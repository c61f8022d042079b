"""Untrusted plain data: every value has the expected type, or is refused by its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricgrad import Recipe, TableClassifier, black_box
from metricgrad.tabular.cells import shortened
from metricgrad.tabular.encoding import Preparation
from metricgrad.tabular.manifest import (
    MAX_TEXT,
    Field,
    check_storable,
    parsed,
    read_file,
    read_table_state,
    table_state,
)
from metricgrad.tabular.target import Target

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KINDS: dict[str, tuple[Callable[[Field], Any], Callable[[Any], bool]]] = {
    "text": (Field.text, lambda value: isinstance(value, str) and bool(value.encode() or not value)),
    "flag": (Field.flag, lambda value: isinstance(value, bool)),
    "count": (Field.count, lambda value: type(value) is int and 0 <= value < 2**63),
    "number": (Field.number, lambda value: type(value) is float and math.isfinite(value)),
    "number or NaN": (Field.number_or_nan, lambda value: type(value) is float and not math.isinf(value)),
    "items": (lambda field: field.items(2), lambda value: isinstance(value, list) and len(value) <= 2),
    "field": (lambda field: field["a"], lambda value: isinstance(value, Field)),
    "choice": (lambda field: field.one_of(["a", "b"]), lambda value: value in ("a", "b")),
}


@given(json_values, st.sampled_from(sorted(KINDS)))
def test_a_value_is_what_it_should_be_or_is_refused_by_its_place(value: Any, kind: str) -> None:
    read, fits = KINDS[kind]
    found, said = None, ""
    try:
        found = read(Field(value, "here"))
    except ValueError as error:
        said = str(error)
    assert fits(found) if not said else re.match("here: expected .+, got .{1,700}$", said)


@given(json_values)
def test_any_value_is_written_in_a_few_words_of_one_line(value: Any) -> None:
    assert len(shortened(value)) < 700
    assert len(shortened(value).splitlines()) == 1


def test_places_are_named_as_they_are_reached() -> None:
    field = Field({"a": [{"b": 3}]})["a"].items()[0]["b"]
    assert field.place == "a[0].b"
    with pytest.raises(ValueError, match=r"^a\[0\].b: expected text of at most 2 characters of Unicode, got 'abc'$"):
        Field("abc", field.place).text(2)
    with pytest.raises(ValueError, match=r"^expected a field 'b', got an object of 1$"):
        Field({"a": 1})["b"]


@given(st.binary(max_size=60))
def test_bytes_are_json_or_a_value_error(content: bytes) -> None:
    found, said = Field(None), ""
    try:
        found = parsed(content)
    except ValueError as error:
        said = str(error)
    if said:
        assert said.startswith("expected JSON, got ")
    else:
        assert json.dumps(found.value) == json.dumps(json.loads(content.decode()))


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1234")
    assert read_file(file, 4) == b"1234"
    with pytest.raises(ValueError, match="expected at most 3 bytes, got 4"):
        read_file(file, 3)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nowhere", 3)


# ---- the table -----------------------------------------------------------------------------------------------------


ENDLESS = Recipe(warmup=10**9)
"""A training that would never end."""


def test_metric_target_and_encoders_come_back() -> None:
    frame = pd.DataFrame({"age": [20, 40, None] * 9, "plan": ["a", "b", "a"] * 9, "all": 1})
    preparation, target = Preparation().fit(frame), Target("left", False, True)
    state = table_state("f1", target, preparation)
    check_storable(state)
    metric, again, prepared = read_table_state(Field(json.loads(json.dumps(state))))
    assert (metric, again) == ("f1", target)
    assert prepared.schema_ == preparation.schema_
    np.testing.assert_array_equal(prepared.transform(frame), preparation.transform(frame))


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": np.arange(40) % 7, "left": ["yes", "no"] * 20, **columns})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"c" * (MAX_TEXT + 1): np.arange(40) % 5}, r"columns\[1\].name: expected text of at most 100,000 characters"),
        (
            {"plan": np.array(["x" * (MAX_TEXT + 1), "y", "z"])[np.arange(40) % 3]},
            r"preparation\[1\].levels\[\d\]: expected text of at most 100,000",
        ),
        (
            {f"plan{i}": [f"{n % 5}{'😀' * 90_000}" for n in range(40)] for i in range(6)},
            "expected a table described in .* bytes and .* values, got .*; ignore some columns",
        ),
    ],
    ids=["name", "level", "all"],
)
def test_a_table_that_cannot_be_described_is_refused_before_training(columns: dict[str, Any], message: str) -> None:
    model = TableClassifier("f1", "cross-entropy", "linear", ENDLESS)
    with pytest.raises(ValueError, match=message):
        model.fit(frame(**columns), "left")


def test_a_label_that_cannot_be_described_is_refused_before_training() -> None:
    strange = ["x" * (MAX_TEXT + 1), "y"] * 20
    with pytest.raises(ValueError, match=r"target.(negative|positive): expected text of at most 100,000 characters"):
        TableClassifier("f1", "cross-entropy", "linear", ENDLESS).fit(frame()[["age"]], np.array(strange))


def test_a_metric_whose_name_cannot_be_kept_is_refused_before_training() -> None:
    def gain(y_true: Any, y_pred: Any) -> float:
        return float((y_true * y_pred).sum())

    metric = black_box(gain, name="g" * 2_000, higher_is_better=True, labels=True)
    with pytest.raises(ValueError, match="metric: expected text of at most 1,000 characters of Unicode, got 'ggg"):
        TableClassifier(metric, "cross-entropy", "linear", ENDLESS).fit(frame(), "left")


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("label_map", "target: expected columns of labels, two at least for 'label_map', a metric of several labels"),
        ("ndcg", "metric: expected one of classes, such as 'f1' or 'macro_f1', got 'ndcg.*; use TableRanker"),
        ("within(0.1)", "metric: expected one of classes, such as 'f1' or 'macro_f1', got .*; use TableRegressor"),
    ],
)
def test_a_metric_of_anything_but_classes_is_refused_before_training(metric: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableClassifier(metric, "cross-entropy", "linear", ENDLESS).fit(frame(), "left")


def test_the_positive_label_may_be_called_other() -> None:
    labels = np.array(["other", "a", "b", "c"] * 10)
    quick = Recipe(warmup=9, rounds=0)
    model = TableClassifier("f1", "cross-entropy", "linear", quick, positive="other").fit(frame()[["age"]], labels)
    assert model.classes_.tolist() == ["not other", "other"]
