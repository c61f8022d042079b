"""Records in a Parquet file without loss: a column for every nested field, named by its JSON pointer (RFC 6901).

A column has the type that all its values share; values of several types are JSON text. A field that is missing and one
that is null differ: the column `~null` lists the pointers that are null in each record. What made the records is kept
once, in the metadata of the file, where it is the same for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

METADATA_KEY = b"metricgrad.records"
"""Key of the file's metadata: version of the format, columns of JSON text, and what made all records."""
NULLS = "~null"
"""No pointer: in one, 0 or 1 follows a tilde."""
MAX_DEPTH = 8
"""Objects nested more deeply are JSON text."""
SHARED = ("made_by",)
TYPES: Mapping[type | None, pa.DataType] = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
Place = tuple[str, ...]


# ---- writing -------------------------------------------------------------------------------------------------------


def write_packed(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records to a Parquet file, compressed by zstd."""
    made_by = [json.dumps(record.get("made_by"), sort_keys=True) for record in records]
    shared = json.loads(made_by[0]) if len(set(made_by)) == 1 else None
    found: dict[Place, list[Any]] = {}
    nulls: list[str | None] = []
    for number, record in enumerate(records):
        empty = []
        for place, value in _leaves(record):
            if shared is not None and place[:1] == SHARED:
                continue
            if value is None:
                empty.append(_pointer(place))
                continue
            if place not in found:
                found[place] = [None] * len(records)
            found[place][number] = value
        nulls.append(json.dumps(empty) if empty else None)
    columns, texts = {}, []
    for place in sorted(found):
        kind = _type_of(found[place])
        if kind is None:
            texts.append(_pointer(place))
            found[place] = [None if value is None else json.dumps(value) for value in found[place]]
        columns[_pointer(place)] = pa.array(found[place], kind or pa.string())
    columns[NULLS] = pa.array(nulls, pa.string())
    about = {"version": 1, "json": texts, "made_by": shared}
    table = pa.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(about, sort_keys=True)})
    names = [name for name, column in columns.items() if column.type == pa.string()]  # numbers hardly repeat
    how = {"compression": "zstd", "compression_level": 19, "write_statistics": False, "write_page_checksum": True}
    pq.write_table(table, path, use_dictionary=names, **how)


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield what is not an object, or is an object that has no columns of its own, with its place."""
    if isinstance(value, dict) and value and len(place) < MAX_DEPTH and all(map(_encodable, value)):
        for name, inner in value.items():
            yield from _leaves(inner, (*place, name))
    else:
        yield place, value


def _type_of(values: Sequence[Any]) -> pa.DataType | None:
    """Return the type of a column that keeps all values as they are, or None if there is no such type."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, list) for value in known):
        kinds = {_column_kind(item) for value in known for item in value if item is not None}
        return pa.list_(TYPES[kinds.pop()]) if len(kinds) == 1 and None not in kinds else None
    kinds = {_column_kind(value) for value in known}
    return TYPES[kinds.pop()] if len(kinds) == 1 and None not in kinds else None


def _column_kind(value: Any) -> type | None:
    kind = type(value)
    fits = (kind is not int or -(2**63) <= value < 2**63) and (kind is not str or _encodable(value))
    return kind if kind in TYPES and fits else None


def _encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8: half a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _pointer(place: Place) -> str:
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in place)


# ---- reading -------------------------------------------------------------------------------------------------------


def read_packed(path: Path) -> list[dict[str, Any]]:
    """Return the records of a Parquet file; one that is damaged, or holds something else, is a ValueError."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        return _records_in(table, json.loads(table.schema.metadata[METADATA_KEY]))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(f"{path}: expected a Parquet file of records, got one that cannot be read ({why})") from error


def _records_in(table: pa.Table, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    size, texts = table.num_rows, set(about["json"])
    columns: dict[Place, list[Any]] = {}
    nulls = _nulls(table[NULLS].to_pylist())
    for name in table.drop_columns(NULLS).column_names:
        values = table[name].to_pylist()
        columns[_place(name)] = [v if v is None else json.loads(v) for v in values] if name in texts else values
    if about["made_by"] is not None:
        columns[SHARED] = [json.loads(json.dumps(about["made_by"])) for _ in range(size)]
    records: list[Any] = [{} for _ in range(size)]
    for place in sorted({*columns, *nulls}):
        values, empty = columns.get(place, [None] * size), nulls.get(place, ())
        for number, value in enumerate(values):
            if value is not None or number in empty:
                _put(records, number, place, value)
    return records


def _nulls(column: Sequence[str | None]) -> dict[Place, set[int]]:
    """Return the records in which a place is null."""
    found: dict[Place, set[int]] = {}
    for number, pointers in enumerate(column):
        for pointer in json.loads(pointers) if pointers else ():
            found.setdefault(_place(pointer), set()).add(number)
    return found


def _put(records: list[Any], number: int, place: Place, value: Any) -> None:
    if not place:
        records[number] = value
        return
    inner = records[number]
    for name in place[:-1]:
        inner = inner.setdefault(name, {})
    inner[place[-1]] = value


def _place(pointer: str) -> Place:
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:])
