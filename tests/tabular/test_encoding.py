"""Columns to features; scikit-learn's own transformers are the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from metricgrad import Recipe, TableClassifier, load, save
from metricgrad.tabular import encoding
from metricgrad.tabular.cells import TableError
from metricgrad.tabular.encoding import MAX_LEVELS, MAX_SCALED, Preparation, text_width
from metricgrad.tabular.manifest import Field, read_preparation
from metricgrad.tabular.schema import Column, Schema


def features(frame: pd.DataFrame, unseen: pd.DataFrame | None = None, **kinds: str) -> np.ndarray:
    schema = Schema(tuple(Column(name, kind) for name, kind in kinds.items())) if kinds else None
    return Preparation(schema).fit(frame).transform(frame if unseen is None else unseen)


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=3, max_size=40))
def test_numbers_are_filled_and_scaled_as_scikit_learn_does(values: list[float | None]) -> None:
    x = np.array(values, float)[:, None]
    if np.isnan(x).all():
        return
    filled = SimpleImputer(strategy="median", add_indicator=True).fit_transform(x)
    spread = filled[:, 0].std()
    expected = (
        StandardScaler().fit_transform(filled[:, :1])[:, 0].clip(-MAX_SCALED, MAX_SCALED) if spread > 1e-6 else None
    )
    found = features(pd.DataFrame({"x": x[:, 0]}), x="number")
    assert found.shape[1] == filled.shape[1]
    if expected is not None:
        np.testing.assert_allclose(found[:, 0], expected, atol=1e-4)
    np.testing.assert_array_equal(found[:, 1:], filled[:, 1:])


@given(st.lists(st.sampled_from("abc"), min_size=20, max_size=60), st.lists(st.sampled_from("abcdz"), min_size=1))
def test_categories_are_spread_out_as_scikit_learn_does(seen: list[str], new: list[str]) -> None:
    if min(seen.count(level) for level in set(seen)) < 5:
        return
    oracle = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(np.array(seen, object)[:, None])
    found = features(pd.DataFrame({"x": seen}), pd.DataFrame({"x": new}), x="category")
    np.testing.assert_array_equal(found, oracle.transform(np.array(new, object)[:, None]))


def test_rare_and_new_levels_share_a_feature_and_gaps_have_their_own() -> None:
    frame = pd.DataFrame({"x": ["a"] * 9 + ["b"] * 8 + ["rare"] * 2 + [None]})
    preparation = Preparation(Schema((Column("x", "category"),))).fit(frame)
    assert list(preparation.get_feature_names_out()) == ["x = a", "x = b", "x = other", "x missing"]
    new = preparation.transform(pd.DataFrame({"x": ["b", "rare", "never seen", None]}))
    assert new.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


def test_a_category_of_very_many_levels_keeps_the_most_common() -> None:
    frame = pd.DataFrame({"x": [f"v{i % 90:02}" for i in range(900)] + ["v89"] * 10})
    preparation = Preparation(Schema((Column("x", "category"),))).fit(frame)
    names = list(preparation.get_feature_names_out())
    assert len(names) == MAX_LEVELS + 1
    assert "x = v89" in names
    assert preparation.transform(frame).sum(axis=1).tolist() == [1] * 910


def test_dates_are_days_month_weekday_and_hour() -> None:
    moments = pd.Series(pd.date_range("2020-01-01 06:00", periods=50, freq="37h"))
    preparation = Preparation(Schema((Column("x", "date"),))).fit(pd.DataFrame({"x": moments}))
    parts = np.column_stack([moments.astype("int64"), moments.dt.month, moments.dt.day_of_week, moments.dt.hour])
    expected = make_pipeline(StandardScaler()).fit_transform(parts.astype(float))
    np.testing.assert_allclose(preparation.transform(pd.DataFrame({"x": moments})), expected, atol=1e-4)


def test_an_odd_number_is_cut_and_a_missing_one_filled_where_none_was_before() -> None:
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4, 5]})
    found = features(frame, pd.DataFrame({"x": ["1e30", None, "no number", "3"]}), x="number")
    assert found[:, 0].tolist() == [MAX_SCALED, 0, 0, 0]


def test_columns_are_found_by_name_in_any_order_and_missing_ones_are_named() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"], "c": [0.5, 0.1, 0.2]})
    preparation = Preparation().fit(frame)
    np.testing.assert_array_equal(
        preparation.transform(frame), preparation.transform(frame[["c", "b", "a"]].assign(d=1))
    )
    with pytest.raises(TableError, match="expected the columns of the table fitted on, got none named b, c"):
        preparation.transform(frame[["a"]])


def test_a_table_with_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(TableError, match="expected a column to learn from, got none: dropped, a single value: a"):
        Preparation().fit(pd.DataFrame({"a": [1, 1]}))


column = st.one_of(
    st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=12, max_size=12),
    st.lists(st.one_of(st.none(), st.text(max_size=2)), min_size=12, max_size=12),
    st.lists(st.one_of(st.none(), st.sampled_from(["yes", "no"])), min_size=12, max_size=12),
    st.lists(st.dates(), min_size=12, max_size=12).map(lambda days: [f"{day:%Y-%m-%d}" for day in days]),
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(min_size=1, max_size=3), column, min_size=1, max_size=4))
def test_what_was_learned_comes_back_from_json(columns: dict[str, list[Any]]) -> None:
    frame = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})
    try:
        preparation = Preparation().fit(frame)
    except TableError:
        return
    state = json.loads(json.dumps(preparation.state(), allow_nan=False))
    again = read_preparation(preparation.schema_, Field(state)).transform(frame)
    assert np.isfinite(again).all()
    np.testing.assert_array_equal(again, preparation.transform(frame))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "pickle"},
        {"form": "%Y%f junk"},
        {"scale": [0.0]},
        {"scale": [1.0, 1.0]},
        {"fill": [float("nan")]},
        {"centre": []},
        {"name": "other"},
    ],
)
def test_a_state_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    preparation = Preparation().fit(pd.DataFrame({"a": [1, 2, 4]}))
    with pytest.raises(ValueError, match=r"\[0\]\.(kind|form|scale|fill\[0\]|centre|name): expected"):
        read_preparation(preparation.schema_, Field(json.loads(json.dumps([{**preparation.state()[0], **change}]))))


def test_cells_are_read_in_the_format_of_the_table_fitted_on_whatever_the_new_ones_look_like() -> None:
    seen = pd.DataFrame({"x": ["1.234,5 €", "2.000 €", "3,25 €", "17,5 €"], "y": ["5%", "10%", "15%", "20%"]})
    preparation = Preparation().fit(seen)
    again = read_preparation(preparation.schema_, Field(json.loads(json.dumps(preparation.state()))))
    new = pd.DataFrame({"x": ["1,234", "1.234", "1234.5", "$5"], "y": ["5", "1,5%", "7.5 %", "10%"]})
    read = pd.DataFrame({"x": [1.234, 1234, None, None], "y": [None, None, 7.5, 10]})
    np.testing.assert_array_equal(again.transform(new), preparation.transform(read))
    np.testing.assert_array_equal(again.transform(new), preparation.transform(new))


def test_a_large_table_is_taken_apart_as_it_is_encoded_and_a_small_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{i}": draw.normal(size=50) for i in range(5)})
    frame["kind"] = draw.choice(["a", "b", None], 50)
    preparation = Preparation().fit(frame)
    expected, own = preparation.transform(frame), frame.copy()
    np.testing.assert_array_equal(preparation.transform(own, consume=True), expected)
    assert len(own.columns) == len(frame.columns)
    monkeypatch.setattr(encoding, "MAX_CELLS_KEPT", 100)
    np.testing.assert_array_equal(preparation.transform(own, consume=True), expected)
    assert not len(own.columns)


# ---- free text -----------------------------------------------------------------------------------------------------

REVIEWS = [f"this is the {'best' if i % 2 else 'worst'} thing number {i} I ever had" for i in range(80)]


def test_words_of_free_text_are_hashed_as_scikit_learn_does_and_come_back_from_json() -> None:
    frame = pd.DataFrame({"review": [*REVIEWS[:-1], None]})
    preparation = Preparation().fit(frame)
    expected = HashingVectorizer(n_features=256, ngram_range=(1, 2)).transform([*REVIEWS[:-1], ""]).toarray()
    np.testing.assert_allclose(preparation.transform(frame), expected, atol=1e-7)
    again = read_preparation(preparation.schema_, Field(json.loads(json.dumps(preparation.state()))))
    np.testing.assert_array_equal(again.transform(frame), preparation.transform(frame))
    assert preparation.get_feature_names_out()[0] == "review (words 0)"
    assert preparation.schema_.describe() == [
        "free text: review",
        "review: its words are hashed to features, so that rows of similar text are alike",
    ]


def test_text_without_words_is_hashed_by_characters_and_all_text_has_a_limit() -> None:
    pages = pd.DataFrame({f"page {j}": [f"https://example.org/{j}/shop/{i}" for i in range(60)] for j in range(9)})
    preparation = Preparation().fit(pages)
    assert {column.form for column in preparation.schema_.columns} == {"characters"}
    assert preparation.transform(pages).shape == (60, 9 * 64)
    assert text_width(1) == text_width(4) == 256
    assert text_width(1_000) == 16


@pytest.mark.parametrize(
    ("change", "place"),
    [({"width": 0}, "width"), ({"width": 9_999}, "width"), ({"by": "eval"}, "by"), ({"encoder": "OneHot"}, "encoder")],
)
def test_a_hash_that_cannot_be_is_refused(change: dict[str, Any], place: str) -> None:
    preparation = Preparation().fit(pd.DataFrame({"review": REVIEWS}))
    with pytest.raises(ValueError, match=rf"\[0\]\.{place}: expected"):
        read_preparation(preparation.schema_, Field(json.loads(json.dumps([{**preparation.state()[0], **change}]))))


def test_a_model_learns_from_free_text_and_is_saved_with_it(tmp_path: Path) -> None:
    frame = pd.DataFrame({"review": REVIEWS, "good": ["no", "yes"] * 40})
    model = TableClassifier("f1", "cross-entropy", "linear", Recipe(warmup=60, rounds=0), folds=1).fit(frame, "good")
    assert model.score(frame) > 0.9
    loaded = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))
    assert len(loaded.explain().importance) == 256
