"""Records of trained models as a results folder holds them: the newest of each run, and how it was trained."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from metricgrad.evaluation.store import Store
from metricgrad.training.recipe import RECIPES, Recipe

FILE = "runs.jsonl"
"""The file of a results folder that holds its records."""
NAMES = ("dataset", "metric", "method", "seed")
"""What a record must say of its run to be a record of a trained model."""


@dataclass(frozen=True, order=True)
class Setting:
    """How models were trained: the network, the recipe, how that differs from the one of its name today, on how much.

    Stored runs hold the whole content of their recipe, so those of two contents under one name have two settings.
    Values of changes are JSON. `rows` is the most rows of a dataset that were used, 0 for all there are.

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
        recipe = str(run.get("recipe") or "default")
        return cls(str(run.get("model") or "mlp"), recipe, _changes(recipe, run), int(run.get("rows") or 0))

    @property
    def title(self) -> str:
        """The setting in a few words."""
        changed = ", ".join(f"{name} = {value}" for name, value in self.changes)
        limit = f", at most {self.rows:,} rows" if self.rows else ""
        return f"{self.model}, recipe {self.recipe}" + (f" with {changed}" if changed else "") + limit


UNKNOWN = ("content", "unknown")
"""The change of a run that was stored without the content of its recipe."""


def _changes(recipe: str, run: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return how the recipe of a stored run differs from the one of that name today."""
    content = run.get("content")
    known = {name: json.dumps(value) for name, value in RECIPES[recipe].content.items()} if recipe in RECIPES else {}
    if not isinstance(content, Mapping):
        stored = run.get("changes") if isinstance(run.get("changes"), Mapping) else {}
        return tuple(sorted([UNKNOWN, *((str(k), json.dumps(v, sort_keys=True)) for k, v in (stored or {}).items())]))
    whole = {**{f.name: json.dumps(f.default) for f in fields(Recipe) if f.name != "name"}}
    whole |= {str(name): json.dumps(value, sort_keys=True) for name, value in content.items()}
    return tuple(sorted((name, value) for name, value in whole.items() if known.get(name) != value))


@dataclass(frozen=True)
class Record:
    """One trained model: what was run, in which setting, and everything that is kept of it.

    Its `kept["test"]` has the losses of the model that was kept in the end, `kept["followed"]` those of the model that
    followed the loss where that is another one; older records do not have it.
    """

    dataset: str
    metric: str
    method: str
    setting: Setting
    seed: int
    replicate: int
    kept: Mapping[str, Any] = field(repr=False, hash=False)

    def loss(self, protocol: str, metric: str, followed: bool = False) -> float | None:
        """Return a test loss under a protocol, or None if it is not there or not a finite number.

        Of the model that was kept or, if asked for, of the one that followed the loss.
        """
        other = self.kept.get("followed") if followed else None
        found: Any = other if isinstance(other, Mapping) else self.kept
        for name in ("test", protocol, metric):
            found = found.get(name) if isinstance(found, Mapping) else None
        usable = isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found)
        return float(found) if usable else None

    @property
    def verdict(self) -> bool | None:
        """Whether the model that followed the loss was the one kept; None if that is not known."""
        verdict = self.kept.get("verdict")
        followed = verdict.get("followed") if isinstance(verdict, Mapping) else None
        return followed if isinstance(followed, bool) else None

    @property
    def knows_followed(self) -> bool:
        """Whether the losses of the model that followed the loss are known."""
        return "followed" in self.kept or self.verdict is True

    @property
    def sources(self) -> tuple[str, str]:
        """Digests of the dataset and of the bundled surrogate, empty where they are not known."""
        run = self.kept["run"]
        return str(run.get("data") or ""), str(run.get("surrogate") or "")

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
        A results folder, its file of records, or a store. What is not a record of a trained model is passed over;
        one that should be, but whose fields are not what they should be, with a warning.
    """
    store, malformed = open_store(results), []
    newest: dict[str, Record] = {}
    for kept in store:
        run = kept["run"]
        if not all(name in run for name in NAMES) or "test" not in kept:
            continue
        wrong = _wrong_field(kept)
        if wrong:
            malformed.append(wrong)
            continue
        dataset, metric, method, seed = (run[name] for name in NAMES)
        record = Record(dataset, metric, method, Setting.of(run), seed, run.get("replicate") or 0, kept)
        key = (dataset, metric, method, record.setting, seed, record.replicate)
        newest[repr(key)] = record
    if malformed:
        warnings.warn(
            f"{store.path}: skipped {len(malformed)} malformed records, the first for its {malformed[0]}", stacklevel=2
        )
    return list(newest.values())


def _wrong_field(kept: Mapping[str, Any]) -> str | None:
    """Return the first field of a stored record that is not what it should be, with its value, or None."""
    for fields_of, expected in ((kept["run"], RUN_FIELDS), (kept, FIELDS)):
        for name, is_right in expected.items():
            value = fields_of.get(name)
            if not is_right(value) and not (value is None and name not in NAMES):
                return f"{name}, {str(value)[:60]!r}"
    return None


def _is_mapping_of(inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(inner, value.values()))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


RUN_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "dataset": _is_text,
    "metric": _is_text,
    "method": _is_text,
    "seed": _is_integer,
    "replicate": _is_integer,
    "rows": _is_integer,
    "model": _is_text,
    "recipe": _is_text,
    "content": lambda value: isinstance(value, Mapping),
    "changes": lambda value: isinstance(value, Mapping),
}
FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "test": _is_mapping_of(_is_mapping_of(_is_number)),
    "rows": _is_mapping_of(_is_integer),
    "positive_share": _is_number,
    "subset": _is_text,
    "seconds": _is_number,
    "command": _is_text,
    "history": _is_mapping_of(_is_list_of_numbers),
    "followed": lambda value: isinstance(value, Mapping),
    "verdict": lambda value: isinstance(value, Mapping),
    "made_by": _is_mapping_of(_is_text),
}
"""What the fields of a run and of its record must be, where they are there."""


def settings(results: Store | str | Path) -> list[Setting]:
    """Return every setting there are records of, in the order in which they were first stored."""
    return list(dict.fromkeys(record.setting for record in read_records(results)))
