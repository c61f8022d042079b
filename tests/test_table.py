"""Merging equal rows, and scaling that loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from metricgrad import table
from metricgrad.table import Table, centre_and_scale, merged, scaled

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
    x, y, w = Table(ROWS.astype(np.float32), TARGETS, None).rows(np.array([1, 4]))
    assert (x.tolist(), y.tolist(), w) == ([[0, 5], [3, 0]], [0, 1], None)
    assert Table(ROWS, TARGETS, np.arange(5.0)).rows(np.array([1, 4])).w.tolist() == [1, 4]
