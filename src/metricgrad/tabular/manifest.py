"""The manifest of a model folder: untrusted JSON read with limits, every field checked where it is used.

The table part (target, columns, encoders) is also checked before training: what cannot be stored is refused early.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pandas as pd

from metricgrad.tabular.cells import DATE_FORMATS, NumberFormat, shortened, words
from metricgrad.tabular.encoding import (
    DATE_PARTS,
    MAX_LEVELS,
    MAX_TEXT_FEATURES,
    Encoder,
    Hashed,
    Numeric,
    OneHot,
    Preparation,
)
from metricgrad.tabular.schema import CHARACTERS, DROPPED, USED, WORDS, Column, Schema, check_names
from metricgrad.tabular.target import AnyTarget, ClassTarget, GradeTarget, LabelTarget, NumberTarget, Target, same_label

MAX_TEXT, MAX_WORD = 100_000, 1_000
"""Characters of a name, a label or a note; of a phase, a method or a metric."""
MAX_METRIC_COLUMNS, MAX_COLUMNS_ASIDE = 100, 3
"""Columns that a metric needs; columns of weights, of groups and of times."""
MAX_BYTES, MAX_ITEMS = 32 << 20, 3_000_000
"""Bytes of a JSON file, and commas in it: each may become an object in memory."""
RESERVED_BYTES = 4 << 20
"""Bytes of a manifest that are reserved for the training history."""
MAX_FEATURES = 100_000
"""Features a table may be encoded as: the paper's network has 100 weights for each."""
MAX_INTEGER = 2**63
MAX_OUTPUTS = 1_000
"""Classes, or labels, of a target."""


class Field:
    """A value of a manifest and its place there; it is returned as the expected type, or refused by its place.

    >>> Field({"levels": ["a", 3]}, "plan")["levels"].items(5)[1].text()
    Traceback (most recent call last):
    ...
    ValueError: plan.levels[1]: expected text, got 3
    """

    def __init__(self, value: Any, place: str = "") -> None:
        self.value, self.place = value, place

    def refuse(self, expected: str) -> NoReturn:
        """Raise an error that names the field, what was expected, and the value."""
        at = f"{self.place}: " if self.place else ""
        raise ValueError(f"{at}expected {expected}, got {shortened(self.value)}")

    def __getitem__(self, key: str) -> Field:
        """Return a field of an object."""
        if key not in self:
            self.refuse(f"a field {key!r}")
        return Field(self.value[key], f"{self.place}.{key}".lstrip("."))

    def __contains__(self, key: str) -> bool:
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return key in self.value

    def names(self, most: int) -> list[str]:
        """Return the names of the fields of an object."""
        if not isinstance(self.value, dict) or len(self.value) > most:
            self.refuse(f"an object of at most {most:,} fields")
        return [Field(name, self.place).text(MAX_WORD) for name in self.value]

    def items(self, most: int = MAX_ITEMS) -> list[Field]:
        """Return the items of a list."""
        if not isinstance(self.value, list) or len(self.value) > most:
            self.refuse(f"a list of at most {most:,}")
        return [Field(item, f"{self.place}[{number}]") for number, item in enumerate(self.value)]

    def text(self, most: int = MAX_TEXT) -> str:
        """Return text that can be written in UTF-8."""
        if not isinstance(self.value, str):
            self.refuse("text")
        if len(self.value) > most or not _is_encodable(self.value):
            self.refuse(f"text of at most {most:,} characters of Unicode")
        return self.value

    def one_of(self, choices: Collection[str]) -> str:
        """Return one of some words."""
        if not isinstance(self.value, str) or self.value not in choices:
            self.refuse(f"one of {', '.join(map(repr, choices))}")
        return self.value

    def flag(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def count(self, least: int = 0) -> int:
        """Return an integer that fits into eight bytes."""
        if type(self.value) is not int or not least <= self.value < MAX_INTEGER:
            self.refuse(f"an integer of at least {least}")
        return int(self.value)

    def number(self) -> float:
        """Return a finite number."""
        if type(self.value) not in (int, float) or not _is_finite(self.value):
            self.refuse("a finite number")
        return float(self.value)

    def number_or_nan(self) -> float:
        """Return a finite number, or NaN for null."""
        return math.nan if self.value is None else self.number()


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


# ---- files ---------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> Field:
    """Read a JSON file of unknown content."""
    return parsed(read_file(path, MAX_BYTES))


def parsed(content: bytes) -> Field:
    """Return the content of JSON of limited size."""
    commas = content.count(b",")
    if commas > MAX_ITEMS:
        raise ValueError(f"expected JSON of at most {MAX_ITEMS:,} values, got {commas:,} commas")
    try:
        return Field(json.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected JSON, got {error}") from error


def read_file(path: Path, most: int) -> bytes:
    """Read a file of limited size; anything but a regular file, which might never end, is refused unread."""
    # Opened without waiting: a pipe without a writer would otherwise block for ever.
    opened = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"expected a regular file, got {_file_kind(status.st_mode)}")
        size = status.st_size
        if size <= most:
            with open(opened, "rb", closefd=False) as file:
                content = file.read(size + 1)
            size = len(content)  # a file of /proc may have size 0 and never end
        if size > most:
            raise ValueError(f"expected at most {most:,} bytes, got {size:,}")
    finally:
        os.close(opened)
    return content


def _file_kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}
    return kinds.get(stat.S_IFMT(mode), "something else")


