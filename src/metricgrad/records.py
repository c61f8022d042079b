"""Records of trained models as a results folder holds them: the newest of each run, and how it was trained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metricgrad.results import Store

FILE = "runs.jsonl"
"""The file of a results folder that holds its records."""
NAMES = ("dataset", "metric", "method", "seed")
"""What a record must say of its run to be a record of a trained model."""


@dataclass(frozen=True, order=True)
class Setting:
    """How models were trained: the network, the named recipe, what was changed of it, values as JSON, and on how much.

    `rows` is the most rows of a dataset that were used, 0 for all there are.

    >>> Setting("mlp", "default", (("rounds", "200"),), 6_000).title
    'mlp, recipe default with rounds = 200, at most 6,000 rows'
    """

    model: str
    recipe: str
    changes: tuple[tuple[str, str], ...] = ()
    rows: int = 0

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> Setting:
        """Return the setting of a run as it is stored."""
        changes = sorted((run.get("changes") or {}).items())
        return cls(
            str(run.get("model") or "mlp"),
            str(run.get("recipe") or "default"),
            tuple((str(name), json.dumps(value, sort_keys=True)) for name, value in changes),
            int(run.get("rows") or 0),
        )

    @property
    def title(self) -> str:
        """The setting in a few words."""
        changed = ", ".join(f"{name} = {value}" for name, value in self.changes)
        limit = f", at most {self.rows:,} rows" if self.rows else ""
        return f"{self.model}, recipe {self.recipe}" + (f" with {changed}" if changed else "") + limit


@dataclass(frozen=True)
class Record:
    """One trained model: what was run, in which setting, and everything that is kept of it."""

    dataset: str
    metric: str
    method: str
    setting: Setting
    seed: int
    replicate: int
    kept: Mapping[str, Any] = field(repr=False, hash=False)

    def loss(self, protocol: str, metric: str) -> float | None:
        """Return the test loss under a protocol, or None if it is not there or not a finite number."""
        value = ((self.kept.get("test") or {}).get(protocol) or {}).get(metric)
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None

    @property
    def subset(self) -> str | None:
        """What part of the dataset was held, or None for the whole."""
        part = self.kept.get("subset")
        return str(part) if part else None


def open_store(results: Store | str | Path) -> Store:
    """Return the store of a results folder, or of a file of records itself.

    Parameters
    ----------
    results : Store or path
        A folder that holds `runs.jsonl`, such a file, or a store.
    """
    if isinstance(results, Store):
        return results
    path = Path(results)
    store = Store(path / FILE if path.is_dir() else path)
    if not store.path.is_file():
        raise ValueError(f"results: expected a folder that holds {FILE}, got {str(results)!r}")
    return store


def read_records(results: Store | str | Path) -> list[Record]:
    """Return the newest record of every run, in the order in which runs were first stored.

    Parameters
    ----------
    results : Store or path
        A results folder, its file of records, or a store. What is no record of a trained model is passed over.
    """
    newest: dict[str, Record] = {}
    for record in _trained(open_store(results)):
        key = (record.dataset, record.metric, record.method, record.setting, record.seed, record.replicate)
        newest[repr(key)] = record
    return list(newest.values())


def _trained(store: Store) -> Iterator[Record]:
    for kept in store:
        run = kept.get("run") if isinstance(kept, dict) else None
        if isinstance(run, dict) and all(name in run for name in NAMES) and isinstance(kept.get("test"), dict):
            dataset, metric, method = (str(run[name]) for name in NAMES[:3])
            yield Record(
                dataset, metric, method, Setting.of(run), int(run["seed"]), int(run.get("replicate") or 0), kept
            )


def settings(results: Store | str | Path) -> list[Setting]:
    """Return every setting there are records of, in the order in which they were first stored."""
    return list(dict.fromkeys(record.setting for record in read_records(results)))
