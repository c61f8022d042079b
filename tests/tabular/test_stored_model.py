"""Untrusted model folders: damaged or forged content is refused at once, by file, field, expectation and value."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as packed

from metricgrad import Recipe, TableClassifier, load, save
from metricgrad.tabular.persistence import STATE, WEIGHTS
from metricgrad.training.trees import has_lightgbm

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(40, 9, 80).round(1),
        "plan": RNG.choice(["a", "b"], 80),
        "joined": pd.date_range("2020-01-01", periods=80, freq="11h").strftime("%Y-%m-%d"),
        "left": ["yes", "no"] * 40,
    }
)
MEGABYTES = 600
SECONDS = 5.0


@pytest.fixture(scope="module")
def model() -> TableClassifier:
    return TableClassifier("f1", "cross-entropy", "small", Recipe(warmup=9, rounds=0)).fit(FRAME, "left")


@pytest.fixture
def folder(model: TableClassifier, tmp_path: Path) -> Path:
    return save(model, tmp_path / "model")


@pytest.fixture(autouse=True)
def in_bounded_time_and_memory() -> Iterator[None]:
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    yield
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime - before.ru_utime < SECONDS
    assert time.perf_counter() - begun < 4 * SECONDS
    assert (after.ru_maxrss - before.ru_maxrss) / 1024 < MEGABYTES


def change_state(folder: Path, *path: Any, value: Any) -> None:
    state = json.loads((folder / STATE).read_text())
    inner = state
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    (folder / STATE).write_text(json.dumps(state))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change tensors, and the hash with them: a stranger can do both."""
    weights = load_file(folder / WEIGHTS)
    change(weights)
    replace_weights(folder, packed(weights))


def replace_weights(folder: Path, content: bytes) -> None:
    (folder / WEIGHTS).write_bytes(content)
    change_state(folder, "weights_sha256", value=hashlib.sha256(content).hexdigest())


def refusal(folder: Path) -> str:
    """Return why a folder is refused, in one short message that begins with it."""
    with pytest.raises(ValueError, match=re.escape(str(folder))) as raised:
        load(folder)
    assert str(raised.value).startswith(str(folder))
    assert len(str(raised.value)) < 800
    return str(raised.value)


# ---- what is too much ----------------------------------------------------------------------------------------------


def test_a_long_text_in_the_place_of_levels_is_refused_and_shortened(folder: Path) -> None:
    change_state(folder, "preparation", 1, "levels", value="ab" * 1_500_000)
    said = refusal(folder)
    assert "model.json: preparation[1].levels: expected a list of at most 50, got 'abab" in said
    assert said.endswith("... (3,000,000 characters)")


@pytest.mark.parametrize("count", [51, 60_000])
def test_more_levels_than_are_ever_saved_are_refused(folder: Path, count: int) -> None:
    change_state(folder, "preparation", 1, "levels", value=[str(number) for number in range(count)])
    assert re.search(rf"levels: expected a list of at most 50, got a list of {count:,}", refusal(folder))


def test_more_features_than_are_ever_saved_are_refused(folder: Path) -> None:
    state = json.loads((folder / STATE).read_text())
    levels = [str(number) for number in range(50)]
    names = [f"c{number}" for number in range(2_001)]
    state["columns"] = [{"name": name, "kind": "category", "form": "", "stray": 0} for name in names]
    state["preparation"] = [
        {"encoder": "OneHot", "name": name, "levels": levels, "others": False, "gaps": False} for name in names
    ]
    (folder / STATE).write_text(json.dumps(state))
    assert re.search("preparation: expected from 1 to 100,000 features, got 100,050", refusal(folder))


@pytest.mark.parametrize("name", [STATE, WEIGHTS])
def test_a_file_that_is_not_regular_is_refused_unread(folder: Path, name: str, tmp_path: Path) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert re.search(f"{name}: expected a regular file, got a pipe", refusal(folder))
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    assert re.search(f"{name}: expected a regular file, got a device", refusal(folder))
    (folder / name).unlink()
    (folder / name).mkdir()
    assert re.search(f"{name}: expected a regular file, got a folder", refusal(folder))


def test_files_that_are_links_to_regular_ones_load(folder: Path, tmp_path: Path) -> None:
    for name in (STATE, WEIGHTS):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(tmp_path / name)
    assert load(folder).metric == "f1"


