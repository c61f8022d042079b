"""The model folder: equal predictions, never half written, and nothing in it is ever run; the model card."""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load as parsed_tensors
from safetensors.torch import load_file

import metricgrad
from metricgrad import Recipe, TableClassifier, black_box, get_metric, load, save
from metricgrad.reporting import plots
from metricgrad.tabular import persistence
from metricgrad.tabular.model_card import MAX_CARD_COLUMNS, model_card
from metricgrad.tabular.persistence import (
    CARD,
    FILES,
    STATE,
    WEIGHTS,
    check_free,
    save_or_rescue,
)
from metricgrad.training.trees import has_lightgbm

DATA = Path(__file__).parents[1] / "data"
QUICK = Recipe(warmup=30, rounds=0, learning_rate=0.05)
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "id": [f"u{i}" for i in range(120)],
        "age": np.where(RNG.random(120) < 0.1, np.nan, RNG.normal(40, 9, 120)),
        "plan": RNG.choice(["a", "b", "c"], 120),
        "vip": RNG.choice(["yes", "no"], 120),
        "joined": pd.date_range("2020-01-01", periods=120, freq="11h").strftime("%d/%m/%Y"),
        "churn": np.where(RNG.random(120) < 0.4, "left", "stayed"),
    }
)


def fitted(metric: Any = "f1", **how: Any) -> TableClassifier:
    known = {"method": "cross-entropy", "model": "linear", "recipe": QUICK, **how}
    return TableClassifier(metric, **known).fit(FRAME, "churn")


@pytest.fixture(scope="module")
def model() -> TableClassifier:
    return fitted()


@pytest.fixture
def folder(model: TableClassifier, tmp_path: Path) -> Path:
    return save(model, tmp_path / "model")


# ---- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {"model": "mlp"},
        {"model": "small", "metric": "accuracy"},
        {"metric": "5*tp - fp"},
        {"model": "small", "folds": 2},
        {"model": "tabm", "folds": 2},
        {"model": "additive", "folds": 3},
        {"model": "readable", "recipe": "default"},
        pytest.param(
            {"model": "lightgbm", "folds": 2}, marks=pytest.mark.skipif(not has_lightgbm(), reason="not there")
        ),
    ],
    ids=str,
)
def test_a_loaded_model_predicts_and_scores_as_the_saved_one_to_the_bit(how: dict[str, Any], tmp_path: Path) -> None:
    before = fitted(**how)
    after = load(save(before, tmp_path / "model"))
    np.testing.assert_array_equal(after.decision_function(FRAME), before.decision_function(FRAME))
    np.testing.assert_array_equal(after.predict(FRAME), before.predict(FRAME))
    assert after.score(FRAME) == before.score(FRAME)
    for kept in ("target_", "notes_", "data_", "metric", "method", "n_features_in_"):
        assert getattr(after, kept) == getattr(before, kept)
    assert after.model_.validation_loss_ == before.model_.validation_loss_
    assert repr(after.model_.verdict_) == repr(before.model_.verdict_)
    looked_at = [done for done in before.model_.history_ if done.validation == done.validation]
    assert [done.steps for done in after.model_.history_] == [done.steps for done in looked_at]
    assert "<" in after.model_._repr_mimebundle_()["text/html"]


def test_what_was_tried_is_kept_and_not_expected_of_older_folders(tmp_path: Path) -> None:
    before = fitted(model="linear", method="auto", recipe="default")
    folder = save(before, tmp_path / "model")
    tried = before.model_.verdict_.tried
    assert len(tried) > 2
    assert load(folder).model_.verdict_.tried == tried
    state = json.loads((folder / STATE).read_text())
    del state["model"]["verdict"]["tried"]
    (folder / STATE).write_text(json.dumps(state))
    assert load(folder).model_.verdict_.tried == ()


