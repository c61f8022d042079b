"""What a model folder says of a table, as plain data and back; it is known, and checked, before a model is trained."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from metricgrad.tabular.cells import FORMATS
from metricgrad.tabular.encoding import Preparation, prepared
from metricgrad.tabular.io import check_names
from metricgrad.tabular.manifest import FILE, ITEMS, SHORT, Field
from metricgrad.tabular.number_formats import NumberFormat
from metricgrad.tabular.schema import DROPPED, USED, Column, Schema
from metricgrad.tabular.target import Target, alike

FEATURES = 100_000
"""Features a table may be encoded as: the paper's network has 100 weights for each."""
ROOM = 4 << 20
"""Bytes of a manifest that training is left to fill."""


def table_state(metric: str, target: Target, preparation: Preparation) -> dict[str, Any]:
    """Return metric, target, columns and encoders as plain data."""
    return {
        "metric": metric,
        "target": asdict(target),
        "columns": [asdict(column) for column in preparation.schema_.columns],
        "preparation": preparation.state(),
    }


def check_storable(state: dict[str, Any]) -> None:
    """Refuse a table that a model folder cannot describe, before a model is trained on it."""
    text = json.dumps(state)
    if len(text) > FILE - ROOM or text.count(",") > ITEMS // 2:
        raise ValueError(
            f"expected a table described in {FILE - ROOM:,} bytes and {ITEMS // 2:,} values, "
            f"got {len(text):,} and {text.count(','):,}; ignore some columns"
        )
    read_table_state(Field(json.loads(text)))


def read_table_state(state: Field) -> tuple[str, Target, Preparation]:
    """Return metric, target and preparation from plain data, which may be damaged or invented."""
    schema = Schema(tuple(_column(entry) for entry in state["columns"].items()))
    check_names([column.name for column in schema.columns])
    preparation = prepared(schema, state["preparation"])
    features = sum(len(encoder.features) for encoder in preparation.encoders_)
    if not 0 < features <= FEATURES:
        raise ValueError(f"preparation: expected from 1 to {FEATURES:,} features, got {features:,}")
    return state["metric"].text(SHORT), _target(state["target"]), preparation


def _column(entry: Field) -> Column:
    kind = entry["kind"].one_of({**USED, **DROPPED})
    return Column(entry["name"].text(), kind, _form(entry["form"], kind), entry["stray"].count())


def _form(entry: Field, kind: str) -> str:
    """Return how the cells of a column are written, if those of its kind can be."""
    form = entry.text(SHORT)
    if kind == "date":
        return entry.one_of(("", *FORMATS))
    if form:
        try:
            NumberFormat.from_text(form)
        except ValueError:
            entry.refuse("a number format such as 'decimal comma, €'")
        if kind != "number":
            entry.refuse("no format for a column that is neither a date nor a number")
    return form


def _target(entry: Field) -> Target:
    target = Target(entry["name"].text(), _label(entry["negative"]), _label(entry["positive"]), entry["rest"].flag())
    if alike(target.negative, target.positive):
        entry["positive"].refuse("a label other than the negative one")
    return target


def _label(entry: Field) -> str | int | bool:
    if isinstance(entry.value, bool):
        return entry.value
    return entry.count(-(2**63)) if isinstance(entry.value, int) else entry.text()