def test_a_file_that_says_it_is_empty_and_never_ends_is_refused(folder: Path) -> None:
    endless = Path("/proc/kmsg") if not Path("/proc/self/environ").exists() else Path("/proc/self/environ")
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(endless)
    assert re.search(r"weights.safetensors: expected .* bytes", refusal(folder))


@pytest.mark.parametrize(("name", "size"), [(STATE, 33_554_432), (WEIGHTS, 68_792)])
def test_a_file_larger_than_any_that_is_saved_is_refused_unread(folder: Path, name: str, size: int) -> None:
    os.truncate(folder / name, 1 << 40)  # sparse: it takes no room
    assert re.search(rf"{name}: expected at most {size:,} bytes, got 1,099,511,627,776", refusal(folder))


def test_a_million_empty_tensors_are_refused(folder: Path) -> None:
    header = "{" + ",".join(f'"{n}":{{"dtype":"F64","shape":[0],"data_offsets":[0,0]}}' for n in range(1_000_000)) + "}"
    content = struct.pack("<Q", len(header)) + header.encode()
    replace_weights(folder, content)
    assert re.search(rf"weights.safetensors: expected at most [0-9,]+ bytes, got {len(content):,}", refusal(folder))


def test_a_header_that_says_it_is_longer_than_the_file_is_refused(folder: Path) -> None:
    replace_weights(folder, struct.pack("<Q", 2**63) + (folder / WEIGHTS).read_bytes()[8:])
    assert re.search(
        "weights.safetensors: expected [0-9,]+ bytes of tensors after a header of at most 65,536", refusal(folder)
    )


def test_millions_of_rounds_are_refused(folder: Path) -> None:
    (folder / STATE).write_text('{"format": 1, "history": [' + "{}," * 3_000_000 + "{}]}")
    assert re.search("model.json: expected JSON of at most 3,000,000 values, got 3,000,001 commas", refusal(folder))


def test_more_rounds_than_any_training_has_looks_are_refused(folder: Path) -> None:
    change_state(folder, "history", value=[{}] * 100_001)
    assert re.search("model.json: history: expected a list of at most 100,000, got a list of 100,001", refusal(folder))


