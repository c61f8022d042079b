"""Merging equal rows, and scaling that loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from metricgrad.training import data as table
from metricgrad.training.data import Table, centre_and_scale, merged, scaled

ROWS = np.array([[1.0, 2.0], [0.0, 5.0], [1.0, 2.0], [1.0, 2.0], [3.0, 0.0]])
TARGETS = np.array([1, 0, 1, 0, 1], np.int8)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_equal_rows_of_a_class_are_merged_and_their_weights_added(kind: type) -> None:
    x, targets, weights = merged(kind(ROWS), TARGETS, np.array([1.0, 2.0, 3.0, 4.0, 0.0]))
    dense = x.toarray() if scipy.sparse.issparse(x) else x
    assert dense.tolist() == [[0, 5], [1, 2], [1, 2]]
    assert targets.tolist() == [0, 0, 1]
    assert weights.tolist() == [2, 4, 4]


def test_rows_that_are_all_different_need_no_weights() -> None:
    x, targets, weights = merged(ROWS[1:3], TARGETS[1:3], None)
    assert (len(x), targets.tolist(), weights) == (2, [0, 1], None)


def test_large_tables_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MERGED_ROWS", "MERGED_CELLS"):
        with monkeypatch.context() as smaller:
            smaller.setattr(table, limit, 4)
            assert merged(ROWS, TARGETS, None)[0] is ROWS


def test_a_scaled_feature_has_mean_zero_and_deviation_one_by_weight() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(1e9, 3.0, size=(500, 2))
    weights = generator.integers(0, 4, 500).astype(float)
    out = np.repeat(scaled(x, *centre_and_scale(x, weights)), weights.astype(int), axis=0)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(0), 1, rtol=1e-5)


def test_sparse_features_are_scaled_alike_but_keep_their_zeros() -> None:
    centre, scale = centre_and_scale(scipy.sparse.csr_matrix(ROWS), None)
    assert centre.tolist() == [0, 0]
    np.testing.assert_allclose(scale, ROWS.std(0))
    np.testing.assert_allclose(scaled(scipy.sparse.csr_matrix(ROWS), centre, scale), ROWS / ROWS.std(0), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1e-30, 0.1, 1e12])
def test_a_feature_that_does_not_vary_keeps_its_scale(value: float) -> None:
    for x in (np.full((7, 1), value), scipy.sparse.csr_matrix(np.full((7, 1), value))):
        assert centre_and_scale(x, None)[1].tolist() == [1.0]


def test_the_layout_of_a_table_does_not_matter() -> None:
    for x in (ROWS, np.asfortranarray(ROWS)):
        assert scaled(x, np.zeros(2), np.ones(2)).flags.c_contiguous


def test_parts_are_taken_as_tensors() -> None:
    as_it_is, part = (ROWS, np.zeros(2), np.ones(2)), np.array([1, 4])
    x, y, w, members = Table(*as_it_is, TARGETS, None).rows(part)
    assert (x.tolist(), y.tolist(), w, members) == ([[0, 5], [3, 0]], [0, 1], None, None)
    weighed = Table(*as_it_is, TARGETS, np.arange(5.0)).rows(part)
    assert weighed.w is not None
    assert weighed.w.tolist() == [1, 4]


def test_classes_and_columns_are_taken_as_the_metric_takes_them() -> None:
    as_it_is, part = (ROWS, np.zeros(2), np.ones(2)), np.array([1, 4])
    several = Table(*as_it_is, np.array([0, 2, 1, 0, 1]), None, classes=3).rows(part)
    assert several.y.tolist() == [[0, 0, 1], [0, 1, 0]]
    amounts = Table(*as_it_is, TARGETS, None, columns=np.arange(10.0).reshape(5, 2)).rows(part)
    assert amounts.y.tolist() == [[0, 2, 3], [1, 8, 9]]
    labels = Table(*as_it_is, np.eye(5, dtype=np.int8), None)
    assert labels.strata.tolist() == [0] * 5
    assert labels.rows(part).y.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]]


def test_a_table_of_few_cells_keeps_its_rows_for_the_split() -> None:
    X = np.tile([[0.0], [1.0]], (50, 1))
    targets = np.tile([0, 1], 50).astype(np.int8)
    kept, same, weights = merged(X, targets, None)
    assert len(kept) == len(same) == 100
    np.testing.assert_array_equal(weights, np.ones(100))


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e-30])
def test_features_of_any_size_are_scaled_to_one(size: float) -> None:
    X = np.random.RandomState(0).normal(2, 3, (500, 2)) * size
    done = scaled(X, *centre_and_scale(X, None))
    np.testing.assert_allclose(done.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(done.std(0), 1, atol=1e-5)


def test_scaling_is_the_same_in_chunks_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.RandomState(0).normal(5, 2, (1000, 3))
    weights = np.random.RandomState(1).uniform(size=1000)
    centre, scale = centre_and_scale(X, weights)
    mean = np.average(X, axis=0, weights=weights)
    np.testing.assert_allclose(centre, mean)
    np.testing.assert_allclose(scale, np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights)))
    monkeypatch.setattr(table, "CHUNK", 64)
    in_chunks = centre_and_scale(X, weights)
    np.testing.assert_allclose(in_chunks[0], centre)
    np.testing.assert_allclose(in_chunks[1], scale)
    np.testing.assert_array_equal(scaled(X, centre, scale), ((X - centre) / scale).astype(np.float32))
