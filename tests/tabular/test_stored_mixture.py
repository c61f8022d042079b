"""Model folders of mixtures: equal predictions, nothing that a mixture cannot be, and what cannot be done with one."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as packed

from metricgrad import Recipe, TableClassifier, TableRegressor, load, save
from metricgrad.estimators import competition
from metricgrad.estimators.candidates import Candidate
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.mixture import mixture_of
from metricgrad.tabular.batch_predict import export
from metricgrad.tabular.persistence import CARD, STATE, WEIGHTS
from metricgrad.tabular.table_model import TableModel
from metricgrad.training.averaging import mixed
from metricgrad.training.networks import MIXTURE
from metricgrad.training.trees import has_lightgbm

QUICK = Recipe(warmup=30, rounds=0, learning_rate=0.05)
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.normal(40, 9, 240), "plan": RNG.choice(["a", "b", "c"], 240)})
FRAME["churn"] = np.where(FRAME["age"] + RNG.normal(0, 9, 240) > 43, "left", "stayed")
FRAME["spent"] = FRAME["age"] ** 2 / 50 + RNG.normal(0, 3, 240)
MODELS: dict[str, Callable[[], TableModel]] = {
    "classes": lambda: TableClassifier("f1", "cross-entropy", "auto", QUICK, folds=2).fit(FRAME, "churn"),
    "numbers": lambda: TableRegressor("mae", "usual", "auto", QUICK, folds=2).fit(FRAME, "spent"),
}


@contextmanager
def mixing_all() -> Iterator[pytest.MonkeyPatch]:
    """Let a competition choose the mixture of every model that competes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(competition, "best_mixture", lambda candidates, first, judge: mixture_of(alike(candidates)))
        patch.setattr(competition, "BEHIND", np.inf)
        patch.setattr(Competition, "_is_ahead", lambda *_: True)
        yield patch


def alike(candidates: Sequence[Candidate]) -> list[Candidate]:
    return [each for each in candidates if each.units == candidates[0].units and len(each.folds) == 2]


@pytest.fixture(scope="module")
def models() -> dict[str, TableModel]:
    with mixing_all():
        return {name: fit() for name, fit in MODELS.items()}


@pytest.fixture(scope="module")
def folders(models: dict[str, TableModel], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("mixtures")
    return {name: save(model, base / name) for name, model in models.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_mixture_predicts_as_the_saved_one_to_the_bit(
    name: str, models: dict[str, TableModel], folders: dict[str, Path]
) -> None:
    before, after = models[name], load(folders[name])
    kinds = [part.name for part in before.model_.network_.parts]
    assert set(kinds) == {"linear", "additive", "tabm", *(["lightgbm"] if has_lightgbm() else [])}
    assert [part.name for part in after.model_.network_.parts] == kinds
    for again in (after, pickle.loads(pickle.dumps(before))):
        np.testing.assert_array_equal(again.predict(FRAME), before.predict(FRAME))
        assert again.score(FRAME) == before.score(FRAME)
    assert str(after.model_.verdict_) == str(before.model_.verdict_)
    assert "kept a mixture (" in str(after.model_.verdict_)
    assert f"model {MIXTURE}" in (folders[name] / CARD).read_text()
    assert "They also chose the mixture of models, the checkpoint and" in (folders[name] / CARD).read_text()


def test_probabilities_of_a_loaded_mixture_are_those_of_the_saved_one(
    models: dict[str, TableModel], folders: dict[str, Path]
) -> None:
    before, after = models["classes"], load(folders["classes"])
    assert isinstance(before, TableClassifier)
    assert isinstance(after, TableClassifier)
    np.testing.assert_array_equal(after.predict_proba(FRAME), before.predict_proba(FRAME))


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["classes"], tmp_path / "model"))


def parts_of(folder: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    state = json.loads((folder / STATE).read_text())
    change(state["model"]["parts"])
    (folder / STATE).write_text(json.dumps(state))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda parts: parts.clear(), "model.parts: expected models that are no mixtures"),
        (lambda parts: parts[0].update(network=MIXTURE, parts=[]), "model.parts: expected models that are no mixtures"),
        (lambda parts: parts.extend(parts[:1] * 10), "model.parts: expected a list of at most 10"),
        (lambda parts: parts[0].update(network="huge"), "model.parts[0].network: expected one of"),
        (lambda parts: parts[0].update(folds=0), "model.parts[0].folds: expected from 1 to 1000"),
        (lambda parts: parts.pop(), "expected"),
        (lambda parts: parts[-1].update(folds=7), "expected"),
    ],
)
def test_parts_that_cannot_be_are_refused(folder: Path, change: Callable[..., Any], message: str) -> None:
    parts_of(folder, change)
    with pytest.raises(ValueError, match=r"model\.json|weights") as raised:
        load(folder)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("tensor", "value", "message"),
    [
        ("network.scale", 0.0, "expected scores in units of a positive spread"),
        ("network.scale", 1e-305, "expected weights with which every score is finite"),
        ("network.centre", 1e305, "expected weights with which every score is finite"),
    ],
)
def test_a_mixture_that_cannot_be_scored_is_refused(folder: Path, tensor: str, value: float, message: str) -> None:
    weights = load_file(folder / WEIGHTS)
    weights[tensor][0, 0] = value
    content = packed(weights)
    (folder / WEIGHTS).write_bytes(content)
    state = json.loads((folder / STATE).read_text())
    (folder / STATE).write_text(json.dumps(state | {"weights_sha256": hashlib.sha256(content).hexdigest()}))
    with pytest.raises(ValueError, match=message):
        load(folder)


def test_a_mixture_is_not_read_as_one_model(models: dict[str, TableModel]) -> None:
    model = models["classes"]
    assert isinstance(model, TableClassifier)
    for read in (model.explain, model.scorecard):
        with pytest.raises(ValueError, match=r"got a mixture of .*; model='readable' fits one to read"):
            read()


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_a_mixture_with_trees_is_not_exported(models: dict[str, TableModel], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="model: expected one without boosted trees"):
        export(models["classes"], tmp_path / "model.pt2")


def test_networks_of_many_folds_and_strategies_are_one_model_that_is_loaded(tmp_path: Path) -> None:
    model = TableClassifier("f1", "cross-entropy", "small", replace(QUICK, warmup=2), folds=2).fit(FRAME, "churn")
    model.model_.network_ = mixed([model.model_.network_] * 60, [1 / 60] * 60)  # as of six strategies on 20 folds
    assert model.model_.network_.folds == 120
    again = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(FRAME), model.decision_function(FRAME))


@pytest.mark.slow  # exports and loads a program
def test_an_exported_mixture_scores_as_the_model_does(tmp_path: Path) -> None:
    with mixing_all() as patch:
        patch.setattr("metricgrad.training.trees.has_lightgbm", lambda: False)
        model = MODELS["classes"]()
    assert {part.name for part in model.model_.network_.parts} >= {"tabm"}
    program = torch.export.load(export(model, tmp_path / "model.pt2")).module()
    features = torch.from_numpy(model.pipeline_[0].transform(FRAME))
    expected = torch.from_numpy(model.decision_function(FRAME))
    torch.testing.assert_close(program(features).reshape(-1), expected, rtol=1e-5, atol=1e-5)
