"""A model from its folder: every field and every tensor is checked before anything is built from it."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from sklearn.pipeline import Pipeline
from torch import Tensor

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.metrics.tasks import BINARY, COLUMNS
from metricgrad.tabular.encoding import MAX_SCALED
from metricgrad.tabular.manifest import (
    MAX_WORD,
    Field,
    parsed,
    read_column_codes,
    read_file,
    read_metric_columns,
    read_table_state,
)
from metricgrad.tabular.table_classifier import TableClassifier
from metricgrad.training.history import Round, Verdict
from metricgrad.training.networks import MODELS, TREES, Average, Scorer, folded, named_body
from metricgrad.training.recipe import ADDED_FIELDS, RENAMED_FIELDS, Recipe

if TYPE_CHECKING:
    from metricgrad.training.plug_in import Rule
    from metricgrad.training.tabm import TabM
    from metricgrad.training.trees import Trees

HistoryRecord = TypeVar("HistoryRecord", Round, Verdict)
Expected = Mapping[str, Tensor]
"""Tensors by name, of which only shape and type count; they may be on torch's device `meta`, without memory."""
MAX_ROUNDS = 100_000
"""Rounds of the history that are read."""
MAX_KNOTS, MAX_NODES, MAX_FOLDS = 10_000, 10_000_000, 100
"""Knots, ramps or cells of a feature, nodes of trees for each feature, and models of an average."""
MAX_SIZES = {
    "additive": {"knots": (0, MAX_KNOTS), "pieces": (0, MAX_KNOTS), "cells": (0, MAX_KNOTS)},
    "tabm": {
        "embedded": (0, 1),
        "ramps": (0, MAX_KNOTS),
        "members": (1, 1_024),
        "dimension": (1, 1_024),
        "width": (1, 4_096),
        "depth": (1, 32),
    },
    TREES: {"trees": (0, MAX_NODES), "nodes": (0, MAX_NODES)},
}
"""Least and greatest sizes of models whose sizes depend on the training rows."""
BY_FEATURE = ("knots", "pieces", "cells", "embedded", "trees", "nodes")
"""Sizes whose limit is for each feature."""
MAX_SCORE = 1e300
"""No sum on the way to a score may exceed this."""
STORED_DTYPES = {torch.float64: "F64", torch.int64: "I64"}
LENGTH_BYTES, MAX_HEADER = 8, 1 << 16
"""Bytes of a safetensors file that hold the length of its header, and bytes of a header of some tens of tensors."""
READERS: dict[str, Callable[[Field], Any]] = {
    "str": lambda entry: entry.text(MAX_WORD),
    "int": Field.count,
    "float": Field.number_or_nan,
    "bool": Field.flag,
}
"""How a field of a record is read, by its type."""
MAX_RULE = 1_000
"""Numbers of one part of a rule at most."""
OLD_NAMES = {new: old for old, new in RENAMED_FIELDS.items()}
"""Names in folders of 0.1.0 of fields that were renamed since."""


# ---- the manifest --------------------------------------------------------------------------------------------------


def model_of(state: Field) -> tuple[TableClassifier, Scorer]:
    """Return the model a manifest describes, and its network, which has no memory yet."""
    metric, target, preparation = read_table_state(state)
    inner = _classifier(state, metric)
    features = len(preparation.get_feature_names_out())
    inner.n_features_in_ = features
    model = TableClassifier(metric, inner.method, inner.model, inner.recipe)
    model.target_, model.metric_columns_ = target, read_metric_columns(state)
    model.classes_ = np.array([target.negative, target.positive])
    model.data_ = {key: state["data"][key].count() for key in ("rows", "positives")}
    model.notes_ = [note.text() for note in state["notes"].items()]
    model.pipeline_ = Pipeline([("preparation", preparation), ("model", inner)])
    model.feature_names_in_ = np.array(preparation.schema_.names, dtype=object)
    model.n_features_in_ = len(preparation.schema_.names)
    entry, limits = state["model"], MAX_SIZES.get(inner.model)
    sizes = {"sizes": _sizes(entry["sizes"], features, limits)} if limits else {}
    folds = entry["folds"].count() if "folds" in entry else 1
    if not 1 <= folds <= MAX_FOLDS:
        entry["folds"].refuse(f"from 1 to {MAX_FOLDS}")
    with torch.device("meta"):
        body = named_body(inner.model, features, None, folds, **sizes).double()
    return model, Scorer(body, inner.model, features, folds=folds)