@pytest.mark.parametrize("size", [1_001, 30_000_000])
def test_a_long_text_in_the_place_of_a_metric_is_refused(folder: Path, size: int) -> None:
    change_state(folder, "metric", value="tp" * (size // 2) + "+" * (size % 2))
    assert re.search(
        "model.json: metric: expected text of at most 1,000 characters of Unicode, got 'tptp", refusal(folder)
    )


@pytest.mark.parametrize(
    "text", ["[" * 500_000, '{"a":' * 100_000, "1" * 1_000_000, '"' + "\\ud800" * 9 + '"'], ids="abcd"
)
def test_deep_and_strange_json_is_refused(folder: Path, text: str) -> None:
    (folder / STATE).write_text(f'{{"format": 1, "metric": {text}}}')
    assert re.search("model.json: ", refusal(folder))


@pytest.mark.slow  # predicts from many features
def test_what_a_model_of_many_features_needs_to_predict_is_bounded(tmp_path: Path) -> None:
    """A thousand categories of 45 levels each, in more rows than are encoded at a time."""
    levels = [str(number) for number in range(45)]
    names = [f"c{number}" for number in range(1_000)]
    trained = TableClassifier("f1", "cross-entropy", "linear", Recipe(warmup=3, rounds=0)).fit(FRAME, "left")
    kept = save(trained, tmp_path / "model")
    state = json.loads((kept / STATE).read_text())
    state["columns"] = [{"name": name, "kind": "category", "form": "", "stray": 0} for name in names]
    one_hot = {"encoder": "OneHot", "levels": levels, "others": False, "gaps": False}
    state["preparation"] = [{**one_hot, "name": name} for name in names]
    (kept / STATE).write_text(json.dumps(state))
    width = len(levels) * len(names)
    change_weights(
        kept,
        lambda weights: weights.update(
            {
                "network.weight": torch.ones(1, width, dtype=torch.float64),
                "centre": torch.zeros(width, dtype=torch.float64),
                "scale": torch.ones(width, dtype=torch.float64),
            }
        ),
    )
    loaded = load(kept)
    rows = pd.DataFrame({name: ["1"] * 1_200 for name in names})
    scores = loaded.decision_function(rows)
    assert len(scores) == 1_200
    assert np.unique(scores).size == 1


# ---- what cannot be ------------------------------------------------------------------------------------------------


CASES: list[tuple[list[Any], Any, str]] = [
    (["model", "threshold"], float("nan"), r"model.threshold: expected a finite number, got nan"),
    (["model", "threshold"], float("inf"), r"model.threshold: expected a finite number, got inf"),
    (["model", "threshold"], 10**400, r"model.threshold: expected a finite number, got an integer of 1,329 bits"),
    (["model", "threshold"], "0", r"model.threshold: expected a finite number, got '0'"),
    (["model", "threshold"], True, r"model.threshold: expected a finite number, got True"),
    (["model", "threshold"], 1e301, r"network: expected weights with which every score is finite"),
    (
        ["model", "network"],
        ["small"],
        r"model.network: expected one of 'mlp', 'small', .*, got a list of 1",
    ),
    (["model", "recipe", "rounds"], -1, r"model.recipe.rounds: expected"),
    (["model", "recipe", "name"], {}, r"model.recipe.name: expected text, got an object of 0"),
    (["model", "interrupted"], 1, r"model.interrupted: expected true or false, got 1"),
    (["preparation", 0, "scale"], [0.0], r"preparation\[0\].scale: expected positive numbers"),
    (["preparation", 0, "scale"], [-1.0], r"preparation\[0\].scale: expected positive numbers"),
    (["preparation", 0, "scale"], [float("nan")], r"preparation\[0\].scale\[0\]: expected a finite number, got nan"),
    (["preparation", 0, "centre"], [float("-inf")], r"preparation\[0\].centre\[0\]: expected a finite number"),
    (["preparation", 0, "fill"], [1, 2], r"preparation\[0\].fill: expected a list of at most 1"),
    (["preparation", 1, "levels", 0], "\ud800", r"levels\[0\]: expected text of at most 100,000 characters of Unicode"),
    (["preparation"], [], r"preparation: expected an encoder for each of 3 columns used, got a list of 0"),
    (["columns", 0, "name"], "plan", r"expected unique column names, got 'plan' more than once"),
    (["columns", 0, "stray"], -1, r"columns\[0\].stray: expected an integer of at least 0, got -1"),
    (["target", "positive"], "no", r"target.positive: expected a label other than the negative one, got 'no'"),
    (["target", "positive"], " ", r"target.positive: expected a label other than the negative one, got ' '"),
    (["target", "positive"], 1.5, r"target.positive: expected text, got 1.5"),
    (["target", "positive"], 2**64, r"target.positive: expected an integer .*, got an integer of 65 bits"),
    (["data", "rows"], "many", r"data.rows: expected an integer of at least 0, got 'many'"),
    (["notes"], "none", r"notes: expected a list of at most .*, got 'none'"),
    (["history", 0, "loss"], [], r"history\[0\].loss: expected a finite number, got a list of 0"),
    (["weights_sha256"], "0" * 64, r"weights.safetensors: expected the SHA-256 0000.*, got "),
]


@pytest.mark.parametrize(("path", "value", "message"), CASES, ids=range(len(CASES)))
def test_a_field_that_cannot_be_is_refused_by_name(folder: Path, path: list[Any], value: Any, message: str) -> None:
    change_state(folder, *path, value=value)
    assert re.search(message, refusal(folder))


WEIGHT_CASES: list[tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = [
    (lambda w: w["scale"].zero_(), "scale: expected numbers of at least 2.22507e-308, got 0"),
    (lambda w: w["scale"].mul_(-1), "scale: expected numbers of at least"),
    (lambda w: w["scale"].fill_(torch.nan), "scale: expected finite numbers, got others"),
    (lambda w: w["scale"].fill_(1e-300), "network: expected weights with which every score is finite"),
    (lambda w: w["centre"].fill_(torch.inf), "centre: expected finite numbers, got others"),
    (lambda w: w["network.2.running_var"].fill_(-1e-9), "network.2.running_var: expected numbers of at least 0, got"),
    (lambda w: w["network.4.weight"].fill_(1e308), "network: expected weights with which every score is finite"),
    (lambda w: w["network.0.weight"].fill_(torch.nan), "network.0.weight: expected finite numbers, got others"),
    (lambda w: w.pop("scale"), r"expected [\d,]+ bytes of tensors"),
    (lambda w: w.update(more=torch.zeros(0)), "expected 11 tensors, got another named 'more'"),
    (lambda w: w.update(scale=w["scale"].float().repeat(2)), r"scale: expected the shape \[7\], got \[14\]"),
    (
        lambda w: w.update({"network.4.weight": w["network.4.weight"].T.clone()}),
        r"network.4.weight: expected the shape \[1, 30\], got \[30, 1\]",
    ),
    (lambda w: w.clear(), r"expected [\d,]+ bytes of tensors"),
]


@pytest.mark.parametrize(("change", "message"), WEIGHT_CASES, ids=range(len(WEIGHT_CASES)))
def test_tensors_that_cannot_be_are_refused_by_name(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], Any], message: str
) -> None:
    change_weights(folder, change)
    assert re.search(f"weights.safetensors: ({message})", refusal(folder))


def test_weights_of_another_model_are_refused_by_their_hash(folder: Path, model: TableClassifier) -> None:
    other = TableClassifier("f1", "cross-entropy", "small", Recipe(warmup=8, rounds=0)).fit(FRAME, "left")
    elsewhere = save(other, folder.parent / "other")
    (folder / WEIGHTS).write_bytes((elsewhere / WEIGHTS).read_bytes())
    assert re.search(
        "weights.safetensors: expected the SHA-256 [0-9a-f]{64} of the manifest, got [0-9a-f]{64}", refusal(folder)
    )


def test_a_function_called_as_a_metric_of_several_classes_is_only_a_name(folder: Path) -> None:
    change_state(folder, "metric", value="macro_f1")
    loaded = load(folder)
    assert np.isfinite(loaded.decision_function(FRAME)).all()
    with pytest.raises(ValueError, match="scores"):
        loaded.score(FRAME)


def test_a_validation_loss_that_was_not_finite_loads_as_nan(folder: Path) -> None:
    change_state(folder, "model", "validation_loss", value=None)
    assert np.isnan(load(folder).model_.validation_loss_)
    assert np.isfinite(load(folder).decision_function(FRAME)).all()


# ---- averages and trees --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def averages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of an average of two networks, and of one of trees."""
    base = tmp_path_factory.mktemp("averages")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 9, 200), "height": rng.normal(170, 9, 200)})
    frame["left"] = np.where(frame["age"] + rng.normal(0, 5, 200) > 45, "yes", "no")
    models = {"small": "small", "trees": "lightgbm"} if has_lightgbm() else {"small": "small"}
    return {
        name: save(
            TableClassifier("f1", "cross-entropy", model, Recipe(warmup=9, rounds=0), folds=2).fit(frame, "left"),
            base / name,
        )
        for name, model in models.items()
    }


