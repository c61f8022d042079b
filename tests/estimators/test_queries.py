"""Which rows are a query: by sizes, by names, side by side, and whole or cut through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.estimators.queries import members, queries_of, whole_queries


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


def test_rows_are_whole_queries_or_the_one_they_cut_is_named() -> None:
    queries = queries_of(6, group=[1, 2, 3])
    assert whole_queries(queries, np.array([1, 0, 0, 1, 1, 1], bool)).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="validation: expected whole queries, got 2 of the 3 rows of query 2"):
        whole_queries(queries, np.array([1, 0, 0, 0, 1, 1], bool))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "group, qid: expected one of them, to say which rows are a query, got neither"),
        ({"group": [4], "qid": [1] * 4}, "group, qid: expected one of them, .*, got both"),
        ({"group": [1, 2]}, "group: expected sizes that add up to 4 rows, got 3"),
        ({"group": [4, 0]}, "group: expected sizes of queries, whole numbers of at least 1, got"),
        ({"group": [1.5, 2.5]}, "group: expected sizes of queries, whole numbers of at least 1, got"),
        ({"group": []}, "group: expected sizes of queries, whole numbers of at least 1, got"),
        ({"group": "ab"}, "group: expected sizes of queries, whole numbers of at least 1, got 'ab'"),
        ({"qid": [1, 2]}, r"qid: expected one for each of 4 rows, got shape \(2,\)"),
        ({"qid": [1.0, np.nan, 1.0, 2.0]}, "qid: expected a query in every row, got none in row 1"),
        ({"qid": np.array(["a", None, "a", "b"], object)}, "qid: expected a query in every row, got none in row 1"),
    ],
)
def test_what_is_wrong_is_named(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        queries_of(4, **how)
