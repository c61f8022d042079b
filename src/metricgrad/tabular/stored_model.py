"""A model from what its folder says: every field and every tensor is checked before anything is made of it."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.pipeline import Pipeline

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.metrics.parse import read_metric
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import BINARY
from metricgrad.tabular.encoding import FARTHEST
from metricgrad.tabular.manifest import SHORT, Field
from metricgrad.tabular.table_classifier import TableClassifier
from metricgrad.tabular.table_state import read_table_state
from metricgrad.tabular.weights_file import read_weights, unpacked
from metricgrad.training.networks import MODELS, Scorer, folded
from metricgrad.training.recipe import RENAMED_FIELDS, Recipe
from metricgrad.training.selection import Verdict
from metricgrad.training.trainer import Round

Record = TypeVar("Record", Round, Verdict)
ROUNDS = 100_000
"""Looks at the validation rows that are read."""
FARTHEST_SCORE = 1e300
"""What no sum on the way to a score may exceed."""
READERS: dict[str, Callable[[Field], Any]] = {
    "str": lambda entry: entry.text(SHORT),
    "int": Field.count,
    "float": Field.number_or_nan,
    "bool": Field.flag,
}
"""How a field of a record is read, by its type."""


# ---- the manifest --------------------------------------------------------------------------------------------------


def model_of(state: Field) -> tuple[TableClassifier, Scorer]:
    """Return the model a manifest describes, and its network, which has no memory yet."""
    metric, target, preparation = read_table_state(state)
    inner = _classifier(state, metric)
    features = len(preparation.get_feature_names_out())
    inner.n_features_in_ = features
    model = TableClassifier(metric, inner.method, inner.model, inner.recipe)
    model.target_ = target
    model.classes_ = np.array([target.negative, target.positive])
    model.data_ = {key: state["data"][key].count() for key in ("rows", "positives")}
    model.notes_ = [note.text() for note in state["notes"].items()]
    model.pipeline_ = Pipeline([("preparation", preparation), ("model", inner)])
    model.feature_names_in_ = np.array(preparation.schema_.names, dtype=object)
    model.n_features_in_ = len(preparation.schema_.names)
    with torch.device("meta"):
        body = MODELS[inner.model](features).double()
    return model, Scorer(body, inner.model, features)


def _classifier(state: Field, name: str) -> MetricClassifier:
    kept = state["model"]
    method, network = kept["method"].text(SHORT), kept["network"].one_of(tuple(MODELS))
    inner = MetricClassifier(_metric(name), method, network, _recipe(kept["recipe"]))
    inner.threshold_, inner.validation_loss_ = kept["threshold"].number(), kept["validation_loss"].number_or_nan()
    inner.interrupted_ = kept["interrupted"].flag()
    inner.verdict_ = None if kept["verdict"].value is None else _record(Verdict, kept["verdict"])
    inner.history_ = [_record(Round, done) for done in state["history"].items(ROUNDS)]
    inner.task_, inner.classes_ = "binary", np.array([0.0, 1.0])
    return inner


def _metric(name: str) -> Metric | str:
    """Return a metric by name, or the name of one that was code, which is not run; it may be called as another is."""
    try:
        metric = read_metric(name)
    except ValueError:
        return name
    return metric if metric.task == BINARY else name


def _recipe(entry: Field) -> Recipe:
    """Return a recipe; another version may know other fields of it."""
    stored = _stored_names(Recipe, entry)
    known = {name: entry[old].value for name, old in stored.items()}
    if "name" in known:
        entry["name"].text(SHORT)
    try:
        return Recipe(**known)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{entry.place}.{error}") from error


def _stored_names(kind: type[Any], entry: Field) -> dict[str, str]:
    """Return the fields of a record that are stored, each with the name it is stored under."""
    names = {field.name: field.name for field in fields(kind)}
    old = {new: old for old, new in RENAMED_FIELDS.items() if new in names and old in entry}
    return {new: name for new, name in {**names, **old}.items() if name in entry}


def _record(kind: type[Record], entry: Field) -> Record:
    """Return a record of what happened, with NaN where nothing is known: this version may keep more than that one."""
    stored, types = _stored_names(kind, entry), {field.name: str(field.type) for field in fields(kind)}
    known = {name: READERS[types[name]](entry[old]) for name, old in stored.items() if entry[old].value is not None}
    return kind(**{**dict.fromkeys(kind.__dataclass_fields__, math.nan), **known})


# ---- the weights ---------------------------------------------------------------------------------------------------


def fill_weights(model: TableClassifier, network: Scorer, path: Path, hashed: str | None) -> None:
    """Give a model its weights, of exactly the shapes its manifest says."""
    inner = model.model_
    vector = torch.empty(network.features, dtype=torch.float64, device="meta")
    shapes = {f"network.{key}": value for key, value in network.body.state_dict().items()}
    expected = {**shapes, "centre": vector, "scale": vector}
    content = read_weights(path, expected)
    found = hashlib.sha256(content).hexdigest()
    if hashed is not None and found != hashed:
        raise ValueError(f"expected the SHA-256 {hashed}, as the manifest says, got {found}")
    tensors = unpacked(content, expected)
    network.body.load_state_dict({key.removeprefix("network."): tensors[key] for key in shapes}, assign=True)
    inner.network_ = network.eval()
    inner.centre_, inner.scale_ = tensors["centre"].numpy(), tensors["scale"].numpy()
    for name, tensor in tensors.items():
        least = 0.0 if name.endswith("running_var") else sys.float_info.min if name == "scale" else -math.inf
        if float(tensor.min()) < least:
            raise ValueError(f"{name}: expected numbers of at least {least:g}, got {float(tensor.min()):g}")
    _check_scores(inner)


@torch.no_grad()
def _check_scores(inner: MetricClassifier) -> None:
    """Refuse weights for which some row has a score that is not finite: features are at most `FARTHEST` from zero."""
    centre, scale = torch.from_numpy(inner.centre_), torch.from_numpy(inner.scale_)
    largest = ((FARTHEST + centre.abs()) / scale).float().double()  # as features are rounded
    for weight, bias in folded(inner.network_.body)[0]:
        largest = weight.abs() @ largest + bias.abs()
    if not float(largest.max()) + abs(float(inner.threshold_)) < FARTHEST_SCORE:
        raise ValueError("network: expected weights with which every score is finite, got larger ones")
