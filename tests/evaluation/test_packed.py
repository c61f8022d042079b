"""Records in Parquet files: whatever JSON can hold comes back as it was."""

from __future__ import annotations

import json
import struct
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metricgrad.evaluation.packed import MAX_DEPTH, METADATA_KEY, read_packed, write_packed

NAMES = st.sampled_from(["a", "b", "a.b", "a/b", "~", "~null", "", "made_by", "run", "é", "\ud800", "\0"]) | st.text(
    max_size=4
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=()), max_size=6)
    | st.sampled_from([0, 0.0, -0.0, 1, 1.0, True, 5e-324, 0.1 + 0.2, 2**63, -(2**63), 2**53 + 1])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
RECORDS = st.lists(
    st.dictionaries(NAMES, VALUES, max_size=4).map(lambda fields: {**fields, "run": {"seed": 0}})
    | st.fixed_dictionaries({"run": st.dictionaries(NAMES, VALUES, max_size=3), "made_by": st.just({"commit": "abc"})}),
    max_size=6,
)


def bits(value: Any) -> Any:
    """Return a value in which 1, 1.0 and True, and 0.0 and -0.0, differ."""
    if isinstance(value, dict):
        return {name: bits(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [bits(inner) for inner in value]
    return type(value).__name__, struct.pack("d", value) if isinstance(value, float) else value


def round_trip(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.parquet"
        write_packed(path, records)
        return read_packed(path)


@given(RECORDS)
@example([])
@example([{"run": {}}])
@example([{"run": {"a": None}}, {"run": {}}, {"run": {"a": {}}}, {"run": {"a": {"b": None}}}, {"run": {"a": []}}])
@example([{"run": {}, "made_by": {"commit": "a"}}, {"run": {}, "made_by": {"commit": "b"}}, {"run": {}}])
def test_every_record_comes_back_to_the_bit(records: list[dict[str, Any]]) -> None:
    assert bits(round_trip(records)) == bits(records)


def test_fields_come_back_in_the_order_of_their_names() -> None:
    records = [{"b": {"d": 1, "c": None}, "a": 1, "run": {}}, {"run": {}, "made_by": {"date": "x"}}]
    assert [json.dumps(record) for record in round_trip(records)] == [json.dumps(r, sort_keys=True) for r in records]


def test_objects_nested_deeply_come_back() -> None:
    value: dict[str, Any] = {}
    for _ in range(20 * MAX_DEPTH):
        value = {"in": value}
    assert round_trip([{"run": value}]) == [{"run": value}]


def test_what_made_all_records_is_kept_once_and_not_as_a_column(tmp_path: Path) -> None:
    write_packed(tmp_path / "a.parquet", [{"run": {"seed": seed}, "made_by": {"commit": "abc"}} for seed in range(9)])
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["/run/seed", "~null"]
    assert json.loads(table.schema.metadata[METADATA_KEY])["made_by"] == {"commit": "abc"}


def test_records_do_not_share_what_they_hold() -> None:
    first, second = round_trip([{"run": {}, "made_by": {"commit": "abc"}, "list": [1, "a"]}] * 2)
    first["made_by"]["commit"] = first["list"][0] = "changed"
    assert (second["made_by"]["commit"], second["list"]) == ("abc", [1, "a"])


def test_numbers_are_columns_of_numbers_for_other_programs(tmp_path: Path) -> None:
    records = [{"run": {"seed": 1}, "loss": 0.25, "history": [0.5, None]}, {"run": {"seed": 2}, "history": []}]
    write_packed(tmp_path / "a.parquet", records)
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.field("/run/seed").type == pa.int64()
    assert schema.field("/loss").type == pa.float64()
    assert schema.field("/history").type == pa.list_(pa.float64())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
def test_a_damaged_file_is_one_clear_error(share: float, tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    write_packed(path, [{"run": {"seed": seed}, "loss": seed / 7} for seed in range(200)])
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"runs\.parquet: expected a Parquet file of records, got one that cannot"):
        read_packed(path)


def test_bytes_that_are_flipped_are_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    write_packed(path, [{"run": {"seed": seed}, "loss": seed / 7} for seed in range(20)])
    whole, harmless = path.read_bytes(), 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with suppress(ValueError):  # and nothing else
            assert len(list(read_packed(path))) == 20
            harmless += 1
    assert harmless < len(whole) / 7


def test_a_parquet_file_of_something_else_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "data.parquet")
    with pytest.raises(ValueError, match="expected a Parquet file of records"):
        read_packed(tmp_path / "data.parquet")
