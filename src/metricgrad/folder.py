"""The model folder: a fitted table model as JSON and safetensors; loading one never runs code of it."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from sklearn.pipeline import Pipeline

from metricgrad.columns import Column, Schema
from metricgrad.estimator import MetricClassifier
from metricgrad.guard import Verdict
from metricgrad.metric_specs import read_metric
from metricgrad.metrics import Metric
from metricgrad.model import MODELS, Scorer, build_model
from metricgrad.model_card import CURVE, write_card
from metricgrad.plots import plot_convergence
from metricgrad.preparation import prepared
from metricgrad.recipe import Recipe, get_recipe
from metricgrad.results import provenance
from metricgrad.table_classifier import TableClassifier
from metricgrad.target import Target
from metricgrad.trainer import Round

Record = TypeVar("Record", Round, Verdict, Recipe)
FORMAT = 1
STATE, WEIGHTS, CARD = "model.json", "weights.safetensors", "README.md"
FILES = {STATE, WEIGHTS, CARD, CURVE}
WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError, SafetensorError)
"""What damaged or invented contents raise on their way to a model."""


# ---- saving --------------------------------------------------------------------------------------------------------


def save(model: TableClassifier, folder: str | Path) -> Path:
    """Save a fitted model as a folder: weights, pipeline, model card and the curve of its training.

    Written beside and then renamed: if anything fails, what was there before is untouched.

    Parameters
    ----------
    model : TableClassifier
        Fitted, with a model known by name.
    folder : path
        New, empty, or a model folder to be replaced.

    Returns
    -------
    Path
        The folder.
    """
    target = check_free(folder)
    name = model.model_.network_.name
    if name not in MODELS:
        raise ValueError(f"model: expected {', '.join(MODELS)} to be kept without code, got a module of your own")
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write(model, beside)
        beside.chmod(0o755)
        _swap(beside, target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def check_free(folder: str | Path) -> Path:
    """Return a folder that can be written, making those above it; refuse one that holds anything but a model."""
    target = Path(folder).absolute()
    if target.exists() and not target.is_dir():
        raise ValueError(f"out: expected a folder, got the file {str(folder)!r}")
    others = sorted(path.name for path in target.iterdir() if path.name not in FILES) if target.exists() else []
    if others:
        raise ValueError(
            f"out: expected a new folder or a model folder, got {str(folder)!r}, which holds {others[0]!r}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    return target


def _swap(new: Path, target: Path) -> None:
    """Put a folder in the place of another, which comes back if that fails."""
    if not target.exists():
        new.rename(target)
        return
    old = new.with_name(f"{new.name}.old")
    target.rename(old)
    try:
        new.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(model: TableClassifier, folder: Path) -> None:
    inner = model.model_
    metric = read_metric(model.metric)
    weights = {f"network.{key}": value.contiguous() for key, value in inner.network_.body.state_dict().items()}
    weights |= {"centre": torch.from_numpy(inner.centre_), "scale": torch.from_numpy(inner.scale_)}
    save_file(weights, folder / WEIGHTS)
    made_by = provenance()
    (folder / STATE).write_text(json.dumps(_state(model, metric, made_by), indent=1, allow_nan=False) + "\n", "utf-8")
    (folder / CARD).write_text(write_card(model, metric, made_by), "utf-8")
    plot_convergence({inner.method: inner.history_}, metric).savefig(folder / CURVE, dpi=110)


def _state(model: TableClassifier, metric: Metric, made_by: Mapping[str, str]) -> dict[str, Any]:
    """Return all but the weights as plain data."""
    inner = model.model_
    looked_at = [asdict(done) for done in inner.history_ if math.isfinite(done.validation)]
    state = {
        "format": FORMAT,
        "metric": model.metric if isinstance(model.metric, str) else metric.name,
        "target": asdict(model.target_),
        "data": model.data_,
        "columns": [asdict(column) for column in model.pipeline_[0].schema_.columns],
        "preparation": model.pipeline_[0].state(),
        "model": {
            "method": inner.method,
            "network": inner.network_.name,
            "recipe": asdict(get_recipe(inner.recipe)),
            "threshold": inner.threshold_,
            "validation_loss": inner.validation_loss_,
            "interrupted": inner.interrupted_,
            "verdict": None if inner.verdict_ is None else asdict(inner.verdict_),
        },
        "history": looked_at,
        "notes": model.notes_,
        "made_by": dict(made_by),
    }
    return dict(_finite(state))


def _finite(value: Any) -> Any:
    """Return plain data with None for what is not finite, which JSON cannot hold."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- loading -------------------------------------------------------------------------------------------------------


