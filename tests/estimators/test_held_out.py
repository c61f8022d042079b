from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metricgrad.estimators.held_out import is_table, joined

NUMBERS = st.floats(-1e6, 1e6)


def tables(rows: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, (rows, 3), elements=NUMBERS)


def dense(X: Any) -> np.ndarray:
    return X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)


KINDS = {
    "array": np.asarray,
    "list": lambda rows: rows.tolist(),
    "frame": lambda rows: pd.DataFrame(rows, columns=list("abc")),
    "sparse": scipy.sparse.csr_matrix,
}


@pytest.mark.parametrize("kind", KINDS)
@given(one=tables(4), other=tables(3), weighed=st.sampled_from(["none", "first", "second", "both"]))
def test_what_is_joined_can_be_taken_apart_again(kind: str, one: np.ndarray, other: np.ndarray, weighed: str) -> None:
    first = np.arange(4.0) if weighed in ("first", "both") else None
    second = np.arange(3.0) if weighed in ("second", "both") else None
    made = KINDS[kind]
    found = joined(made(one), [0, 1, 0, 1], first, (made(other), [1, 1, 0]), second)
    np.testing.assert_array_equal(dense(found.X)[:4], one)
    np.testing.assert_array_equal(dense(found.X)[found.validation], other)
    assert found.y.tolist() == [0, 1, 0, 1, 1, 1, 0]
    assert found.validation.tolist() == [4, 5, 6]
    if weighed == "none":
        assert found.weights is None
    else:
        np.testing.assert_array_equal(found.weights[:4], np.ones(4) if first is None else first)
        np.testing.assert_array_equal(found.weights[4:], np.ones(3) if second is None else second)


def test_a_frame_keeps_its_names_and_lends_them_to_an_array() -> None:
    frame = KINDS["frame"](np.ones((2, 3)))
    assert list(joined(frame, [0, 1], None, (np.zeros((2, 3)), [0, 1])).X.columns) == list("abc")


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        (([[1.0]], [0]), True),
        ([[[1.0]], [0]], True),
        ((np.ones((2, 2)), [0, 1], [1.0, 1.0]), True),
        ((pd.DataFrame({"a": [1]}), [0]), True),
        ((scipy.sparse.csr_matrix(np.ones((2, 2))), [0, 1]), True),
        (None, False),
        ([0, 1], False),
        ((0, 1), False),
        (np.array([True, False]), False),
        (np.ones((2, 2)), False),
        (pd.DataFrame({"a": [1]}), False),
        ([], False),
    ],
)
def test_rows_of_their_own_are_told_from_numbers_of_rows(validation: Any, expected: bool) -> None:
    assert is_table(validation) is expected