@pytest.mark.parametrize(
    ("how", "chosen"),
    [
        ({"model": "readable"}, "the model, the checkpoint"),
        ({"method": "auto", "recipe": "default"}, "the strategy, the checkpoint"),
        ({}, "the checkpoint"),
    ],
)
def test_the_card_of_a_folder_names_all_that_its_held_out_rows_have_chosen(
    how: dict[str, Any], chosen: str, tmp_path: Path
) -> None:
    first = save(fitted(**how), tmp_path / "model")
    for folder in (first, save(load(first), tmp_path / "again")):
        assert f"They also chose {chosen} and what is decided by, so" in (folder / CARD).read_text()


@pytest.mark.slow  # starts an interpreter that imports torch
def test_another_process_loads_it_too(folder: Path, model: TableClassifier) -> None:
    FRAME.to_parquet(folder.parent / "data.parquet")
    code = (
        "import sys, metricgrad, pandas as pd; m = metricgrad.load(sys.argv[1]);"
        "print(repr(float(m.decision_function(pd.read_parquet(sys.argv[2])).sum())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder, folder.parent / "data.parquet"], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == float(model.decision_function(FRAME).sum())


def test_a_folder_holds_weights_json_a_card_and_a_picture_and_no_pickle(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert json.loads((folder / STATE).read_text())["format"] == 1
    assert set(load_file(folder / WEIGHTS)) >= {"centre", "scale"}
    assert (folder / "validation.png").read_bytes().startswith(b"\x89PNG")


def test_the_metric_of_a_function_is_kept_by_name_and_given_again_to_score(tmp_path: Path) -> None:
    def found_score(y_true: Any, y_pred: Any) -> float:
        return float((y_true * y_pred).sum())

    metric = black_box(found_score, name="my.py:found_score", higher_is_better=True, labels=True)
    before = fitted(metric)
    after = load(save(before, tmp_path / "model"))
    assert after.metric == "my.py:found_score"
    with pytest.raises(ValueError, match=r"metric: expected one that needs no code run, got 'my.py:found_score'"):
        after.score(FRAME)
    after.metric = metric
    assert after.score(FRAME) == before.score(FRAME)


def test_a_folder_of_version_0_1_0_which_has_no_hash_predicts_as_it_did() -> None:
    stored = pd.read_csv(DATA / "model-0.1.0.csv")
    assert "weights_sha256" not in json.loads((DATA / "model-0.1.0" / STATE).read_text())
    model = load(DATA / "model-0.1.0")
    np.testing.assert_allclose(model.decision_function(stored), stored["score"], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(stored), stored["label"])
    assert [done.steps for done in model.model_.history_] == [30, 60, 90, 120]


def test_what_is_written_in_the_name_of_a_metric_is_not_read_as_mathematics(tmp_path: Path) -> None:
    def found(y_true: Any, y_pred: Any) -> float:
        return float((y_true * y_pred).sum())

    metric = black_box(found, name="$x_{$", label="$x_{$", higher_is_better=True, labels=True)
    assert load(save(fitted(metric), tmp_path / "model")).metric == "$x_{$"


def test_a_picture_that_cannot_be_drawn_costs_no_model(
    model: TableClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> Any:
        raise RuntimeError("no font")

    monkeypatch.setattr(plots, "plot_convergence", broken)
    with pytest.warns(UserWarning, match="the training curve could not be drawn: no font"):
        folder = save(model, tmp_path / "model")
    assert load(folder).score(FRAME) == model.score(FRAME)


def test_numbers_of_numpy_in_a_recipe_are_saved(tmp_path: Path) -> None:
    own = Recipe(warmup=np.int64(30), rounds=0, learning_rate=np.float32(0.05))
    assert load(save(fitted(recipe=own), tmp_path / "model")).recipe == own


def test_of_a_long_history_the_best_the_last_and_some_in_between_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "MAX_SAVED_ROUNDS", 200)
    long = fitted()
    done = long.model_.history_[-1]
    losses = [0.5] * 400
    losses[77] = 0.25
    long.model_.history_ = [replace(done, steps=n, validation=loss) for n, loss in enumerate(losses)]
    kept = load(save(long, tmp_path / "model")).model_.history_
    assert 150 < len(kept) <= 200
    assert (kept[0].steps, kept[-1].steps) == (0, 399)
    assert min(kept, key=lambda each: each.validation).steps == 77


def test_a_model_that_cannot_be_loaded_again_is_not_saved(folder: Path) -> None:
    diverged = fitted()
    diverged.model_.network_.body.weight.data[0, 0] = torch.nan
    with pytest.raises(
        ValueError, match=r"model: expected one that can be loaded again, got network.weight: expected finite numbers"
    ):
        save(diverged, folder)
    assert load(folder).metric == "f1"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_module_of_the_users_own_is_not_kept(tmp_path: Path) -> None:
    own = fitted(model=lambda features: torch.nn.Linear(features, 1))
    with pytest.raises(ValueError, match=r"model: expected mlp, small, .*, which can be saved without code"):
        save(own, tmp_path / "model")
    assert not list(tmp_path.iterdir())


# ---- whole or not there --------------------------------------------------------------------------------------------


def test_a_model_replaces_another_and_leaves_nothing_beside_it(folder: Path) -> None:
    other = fitted("mcc")
    assert save(other, folder) == folder
    assert load(folder).metric == "mcc"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_when_writing_fails_the_old_model_is_untouched_and_nothing_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = fitted("mcc")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600, limit[1]))  # as on a disk with room for 600 bytes more
    try:
        with pytest.raises(Exception, match=r"(?i)file too large|os error 27|I/O"):
            save(other, folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_when_the_last_rename_fails_the_old_model_comes_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if target == folder and not self.name.endswith(".old"):
            raise OSError("no room")
        return original(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no room"):
        save(fitted("mcc"), folder)
    assert load(folder).metric == "f1"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_modes_are_those_the_umask_leaves(model: TableClassifier, tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = save(model, tmp_path / "model")
        again = save(model, folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(again.stat().st_mode) == 0o777 & ~mask
    assert {stat.S_IMODE(path.stat().st_mode) for path in again.iterdir()} == {0o666 & ~mask}


def test_a_model_whose_folder_cannot_be_written_any_more_is_saved_elsewhere(
    model: TableClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file by now")
    with pytest.raises(OSError, match=r"expected a folder, got the file .*; the model was saved in ") as raised:
        save_or_rescue(model, taken)
    kept = re.search(r"saved in (\S+) instead", str(raised.value))
    assert kept is not None
    assert Path(kept[1]).parent == tmp_path
    assert load(kept[1]).score(FRAME) == model.score(FRAME)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with pytest.raises(OSError, match=r"; the model was saved in \S+/temporary/model-\S+ instead"):
        save_or_rescue(model, taken / "model")
    assert load(next((tmp_path / "temporary").iterdir())).score(FRAME) == model.score(FRAME)


def test_a_model_that_cannot_be_saved_anywhere_raises_the_first_error(tmp_path: Path) -> None:
    own = fitted(model=lambda features: torch.nn.Linear(features, 1))
    with pytest.raises(ValueError, match=r"model: expected mlp, small, .*, which can be saved without code"):
        save_or_rescue(own, tmp_path / "model")


def test_a_reader_finds_a_whole_model_however_often_it_is_replaced(folder: Path, model: TableClassifier) -> None:
    other = fitted("mcc")
    expected = {"f1": model.decision_function(FRAME), "mcc": other.decision_function(FRAME)}
    done = threading.Event()

    def replace_it() -> None:
        for number in range(6):
            save((model, other)[number % 2], folder)
        done.set()

    writer = threading.Thread(target=replace_it)
    writer.start()
    found = set()
    while not done.is_set():
        read = load(folder)
        np.testing.assert_array_equal(read.decision_function(FRAME), expected[read.metric])
        found.add(read.metric)
    writer.join()
    assert found == {"f1", "mcc"}


def test_a_folder_with_anything_else_in_it_is_never_replaced(folder: Path, model: TableClassifier) -> None:
    (folder / "thesis.doc").write_text("years of work")
    with pytest.raises(
        ValueError, match=r"out: expected a new folder or a model folder, got .*, which holds 'thesis.doc'"
    ):
        save(model, folder)
    assert (folder / "thesis.doc").read_text() == "years of work"
    with pytest.raises(ValueError, match="out: expected a folder, got the file"):
        check_free(folder / "thesis.doc")
    with pytest.raises(OSError, match=r"File exists|Not a directory"):
        check_free(folder / "thesis.doc" / "model")


# ---- strangers -----------------------------------------------------------------------------------------------------


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "pwned"))


def test_a_pickle_in_place_of_any_file_is_never_run(folder: Path) -> None:
    pwned = folder.parent / "pwned"
    bomb = pickle.dumps(Evil(pwned))
    for name in (STATE, WEIGHTS):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(bomb)
        with pytest.raises(ValueError, match=f"{name}: expected"):
            load(folder)
        (folder / name).write_bytes(before)
    for name in ("model.pkl", "model.joblib", "__init__.py", "metricgrad.py", CARD):
        (folder / name).write_bytes(bomb if name.endswith(("pkl", "lib")) else b"raise SystemExit\n")
    load(folder)
    assert not pwned.exists()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["metric"], "evil.py:f"),
        (["metric"], "__import__('os').system('touch pwned')"),
        (["metric"], "sklearn.metrics.__builtins__"),
        (["model", "network"], "os.system"),
        (["model", "recipe", "name"], "__import__('os')"),
        (["preparation", 0, "encoder"], "os.system"),
        (["preparation", 0, "kind"], "__class__"),
        (["preparation", 0, "form"], "%Y; import os"),
        (["target", "positive"], {"__reduce__": ["os.system", "touch pwned"]}),
        (["history", 0, "phase"], {"py/object": "os.system"}),
    ],
)
def test_a_crafted_state_runs_nothing(
    folder: Path, path: list[Any], value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "evil.py").write_text("open('pwned', 'w')\ndef f(y_true, y_pred): return 0\n")
    monkeypatch.chdir(folder.parent)
    state = json.loads((folder / STATE).read_text())
    inner = state
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    (folder / STATE).write_text(json.dumps(state))
    try:
        load(folder).score(FRAME)
    except ValueError as error:
        said = str(error)
    else:
        said = "loaded, for what was changed is only text"
    assert said
    assert not (folder.parent / "pwned").exists()


