"""A long fleet that is stopped goes on from its logbook, and ends where it would have ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metricgrad import get_metric
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.evaluation.store import Store
from metricgrad.paper.reproduce import UNFINISHED, carry_out, make_plan
from metricgrad.training import ensemble_trainer as fleet
from metricgrad.training.candidates import Trained
from metricgrad.training.checkpoint import Checkpoint
from metricgrad.training.data import Rows
from metricgrad.training.ensemble_trainer import Fleet, Member, train_fleet
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, Recipe

PAPER = replace(RECIPES["paper"], rounds=30, set_size=40, check_every=5, learning_rate=1e-3, surrogate_rate=1e-3)
DEFAULT = Recipe(warmup=20, rounds=20, set_size=40, refine_sets=2, trust=-1.0, check_every=5)
CREWS = {"learned": [("sl-s", "auc"), ("sl-r", "f1")], "frozen": [("sl-u", "auc")], "by hand": [("focal", "f1")]}


def table(rows: int, seed: int) -> Rows:
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))
    return Rows(x, (x[:, 0] + x[:, 1] * x[:, 2] > 0.7).float())


def sailed(recipe: Recipe, crew: list[tuple[str, str]], log: Checkpoint | None) -> list[Trained]:
    members = []
    for method, name in crew:
        torch.manual_seed(0)
        members.append(Member(make_loss(method, get_metric(name), recipe), (get_metric(name),)))
    torch.manual_seed(1)
    model = build_model("mlp", 5)
    found = train_fleet(model, members, table(300, 0), recipe, validation=table(200, 1), seed=3, log=log)
    return [one for (one,) in found]


class Stopped(Exception):
    """As if by Ctrl-C."""


def stop_at(monkeypatch: pytest.MonkeyPatch, check: int) -> None:
    """Stop the rounds at a look at the validation rows."""
    usual, seen = Fleet._check, []

    def check_or_stop(self: Fleet, phase: str, *rest: object) -> None:
        seen.append(phase)
        if seen.count("rounds") == check:
            raise Stopped
        usual(self, phase, *rest)

    monkeypatch.setattr(fleet.Fleet, "_check", check_or_stop)


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
@pytest.mark.parametrize("recipe", [PAPER, DEFAULT], ids=["paper", "default"])
@pytest.mark.parametrize("crew", CREWS.values(), ids=CREWS)
def test_a_stopped_fleet_ends_where_it_would_have_ended(
    recipe: Recipe, crew: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, log = sailed(recipe, crew, None), tmp_path / "log.pt"
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(Stopped):
            sailed(recipe, crew, Checkpoint(log, every=0.0))
    assert Checkpoint(log).read()["number"] == 10
    for one, other in zip(whole, sailed(recipe, crew, Checkpoint(log, every=0.0)), strict=True):
        for name, tensor in one.model.state_dict().items():
            torch.testing.assert_close(tensor, other.model.state_dict()[name], rtol=0, atol=0)
        assert str(one.verdict) == str(other.verdict)
        for field in ("number", "validation", "loss", "gap", "trust"):
            course, again = ([getattr(done, field) for done in end.history] for end in (one, other))
            assert course == pytest.approx(again, nan_ok=True, rel=1e-12)


def test_a_logbook_is_written_at_times_and_counts_what_was_spent(tmp_path: Path) -> None:
    log = Checkpoint(tmp_path / "deep" / "log.pt", every=1e6)
    assert log.read() is None
    assert not log.due
    log.begun -= 50
    log.write({"number": 3})
    again = Checkpoint(log.path, every=0.0)
    assert again.due
    assert again.read()["number"] == 3
    assert 50 <= again.spent < 60
    again.close()
    again.close()
    assert not log.path.parent.exists()


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
def test_a_command_that_was_stopped_goes_on_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(
        "table2", datasets=["digits8"], metrics=["f1"], methods=["sl-s"], recipe="paper", rounds=100, seeds=1
    )
    store = Store(tmp_path / "runs.jsonl")
    monkeypatch.setattr(Checkpoint, "due", True)
    with monkeypatch.context() as patch:
        usual = Checkpoint.write

        def write_and_stop(self: Checkpoint, state: dict) -> None:
            usual(self, state)
            raise KeyboardInterrupt

        patch.setattr(Checkpoint, "write", write_and_stop)
        with pytest.raises(KeyboardInterrupt):
            list(carry_out(plan, store, command="x", n_jobs=1))
    (written,) = (tmp_path / UNFINISHED).glob("*.pt")
    assert torch.load(written, weights_only=True)["number"] == 50
    assert list(carry_out(plan, store, command="x", n_jobs=1))[-1] == (1, 1)
    (record,) = store
    assert record["history"]["steps"][-1] == 300
    assert not (tmp_path / UNFINISHED).exists()
