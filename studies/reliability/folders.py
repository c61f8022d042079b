"""Damaged and forged model folders: each is loaded and predicts finite scores, or is refused in one line."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import stat
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch as safetensors
import torch
from numpy.random import Generator, default_rng

from metricgrad import TableClassifier, load
from metricgrad.tabular.persistence import STATE, WEIGHTS
from studies.reliability.damage import DAMAGES
from studies.reliability.tables import MODELS, save_models, small_table
from studies.reliability.verdicts import of_call, of_command, worse
from studies.reliability.workers import as_record

CASES, SECONDS, PEAK_MB = 6_000, 30.0, 512
"""How many cases, and the most seconds and memory one may take."""
EVERY = 3
"""Of so many cases one is also given to the command, which takes longer."""
HUGE = 1 << 40
"""Bytes of a file that takes no room on a disk and would take all of the memory."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**63, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf")),
    *("", "nan", "1e999", "x" * 1_000_000, "\x1b[31mred\x07", "\x00", "\u202egpj", "__class__", "=1+1", "../../etc"),
    *([], {}, [[]], [None] * 3, {"a": {"a": {}}}, [0.0] * 100_000, ["a"] * 100_000),
)
"""What takes the place of a value of the state."""
TEXTS = (
    *("", "null", "[]", "{}", "{", "1", '"text"', "NaN", "[" * 200_000, '{"a":' * 100_000, "\ufeff{}", "9" * 10_000),
    *('{"format": 1, "format": 1}', '{"format": 1}', '{"format": 2}', '{"format": null}', '{"format": [1]}', "\ud800"),
)
LINKS = ("/dev/zero", "/dev/random", "/dev/stdin", "/", "..", "nowhere", STATE, WEIGHTS)
"""Where links lead; nothing is ever written through one."""
LARGEST = 1 << 24
Mutation = Callable[[Path, Generator], None]


def prepare(work: Path) -> None:
    """Save the models that are damaged."""
    save_models(work)


def attempt(work: Path, seed: int, case: int) -> Mapping[str, Any]:
    """Damage a copy of a model in one to three ways, load it and predict; some by the command too."""
    rng = default_rng((seed, case))
    with tempfile.TemporaryDirectory(prefix="metricgrad-attack-") as name:
        folder = Path(name) / "model"
        shutil.copytree(work / MODELS[int(rng.integers(0, len(MODELS)))], folder)
        chosen = [_pick(MUTATIONS, rng) for _ in range(int(rng.integers(1, 4)))]
        for mutate in chosen:
            _apply(mutate, folder, rng)
        if rng.random() < 0.5:
            _apply(sign, folder, rng)
        kind = "+".join(mutate.__name__ for mutate in chosen)
        verdict = of_call(lambda: load(folder), wrong_with)
        if case % EVERY == 0:
            verdict = worse(verdict, of_command(["predict", str(folder), str(work / "data.csv")]))
        return as_record(kind, verdict)


def wrong_with(model: TableClassifier) -> str | None:
    """Return what is wrong with the predictions of a loaded model, or None."""
    frame = small_table(5, seed=1)
    scores, labels = model.decision_function(frame), model.predict(frame)
    if scores.shape != (5,) or not np.isfinite(scores).all():
        return f"scores {scores}"
    return None if set(labels.tolist()) <= set(model.classes_.tolist()) else f"labels {labels}"


# ---- the state -----------------------------------------------------------------------------------------------------


def replace_value(folder: Path, rng: Generator) -> None:
    """Put something else in the place of a value of the state."""
    _edit(folder, rng, lambda inside, key: inside.__setitem__(key, _pick(VALUES, rng)))


def remove_value(folder: Path, rng: Generator) -> None:
    """Remove a value of the state."""
    _edit(folder, rng, lambda inside, key: inside.__delitem__(key))


def repeat_value(folder: Path, rng: Generator) -> None:
    """Add a key, or a list's item ten thousand times."""

    def repeat(inside: Any, key: Any) -> None:
        if isinstance(inside, list):
            inside.extend([inside[key]] * 10_000)
        else:
            inside[f"{key} "] = inside[key]

    _edit(folder, rng, repeat)


