"""Compiled steps do what the plain ones do, and a machine without a compiler does without them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch

from metricgrad import get_metric
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.training import compiled_steps as swift
from metricgrad.training.candidates import Trained
from metricgrad.training.data import Rows
from metricgrad.training.ensemble_trainer import Member, train_fleet
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, Recipe

PAPER = replace(RECIPES["paper"], rounds=20, set_size=40, check_every=10, learning_rate=1e-3, surrogate_rate=1e-3)
CREW = [("sl-s", "auc"), ("sl-r", "f1")]
pytestmark = pytest.mark.slow
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler here")


def table(rows: int = 300, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    return Rows(x, (x[:, 0] + x[:, 1] * x[:, 2] > 0.7).double())


def sailed(recipe: Recipe, crew: list[tuple[str, str]], compiled: bool | None) -> list[Trained]:
    members = []
    for method, name in crew:
        torch.manual_seed(0)
        members.append(Member(make_loss(method, get_metric(name), recipe).double(), (get_metric(name),)))
    torch.manual_seed(1)
    start = build_model("mlp", 5).double()
    fleet = train_fleet(start, members, table(), recipe, validation=table(200, 1), seed=3, compiles=compiled)
    for member, (one,) in zip(members, fleet, strict=True):
        one.model.followed = member.loss  # both are compared
    return [one for (one,) in fleet]


@compiles
@pytest.mark.parametrize(
    ("changes", "crew"),
    [
        ({}, CREW),
        ({"clip": None, "anchor": 0.5, "relational": 0.3, "refine_sets": 2, "schedule": "cosine"}, CREW),
        ({"positive_share": None, "set_size": 8, "surrogate_steps": 3}, [("sl-s", "auc")]),
        ({}, [("sl-u", "auc")]),
    ],
    ids=["paper", "everything", "sets left out", "frozen"],
)
def test_compiled_steps_end_at_the_same_parameters(changes: dict, crew: list[tuple[str, str]]) -> None:
    recipe = replace(PAPER, **changes)
    for plain, quick in zip(sailed(recipe, crew, False), sailed(recipe, crew, True), strict=True):
        for name, tensor in plain.model.state_dict().items():
            torch.testing.assert_close(tensor, quick.model.state_dict()[name], rtol=0, atol=1e-7, equal_nan=True)
        for field in ("validation", "loss", "gap"):
            one, other = ([getattr(r, field) for r in trained.history] for trained in (plain, quick))
            assert one == pytest.approx(other, nan_ok=True, rel=1e-6)


def test_a_machine_without_a_compiler_goes_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **how: object) -> None:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(swift, "compiled", broken)
    assert not swift.can_compile()
    plain, quiet = sailed(PAPER, CREW, False), sailed(PAPER, CREW, True)
    for one, other in zip(plain, quiet, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))


@compiles
def test_few_steps_and_losses_made_by_hand_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("metricgrad.training.ensemble_trainer.can_compile", lambda: bool(asked.append("yes")))
    sailed(PAPER, CREW, None)
    sailed(replace(PAPER, refine_mode="eval"), [("sl-s", "auc"), ("cross-entropy", "auc")], True)
    sailed(replace(PAPER, construction="default"), CREW, True)
    assert not asked
    monkeypatch.setattr("metricgrad.training.ensemble_trainer.PAYS", 20 * 13)
    sailed(PAPER, CREW, None)
    assert asked == ["yes"]