def leaves(state: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    return [path, *(leaf for key, item in items for leaf in leaves(item, (*path, key)))]


junk = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}), st.just([None])
)


def loads_or_is_refused(folder: Path) -> bool:
    """Whether a folder loads, as a model with finite scores; if not, one line names a file of it, and nothing else."""
    begun, said = time.perf_counter(), ""
    try:
        again = load(folder)
    except ValueError as error:
        said = str(error)
    assert time.perf_counter() - begun < 5
    if said:
        assert re.match(rf"{re.escape(str(folder))}/(model.json|weights.safetensors): .{{,900}}$", said)
        return False
    assert np.isfinite(again.decision_function(FRAME)).all()
    assert set(again.predict(FRAME)) <= set(again.classes_)
    return True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_field_of_another_type_is_refused_by_name_or_harmless(folder: Path, data: st.DataObject) -> None:
    whole = (folder / STATE).read_text()
    state = json.loads(whole)
    path = data.draw(st.sampled_from(leaves(state)[1:]))
    inner = state
    for step in path[:-1]:
        inner = inner[step]
    if data.draw(st.booleans()):
        inner[path[-1]] = data.draw(junk)
    else:
        del inner[path[-1]]
    (folder / STATE).write_text(json.dumps(state))
    assert loads_or_is_refused(folder) or json.dumps(state) != json.dumps(json.loads(whole))
    (folder / STATE).write_text(whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([STATE, WEIGHTS]), st.data())
