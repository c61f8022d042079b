"""Kinds of columns, inferred from their cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricgrad.tabular.cells import TableError
from metricgrad.tabular.schema import DROPPED, USED, Column, infer_columns

N = 100


def kind_of(cells: Any, name: str = "x") -> str:
    return infer_columns(pd.DataFrame({name: cells})).columns[0].kind


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([f"{i}.5" for i in range(N)], "number"),
        ([1, 2] * 50, "number"),
        (["1", "2", None] * 30, "number"),
        (["3"] * 99 + ["three"], "number"),
        (["3", "4"] * 45 + ["three"] * 10, "category"),
        (["a", "b"] * 50, "category"),
        (["a", None] * 50, "category"),
        ([f"city {i % 40}" for i in range(N)], "category"),
        ([f"v{i}" for i in range(20)], "category"),
        (["yes", "no"] * 50, "boolean"),
        (["True", "false"] * 50, "boolean"),
        ([True, False] * 50, "boolean"),
        (["yes", None] * 50, "boolean"),
        (pd.date_range("2020", periods=N), "date"),
        (pd.date_range("2020", periods=N).strftime("%d.%m.%Y"), "date"),
        (pd.date_range("2020", periods=N, tz="UTC"), "date"),
        ([None] * N, "empty"),
        (["a"] * N, "constant"),
        ([7.5] * N, "constant"),
        ([f"user-{i}" for i in range(N)], "id"),
        (range(5, 5 + N), "id"),
        ([f"they said that it was {i} times better" for i in range(N)], "prose"),
        ([f"https://example.org/shop/page-{i}" for i in range(N)], "prose"),
        ([f"{i:08x}-aaaa-bbbb-cccc-ddddeeeeffff" for i in range(N)], "id"),
        ([f"someone.{i}@mail.example.org" for i in range(N)], "id"),
        ([[i] for i in range(N)], "nested"),
        ([{"a": i} for i in range(N)], "nested"),
    ],
)
def test_a_column_is_what_its_cells_say(cells: Any, kind: str) -> None:
    assert kind_of(cells) == kind
    assert kind in {**USED, **DROPPED}


@pytest.mark.parametrize("name", ["id", "customer_id", "customerId", "UUID", "row", "unnamed_1", "order key"])
def test_integers_unique_to_every_row_are_an_id_by_name(name: str) -> None:
    once = np.random.default_rng(0).permutation(N) * 7
    assert kind_of(once, name) == "id"
    assert kind_of(once, "income") == "number"
    assert kind_of(once / 2 + 0.1, name) == "number"
    assert kind_of([*once[:-1], once[0]], name) == "number"
    assert kind_of([*once[:-1], 0.5], name) == "number"


def test_columns_asked_to_be_ignored_are() -> None:
    schema = infer_columns(pd.DataFrame({"a": [1, 2, 2], "b": [1, 2, 2]}), ignore=["a"])
    assert schema.names == ["b"]
    with pytest.raises(TableError, match="ignore: expected names of columns, got c"):
        infer_columns(pd.DataFrame({"a": [1, 2]}), ignore=["c"])


def test_what_was_inferred_is_described_in_lines() -> None:
    frame = pd.DataFrame({f"n{i}": range(3, 3 + 2 * N, 2) for i in range(10)}) * 0.5
    frame = frame.assign(all=1, user_id=[f"u{i}" for i in range(N)], age=["7"] * 98 + ["8", "old"])
    said = infer_columns(frame).describe()
    assert said == [
        "numbers: n0, n1, n2, n3, n4, n5, n6, n7 and 3 more",
        "dropped, a single value: all",
        "dropped, unique values, like an id: user_id",
        "age: 1 cells could not be parsed as numbers and are treated as missing",
    ]
    assert infer_columns(frame).ids == ["user_id"]


def test_a_name_of_several_lines_is_shown_on_one() -> None:
    said = infer_columns(pd.DataFrame({"a\nb\x1b[31m": [1, 2, 2]})).describe()
    assert said == ["numbers: 'a\\nb\\x1b[31m'"]


cell = st.one_of(
    st.none(), st.integers(-9, 9), st.floats(), st.text(max_size=3), st.booleans(), st.dates(), st.just("2020-01-01")
)


@settings(max_examples=50)
@given(st.lists(cell, min_size=1, max_size=30))
def test_any_cells_have_a_kind_and_text_of_them_too(cells: list[Any]) -> None:
    for given_cells in (cells, [None if c is None else str(c) for c in cells]):
        assert kind_of(pd.Series(given_cells, dtype=object)) in {**USED, **DROPPED}


@given(st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=1, max_size=60))
def test_a_column_is_the_same_as_numbers_and_as_text(values: list[int | None]) -> None:
    as_text = pd.Series([None if v is None else str(v) for v in values], dtype="str")
    assert kind_of(as_text) == kind_of(pd.Series(values, dtype="Float64"))


def test_a_column_is_plain_data() -> None:
    assert Column("a", "date", "%d/%m/%Y", 2) == Column(name="a", kind="date", form="%d/%m/%Y", stray=2)
