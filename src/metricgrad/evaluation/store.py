"""Results as data: an append-only store of records, one JSON line each, safe against two writers and a kill."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.locking import exclusive
from metricgrad.provenance import provenance
from metricgrad.training.recipe import with_new_names


class Store:
    """An append-only file of records.

    Parameters
    ----------
    path : path
        A `.jsonl` file; made when the first record is added.

    Examples
    --------
    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()) / "runs.jsonl")
    >>> store.add({"run": "a9a", "seed": 0}, {"loss": 0.25})
    >>> [record["loss"] for record in store]
    [0.25]
    >>> store.find({"run": "a9a", "seed": 0})["loss"], store.find({"run": "a9a", "seed": 1})
    (0.25, None)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def add(self, run: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        """Append a record: what was run, what came of it, and by which code and when."""
        record = {"run": dict(run), **outcome, "made_by": provenance()}
        line = json.dumps(_plain(record), sort_keys=True, allow_nan=False) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file, exclusive(file):
            size = file.seek(0, os.SEEK_END)
            if size and self._cut_short(size):
                file.write(b"\n")  # a writer was killed half-way: its line is closed, and skipped by readers
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _cut_short(self, size: int) -> bool:
        with self.path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) != b"\n"

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield every record, oldest first; lines that are none are skipped, with one warning in the end."""
        if not self.path.exists():
            return
        skipped: list[int] = []
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                record = _parsed(line)
                if record is not None:
                    yield record
                elif line.strip():
                    skipped.append(number)
        if skipped:
            warnings.warn(
                f"{self.path}: skipped {len(skipped)} of {number} lines that are not records, the first is line "
                f"{skipped[0]}; a writer that was stopped leaves such a line",
                stacklevel=2,
            )

    @staticmethod
    def key(run: Mapping[str, Any]) -> str:
        """Return a run as one line of text, the same however its fields are ordered."""
        return json.dumps(_plain(run), sort_keys=True)

    def keys(self) -> set[str]:
        """Return the keys of all runs there is a record of."""
        return {self.key(record["run"]) for record in self}

    def find(self, run: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the newest record of a run, or None."""
        wanted = json.loads(json.dumps(_plain(run)))
        return next((record for record in reversed(list(self)) if record["run"] == wanted), None)

    def frame(self) -> pd.DataFrame:
        """Return all records as a table, nested fields as dotted columns."""
        return pd.json_normalize(list(self))


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return the record on a line, an object that says what was run, or None."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: bytes that are not UTF-8, too
        return None
    if not (isinstance(record, dict) and isinstance(record.get("run"), dict)):
        return None
    for holder, name in ((record["run"], "content"), (record["run"], "changes"), (record, "history")):
        if isinstance(holder.get(name), dict):
            holder[name] = with_new_names(holder[name])
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
