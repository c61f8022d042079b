"""Records of trained models in a results folder: the newest of each run, and how its model was trained."""

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

FILE, PACKED_FILE = "runs.jsonl", "runs.parquet"
"""The files of a results folder that hold its records: those of running programs, and those that are packed."""
NAMES = ("dataset", "metric", "method", "seed")
"""Fields of a run that a record of a trained model must have."""
SETTING_FIELDS = ("model", "recipe", "rows", "content", "changes")
"""Fields of a run that its setting depends on."""


@dataclass(frozen=True, order=True)
class Setting:
    """How models were trained: network, recipe, changes against the current recipe of that name, and number of rows.

    Stored runs hold the content of their recipe, so two contents under one name are two settings. Values of changes are
    JSON. `rows` is the largest number of rows of a dataset that was used, 0 for all.

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
        return cls(str(run.get("model") or "mlp"), recipe, _recipe_changes(recipe, run), int(run.get("rows") or 0))

    @property
    def title(self) -> str:
        """The setting in a few words."""
        changed = ", ".join(f"{name} = {value}" for name, value in self.changes)
        limit = f", at most {self.rows:,} rows" if self.rows else ""
        return f"{self.model}, recipe {self.recipe}" + (f" with {changed}" if changed else "") + limit


UNKNOWN = ("content", "unknown")
"""The change shown for a run that was stored without the content of its recipe."""


def _recipe_changes(recipe: str, run: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return how the recipe of a stored run differs from the current one of that name."""
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
    """One trained model: what was run, in which setting, and the whole stored record.

    `kept["test"]` has the losses of the model that was selected in the end, `kept["followed"]` those of the model
    trained on the loss where that is another one; older records do not have it.
    """

    dataset: str
    metric: str
    method: str
    setting: Setting
    seed: int
    replicate: int
    kept: Mapping[str, Any] = field(repr=False, hash=False)

    def loss(self, protocol: str, metric: str, followed: bool = False) -> float | None:
        """Return a test loss under a protocol, or None if it is missing or not finite.

        It is that of the selected model or, with `followed`, that of the model trained on the loss.
        """
        other = self.kept.get("followed") if followed else None
        found: Any = other if isinstance(other, Mapping) else self.kept
        for name in ("test", protocol, metric):
            found = found.get(name) if isinstance(found, Mapping) else None
        usable = isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found)
        return float(found) if usable else None

    @property
    def verdict(self) -> bool | None:
        """Whether the model trained on the loss was the selected one; None if unknown."""
        verdict = self.kept.get("verdict")
        followed = verdict.get("followed") if isinstance(verdict, Mapping) else None
        return followed if isinstance(followed, bool) else None

    @property
    def knows_followed(self) -> bool:
        """Whether the losses of the model trained on the loss are known."""
        return "followed" in self.kept or self.verdict is True

    @property
    def sources(self) -> tuple[str, str]:
        """Digests of the dataset and of the bundled surrogate, empty where unknown."""
        run = self.kept["run"]
        return str(run.get("data") or ""), str(run.get("surrogate") or "")

    @property
    def subset(self) -> str | None:
        """Which part of the dataset was available, or None for all of it."""
        part = self.kept.get("subset")
        return str(part) if part else None


def open_store(results: Store | str | Path) -> Store:
    """Return the store of a results folder, or of a file of records itself.

    Parameters
    ----------
    results : Store or path
        A folder that holds `runs.jsonl` or `runs.parquet`, such a file, or a store.
    """
    if isinstance(results, Store):
        return results
    path = Path(results)
    store = Store(path / FILE if path.is_dir() else path)
    if not store.exists:
        raise ValueError(f"results: expected a folder that holds {FILE} or {PACKED_FILE}, got {str(results)!r}")
    return store


def read_records(results: Store | str | Path) -> list[Record]:
    """Return the newest record of every run, in the order in which runs were first stored.

    Parameters
    ----------
    results : Store or path
        A results folder, its file of records, or a store. Records of other things than trained models are ignored;
        records of trained models with malformed fields are skipped with a warning.
    """
    store, malformed = open_store(results), []
    newest: dict[tuple[Any, ...], Record] = {}
    settings_by_key: dict[str, Setting] = {}
    for kept in store:
        run = kept["run"]
        if not all(name in run for name in NAMES) or "test" not in kept:
            continue
        invalid = _invalid_field(kept)
        if invalid:
            malformed.append(invalid)
            continue
        key = Store.key({name: run.get(name) for name in SETTING_FIELDS})
        if key not in settings_by_key:
            settings_by_key[key] = Setting.of(run)
        dataset, metric, method, seed = (run[name] for name in NAMES)
        replicate = run.get("replicate") or 0
        record = Record(dataset, metric, method, settings_by_key[key], seed, replicate, kept)
        newest[dataset, metric, method, record.setting, seed, replicate] = record
    if malformed:
        warnings.warn(
            f"{store.path}: skipped {len(malformed)} malformed records, the first for its {malformed[0]}", stacklevel=2
        )
    return list(newest.values())


def _invalid_field(kept: Mapping[str, Any]) -> str | None:
    """Return the first field of a stored record whose value has the wrong type, with that value, or None."""
    for fields_of, expected in ((kept["run"], RUN_FIELDS), (kept, FIELDS)):
        for name, is_valid in expected.items():
            value = fields_of.get(name)
            if not is_valid(value) and not (value is None and name not in NAMES):
                return f"{name}, {str(value)[:60]!r}"
    return None


def _is_mapping_of(inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, Mapping) and all(map(inner, value.values()))


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number_or_none, value))


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
    "test": _is_mapping_of(_is_mapping_of(_is_number_or_none)),
    "rows": _is_mapping_of(_is_integer),
    "positive_share": _is_number_or_none,
    "subset": _is_text,
    "seconds": _is_number_or_none,
    "command": _is_text,
    "history": _is_mapping_of(_is_list_of_numbers),
    "followed": lambda value: isinstance(value, Mapping),
    "verdict": lambda value: isinstance(value, Mapping),
    "made_by": _is_mapping_of(_is_text),
}
"""Checks of the fields of a run and of its record, where they are present."""


def settings(results: Store | str | Path) -> list[Setting]:
    """Return every setting with records, in the order in which they were first stored."""
    return list(dict.fromkeys(record.setting for record in read_records(results)))