def load(folder: str | Path) -> TableClassifier:
    """Load a model saved by `save`; nothing in the folder is ever executed, whoever made it.

    A metric that was code is known by its name only; set `model.metric` to score by it.

    Parameters
    ----------
    folder : path
        A model folder.

    Returns
    -------
    TableClassifier
        Fitted; it predicts as the one that was saved.
    """
    path = Path(folder)
    if not (path / STATE).is_file():
        raise FileNotFoundError(f"{folder}: expected a model folder, got nothing at {str(path / STATE)!r}")
    try:
        state = json.loads((path / STATE).read_text("utf-8"))
        if state["format"] != FORMAT:
            raise ValueError(f"format {state['format']!r}, which another version of metricgrad may know")
        return _loaded(state, load_file(path / WEIGHTS))
    except WRONG as error:
        said = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder}: expected a model saved by metricgrad, got {' '.join(said.split())}") from error


def _loaded(state: dict[str, Any], weights: dict[str, torch.Tensor]) -> TableClassifier:
    schema = Schema(tuple(Column(**column) for column in state["columns"]))
    preparation = prepared(schema, state["preparation"])
    inner = _classifier(state, weights, len(preparation.get_feature_names_out()))
    model = TableClassifier(state["metric"], inner.method, inner.model, inner.recipe)
    model.target_ = Target(**state["target"])
    if not all(isinstance(label, (str, int)) for label in (model.target_.negative, model.target_.positive)):
        raise ValueError(f"the labels {model.target_.negative!r} and {model.target_.positive!r}")
    model.classes_ = np.array([model.target_.negative, model.target_.positive])
    model.data_, model.notes_ = dict(state["data"]), [str(note) for note in state["notes"]]
    model.pipeline_ = Pipeline([("preparation", preparation), ("model", inner)])
    model.feature_names_in_ = np.array(schema.names, dtype=object)
    model.n_features_in_ = len(schema.names)
    return model


def _classifier(state: dict[str, Any], weights: dict[str, torch.Tensor], features: int) -> MetricClassifier:
    kept = state["model"]
    metric: Any = str(state["metric"])
    with suppress(ValueError):  # a metric that was code, which is not run
        metric = read_metric(metric)
    inner = MetricClassifier(
        metric, str(kept["method"]), str(kept["network"]), Recipe(**_known(Recipe, kept["recipe"]))
    )
    inner.network_ = _network(str(kept["network"]), features, weights)
    inner.centre_, inner.scale_ = (_vector(weights[key], features) for key in ("centre", "scale"))
    inner.threshold_, inner.validation_loss_ = float(kept["threshold"]), float(kept["validation_loss"])
    inner.interrupted_ = bool(kept["interrupted"])
    inner.verdict_ = None if kept["verdict"] is None else _record(Verdict, kept["verdict"])
    inner.history_ = [_record(Round, done) for done in state["history"]]
    inner.task_, inner.classes_, inner.n_features_in_ = "binary", np.array([0.0, 1.0]), features
    return inner


def _network(name: str, features: int, weights: dict[str, torch.Tensor]) -> Scorer:
    network = build_model(name, features).double()
    own = {key.removeprefix("network."): value for key, value in weights.items() if key.startswith("network.")}
    if not all(bool(value.isfinite().all()) for value in own.values()):
        raise ValueError("weights that are not finite")
    network.body.load_state_dict(own)
    return network.eval()


def _vector(values: torch.Tensor, features: int) -> Any:
    if values.shape != (features,) or not bool(values.isfinite().all()):
        raise ValueError(f"a scale of shape {tuple(values.shape)} for {features} features")
    return values.double().numpy()


def _record(kind: type[Record], entry: Mapping[str, Any]) -> Record:
    """Return a record of what happened, with NaN where nothing is known: this version may keep more than that one."""
    known = {key: value for key, value in _known(kind, entry).items() if value is not None}
    return kind(**{**dict.fromkeys(kind.__dataclass_fields__, math.nan), **known})


def _known(kind: type[Record], entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key in kind.__dataclass_fields__}
