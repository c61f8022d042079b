"""The model folder: a fitted table model as JSON and safetensors, with a model card; loading runs no code from it."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metricgrad.files import is_being_replaced, recover, replacing_folder, staged
from metricgrad.metrics.registry import Metric
from metricgrad.provenance import provenance
from metricgrad.tabular.manifest import MAX_TEXT, read_json, table_state
from metricgrad.tabular.stored_model import fill_weights, model_of, packed
from metricgrad.tabular.table_model import TableModel, stored_name
from metricgrad.training.history import Round
from metricgrad.training.networks import MIXTURE, MODELS, Scorer

FORMAT_VERSION = 1
STATE, WEIGHTS, CARD, CURVE = FILES = ("model.json", "weights.safetensors", "README.md", "validation.png")
MAX_SAVED_ROUNDS = 10_000
"""Rounds of the history that are saved."""
MAX_INDENTED = 1 << 20
"""Characters of a manifest up to which it is indented, to be readable."""
MAX_ERROR = 500
ATTEMPTS, PAUSE = 40, 0.05
"""How often, and after how many seconds, a folder is read again that was replaced meanwhile."""
MODEL_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)
"""What damaged or forged contents raise when a model is built from them."""


# ---- saving --------------------------------------------------------------------------------------------------------


def save(model: TableModel, folder: str | Path) -> Path:
    """Save a fitted model as a folder: weights, pipeline, model card and training curve.

    The new folder is written beside the old one, loaded once as a check, and then renamed: if anything fails, the old
    one is untouched.

    Parameters
    ----------
    model : TableClassifier, TableRegressor or TableRanker
        Fitted, with a network that has a name.
    folder : path
        New, empty, or a model folder to be replaced.

    Returns
    -------
    Path
        The folder.
    """
    target = check_free(folder)
    name = model.model_.network_.name
    if name not in (*MODELS, MIXTURE):
        raise ValueError(f"model: expected {', '.join(MODELS)}, which can be saved without code, got a custom module")
    with replacing_folder(target) as staging:
        _write(model, staging)
        try:
            _read_folder(staging)
        except ValueError as error:
            raise ValueError(f"model: expected one that can be loaded again, got {error.__cause__}") from error
    return target


def save_or_rescue(model: TableModel, folder: str | Path) -> Path:
    """Save a model; if its folder cannot be written, save it elsewhere and raise an error that names the place."""
    try:
        return save(model, folder)
    except (OSError, ValueError) as error:
        kept = _rescued(model, Path(folder).absolute())
        if kept is None:
            raise
        raise OSError(f"{folder} could not be written ({error}); the model was saved in {kept} instead") from error


def _rescued(model: TableModel, target: Path) -> Path | None:
    """Save a model beside its folder, or else among temporary files; None if neither works."""
    for parent in (target.parent, Path(tempfile.gettempdir())):
        with suppress(OSError, ValueError):
            return save(model, parent / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")
    return None


def check_free(folder: str | Path) -> Path:
    """Return a folder that can be written, after making its parents; refuse one that holds anything but a model."""
    target = Path(folder).absolute()
    recover(target)
    if target.exists() and not target.is_dir():
        raise ValueError(f"out: expected a folder, got the file {str(folder)!r}")
    others = sorted(path.name for path in target.iterdir() if path.name not in FILES) if target.exists() else []
    if others:
        raise ValueError(
            f"out: expected a new folder or a model folder, got {str(folder)!r}, which holds {others[0]!r}"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = staged(target)
    staging.mkdir()  # fails now rather than after training
    staging.rmdir()
    return target


def _write(model: TableModel, folder: Path) -> None:
    from metricgrad.tabular.model_card import model_card  # loading needs none

    metric, weights = model.judge_, packed(_tensors(model.model_))
    (folder / WEIGHTS).write_bytes(weights)
    made_by = provenance()
    state = _model_state(model, made_by) | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
    text = json.dumps(state, allow_nan=False)
    readable = json.dumps(state, indent=1, allow_nan=False) if len(text) < MAX_INDENTED else text
    (folder / STATE).write_text(f"{readable}\n", "utf-8")
    (folder / CARD).write_text(model_card(model, metric, made_by), "utf-8")
    _draw(model, metric, folder / CURVE)


def _tensors(inner: Any) -> dict[str, torch.Tensor]:
    """Return all arrays of an estimator."""
    knots = getattr(getattr(inner, "correction_", None), "knots", None)
    return {
        **{f"network.{key}": value for key, value in inner.network_.body.state_dict().items()},
        "centre": torch.from_numpy(inner.centre_),
        "scale": torch.from_numpy(inner.scale_),
        **({} if knots is None else {"knots": torch.from_numpy(knots)}),
    }


def _draw(model: TableModel, metric: Metric, path: Path) -> None:
    import matplotlib  # here, so that loading a model needs no plots

    from metricgrad.reporting.plots import plot_convergence

    inner = model.model_
    try:
        with matplotlib.rc_context({"text.parse_math": False}):  # a $ in the name of a metric is a $
            plot_convergence({inner.method: inner.history_}, metric).savefig(path, dpi=110)
    except (ValueError, RuntimeError) as error:  # a failed plot must not lose the model
        warnings.warn(f"save: the training curve could not be drawn: {error}", stacklevel=5)


def _model_state(model: TableModel, made_by: Mapping[str, str]) -> dict[str, Any]:
    """Return all but the weights as plain data."""
    inner = model.model_
    looked_at = [done for done in inner.history_ if math.isfinite(done.validation)]
    group = getattr(model, "group_", None)
    state = {
        "format": FORMAT_VERSION,
        **table_state(stored_name(model.metric), model.target_, model.pipeline_[0], model.metric_columns_),
        **({} if group is None else {"group": group}),
        **({"columns_aside": model.columns_aside_} if model.columns_aside_ else {}),
        "data": model.data_,
        "model": _estimator_state(inner),
        "history": [asdict(done) for done in _thinned(looked_at)],
        "notes": [note[:MAX_TEXT] for note in model.notes_],
        "made_by": dict(made_by),
    }
    return dict(_json_value(state))


def _estimator_state(inner: Any) -> dict[str, Any]:
    """Return what an estimator learned beside its arrays."""
    recipe = getattr(inner, "chosen_recipe_", None) or inner.effective_recipe
    state = {
        "method": inner.method,
        **_shape(inner.network_),
        "recipe": asdict(recipe),
        "validation_loss": inner.validation_loss_,
        "interrupted": inner.interrupted_,
        "verdict": None if inner.verdict_ is None else asdict(inner.verdict_),
    }
    if hasattr(inner, "threshold_"):
        state["threshold"] = inner.threshold_
        state |= {"column_codes": inner.column_codes_} if inner.column_codes_ else {}
        state |= {"rule": inner.rule_.to_dict()} if inner.rule_ is not None else {}
        state |= {"probabilities": inner.calibration_.to_dict()} if inner.calibration_ is not None else {}
    if hasattr(inner, "correction_"):
        state["units"] = asdict(inner.units_)
        knots = inner.correction_.knots
        state["correction"] = {
            **{name: getattr(inner.correction_, name) for name in ("kind", "shift", "factor")},
            **({} if knots is None else {"knots": knots.shape[1]}),
        }
    return state


def _shape(network: Scorer) -> dict[str, Any]:
    """Return what a network can be built from again, without its arrays."""
    if network.parts:
        return {"network": network.name, "parts": [_shape(part) for part in network.parts]}
    sizes = {} if network.sizes is None else {"sizes": network.sizes}
    return {"network": network.name, "folds": network.folds, **sizes}


def _thinned(history: Sequence[Round]) -> list[Round]:
    """Return at most `MAX_SAVED_ROUNDS` rounds, evenly chosen, the best and the last among them."""
    if len(history) <= MAX_SAVED_ROUNDS:
        return list(history)
    best = min(range(len(history)), key=lambda number: history[number].validation)
    even = np.linspace(0, len(history) - 1, MAX_SAVED_ROUNDS - 1).round().astype(int)
    return [history[number] for number in sorted({best, *map(int, even)})]


def _json_value(value: Any) -> Any:
    """Return data that JSON can hold: built-in numbers, and None for those that are not finite."""
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _json_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    raise TypeError(f"expected plain data, got {type(value).__name__}")


# ---- loading -------------------------------------------------------------------------------------------------------


def load(folder: str | Path) -> TableModel:
    """Load a model saved by `save`; nothing in the folder is ever executed, whoever made it.

    Sizes, types and shapes are checked before anything is built from them. Of a metric that was code only the name is
    stored; set `model.metric` to score by it.

    Parameters
    ----------
    folder : path
        A model folder.

    Returns
    -------
    TableClassifier, TableRegressor or TableRanker
        Fitted; it predicts like the one that was saved.
    """
    path = Path(folder)
    for attempt in range(ATTEMPTS):
        recover(path.absolute())
        before = _identity(path)
        try:
            return _read_folder(path)
        except (OSError, ValueError):
            changed = before != _identity(path) or is_being_replaced(path.absolute())
            if not changed or attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE)
    raise AssertionError("unreachable")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read_folder(path: Path) -> TableModel:
    if not (path / STATE).exists():
        raise FileNotFoundError(f"{path}: expected a model folder, got nothing at {str(path / STATE)!r}")
    with _naming(path / STATE):
        state = read_json(path / STATE)
        if state["format"].value != FORMAT_VERSION:
            state["format"].refuse(f"{FORMAT_VERSION}, the format of this version of metricgrad")
        model, network = model_of(state)
        sha256 = state["weights_sha256"].text(64) if "weights_sha256" in state else None
    with _naming(path / WEIGHTS):
        fill_weights(model, network, path / WEIGHTS, sha256)
    return model


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Turn any error that a damaged file raises into one error that names the file."""
    try:
        yield
    except MODEL_ERRORS as error:
        text = str(error) if isinstance(error, ValueError) else f"expected a model, got {type(error).__name__}: {error}"
        short = " ".join(text.split())
        short = short if len(short) <= MAX_ERROR else f"{short[:MAX_ERROR]}..."
        raise ValueError(f"{file}: {short}") from error