def scale_number(folder: Path, rng: Generator) -> None:
    """Multiply a number of the state by something extreme."""

    def scale(inside: Any, key: Any) -> None:
        if isinstance(inside[key], (int, float)):
            inside[key] = float(inside[key]) * float(_pick((0.0, -1.0, 1e-300, 1e30, 1e300, np.inf, np.nan), rng))

    for _ in range(5):
        _edit(folder, rng, scale)


def swap_values(folder: Path, rng: Generator) -> None:
    """Exchange two values of the state, of whatever types."""
    state = json.loads(_content(folder / STATE))
    places = _places(state)
    (one, first), (other, second) = _pick(places, rng), _pick(places, rng)
    one[first], other[second] = json.loads(json.dumps(other[second])), json.loads(json.dumps(one[first]))
    _put(folder / STATE, json.dumps(state).encode())


def write_text(folder: Path, rng: Generator) -> None:
    """Put another text in the place of the state."""
    _put(folder / STATE, _pick(TEXTS, rng).encode("utf-8", errors="surrogatepass"))


# ---- the weights ---------------------------------------------------------------------------------------------------


def drop_tensor(folder: Path, rng: Generator) -> None:
    """Leave a tensor out."""
    _rewrite(folder, rng, lambda tensors, key: tensors.pop(key))


def add_tensors(folder: Path, rng: Generator) -> None:
    """Add tensors that nothing asks for."""
    count, width = int(_pick((1, 100, 2_000), rng)), int(_pick((0, 1, 100), rng))
    extra = {f"network.{number}.more": torch.zeros(width) for number in range(count)}
    _rewrite(folder, rng, lambda tensors, key: tensors.update(extra))


def fill_tensor(folder: Path, rng: Generator) -> None:
    """Fill a tensor with a number that no training gives."""
    value = float(_pick((0.0, 1e30, -1e30, 1e300, -1e308, np.nan, np.inf, 5e-324), rng))
    _rewrite(folder, rng, lambda tensors, key: tensors.update({key: torch.full_like(tensors[key].double(), value)}))


def reshape_tensor(folder: Path, rng: Generator) -> None:
    """Give a tensor another shape."""
    shape = _pick(((0,), (1,), (1, 1), (3, 7), (2,) * 20, (100_000,)), rng)
    _rewrite(folder, rng, lambda tensors, key: tensors.update({key: torch.zeros(shape)}))


def cast_tensor(folder: Path, rng: Generator) -> None:
    """Give a tensor another type."""
    kind = _pick((torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool), rng)
    _rewrite(folder, rng, lambda tensors, key: tensors.update({key: tensors[key].to(kind)}))


def forge_header(folder: Path, rng: Generator) -> None:
    """Write a length or offsets that are not so into the header of the weights."""
    content = _content(folder / WEIGHTS)
    length = int(_pick((0, 1, 7, 2**31, 2**40, 2**63, 2**64 - 1), rng))
    header = _pick(
        (
            b"{}",
            b"[" * 100_000,
            b'{"centre":{"dtype":"F64","shape":[1099511627776],"data_offsets":[0,8796093022208]}}',
            b'{"centre":{"dtype":"F64","shape":[18446744073709551615,2],"data_offsets":[0,16]}}',
            b'{"centre":{"dtype":"F64","shape":[-1],"data_offsets":[8,0]}}',
            b'{"centre":{"dtype":"PICKLE","shape":[1],"data_offsets":[0,8]}}',
        ),
        rng,
    )
    forged = struct.pack("<Q", length) + content[8:], struct.pack("<Q", len(header)) + header + content[-64:]
    _put(folder / WEIGHTS, _pick(forged, rng))


def sign(folder: Path, rng: Generator) -> None:
    """Write the right hash of the weights into the state, as whoever forges a model would."""
    state = json.loads(_content(folder / STATE))
    if "weights_sha256" in state:
        state["weights_sha256"] = hashlib.sha256(_content(folder / WEIGHTS)).hexdigest()
        _put(folder / STATE, json.dumps(state).encode())


# ---- files and folders ---------------------------------------------------------------------------------------------


