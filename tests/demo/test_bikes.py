"""The embedded hours are those of the source, and none of the columns gives the target away."""

from __future__ import annotations

import gzip
import hashlib

import numpy as np

from metricgrad.demo.bikes import FILE, HOUR_FREE, HOUR_WORKING, NUMBERS, load_bikes, read_bikes

COLUMNS = ["day", "month", "weekday", "working_day", "hour", "weather", "temperature", "humidity", "wind", "bikes"]


def test_the_file_is_the_one_that_was_made_and_small() -> None:
    text = gzip.decompress(FILE.read_bytes())
    assert hashlib.sha256(text).hexdigest() == "6296d19aff68bfa9cf70b4c458ebfd7ddcf536fe0be05cb3fd9e5c835ee53361"
    assert FILE.stat().st_size < 150_000


def test_the_table_has_the_hours_of_a_year_and_no_parts_of_the_target() -> None:
    table = read_bikes()
    assert list(table.columns) == COLUMNS
    assert len(table) == 8_645
    assert table.notna().all(axis=None)
    assert not table.duplicated(["day", "hour"]).any()
    assert sorted(table["day"].unique()) == list(range(1, 366))
    # Known of the source: the bikes of 2011.
    assert (table["bikes"].sum(), table["bikes"].min(), table["bikes"].max()) == (1_243_103, 1, 651)
    numbers = table.select_dtypes("number").drop(columns="bikes")
    assert numbers.corrwith(table["bikes"]).abs().max() < 0.6  # those of members and of others are at 0.97 and 0.7


def test_a_category_has_one_level_and_the_hour_is_of_one_kind_of_day() -> None:
    X, y, day = load_bikes()
    table = read_bikes()
    assert X.index.equals(table.index)
    for column in ("month", "weekday", "weather"):
        assert (X.filter(regex=f"^{column}=").sum(axis=1) == 1).all()
    working, free = (X.filter(regex=f"^{name}=").to_numpy() for name in (HOUR_WORKING, HOUR_FREE))
    np.testing.assert_array_equal(working.sum(1), table["working_day"])
    np.testing.assert_array_equal((working + free).argmax(1), table["hour"])
    assert list(X.columns[-3:]) == list(NUMBERS)
    assert np.array_equal(y, table["bikes"])
    assert np.array_equal(day, table["day"])
    assert (table.groupby("day")["weekday"].nunique() == 1).all()


def test_the_note_beside_it_names_source_and_licence() -> None:
    note = FILE.with_name("bikes.md").read_text("utf-8")
    for words in ("CC BY 4.0", "Fanaee-T", "10.24432/C5W894", "ISLP"):
        assert words in note
    for column in COLUMNS:
        assert f"`{column}`" in note
