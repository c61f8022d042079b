"""The model folder: a fitted table model as JSON and safetensors; loading one never runs code of it."""

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

import matplotlib
import numpy as np
import torch

from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.provenance import provenance
from metricgrad.reporting.atomic import is_being_replaced, recover, replacing_folder, staged
from metricgrad.reporting.plots import plot_convergence
from metricgrad.tabular.manifest import TEXT, read_json
from metricgrad.tabular.model_card import CURVE, write_card
from metricgrad.tabular.stored_model import fill_weights, model_of
from metricgrad.tabular.table_classifier import TableClassifier, stored_name
from metricgrad.tabular.table_state import table_state
from metricgrad.tabular.weights_file import packed
from metricgrad.training.networks import MODELS
from metricgrad.training.recipe import get_recipe
from metricgrad.training.trainer import Round

FORMAT = 1
STATE, WEIGHTS, CARD = "model.json", "weights.safetensors", "README.md"
FILES = {STATE, WEIGHTS, CARD, CURVE}
ROUNDS = 10_000
"""Looks at the validation rows that are saved."""
READABLE = 1 << 20
"""Characters of a manifest up to which its fields have a line each."""
LONGEST_ERROR = 500
ATTEMPTS, PAUSE = 40, 0.05
"""How often, and after how many seconds, a folder is read again that was replaced meanwhile."""
WRONG = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)
"""What damaged or invented contents raise on their way to a model."""


# ---- saving --------------------------------------------------------------------------------------------------------


def save(model: TableClassifier, folder: str | Path) -> Path:
    """Save a fitted model as a folder: weights, pipeline, model card and the curve of its training.

    Written beside, loaded once to be sure, and then renamed: if anything fails, what was there before is untouched.

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
    with replacing_folder(target) as beside:
        _write(model, beside)
        try:
            _read(beside)
        except ValueError as error:
            raise ValueError(f"model: expected one that can be loaded again, got {error.__cause__}") from error
    return target


def save_or_rescue(model: TableClassifier, folder: str | Path) -> Path:
    """Save a model; if its folder can no longer be written, save it elsewhere and raise an error that says where."""
    try:
        return save(model, folder)
    except (OSError, ValueError) as error:
        kept = _rescued(model, Path(folder).absolute())
        if kept is None:
            raise
        raise OSError(f"{folder} could not be written ({error}); the model was saved in {kept} instead") from error


def _rescued(model: TableClassifier, target: Path) -> Path | None:
    """Save a model beside where it should be, or else among temporary files; None if neither can be."""
    for parent in (target.parent, Path(tempfile.gettempdir())):
        with suppress(OSError, ValueError):
            return save(model, parent / f"{target.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}")
    return None


def check_free(folder: str | Path) -> Path:
    """Return a folder that can be written, making those above it; refuse one that holds anything but a model."""
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
    beside = staged(target)
    beside.mkdir()
    beside.rmdir()
    return target


def _write(model: TableClassifier, folder: Path) -> None:
    inner = model.model_
    metric = get_metric(model.metric)
    weights = packed(
        {f"network.{key}": value for key, value in inner.network_.body.state_dict().items()}
        | {"centre": torch.from_numpy(inner.centre_), "scale": torch.from_numpy(inner.scale_)}
    )
    (folder / WEIGHTS).write_bytes(weights)
    made_by = provenance()
    state = _state(model, metric, made_by) | {"weights_sha256": hashlib.sha256(weights).hexdigest()}
    text = json.dumps(state, allow_nan=False)
    readable = json.dumps(state, indent=1, allow_nan=False) if len(text) < READABLE else text
    (folder / STATE).write_text(f"{readable}\n", "utf-8")
    (folder / CARD).write_text(write_card(model, metric, made_by), "utf-8")
    try:
        with matplotlib.rc_context({"text.parse_math": False}):  # a $ in the name of a metric is a $
            plot_convergence({inner.method: inner.history_}, metric).savefig(folder / CURVE, dpi=110)
    except (ValueError, RuntimeError) as error:  # a picture must not cost a model
        warnings.warn(f"save: the curve of the training could not be drawn: {error}", stacklevel=4)


def _state(model: TableClassifier, metric: Metric, made_by: Mapping[str, str]) -> dict[str, Any]:
    """Return all but the weights as plain data."""
    inner = model.model_
    looked_at = [done for done in inner.history_ if math.isfinite(done.validation)]
    state = {
        "format": FORMAT,
        **table_state(stored_name(model.metric), model.target_, model.pipeline_[0]),
        "data": model.data_,
        "model": {
            "method": inner.method,
            "network": inner.network_.name,
            "recipe": asdict(get_recipe(inner.recipe)),
            "threshold": inner.threshold_,
            "validation_loss": inner.validation_loss_,
            "interrupted": inner.interrupted_,
            "verdict": None if inner.verdict_ is None else asdict(inner.verdict_),
        },
        "history": [asdict(done) for done in _thinned(looked_at)],
        "notes": [note[:TEXT] for note in model.notes_],
        "made_by": dict(made_by),
    }
    return dict(_plain(state))


def _thinned(history: Sequence[Round]) -> list[Round]:
    """Return at most so many rounds as are saved, evenly chosen, the best and the last among them."""
    if len(history) <= ROUNDS:
        return list(history)
    best = min(range(len(history)), key=lambda number: history[number].validation)
    even = np.linspace(0, len(history) - 1, ROUNDS - 1).round().astype(int)
    return [history[number] for number in sorted({best, *map(int, even)})]


def _plain(value: Any) -> Any:
    """Return what JSON can hold: Python's own numbers, and None for those that are not finite."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
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


def load(folder: str | Path) -> TableClassifier:
    """Load a model saved by `save`; nothing in the folder is ever executed, whoever made it.

    Sizes, types and shapes are checked before anything is made of them. A metric that was code is known by its name
    only; set `model.metric` to score by it.

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
    for attempt in range(ATTEMPTS):
        recover(path.absolute())
        before = _identity(path)
        try:
            return _read(path)
        except (OSError, ValueError):
            changed = before != _identity(path) or is_being_replaced(path.absolute())
            if not changed or attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE)
    raise AssertionError("unreachable")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_ino, there.st_mtime_ns


def _read(path: Path) -> TableClassifier:
    if not (path / STATE).exists():
        raise FileNotFoundError(f"{path}: expected a model folder, got nothing at {str(path / STATE)!r}")
    with _naming(path / STATE):
        state = read_json(path / STATE)
        if state["format"].value != FORMAT:
            state["format"].refuse(f"{FORMAT}, or the version of metricgrad that wrote it")
        model, network = model_of(state)
        hashed = state["weights_sha256"].text(64) if "weights_sha256" in state else None
    with _naming(path / WEIGHTS):
        fill_weights(model, network, path / WEIGHTS, hashed)
    return model


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Turn whatever a file raises on its way to a model into one error that names the file."""
    try:
        yield
    except WRONG as error:
        said = str(error) if isinstance(error, ValueError) else f"expected a model, got {type(error).__name__}: {error}"
        short = " ".join(said.split())
        short = short if len(short) <= LONGEST_ERROR else f"{short[:LONGEST_ERROR]}..."
        raise ValueError(f"{file}: {short}") from error