def damage_state(folder: Path, rng: Generator) -> None:
    """Damage the bytes of the state."""
    _damage(folder / STATE, rng)


def damage_weights(folder: Path, rng: Generator) -> None:
    """Damage the bytes of the weights."""
    _damage(folder / WEIGHTS, rng)


def damage_any(folder: Path, rng: Generator) -> None:
    """Damage the bytes of any file."""
    _damage(_pick(sorted(folder.iterdir()), rng), rng)


def remove_file(folder: Path, rng: Generator) -> None:
    """Remove a file."""
    _pick(sorted(folder.iterdir()), rng).unlink()


def link_file(folder: Path, rng: Generator) -> None:
    """Put a link in the place of a file: to a device, to another file, to nothing or to itself."""
    path = folder / _pick((STATE, WEIGHTS), rng)
    path.unlink()
    path.symlink_to(_pick(LINKS, rng))


def odd_file(folder: Path, rng: Generator) -> None:
    """Put a pipe nobody writes to, a folder, or a file of a terabyte of nothing in the place of a file."""
    path = folder / _pick((STATE, WEIGHTS), rng)
    path.unlink()
    _pick((os.mkfifo, Path.mkdir, _sparse), rng)(path)


def odd_folder(folder: Path, rng: Generator) -> None:
    """Put a file, a pipe, an empty folder or a link in the place of the folder."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise ValueError(f"folder: expected a folder, got {folder}")
    shutil.rmtree(folder)
    _pick((Path.touch, os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path), lambda path: None), rng)(folder)


MUTATIONS: tuple[Mutation, ...] = (
    *(replace_value, replace_value, replace_value, remove_value, repeat_value, scale_number, swap_values, write_text),
    *(drop_tensor, add_tensors, fill_tensor, fill_tensor, reshape_tensor, cast_tensor, forge_header),
    *(damage_state, damage_state, damage_weights, damage_weights, damage_any, remove_file, link_file, odd_file),
    *(odd_folder,),
)
"""What may happen to a folder; what is named twice happens twice as often."""


def _pick(choices: Any, rng: Generator) -> Any:
    return choices[int(rng.integers(0, len(choices)))]


def _apply(mutate: Mutation, folder: Path, rng: Generator) -> None:
    """Mutate a folder, if what came before has left what it takes."""
    try:
        mutate(folder, rng)
    except Exception:
        return


def _places(state: Any) -> list[tuple[Any, Any]]:
    """Return every container of plain data with every key of it."""
    keys = list(state) if isinstance(state, dict) else list(range(len(state))) if isinstance(state, list) else []
    inside = [place for key in keys for place in _places(state[key])]
    return [(state, key) for key in keys] + inside


def _edit(folder: Path, rng: Generator, edit: Callable[[Any, Any], object]) -> None:
    state = json.loads(_content(folder / STATE))
    edit(*_pick(_places(state), rng))
    _put(folder / STATE, json.dumps(state).encode())


def _rewrite(folder: Path, rng: Generator, edit: Callable[[dict[str, torch.Tensor], str], object]) -> None:
    tensors = safetensors.load(_content(folder / WEIGHTS))
    edit(tensors, _pick(sorted(tensors), rng))
    _put(folder / WEIGHTS, safetensors.save(tensors))


def _damage(path: Path, rng: Generator) -> None:
    _put(path, _pick(DAMAGES, rng)(_content(path), rng))


def _content(path: Path) -> bytes:
    """Read a plain file of some size; what a mutation before has made of it may be a pipe, a device or a link."""
    there = path.lstat()
    if not stat.S_ISREG(there.st_mode) or there.st_size > LARGEST:
        raise ValueError(f"path: expected a plain file, got {path}")
    return path.read_bytes()


def _put(path: Path, content: bytes) -> None:
    """Write a file in the place of a plain one, and never through a link."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise ValueError(f"path: expected a plain file, got {path}")
    path.write_bytes(content)


def _sparse(path: Path) -> None:
    """Make a large file that takes no room; the limit of a worker on files is lifted meanwhile."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[1], limits[1]))
    try:
        path.touch()
        os.truncate(path, HUGE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