# ---- the table -----------------------------------------------------------------------------------------------------


def table_state(
    metric: str, target: AnyTarget, preparation: Preparation, metric_columns: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return metric, the columns it needs, target, columns and encoders as plain data."""
    return {
        "metric": metric,
        **({"metric_columns": dict(metric_columns)} if metric_columns else {}),
        "target": asdict(target) if isinstance(target, Target) else {"kind": target.kind, **asdict(target)},
        "columns": [asdict(column) for column in preparation.schema_.columns],
        "preparation": preparation.state(),
    }


def check_storable(state: dict[str, Any]) -> None:
    """Refuse a table that a model folder cannot describe, before a model is trained on it."""
    text = json.dumps(state)
    most, items = MAX_BYTES - RESERVED_BYTES, MAX_ITEMS // 2
    if len(text) > most or text.count(",") > items:
        raise ValueError(
            f"expected a table described in {most:,} bytes and {items:,} values, "
            f"got {len(text):,} and {text.count(','):,}; ignore some columns"
        )
    read_table_state(Field(json.loads(text)))


def read_table_state(state: Field) -> tuple[str, AnyTarget, Preparation]:
    """Return metric, target and fitted preparation from untrusted plain data."""
    schema = Schema(tuple(_read_column(entry) for entry in state["columns"].items()))
    check_names([column.name for column in schema.columns])
    preparation = read_preparation(schema, state["preparation"])
    features = sum(len(encoder.features) for encoder in preparation.encoders_)
    if not 0 < features <= MAX_FEATURES:
        raise ValueError(f"preparation: expected from 1 to {MAX_FEATURES:,} features, got {features:,}")
    return state["metric"].text(MAX_WORD), _target(state["target"]), preparation


def read_metric_columns(state: Field) -> dict[str, str]:
    """Return which column each name in the metric stands for; empty where it needs none."""
    if "metric_columns" not in state:
        return {}
    entry = state["metric_columns"]
    return {name: entry[name].text() for name in entry.names(MAX_METRIC_COLUMNS)}


def read_column_codes(entry: Field) -> dict[str, list[str | float]]:
    """Return the groups of every encoded column of the metric, in the order of their codes."""
    found: dict[str, list[str | float]] = {}
    for name in entry.names(MAX_METRIC_COLUMNS):
        levels = entry[name].items(MAX_LEVELS)
        found[name] = [each.text() if isinstance(each.value, str) else each.number() for each in levels]
    return found


def read_preparation(schema: Schema, state: Field) -> Preparation:
    """Return the fitted preparation of a schema."""
    entries = state.items()
    if len(entries) != len(schema.used):
        state.refuse(f"an encoder for each of {len(schema.used):,} columns used")
    preparation = Preparation(schema)
    preparation.schema_ = schema
    preparation.encoders_ = [_encoder(entry, column) for entry, column in zip(entries, schema.used, strict=True)]
    return preparation


def _read_column(entry: Field) -> Column:
    kind = entry["kind"].one_of({**USED, **DROPPED})
    return Column(entry["name"].text(), kind, _form(entry["form"], kind), entry["stray"].count())


def _form(entry: Field, kind: str) -> str:
    """Return the format of a column, if columns of its kind can have it."""
    form = entry.text(MAX_WORD)
    if kind == "date":
        return entry.one_of(("", *DATE_FORMATS))
    if kind == "prose":
        return entry.one_of((WORDS, CHARACTERS))
    if form:
        try:
            NumberFormat.from_text(form)
        except ValueError:
            entry.refuse("a number format such as 'decimal comma, €'")
        if kind != "number":
            entry.refuse("no format for a column that is neither a date nor a number")
    return form


def _encoder(entry: Field, column: Column) -> Encoder:
    entry["name"].one_of([column.name])
    if column.kind == "prose":
        entry["encoder"].one_of(["Hashed"])
        entry["by"].one_of([column.form])
        width = entry["width"].count(1)
        if width > MAX_TEXT_FEATURES:
            entry["width"].refuse(f"at most {MAX_TEXT_FEATURES:,}")
        return Hashed(column.name, column.form, width)
    if column.kind == "category":
        entry["encoder"].one_of(["OneHot"])
        levels = tuple(level.text() for level in entry["levels"].items(MAX_LEVELS))
        return OneHot(column.name, levels, entry["others"].flag(), entry["gaps"].flag())
    entry["encoder"].one_of(["Numeric"])
    entry["kind"].one_of([column.kind])
    entry["form"].one_of([column.form])
    parts = len(DATE_PARTS) if column.kind == "date" else 1
    fill, centre, scale = (_read_numbers(entry[key], parts) for key in ("fill", "centre", "scale"))
    if min(scale) <= 0:
        entry["scale"].refuse("positive numbers")
    return Numeric(column.name, column.kind, column.form, fill, centre, scale, entry["gaps"].flag())


def _read_numbers(entry: Field, parts: int) -> tuple[float, ...]:
    found = tuple(item.number() for item in entry.items(parts))
    if len(found) != parts:
        entry.refuse(f"{parts} numbers")
    return found


# ---- the target ----------------------------------------------------------------------------------------------------


def _target(entry: Field) -> AnyTarget:
    """Return the target; one without a kind is of two classes."""
    kind = entry["kind"].one_of(tuple(TARGETS)) if "kind" in entry else Target.kind
    return TARGETS[kind](entry)


def _two_classes(entry: Field) -> Target:
    target = Target(entry["name"].text(), _label(entry["negative"]), _label(entry["positive"]), entry["rest"].flag())
    if same_label(target.negative, target.positive):
        entry["positive"].refuse("a label other than the negative one")
    return target


def _classes(entry: Field) -> ClassTarget:
    labels = tuple(_label(label) for label in entry["labels"].items(MAX_OUTPUTS))
    known = set(words(pd.Series(labels, dtype=object)))
    if len(labels) < 2 or len(known) < len(labels) or None in known:
        entry["labels"].refuse("two labels at least, each once and none empty")
    return ClassTarget(entry["name"].text(), labels)


def _labels(entry: Field) -> LabelTarget:
    targets = tuple(_two_classes(each) for each in entry["targets"].items(MAX_OUTPUTS))
    if len({target.name for target in targets}) < max(len(targets), 2):
        entry["targets"].refuse("two columns at least, each once")
    return LabelTarget(targets)


def _numbers(entry: Field, made: type[NumberTarget] = NumberTarget) -> NumberTarget:
    return made(entry["name"].text(), _form(entry["form"], "number"))


TARGETS: dict[str, Callable[[Field], AnyTarget]] = {
    Target.kind: _two_classes,
    ClassTarget.kind: _classes,
    LabelTarget.kind: _labels,
    NumberTarget.kind: _numbers,
    GradeTarget.kind: partial(_numbers, made=GradeTarget),
}
"""How a target is read, by its kind."""


def _label(entry: Field) -> str | int | bool:
    if isinstance(entry.value, bool):
        return entry.value
    return entry.count(-MAX_INTEGER) if isinstance(entry.value, int) else entry.text()
