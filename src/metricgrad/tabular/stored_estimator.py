"""The estimator of a stored table model, read from its manifest: of classes, labels, numbers or rankings.

Each kind imports only its own estimator, when a folder is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from metricgrad.metrics.registry import Metric, get_metric, metric_for_task
from metricgrad.tabular.manifest import MAX_COLUMNS_ASIDE, MAX_WORD, Field, read_column_codes, read_metric_columns
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.target import AnyTarget, GradeTarget, NumberTarget, Target
from metricgrad.training.history import Round, Tried, Verdict
from metricgrad.training.networks import MIXTURE, MODELS
from metricgrad.training.old_fields import ADDED_FIELDS, RENAMED_FIELDS
from metricgrad.training.recipe import Recipe

if TYPE_CHECKING:
    from metricgrad.estimators.classifier import MetricClassifier
    from metricgrad.estimators.metric_estimator import MetricEstimator
    from metricgrad.estimators.ranker import MetricRanker
    from metricgrad.estimators.regressor import MetricRegressor
    from metricgrad.metrics.constants import Correction, Units
    from metricgrad.training.plug_in import Rule

HistoryRecord = TypeVar("HistoryRecord", "Round", "Verdict")
MAX_ROUNDS = 100_000
"""Rounds of the history that are read."""
MAX_KNOTS = 1_000_000
"""Knots of a map of predictions."""
READERS: dict[str, Callable[[Field], Any]] = {
    "str": lambda entry: entry.text(MAX_WORD),
    "int": Field.count,
    "float": Field.number_or_nan,
    "bool": Field.flag,
    "tuple[Tried, ...]": lambda entry: tuple(_tried(each) for each in entry.items(MAX_TRIED)),
}
"""How a field of a record is read, by its type."""
MAX_TRIED = 1_000
"""Strategies that a verdict says were tried."""
MAX_RULE = 1_000
"""Numbers of one part of a rule at most."""
OLD_NAMES = {new: old for old, new in RENAMED_FIELDS.items()}
"""Names in folders of 0.1.0 of fields that were renamed since."""
TASKS = {"two classes": "binary", "classes": "multiclass", "labels": "multilabel"}
"""The task of a classifier, by the kind of its target."""


def read_estimator(state: Field, name: str, target: AnyTarget) -> tuple[TableModel, MetricEstimator]:
    """Return the table model that a manifest describes, without its columns, and its estimator, without its network."""
    entry = state["model"]
    name_of_model = entry["network"].one_of((*MODELS, MIXTURE))
    kind = "auto" if name_of_model == MIXTURE else name_of_model  # what a mixture is trained as
    given = (entry["method"].text(MAX_WORD), kind, _recipe(entry["recipe"]))
    model: TableModel
    inner: MetricEstimator
    if isinstance(target, GradeTarget):
        model, inner = _ranker(state, name, given)
    elif isinstance(target, NumberTarget):
        model, inner = _regressor(state, name, given)
    else:
        model, inner = _classifier(state, name, target, given)
    inner.validation_loss_, inner.interrupted_ = entry["validation_loss"].number_or_nan(), entry["interrupted"].flag()
    inner.history_ = [_record(Round, done) for done in state["history"].items(MAX_ROUNDS)]
    model.target_, model.metric_columns_ = target, read_metric_columns(state)
    if "columns_aside" in state:
        model.columns_aside_ = tuple(name.text() for name in state["columns_aside"].items(MAX_COLUMNS_ASIDE))
    counted = ("rows", "positives") if isinstance(target, Target) else ("rows",)
    model.data_ = {key: state["data"][key].count() for key in counted}
    model.notes_ = [note.text() for note in state["notes"].items()]
    return model, inner


def outputs_of(target: AnyTarget) -> int | None:
    """Return how many scores a row has: one for each class or label, or one without an axis."""
    return None if isinstance(target, (Target, NumberTarget)) else len(target.labels)


# ---- classes and labels --------------------------------------------------------------------------------------------


def _classifier(state: Field, name: str, target: Any, given: tuple[str, str, Recipe]) -> tuple[Any, MetricClassifier]:
    from metricgrad.estimators.classifier import MetricClassifier
    from metricgrad.tabular.table_classifier import TableClassifier, classes_of

    entry, task = state["model"], TASKS[target.kind]
    metric = _metric(name, ("binary", "columns") if task == "binary" else (task,), task)
    inner = MetricClassifier(metric, *given)
    outputs = outputs_of(target)
    inner.threshold_ = entry["threshold"].number() if outputs is None else _offsets(entry["threshold"], outputs)
    inner.verdict_ = _verdict(entry["verdict"])
    inner.column_codes_ = read_column_codes(entry["column_codes"]) if "column_codes" in entry else {}
    inner.rule_ = _rule(entry["rule"]) if "rule" in entry and outputs is None else None
    if "probabilities" in entry:  # not in folders of 0.1.0
        from metricgrad.tabular.stored_probabilities import read_probabilities

        inner.calibration_ = read_probabilities(entry["probabilities"], outputs or 1, labels=task == "multilabel")
    inner.task_, inner.chosen_recipe_ = task, inner.effective_recipe
    inner.classes_ = np.array([0.0, 1.0]) if outputs is None else np.arange(outputs)
    model = TableClassifier(name, *given)
    model.classes_ = classes_of(target)
    return model, inner


def _offsets(entry: Field, outputs: int) -> Any:
    found = _numbers(entry, outputs)
    if len(found) != outputs:
        entry.refuse(f"{outputs} numbers, one for each class or label")
    return np.array(found)


def _verdict(entry: Field) -> Verdict | None:
    return None if entry.value is None else _record(Verdict, entry)


def _tried(entry: Field) -> Tried:
    calls = entry["calls"].count() if entry["calls"].value is not None else None
    return Tried(entry["name"].text(MAX_WORD), entry["seconds"].number(), calls)


def _rule(entry: Field) -> Rule:
    """Return the rule by which scores and the columns of the metric decide."""
    from metricgrad.training.plug_in import KINDS, Rule  # few models have one

    known: dict[str, Any] = {"kind": entry["kind"].one_of(KINDS), "column": entry["column"].text(MAX_WORD)}
    known |= {name: entry[name].number() for name in ("power", "floor", "gain", "standard_error")}
    for name in ("positive", "negative"):
        known[name] = {column: entry[name][column].number() for column in entry[name].names(MAX_RULE)}
    offsets, calibration = entry["offsets"], entry["calibration"]
    known["offsets"] = {column: _numbers(offsets[column]) for column in offsets.names(MAX_RULE)}
    lines = {name: calibration[name].number() for name in ("slope", "intercept") if name in calibration}
    steps = {name: _numbers(calibration[name]) for name in ("points", "levels") if name in calibration}
    try:
        return Rule.from_dict(known | {"calibration": {**lines, **steps}})
    except ValueError as error:
        raise ValueError(f"{entry.place}.{error}") from error


def _numbers(entry: Field, most: int = MAX_RULE) -> list[float]:
    return [each.number() for each in entry.items(most)]


# ---- numbers and rankings ------------------------------------------------------------------------------------------


def _regressor(state: Field, name: str, given: tuple[str, str, Recipe]) -> tuple[Any, MetricRegressor]:
    from metricgrad.estimators.regressor import MetricRegressor
    from metricgrad.tabular.table_regressor import TableRegressor

    entry, inner = state["model"], MetricRegressor(_metric(name, ("regression", "censored")), *given)
    inner.units_, inner.correction_ = _units(entry["units"]), _correction(entry["correction"])
    inner.verdict_, inner.results_ = _record(Verdict, entry["verdict"]), []
    inner.chosen_recipe_ = inner.effective_recipe
    return TableRegressor(name, *given), inner


def _units(entry: Field) -> Units:
    from metricgrad.metrics.constants import Units

    scale = entry["scale"].number()
    if scale <= 0:
        entry["scale"].refuse("a positive number")
    return Units(entry["centre"].number(), scale, entry["log"].flag())


def _correction(entry: Field) -> Correction:
    """Return the map of predictions; its knots are among the weights, and their number is here."""
    from metricgrad.metrics.constants import KINDS, Correction

    count = entry["knots"].count() if "knots" in entry else 0
    kind = entry["kind"].one_of(KINDS)
    if not (0 < count <= MAX_KNOTS if kind == "isotonic" else count == 0):
        entry["knots" if "knots" in entry else "kind"].refuse(f"from 1 to {MAX_KNOTS:,} knots of an isotonic map only")
    knots = np.empty((2, count)) if count else None
    return Correction(kind, entry["shift"].number(), entry["factor"].number(), knots)


def _ranker(state: Field, name: str, given: tuple[str, str, Recipe]) -> tuple[Any, MetricRanker]:
    from metricgrad.estimators.ranker import MetricRanker
    from metricgrad.tabular.table_ranker import TableRanker

    model, inner = TableRanker(name, *given), MetricRanker(_metric(name, ("ranking",)), *given)
    model.group_ = state["group"].text()
    inner.verdict_ = _verdict(state["model"]["verdict"])
    return model, inner


# ---- parts of all of them ------------------------------------------------------------------------------------------


def _metric(name: str, tasks: tuple[str, ...], task: str = "") -> Metric | str:
    """Return a metric by name, or only the name if it was code, which is not run, or is of other targets."""
    try:
        metric = get_metric(name)
    except ValueError:
        return name
    return metric if metric_for_task(metric, task).task.name in tasks else name


def _recipe(entry: Field) -> Recipe:
    """Return a recipe; fields that this version does not know are ignored, and old names of fields accepted."""
    known = {name: stored.value for name, stored in _stored_fields(Recipe, entry)}
    if "name" in known:
        entry["name"].text(MAX_WORD)
    try:
        return Recipe(**{**ADDED_FIELDS, **known})
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{entry.place}.{error}") from error


def _stored_names(kind: type[Any], entry: Field) -> dict[str, str]:
    """Return the fields of a record that are stored, each with the name it is stored under."""
    names = {field.name: field.name for field in fields(kind)}
    old = {new: old for old, new in RENAMED_FIELDS.items() if new in names and old in entry}
    return {new: name for new, name in {**names, **old}.items() if name in entry}


def _record(kind: type[HistoryRecord], entry: Field) -> HistoryRecord:
    """Return a record, with defaults or NaN for unknown fields: another version may have stored fewer."""
    types = {field.name: str(field.type) for field in fields(kind)}
    required = [field.name for field in fields(kind) if field.default is MISSING]
    stored = _stored_fields(kind, entry)
    known = {name: READERS[types[name]](value) for name, value in stored if value.value is not None}
    return kind(**{**dict.fromkeys(required, math.nan), **known})


def _stored_fields(kind: type[Recipe | HistoryRecord], entry: Field) -> Iterator[tuple[str, Field]]:
    """Yield the fields of a dataclass that are stored, by their present or else their old name."""
    for field in fields(kind):
        name = field.name if field.name in entry else OLD_NAMES.get(field.name, field.name)
        if name in entry:
            yield field.name, entry[name]