def test_flipped_bits_and_cut_files_are_refused_or_harmless(folder: Path, name: str, data: st.DataObject) -> None:
    whole = (folder / name).read_bytes()
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    (folder / name).write_bytes(bytes(changed[:cut]))
    loaded = loads_or_is_refused(folder)
    if name == WEIGHTS:
        assert loaded == (bytes(changed[:cut]) == whole)  # they have a hash
    (folder / name).write_bytes(whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bits_of_weights_without_a_hash_are_refused_or_harmless(folder: Path, data: st.DataObject) -> None:
    state, whole = (folder / STATE).read_text(), (folder / WEIGHTS).read_bytes()
    (folder / STATE).write_text(json.dumps({k: v for k, v in json.loads(state).items() if k != "weights_sha256"}))
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (folder / WEIGHTS).write_bytes(bytes(changed))
    try:
        sound = all(bool(tensor.isfinite().all()) for tensor in parsed_tensors(bytes(changed)).values())
    except SafetensorError:
        sound = False
    assert loads_or_is_refused(folder) <= sound  # what safetensors cannot read is never loaded
    (folder / WEIGHTS).write_bytes(whole)
    (folder / STATE).write_text(state)


def test_what_is_no_model_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected a model folder, got nothing at"):
        load(tmp_path)
    (tmp_path / STATE).write_text('{"format": 99}')
    with pytest.raises(ValueError, match="format: expected 1, the format of this version of metricgrad, got 99"):
        load(tmp_path)


def test_a_state_of_another_version_may_know_more_or_less_of_the_training(folder: Path) -> None:
    state = json.loads((folder / STATE).read_text())
    state["model"]["recipe"]["of_tomorrow"] = 1
    del state["model"]["recipe"]["anchor"]
    state["history"][0]["of_tomorrow"] = 1
    del state["history"][0]["gap"]
    (folder / STATE).write_text(json.dumps(state))
    assert np.isnan(load(folder).model_.history_[0].gap)


def test_the_public_names_are_these() -> None:
    assert metricgrad.load is load
    assert metricgrad.save is save


# ---- the model card ------------------------------------------------------------------------------------------------


BRIEF = Recipe(warmup=9, rounds=0)


def test_a_card_says_metric_threshold_data_columns_versions_and_how_to_load() -> None:
    frame = pd.DataFrame({"age": np.arange(60) % 7, "all": 1, "left": ["yes", "no", "no"] * 20})
    model = TableClassifier("f1", model="linear", recipe=BRIEF).fit(frame, "left")
    card = model_card(model, get_metric("f1"), {"metricgrad": "1.2.3", "commit": ""})
    for part in (
        "# A model of left, trained for F1",
        f"**F1 {1 - model.model_.validation_loss_:.4f}** on the validation rows",
        "Positive is yes, negative no",
        f"Threshold on the network's raw scores: {model.model_.threshold_:.6g}",
        "Trained on 60 rows, 20 of them positive, 1 features.",
        "![The metric on the validation rows during training](validation.png)",
        'model = metricgrad.load("this-folder")',
        "| age | number |",
        "| all | not used: a single value |",
        "- metricgrad 1.2.3",
    ):
        assert part in card
    assert "commit" not in card


def test_names_of_any_kind_are_escaped() -> None:
    strange = "<img src=x onerror=alert(1)>|a\nb [c](javascript:1) `d` *e*"
    frame = pd.DataFrame({strange: np.arange(60) % 7, **{f"n{i}": np.arange(60) % 5 for i in range(MAX_CARD_COLUMNS)}})
    model = TableClassifier("f1", model="linear", recipe=BRIEF).fit(frame, np.tile(["<b>", "no", "no"], 20))
    card = model_card(model, get_metric("f1"), {})
    row = r"| &lt;img src=x onerror=alert(1)&gt;\|a b \[c\](javascript:1) \`d\` \*e\* | number |"
    assert row in card.splitlines()
    assert "<img" not in card
    assert "Positive is &lt;b&gt;" in card
    assert "| 1 more | |" in card
