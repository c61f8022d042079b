"""Each of many runs ends where it would have ended alone, and a stopped one where it would have ended."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.registry import Metric, f1
from metricgrad.paper.reproduce import UNFINISHED, carry_out, make_plan
from metricgrad.training.data import Rows
from metricgrad.training.history import Round
from metricgrad.training.jobs import Checkpoint, train_each
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, Recipe
from metricgrad.training.selection import Selected, Selection
from metricgrad.training.trainer import TrainingRun, train

pytestmark = pytest.mark.slow  # trains every run twice, once stopped

PAPER = replace(RECIPES["paper"], rounds=12, set_size=40, check_every=3, learning_rate=1e-3, surrogate_rate=1e-3)
DEFAULT = Recipe(warmup=6, rounds=12, set_size=40, refine_sets=2, trust=-1.0, check_every=3)
RUNS = {
    "learned": [("sl-s", "auc"), ("sl-r", "f1")],
    "frozen": [("sl-u", "auc")],
    "by hand": [("global-objectives", "f1")],
}
MANY = [("sl-r", "f1"), ("cross-entropy", "mcc"), ("sl-u", "auc"), ("sl-s", "average_precision"), ("pairwise", "auc")]
FEW = Recipe(warmup=7, rounds=6, check_every=2, set_size=60, trust_cap=100)


def table(rows: int, seed: int) -> Rows:
    x = torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed))
    return Rows(x, (x[:, 0] + x[:, 1] * x[:, 2] > 0.7).float())


TRAINING, VALIDATION = table(300, 0), table(200, 1)


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def runs_of(names: list[tuple[str, str]], recipe: Recipe) -> list[tuple[nn.Module, tuple[Metric]]]:
    found = []
    for method, name in names:
        torch.manual_seed(0)
        found.append((make_loss(method, get_metric(name), recipe), (get_metric(name),)))
    return found


def trained(
    recipe: Recipe, names: list[tuple[str, str]], checkpoint: Checkpoint | None, model: Any = "mlp"
) -> list[Selected]:
    runs, start = runs_of(names, recipe), build_model(model, 5)
    found = train_each(start, runs, TRAINING, recipe, validation=VALIDATION, seed=3, checkpoint=checkpoint)
    return [one for (one,) in found]


class Stopped(Exception):
    """As if by Ctrl-C."""


def stop_at(monkeypatch: pytest.MonkeyPatch, check: int) -> None:
    """Stop the rounds of the last run at a check."""
    usual, seen = TrainingRun._checked, []

    def check_or_stop(self: TrainingRun, result: Round, *rest: object) -> Round:
        seen.append(result.phase)
        if seen.count("rounds") == check:
            raise Stopped
        return usual(self, result, *rest)

    monkeypatch.setattr(TrainingRun, "_checked", check_or_stop)


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
@pytest.mark.parametrize("model", ["mlp", torch.nn.Linear(5, 1)], ids=["mlp", "own"])
@pytest.mark.parametrize("recipe", [PAPER, DEFAULT], ids=["paper", "default"])
@pytest.mark.parametrize("names", RUNS.values(), ids=RUNS)
def test_a_stopped_run_ends_where_it_would_have_ended(
    recipe: Recipe, names: list[tuple[str, str]], model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, path = trained(recipe, names, None, model), tmp_path / "run.pt"
    checks = recipe.rounds // recipe.check_every
    with monkeypatch.context() as patch:
        stop_at(patch, (len(names) - 1) * checks + 3)
        with pytest.raises(Stopped):
            trained(recipe, names, Checkpoint(path, every=0.0), model)
    assert Checkpoint(path).part(len(names) - 1).read()["number"] == 2 * recipe.check_every
    for one, other in zip(whole, trained(recipe, names, Checkpoint(path, every=0.0), model), strict=True):
        for name, tensor in one.model.state_dict().items():
            torch.testing.assert_close(tensor, other.model.state_dict()[name], rtol=0, atol=0)
        assert str(one.verdict) == str(other.verdict)
        for field in ("number", "validation", "control", "loss", "gap", "trust"):
            course, again = ([getattr(done, field) for done in end.history] for end in (one, other))
            assert course == pytest.approx(again, nan_ok=True, rel=1e-12)


def test_a_checkpoint_is_written_at_times_and_counts_what_was_spent(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "deep" / "run.pt", every=1e6)
    assert checkpoint.read() is None
    assert not checkpoint.due
    checkpoint.begun -= 50
    checkpoint.write({"number": 3})
    again = Checkpoint(checkpoint.path, every=0.0)
    assert again.due
    assert again.read()["number"] == 3
    assert 50 <= again.spent < 60
    again.close()
    again.close()
    assert not checkpoint.path.parent.exists()


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


# ---- many runs -----------------------------------------------------------------------------------------------------


@pytest.mark.slow  # trains every run twice
@pytest.mark.filterwarnings("ignore:the surrogate of .* is not faithful yet")  # a short run need not be
@pytest.mark.parametrize("model", ["linear", "mlp", nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.2), nn.Linear(4, 1))])
@pytest.mark.parametrize("recipe", [FEW, replace(FEW, set_size=1000), PAPER], ids=["default", "whole", "paper"])
def test_each_of_many_runs_ends_to_the_bit_where_it_would_have_ended_alone(recipe: Recipe, model: Any) -> None:
    start = build_model(model, 5)
    found = train_each(start, runs_of(MANY, recipe), TRAINING, recipe, validation=VALIDATION, seed=3)
    for (method, name), (one,) in zip(MANY, found, strict=True):
        ((loss, (metric,)),) = runs_of([(method, name)], recipe)
        own, selection = deepcopy(start), Selection(VALIDATION, metric, recipe)
        torch.manual_seed(3)
        rounds = list(train(own, loss, TRAINING, recipe, selection=selection, seed=3))
        assert same(own.state_dict(), one.model.state_dict())
        assert str(one.verdict) == str(selection.verdict)
        checked = [replace(done, seconds=0.0) for done in rounds if math.isfinite(done.validation)]
        assert repr([replace(done, seconds=0.0) for done in one.history]) == repr(checked)


def test_one_loss_serves_several_metrics_each_with_its_own_best_model() -> None:
    metrics = tuple(map(get_metric, ("f1", "auc")))
    recipe = replace(FEW, check_every=1, learning_rate=0.3)
    model = build_model("linear", 5)
    ((by_f1, by_auc),) = train_each(model, [(CrossEntropy(), metrics)], TRAINING, recipe, validation=VALIDATION)
    for metric, one in zip(metrics, (by_f1, by_auc), strict=True):
        with torch.no_grad():
            found = metric.best(one.model(VALIDATION.x), VALIDATION.y)
        assert float(found) == pytest.approx(min(done.validation for done in one.history))


def test_a_run_whose_loss_breaks_keeps_its_best_model_and_does_not_touch_the_others() -> None:
    class Breaks(nn.Module):
        calls = 0

        def forward(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
            self.calls += 1
            return scores.mean() * (float("nan") if self.calls > 3 else 1.0)

    model = build_model("linear", 5)
    runs = [(Breaks(), (f1,)), (CrossEntropy(), (f1,))]
    with pytest.warns(UserWarning, match="loss Breaks stopped being finite"):
        both = train_each(model, runs, TRAINING, FEW, validation=VALIDATION)
    ((whole,),) = train_each(model, [(CrossEntropy(), (f1,))], TRAINING, FEW, validation=VALIDATION)
    assert all(weights.isfinite().all() for weights in both[0][0].model.parameters())
    assert torch.equal(both[1][0].model(VALIDATION.x), whole.model(VALIDATION.x))
