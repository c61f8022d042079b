"""A model from its folder: every field and every tensor is checked before anything is built from it."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from sklearn.pipeline import Pipeline
from torch import Tensor

from metricgrad.tabular.encoding import MAX_SCALED
from metricgrad.tabular.manifest import (
    Field,
    parsed,
    read_file,
    read_table_state,
)
from metricgrad.tabular.table_model import TableModel
from metricgrad.training.networks import MIXTURE, MODELS, TREES, Average, Scorer, folded, named_scorer

if TYPE_CHECKING:
    from metricgrad.metrics.constants import Correction
    from metricgrad.training.tabm import TabM
    from metricgrad.training.trees import Trees

Expected = Mapping[str, Tensor]
"""Tensors by name, of which only shape and type count; they may be on torch's device `meta`, without memory."""
MAX_KNOTS, MAX_NODES, MAX_FOLDS, MAX_PARTS = 10_000, 10_000_000, 1_000, 10
"""Knots, ramps or cells of a feature, nodes of trees for each feature, models of an average, and of a mixture."""
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
LENGTH_BYTES, MIN_HEADER, ENTRY_BYTES = 8, 1 << 16, 256
"""Bytes of a safetensors file with the length of its header; bytes that any header may have, and an entry of it."""


# ---- the manifest --------------------------------------------------------------------------------------------------


def model_of(state: Field) -> tuple[TableModel, Scorer]:
    """Return the model a manifest describes, and its network, which has no memory yet."""
    from metricgrad.tabular.stored_estimator import outputs_of, read_estimator  # each kind imports its own estimator

    metric, target, preparation = read_table_state(state)
    model, inner = read_estimator(state, metric, target)
    features, outputs = len(preparation.get_feature_names_out()), outputs_of(target)
    inner.n_features_in_ = features
    model.pipeline_ = Pipeline([("preparation", preparation), ("model", inner)])
    model.feature_names_in_ = np.array(preparation.schema_.names, dtype=object)
    model.n_features_in_ = len(preparation.schema_.names)
    with torch.device("meta"):
        network = named_scorer(features=features, outputs=outputs, **_shape(state["model"], features)).double()
    return model, network


def _shape(entry: Field, features: int) -> dict[str, Any]:
    """Return what a model, or a part of a mixture, is built from: its name, number of folds, and sizes or parts."""
    name = entry["network"].one_of((*MODELS, MIXTURE))
    if name == MIXTURE:
        parts = list(entry["parts"].items(MAX_PARTS))
        if not parts or any(part["network"].value == MIXTURE for part in parts):
            entry["parts"].refuse("models that are no mixtures")
        return {"name": name, "parts": [_shape(part, features) for part in parts]}
    folds = entry["folds"].count() if "folds" in entry else 1
    if not 1 <= folds <= MAX_FOLDS:
        entry["folds"].refuse(f"from 1 to {MAX_FOLDS}")
    limits = MAX_SIZES.get(name)
    return {"name": name, "folds": folds} | ({"sizes": _sizes(entry["sizes"], features, limits)} if limits else {})


def _sizes(entry: Field, features: int, limits: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the sizes of a model that learns an encoding."""
    for name, (_, most) in limits.items():
        by_feature = name in BY_FEATURE
        if entry[name].count(limits[name][0]) > most * (features if by_feature else 1):
            entry[name].refuse(f"at most {most:,}" + (f" for each of {features:,} features" if by_feature else ""))
    return {name: entry[name].count() for name in limits}


# ---- the weights ---------------------------------------------------------------------------------------------------


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file."""
    return bytes(safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))


def fill_weights(model: TableModel, network: Scorer, path: Path, sha256: str | None) -> None:
    """Give a model its weights, of exactly the shapes that follow from its manifest."""
    inner = model.model_
    vector = torch.empty(network.features, dtype=torch.float64, device="meta")
    shapes = {f"network.{key}": value for key, value in network.body.state_dict().items()}
    expected = {**shapes, "centre": vector, "scale": vector}
    correction: Correction | None = getattr(inner, "correction_", None)
    if correction is not None and correction.knots is not None:
        expected["knots"] = torch.empty(correction.knots.shape, dtype=torch.float64, device="meta")
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
    if correction is not None and "knots" in tensors:
        if bool((tensors["knots"].diff() < 0).any()):
            raise ValueError("knots: expected predictions and what they become, both rising, got others")
        inner.correction_ = replace(correction, knots=tensors["knots"].numpy())
    _check_scores(inner)


@torch.no_grad()
def _check_scores(inner: Any) -> None:
    """Refuse weights with which a row can have an infinite score: features are at most `MAX_SCALED` from zero."""
    centre, scale = torch.from_numpy(inner.centre_), torch.from_numpy(inner.scale_)
    largest = ((MAX_SCALED + centre.abs()) / scale).float().double()  # as features are rounded
    cut = float(np.abs(getattr(inner, "threshold_", 0.0)).max())
    score = _largest_score(inner.network_, largest) + cut
    if not score < MAX_SCORE:
        raise ValueError("network: expected weights with which every score is finite, got larger ones")
    if hasattr(inner, "correction_"):
        _check_predictions(inner, score)


def _check_predictions(inner: Any, score: float) -> None:
    """Refuse units or a correction with which a number can be infinite."""
    units, correction = inner.units_, inner.correction_
    ends = units.to_targets(torch.tensor([-score, score], dtype=torch.float64)).numpy()
    with np.errstate(over="ignore"):
        predictions = correction.apply(ends)
    if not np.isfinite(predictions).all():
        raise ValueError("units, correction: expected some with which every prediction is finite, got others")


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
    most = max(MIN_HEADER, ENTRY_BYTES * len(expected))
    content = read_file(path, LENGTH_BYTES + most + data)
    header = int.from_bytes(content[:LENGTH_BYTES], "little")
    if header > most or len(content) != LENGTH_BYTES + header + data:
        raise ValueError(
            f"expected {data:,} bytes of tensors after a header of at most {most:,}, "
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
