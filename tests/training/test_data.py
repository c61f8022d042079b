"""Merging equal rows, scaling that loses nothing, and which rows are a query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.training import data as table
from metricgrad.training.data import Scaler, TrainingData, members, merge_duplicates, queries_of

ROWS = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0], [1.0, 2.0], [3.0, 0.0]])
TARGETS = np.array([1, 0, 1, 0, 1], np.int8)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_equal_rows_of_a_class_are_merged_and_their_weights_added(kind: type) -> None:
    x, targets, weights = merge_duplicates(kind(ROWS), TARGETS, np.array([1.0, 2.0, 3.0, 4.0, 0.0]))
    dense = x.toarray() if scipy.sparse.issparse(x) else x
    assert dense.tolist() == [[0, 5], [1, 2], [1, 2]]
    assert targets.tolist() == [0, 0, 1]
    assert weights.tolist() == [2, 4, 4]


def test_rows_that_are_all_different_need_no_weights() -> None:
    x, targets, weights = merge_duplicates(ROWS[1:3], TARGETS[1:3], None)
    assert (len(x), targets.tolist(), weights) == (2, [0, 1], None)


def test_large_tables_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_MERGE_ROWS", "MAX_MERGE_CELLS"):
        with monkeypatch.context() as smaller:
            smaller.setattr(table, limit, 4)
            assert merge_duplicates(ROWS, TARGETS, None)[0] is ROWS


def test_a_scaled_feature_has_mean_zero_and_deviation_one_by_weight() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(1e9, 3.0, size=(500, 2))
    weights = generator.integers(0, 4, 500).astype(float)
    out = np.repeat(Scaler.fit(x, weights=weights).transform(x), weights.astype(int), axis=0)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(0), 1, rtol=1e-5)


def test_sparse_features_are_scaled_alike_but_keep_their_zeros() -> None:
    sparse = scipy.sparse.csr_matrix(ROWS)
    scaler = Scaler.fit(sparse)
    assert scaler.centre.tolist() == [0, 0]
    np.testing.assert_allclose(scaler.scale, ROWS.std(0))
    np.testing.assert_allclose(scaler.transform(sparse), ROWS / ROWS.std(0), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1e-30, 0.1, 1e12])
def test_a_feature_that_does_not_vary_keeps_its_scale(value: float) -> None:
    for x in (np.full((7, 1), value), scipy.sparse.csr_matrix(np.full((7, 1), value))):
        assert Scaler.fit(x).scale.tolist() == [1.0]


def test_the_layout_of_a_table_does_not_matter() -> None:
    some = np.array([4, 0, 1])
    for x in (ROWS, np.asfortranarray(ROWS)):
        assert Scaler.fit(x, standardise=False).transform(x).flags.c_contiguous
        np.testing.assert_allclose(Scaler.fit(x, some).scale, ROWS[some].std(0))
        np.testing.assert_array_equal(Scaler.fit(x, standardise=False).transform(x, some), ROWS[some])


def test_parts_are_taken_as_tensors() -> None:
    part = np.array([1, 4])
    x, y, w, members = TrainingData(ROWS, TARGETS).rows(part)
    assert (x.tolist(), y.tolist(), w, members) == ([[0, 5], [3, 0]], [0, 1], None, None)
    weighed = TrainingData(ROWS, TARGETS, np.arange(5.0)).rows(part)
    assert weighed.w is not None
    assert weighed.w.tolist() == [1, 4]


def test_classes_and_columns_are_taken_as_the_metric_takes_them() -> None:
    part = np.array([1, 4])
    several = TrainingData(ROWS, np.array([0, 2, 1, 0, 1]), classes=3).rows(part)
    assert several.y.tolist() == [[0, 0, 1], [0, 1, 0]]
    amounts = TrainingData(ROWS, TARGETS, columns=np.arange(10.0).reshape(5, 2)).rows(part)
    assert amounts.y.tolist() == [[0, 2, 3], [1, 8, 9]]
    labels = TrainingData(ROWS, np.eye(5, dtype=np.int8))
    assert labels.strata.tolist() == [0] * 5
    assert labels.rows(part).y.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_a_table_of_few_cells_keeps_its_rows_for_the_split() -> None:
    X = np.tile([[0.0], [1.0]], (50, 1))
    targets = np.tile([0, 1], 50).astype(np.int8)
    kept, same, weights = merge_duplicates(X, targets, None)
    assert len(kept) == len(same) == 100
    np.testing.assert_array_equal(weights, np.ones(100))


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e-30])
def test_features_of_any_size_are_scaled_to_one(size: float) -> None:
    X = np.random.RandomState(0).normal(2, 3, (500, 2)) * size
    done = Scaler.fit(X).transform(X)
    np.testing.assert_allclose(done.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(done.std(0), 1, atol=1e-5)


def test_scaling_is_the_same_in_chunks_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.RandomState(0).normal(5, 2, (1000, 3))
    weights = np.random.RandomState(1).uniform(size=1000)
    whole = Scaler.fit(X, weights=weights)
    centre, scale = whole.centre, whole.scale
    mean = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(centre, mean)
    np.testing.assert_allclose(scale, np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights)))
    monkeypatch.setattr(table, "ROWS_AT_ONCE", 64)
    in_chunks = Scaler.fit(X, weights=weights)
    np.testing.assert_allclose(in_chunks.centre, centre)
    np.testing.assert_allclose(in_chunks.scale, scale)
    np.testing.assert_array_equal(whole.transform(X), ((X - centre) / scale).astype(np.float32))


# ---- queries -------------------------------------------------------------------------------------------------------


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), seed=st.integers(0, 2**32 - 1))
def test_sizes_and_names_say_the_same_of_rows_that_lie_together(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = rng.permutation(len(sizes)).repeat(sizes)
    by_size = queries_of(sum(sizes), group=sizes)
    assert [len(query) for query in by_size] == sizes
    np.testing.assert_array_equal(np.concatenate(by_size), np.arange(sum(sizes)))
    assert [query.tolist() for query in queries_of(sum(sizes), qid=names)] == [query.tolist() for query in by_size]


@pytest.mark.parametrize(
    "names",
    [["x", "y", "x"], pd.Series(["x", "y", "x"]), np.array([7.5, 1.5, 7.5]), pd.Categorical(["x", "y", "x"])],
    ids=["list", "series", "numbers", "categories"],
)
def test_names_may_be_of_any_kind_and_rows_in_any_order(names: Any) -> None:
    assert [query.tolist() for query in queries_of(3, qid=names)] == [[0, 2], [1]]


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_queries_side_by_side_hold_every_row_once_and_pad_at_the_end(sizes: list[int]) -> None:
    side_by_side = members(queries_of(sum(sizes), group=sizes))
    assert side_by_side.shape == (len(sizes), max(sizes))
    assert sorted(side_by_side[side_by_side >= 0]) == list(range(sum(sizes)))
    assert [(row >= 0).sum() for row in side_by_side] == sizes
    assert all((row[:size] >= 0).all() for row, size in zip(side_by_side, sizes, strict=True))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "group, qid: expected one of them, to define which rows are a query, got neither"),
        ({"group": [4], "qid": [1] * 4}, "group, qid: expected one of them, .*, got both"),
        ({"group": [1, 2]}, "group: expected sizes that add up to 4 rows, got 3"),
        ({"group": [4, 0]}, "group: expected sizes of queries, integers of at least 1, got"),
        ({"group": [1.5, 2.5]}, "group: expected sizes of queries, integers of at least 1, got"),
        ({"group": []}, "group: expected sizes of queries, integers of at least 1, got"),
        ({"group": "ab"}, "group: expected sizes of queries, integers of at least 1, got 'ab'"),
        ({"qid": [1, 2]}, r"qid: expected one for each of 4 rows, got shape \(2,\)"),
        ({"qid": [1.0, np.nan, 1.0, 2.0]}, "qid: expected a query in every row, got none in row 1"),
        ({"qid": np.array(["a", None, "a", "b"], object)}, "qid: expected a query in every row, got none in row 1"),
    ],
)
def test_invalid_queries_are_named(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        queries_of(4, **how)
