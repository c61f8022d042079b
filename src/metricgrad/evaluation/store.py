"""Results as data: records in JSON lines while programs run, safe against two writers and a kill, packed as Parquet."""

from __future__ import annotations

import io
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pandas as pd

from metricgrad.evaluation.packed import read_packed, write_packed
from metricgrad.files import exclusive, replacing
from metricgrad.provenance import provenance
from metricgrad.training.old_fields import ADDED_FIELDS, with_new_names

RUNNING, PACKED = ".jsonl", ".parquet"
"""Suffixes of the two files of a store."""


class Store:
    """A collection of records in two files: new ones in JSON lines, older ones in a Parquet file beside them.

    Records are only ever appended, to the JSON lines; `pack` moves them into the Parquet file.

    Parameters
    ----------
    path : path
        The `.jsonl` file, made when the first record is added, or the `.parquet` file of that name.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "runs.jsonl")
    >>> store.add({"run": "a9a", "seed": 0}, {"loss": 0.25})
    >>> store.pack()
    1
    >>> [record["loss"] for record in store]
    [0.25]
    >>> store.find({"run": "a9a", "seed": 0})["loss"], store.find({"run": "a9a", "seed": 1})
    (0.25, None)
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path.with_suffix(RUNNING) if path.suffix == PACKED else path
        self.packed = self.path.with_suffix(PACKED)

    @property
    def exists(self) -> bool:
        """Whether either file is there."""
        return self.path.is_file() or self.packed.is_file()

    def add(self, run: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Append a record: what was run, its outcome, and the code, versions and date that made it."""
        record = {"run": dict(run), **outcome, "made_by": provenance()}
        line = json.dumps(_plain(record), sort_keys=True, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file, exclusive(file):
            size = file.seek(0, os.SEEK_END)
            if size and self._cut_short(size):
                file.write(b"\n")  # a killed writer left half a line: close it, so that readers skip it alone
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _cut_short(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) != b"\n"

    # ---- reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every record, oldest first; damaged lines are skipped, with one warning at the end."""
        # The lines come first: a record that is packed meanwhile is then found twice, not missed.
        lines = self.path.read_bytes() if self.path.is_file() else b""
        for record in self._as_stored(lines):
            yield _with_names_of_today(record)

    def _as_stored(self, lines: bytes) -> Iterator[dict[str, Any]]:
        """Yield the packed records, then those on lines that are not packed."""
        packed = read_packed(self.packed) if self.packed.is_file() else []
        yield from packed
        known = {_line_of(record) for record in packed} if lines else set()
        skipped, number = [], 0
        for number, line in enumerate(io.BytesIO(lines), 1):
            record = _record_on(line)
            if record is None:
                skipped += [number] if line.strip() else []
            elif not known or _line_of(record) not in known:
                yield record
        if skipped:
            warnings.warn(
                f"{self.path}: skipped {len(skipped)} of {number} lines that are not records, the first is line "
                f"{skipped[0]}; a writer that was stopped leaves such a line",
                stacklevel=3,
            )

    @staticmethod
    def key(run: Mapping[str, Any]) -> str:
        """Return a run as one line of text, the same for any order of its fields."""
        return json.dumps(_plain(run), sort_keys=True)

    def keys(self) -> set[str]:
        """Return the keys of all stored runs."""
        return {self.key(record["run"]) for record in self}

    def find(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the newest record of a run, or None."""
        wanted = json.loads(json.dumps(_plain(run)))
        return next((record for record in reversed(list(self)) if record["run"] == wanted), None)

    def frame(self) -> pd.DataFrame:
        """Return all records as a table, nested fields as dotted columns."""
        return pd.json_normalize(list(self))

    # ---- packing -----------------------------------------------------------------------------------------------------

    def pack(self) -> int:
        """Move all records into the Parquet file and return their number; damaged lines are dropped with a warning.

        The JSON lines are left empty, not removed: a writer may be waiting for that very file. A kill leaves all
        records readable.
        """
        if not self.exists:
            raise ValueError(f"{self.path}: expected a file of records, got none")
        if not self.path.is_file():
            return len(read_packed(self.packed))
        with self.path.open("r+b") as file, exclusive(file):
            return len(self._pack(file))

    def _pack(self, file: IO[bytes]) -> list[dict[str, Any]]:
        lines = file.read()
        records = list(self._as_stored(lines))
        if lines.strip() and not records:
            raise ValueError(f"{self.path}: expected lines of records, got none")
        if lines or not self.packed.is_file():
            with replacing(self.packed) as beside:
                write_packed(beside, records)
        file.seek(0)
        file.truncate()
        return records

    def unpack(self) -> int:
        """Move all records back into JSON lines, remove the Parquet file, and return their number."""
        if not self.packed.is_file():
            raise ValueError(f"{self.packed}: expected a Parquet file of records, got none")
        with self.path.open("a+b") as file, exclusive(file):
            file.seek(0)
            records = self._pack(file)  # so that a kill before the last line loses nothing
            file.writelines(f"{_line_of(record)}\n".encode() for record in records)
            file.flush()
            os.fsync(file.fileno())
            self.packed.unlink()
        return len(records)


def _line_of(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)


def _record_on(line: bytes) -> dict[str, Any] | None:
    """Return the record on a line, an object with an object `run`, or None."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: bytes that are not UTF-8, too
        return None
    return record if isinstance(record, dict) and isinstance(record.get("run"), dict) else None


def _with_names_of_today(record: dict[str, Any]) -> dict[str, Any]:
    """Rename the fields of the recipe and of the history that a run was stored with."""
    for holder, name in ((record["run"], "content"), (record["run"], "changes"), (record, "history")):
        if isinstance(holder.get(name), dict):
            holder[name] = with_new_names(holder[name])
    run = record["run"]
    if isinstance(run.get("content"), dict) and "start" not in run["content"]:
        run["content"] = {**ADDED_FIELDS, **run["content"]}
        if run.get("recipe") == "default":
            run["recipe"] = "default-0.1"
    return record


def _plain(value: Any) -> Any:
    """Return what JSON can hold: numbers of numpy and torch as Python's, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, int)):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