def _sizes(entry: Field, features: int, limits: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the sizes of a model that learns an encoding."""
    for name, (_, most) in limits.items():
        by_feature = name in BY_FEATURE
        if entry[name].count(limits[name][0]) > most * (features if by_feature else 1):
            entry[name].refuse(f"at most {most:,}" + (f" for each of {features:,} features" if by_feature else ""))
    return {name: entry[name].count() for name in limits}


def _classifier(state: Field, name: str) -> MetricClassifier:
    entry = state["model"]
    method, network = entry["method"].text(MAX_WORD), entry["network"].one_of(tuple(MODELS))
    inner = MetricClassifier(_metric(name), method, network, _recipe(entry["recipe"]))
    inner.threshold_, inner.validation_loss_ = entry["threshold"].number(), entry["validation_loss"].number_or_nan()
    inner.interrupted_ = entry["interrupted"].flag()
    inner.verdict_ = None if entry["verdict"].value is None else _record(Verdict, entry["verdict"])
    inner.history_ = [_record(Round, done) for done in state["history"].items(MAX_ROUNDS)]
    inner.column_codes_ = read_column_codes(entry["column_codes"]) if "column_codes" in entry else {}
    inner.rule_ = _rule(entry["rule"]) if "rule" in entry else None
    if "probabilities" in entry:  # not in folders of 0.1.0
        from metricgrad.tabular.stored_probabilities import read_probabilities

        inner.calibration_ = read_probabilities(entry["probabilities"])
    inner.task_, inner.classes_, inner.chosen_recipe_ = "binary", np.array([0.0, 1.0]), inner.effective_recipe
    return inner


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


def _numbers(entry: Field) -> list[float]:
    return [each.number() for each in entry.items(MAX_RULE)]


def _metric(name: str) -> Metric | str:
    """Return a metric by name, or only the name if it was code, which is not run, or is not for two classes."""
    try:
        metric = get_metric(name)
    except ValueError:
        return name
    return metric if metric.task in (BINARY, COLUMNS) else name


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


# ---- the weights ---------------------------------------------------------------------------------------------------


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file."""
    return bytes(safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))


def fill_weights(model: TableClassifier, network: Scorer, path: Path, sha256: str | None) -> None:
    """Give a model its weights, of exactly the shapes that follow from its manifest."""
    inner = model.model_
    vector = torch.empty(network.features, dtype=torch.float64, device="meta")
    shapes = {f"network.{key}": value for key, value in network.body.state_dict().items()}
    expected = {**shapes, "centre": vector, "scale": vector}
    content = read_weights(path, expected)
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256:
        raise ValueError(f"expected the SHA-256 {sha256} of the manifest, got {found}")
    tensors = unpacked(content, expected)
    network.body.load_state_dict({key.removeprefix("network."): tensors[key] for key in shapes}, assign=True)
    inner.network_ = network.eval()
    inner.centre_, inner.scale_ = tensors["centre"].numpy(), tensors["scale"].numpy()
    for name, tensor in tensors.items():
        least = 0.0 if name.endswith("running_var") else sys.float_info.min if name == "scale" else -math.inf
        if tensor.numel() and float(tensor.min()) < least:
            raise ValueError(f"{name}: expected numbers of at least {least:g}, got {float(tensor.min()):g}")
    _check_scores(inner)


@torch.no_grad()
def _check_scores(inner: MetricClassifier) -> None:
    """Refuse weights with which a row can have an infinite score: features are at most `MAX_SCALED` from zero."""
    centre, scale = torch.from_numpy(inner.centre_), torch.from_numpy(inner.scale_)
    largest = ((MAX_SCALED + centre.abs()) / scale).float().double()  # as features are rounded
    if not _largest_score(inner.network_, largest) + abs(float(inner.threshold_)) < MAX_SCORE:
        raise ValueError("network: expected weights with which every score is finite, got larger ones")


def _largest_score(model: Scorer, largest: Tensor) -> float:
    """Return a bound of the score of a row whose features are bounded; refuse arrays that do not belong together."""
    body, additive = model.body, model.additive
    if isinstance(body, Average):
        if float(body.scale.min()) <= 0:
            raise ValueError("network: expected scores in units of a positive spread, got another")
        scores = [_largest_score(cast(Scorer, member), largest) for member in body.models]
        return float(((torch.tensor(scores) + body.centre.abs().T) / body.scale.T).max())
    if model.name == TREES:
        trees = cast("Trees", body)
        trees.check()
        return trees.largest()
    if model.several:
        ensemble = cast("TabM", body)
        ensemble.check()
        return float(ensemble.largest(largest).max())
    if additive is not None:
        additive.encoding.check()
        body, largest = additive.head, additive.encoding.largest(largest)
    for weight, bias in folded(body)[0]:
        largest = weight.abs() @ largest + bias.abs()
    return float(largest.max())


def read_weights(path: Path, expected: Expected) -> bytes:
    """Read a safetensors file no larger than the expected tensors, whose header names them and no others."""
    data = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    content = read_file(path, LENGTH_BYTES + MAX_HEADER + data)
    header = int.from_bytes(content[:LENGTH_BYTES], "little")
    if header > MAX_HEADER or len(content) != LENGTH_BYTES + header + data:
        raise ValueError(
            f"expected {data:,} bytes of tensors after a header of at most {MAX_HEADER:,}, "
            f"got {len(content):,} bytes with a header of {header:,}"
        )
    _check_header(parsed(content[LENGTH_BYTES : LENGTH_BYTES + header]), expected)
    return content


def _check_header(header: Field, expected: Expected) -> None:
    for name, tensor in expected.items():
        entry = header[name]
        shape = list(tensor.shape)
        if entry["shape"].value != shape:
            shown = json.dumps(entry["shape"].value)[:100]
            raise ValueError(f"{name}: expected the shape {shape}, got {shown}")
        entry["dtype"].one_of([STORED_DTYPES[tensor.dtype]])
    others = [name for name in header.value if name not in (*expected, "__metadata__")]
    if others:
        raise ValueError(f"expected {len(expected)} tensors, got another named {others[0][:60]!r}")


def unpacked(content: bytes, expected: Expected) -> dict[str, Tensor]:
    """Return the tensors of a file that `read_weights` has read; all of their values are finite."""
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
    except SafetensorError as error:
        raise ValueError(f"expected a safetensors file, got {error}") from error
    for name in expected:
        if not bool(tensors[name].isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got others")
    return tensors