def copied(averages: dict[str, Path], name: str, tmp_path: Path) -> Path:
    if name not in averages:
        pytest.skip("needs LightGBM")
    return Path(shutil.copytree(averages[name], tmp_path / name))


@pytest.mark.parametrize(
    ("name", "tensor", "value", "message"),
    [
        ("small", "network.scale", 0.0, "expected scores in units of a positive spread"),
        ("small", "network.scale", -1.0, "expected scores in units of a positive spread"),
        ("small", "network.models.1.body.0.weight", 1e305, "expected weights with which every score is finite"),
        ("trees", "network.feature", 2, "feature: expected numbers of features"),
        ("trees", "network.left", 10**9, "left: expected numbers of features, or of nodes"),
        ("trees", "network.right", -1, "right: expected numbers of features, or of nodes"),
        ("trees", "network.roots", 10**9, "roots: expected numbers of features, or of nodes"),
        ("trees", "network.value", 1e305, "expected weights with which every score is finite"),
    ],
)
def test_averages_and_trees_that_cannot_be_scored_are_refused(
    averages: dict[str, Path], tmp_path: Path, name: str, tensor: str, value: float, message: str
) -> None:
    folder = copied(averages, name, tmp_path)
    assert load(folder).model_.network_.name is not None

    def spoil(weights: dict[str, torch.Tensor]) -> None:
        weights[tensor][(0,) * weights[tensor].ndim] = value

    change_weights(folder, spoil)
    assert message in refusal(folder)


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("small", ["model", "folds"], 0, "model.folds: expected from 1 to 1000"),
        ("small", ["model", "folds"], 1_001, "model.folds: expected from 1 to 1000"),
        ("small", ["model", "folds"], 3, "expected"),
        ("trees", ["model", "sizes", "nodes"], 10**12, "nodes: expected at most"),
        ("trees", ["model", "sizes", "trees"], -1, "trees: expected an integer of at least 0"),
    ],
)
def test_sizes_of_averages_and_trees_that_cannot_be_are_refused(
    averages: dict[str, Path], tmp_path: Path, name: str, path: list[str], value: int, message: str
) -> None:
    folder = copied(averages, name, tmp_path)
    change_state(folder, *path, value=value)
    assert message in refusal(folder)
