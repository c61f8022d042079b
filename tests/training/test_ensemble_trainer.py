"""A fleet trains every member as the plain trainer would train it alone."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from metricgrad import get_metric
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.losses.binary import CrossEntropy
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.ensemble import Models, side_by_side
from metricgrad.training.ensemble_trainer import Member, can_sail, train_fleet
from metricgrad.training.networks import MODELS, Scorer, build_model
from metricgrad.training.recipe import RECIPES, Recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train

RECIPE = Recipe(warmup=7, rounds=6, check_every=2, set_size=60, trust_cap=100)


def table(rows: int = 400, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return Rows(x, (x[:, 0] + x[:, 1] * x[:, 2] + noise > 1).double())


def loss_of(method: str, metric: str, recipe: Recipe) -> nn.Module:
    torch.manual_seed(0)
    return make_loss(method, get_metric(metric), recipe).double()


def alone(model: Scorer, method: str, metric: str, recipe: Recipe, rows: Rows, validation: Rows) -> tuple:
    own, loss = deepcopy(model), loss_of(method, metric, recipe)
    torch.manual_seed(1)
    rounds = train(own, loss, rows, recipe, guard=Selection(validation, get_metric(metric), recipe), seed=3)
    return own, loss, [done for done in rounds if done.validation == done.validation]


MEMBERS = [
    ("sl-r", "f1"),
    ("cross-entropy", "mcc"),
    ("sl-u", "auc"),
    ("sl-s", "average_precision"),
    ("global-objectives", "auc"),
    ("sl-r", "eer"),
]


def check_crew(crew: list[tuple[str, str]], name: str, recipe: Recipe) -> None:
    """Train a crew as a fleet, and every member of it alone; both must end at the same weights by the same way."""
    rows, validation, model = table(), table(200, 1), build_model(name, 5).double()
    losses = [loss_of(*member, recipe) for member in crew]
    members = [Member(loss, (get_metric(m),)) for loss, (_, m) in zip(losses, crew, strict=True)]
    torch.manual_seed(1)
    fleet = train_fleet(model, members, rows, recipe, validation=validation, seed=3)
    for (method, metric), loss, (trained,) in zip(crew, losses, fleet, strict=True):
        single, own, history = alone(model, method, metric, recipe, rows, validation)
        for one, other in ((single, trained.model), (own, loss)):
            for name, tensor in one.state_dict().items():
                if isinstance(tensor, torch.Tensor):
                    found = other.state_dict()[name]
                    torch.testing.assert_close(tensor, found, rtol=0, atol=1e-7, equal_nan=True)
        columns = [[(r.phase, r.number, r.steps, r.best) for r in rounds] for rounds in (history, trained.history)]
        assert columns[0] == columns[1]
        for field in ("validation", "companion", "loss", "gap"):
            one, other = ([getattr(r, field) for r in rounds] for rounds in (history, trained.history))
            assert one == pytest.approx(other, nan_ok=True)


@pytest.mark.filterwarnings("ignore:the surrogate of .* is not faithful yet")  # a short run need not be
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("changes", [{}, {"first": "surrogate", "sets": 2}, {"set_size": 1000}, {"warmup": 0}])
def test_every_member_ends_where_it_would_have_ended_alone(name: str, changes: dict[str, object]) -> None:
    check_crew(MEMBERS, name, replace(RECIPE, **changes))


PAPER = replace(RECIPES["paper"], rounds=20, set_size=40, check_every=7)
ROUGH = {"learning_rate": 1e-3, "surrogate_rate": 1e-3}


@pytest.mark.parametrize("name", ["mlp", "small"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        ROUGH,
        {**ROUGH, "clip": None, "noise": 0.3, "refine_sets": 2},
        {**ROUGH, "clip": 1e-3, "refine_mode": "train", "first": "model"},
        {**ROUGH, "refine_mode": "eval", "refine_sets": 2},
    ],
)
@pytest.mark.parametrize(
    "crew", [[("sl-r", "auc"), ("sl-s", "f1"), ("sl-r", "f1")], [("sl-u", "auc"), ("pairwise", "auc")]]
)
def test_the_recipe_of_the_paper_sails_too(crew: list[tuple[str, str]], name: str, changes: dict[str, object]) -> None:
    check_crew(crew, name, replace(PAPER, **changes))


def test_one_loss_serves_several_metrics_each_with_its_own_best_model() -> None:
    rows, validation, model = table(), table(200, 1), build_model("linear", 5).double()
    metrics = tuple(map(get_metric, ("f1", "auc")))
    recipe = replace(RECIPE, check_every=1, learning_rate=0.3)
    ((by_f1, by_auc),) = train_fleet(model, [Member(CrossEntropy(), metrics)], rows, recipe, validation=validation)
    for metric, trained in zip(metrics, (by_f1, by_auc), strict=True):
        with torch.no_grad():
            found = metric.best(trained.model(validation.x), validation.y)
        assert float(found) == pytest.approx(min(done.validation for done in trained.history))


def test_a_member_whose_loss_breaks_keeps_its_best_model_and_does_not_touch_the_others() -> None:
    class Breaks(nn.Module):
        calls = 0

        def forward(self, scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return scores.mean() * (float("nan") if self.calls > 3 else 1.0)

    rows, validation, model = table(), table(200, 1), build_model("linear", 5).double()
    f1 = (get_metric("f1"),)
    with pytest.warns(UserWarning, match="stopped being finite.*Breaks"):
        both = train_fleet(
            model, [Member(Breaks(), f1), Member(CrossEntropy(), f1)], rows, RECIPE, validation=validation
        )
    ((whole,),) = train_fleet(model, [Member(CrossEntropy(), f1)], rows, RECIPE, validation=validation)
    assert all(weights.isfinite().all() for weights in both[0][0].model.parameters())
    assert torch.equal(both[1][0].model(validation.x), whole.model(validation.x))


@pytest.mark.parametrize("name", MODELS)
def test_models_side_by_side_score_as_each_alone_and_share_their_memory(name: str) -> None:
    models = [build_model(name, 5, seed).double() for seed in range(3)]
    x = torch.randn(2, 50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for model in models:
        model(x)  # batch norm learns some statistics
    plain = torch.stack([model.eval().body(x.flatten(0, 1)).view(2, 50) for model in models]).detach()
    joint = Models(models)
    torch.testing.assert_close(joint.judge(x), plain)
    torch.testing.assert_close(joint.judge(x, first=2), plain[:2])
    with torch.no_grad():
        joint.learnable[0].add_(1.0)
    torch.testing.assert_close(next(models[1].parameters()), joint.learnable[0][1])


def test_what_lies_side_by_side_is_still_the_modules_own() -> None:
    modules = [nn.Linear(2, 1) for _ in range(2)]
    before = modules[1].weight.clone()
    common = side_by_side(modules)
    assert torch.equal(modules[1].weight, before)
    common["weight"][1] += 1
    assert torch.equal(modules[1].weight, before + 1)


def test_what_refines_in_training_mode_does_not_sail_with_what_does_not() -> None:
    model, rows = build_model("mlp", 5), table()
    learning, frozen = SurrogateLoss("f1"), SurrogateLoss("f1", frozen=True)
    assert can_sail(model, [learning, frozen, CrossEntropy()], RECIPE)
    assert not can_sail(model, [learning, frozen], replace(RECIPE, refine_mode="train"))
    assert can_sail(model, [CrossEntropy(), frozen], replace(RECIPE, refine_mode="train"))
    members = [Member(loss, (get_metric("f1"),)) for loss in (learning, frozen)]
    with pytest.raises(ValueError, match="members: expected"):
        train_fleet(model, members, rows, replace(RECIPE, refine_mode="both"), validation=rows)


def test_a_model_of_the_users_own_and_mixed_constructions_do_not_sail() -> None:
    assert not can_sail(build_model(nn.Linear(5, 1), 5), [CrossEntropy()], RECIPE)
    forms = [SurrogateLoss("f1"), SurrogateLoss("f1", form="zero")]
    assert not can_sail(build_model("mlp", 5), forms, RECIPE)
    assert can_sail(build_model("mlp", 5), [*forms[:1], CrossEntropy()], RECIPE)
