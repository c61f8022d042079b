"""Cells as numbers, booleans, dates and words, however they are stored."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metricgrad.tabular.cells import DATE_FORMATS, date_format, dates, flags, numbers, words

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, min_size=1))
def test_numbers_are_read_from_text_as_python_reads_them(values: list[float]) -> None:
    for cells in (pd.Series([repr(v) for v in values]), pd.Series(values), pd.Series(values, dtype=object)):
        np.testing.assert_allclose(numbers(cells), values, rtol=1e-15)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (pd.Series([" 1 ", "two", None, "inf", "-1e3"]), [1, np.nan, np.nan, np.nan, -1000]),
        (pd.Series([1, None, np.inf]), [1, np.nan, np.nan]),
        (pd.Series([True, None], dtype="boolean"), [1, np.nan]),
        (pd.Series([3, None], dtype="Int64"), [3, np.nan]),
        (pd.Series([Decimal("1.5"), None]), [1.5, np.nan]),
        (pd.Series(["7", "8"], dtype="category"), [7, 8]),
        (pd.Series(pd.to_datetime(["2020-01-01"])), [np.nan]),
    ],
)
def test_what_is_no_finite_number_is_missing(cells: pd.Series, expected: list[float]) -> None:
    np.testing.assert_array_equal(numbers(cells), expected)


def test_words_are_the_same_however_a_label_is_stored() -> None:
    assert words(pd.Series([1, 2])).tolist() == words(pd.Series(["1", " 2 "])).tolist() == ["1", "2"]
    assert words(pd.Series([1.0, None, 2.5])).tolist() == ["1", None, "2.5"]
    assert words(pd.Series(["a", " ", None], dtype="category")).tolist() == ["a", None, None]


def test_yes_and_no_are_known_in_the_words_people_use() -> None:
    said = pd.Series(["Yes", "NO", "true", "f", "maybe", None, "1", "0"])
    np.testing.assert_array_equal(flags(said), [1, 0, 1, 0, np.nan, np.nan, 1, 0])
    np.testing.assert_array_equal(flags(pd.Series([True, False])), [1, 0])
    np.testing.assert_array_equal(flags(pd.Series([0, 1, 2])), [0, 1, np.nan])


@settings(max_examples=40)
@given(
    st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)), min_size=1, max_size=20),
    st.sampled_from(DATE_FORMATS[1:]),
)
def test_dates_are_read_in_the_format_they_are_written_in(moments: list[datetime], form: str) -> None:
    texts = pd.Series([moment.strftime(form) for moment in moments])
    found = date_format(texts, 1.0)
    assert found is not None
    expected = [(datetime.strptime(t, form) - datetime(1970, 1, 1)).total_seconds() / 86_400 for t in texts]
    np.testing.assert_allclose(dates(texts, form), expected)


def test_dates_with_and_without_a_time_zone_are_moments() -> None:
    aware = pd.Series(pd.to_datetime(["2020-01-01T00:00+02:00", None], utc=True))
    np.testing.assert_allclose(dates(aware, ""), [18261 + 22 / 24, np.nan])
    np.testing.assert_allclose(dates(pd.Series(["2020-01-02T12:00:00Z", "2020-01-02"]), "ISO8601"), [18263.5, 18263])


@pytest.mark.parametrize("text", ["A1", "10-20", "x", "2020 was a year", "1/2"])
def test_what_is_no_date_has_no_format(text: str) -> None:
    assert date_format(pd.Series([text]), 1.0) is None
