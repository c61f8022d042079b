"""Optimizers of the user's own, and other devices than the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from torch import Tensor, nn

from metricgrad import MetricClassifier, MetricRanker, MetricRegressor, Recipe
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.ensemble import members_of, scores_in_both_modes
from metricgrad.training.networks import build_model
from metricgrad.training.optimizers import OwnOptimizer
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train

RECIPE = Recipe(warmup=20, rounds=10, model_steps=2, check_every=5, set_size=100, standardise=False, trust=-1)


def rows(seed: int = 0) -> Rows:
    X, y = make_classification(600, 6, weights=[0.7], random_state=seed)
    return Rows(torch.tensor(X).float(), torch.tensor(y).float())


def trained(model: Any, recipe: Recipe = RECIPE, **how: Any) -> tuple[Tensor, nn.Module]:
    """Train a model on some rows, with a control beside it, and return its scores of them."""
    torch.manual_seed(0)
    network, loss = build_model(model, 6), SurrogateLoss("f1")
    selection = Selection(rows(1), loss.judge, recipe)
    for _ in train(network, loss, rows(), recipe, selection=selection, **how):
        pass
    assert {parameter.device.type for parameter in network.parameters()} == {"cpu"}
    with torch.no_grad():
        return network(rows(2).x), network


def two_layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))


@pytest.mark.parametrize("model", ["small", "tabm", two_layers()], ids=["small", "tabm", "own"])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_torchs_adam_by_a_factory_is_the_adam_of_the_recipe(model: Any, schedule: str) -> None:
    recipe = replace(RECIPE, schedule=schedule)
    adam = partial(torch.optim.Adam, lr=recipe.learning_rate, fused=True)
    assert torch.allclose(*(trained(model, recipe, optimizer=each)[0] for each in (None, adam)), atol=2e-5)


def test_another_optimizer_gives_another_model() -> None:
    adam, sgd = trained("small")[0], trained("small", optimizer=partial(torch.optim.SGD, lr=0.1))[0]
    assert not torch.allclose(adam, sgd, atol=0.01)


def test_rates_of_all_groups_fall_by_the_schedule_of_the_recipe() -> None:
    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]

    def groups(parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": parameters[:1], "lr": 0.4}, {"params": parameters[1:]}], lr=0.1)

    own = OwnOptimizer(groups, weights, 0.01)
    own.learning_rate = 0.0025
    assert [group["lr"] for group in own.optimizer.param_groups] == pytest.approx([0.1, 0.025])
    assert own.learning_rate == pytest.approx(0.0025)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    own.step([weight.grad for weight in weights])
    assert [float(weight.detach()[0]) for weight in weights] == pytest.approx([0.9, 0.975])
    other = OwnOptimizer(groups, weights, 0.01)
    other.load_state_dict(own.state_dict())
    assert other.learning_rate == pytest.approx(0.0025)


def test_members_are_separate_for_an_optimizer_that_looks_at_whole_parameters() -> None:
    """The control must not be in the norms that such an optimizer takes."""
    shapes: list[list[tuple[int, ...]]] = []

    def seen(parameters: list[Tensor]) -> torch.optim.Optimizer:
        shapes.append([tuple(parameter.shape) for parameter in parameters])
        return torch.optim.SGD(parameters, lr=0.01)

    trained("small", optimizer=seen)
    own = [tuple(parameter.shape) for parameter in build_model("small", 6).parameters()]
    assert shapes == [own, own + own]


Estimator = MetricClassifier | MetricRegressor | MetricRanker
ESTIMATORS: dict[str, Estimator] = {
    "classifier": MetricClassifier("f1", folds=1),
    "regressor": MetricRegressor("mae", "surrogate", units="standardised"),
    "ranker": MetricRanker("ndcg(5)"),
}


def scores_by(name: str, **how: Any) -> np.ndarray:
    """Fit an estimator to some rows and return its scores of them; its network must be on the CPU then."""
    X, y = make_classification(400, 6, random_state=0)
    estimator: Any = clone(ESTIMATORS[name]).set_params(**{"recipe": replace(RECIPE, trust_cap=5), **how})
    estimator.fit(X.astype("float32"), y, **({"group": [20] * 20} if name == "ranker" else {}))
    assert {parameter.device.type for parameter in estimator.network_.parameters()} == {"cpu"}
    predicted: np.ndarray = getattr(estimator, "decision_function", estimator.predict)(X)
    return predicted


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_estimators_hand_on_optimizer_and_device(name: str) -> None:
    made: list[int] = []

    def sgd(parameters: list[Tensor]) -> torch.optim.Optimizer:
        made.append(len(parameters))
        return torch.optim.SGD(parameters, lr=0.1)

    plain = scores_by(name, model="small")
    assert not np.allclose(scores_by(name, model="small", optimizer=sgd, device="cpu"), plain)
    assert len(made) >= 2, "in the warm-up and in the rounds"


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_decay_of_the_weights_is_a_parameter_of_every_estimator(name: str) -> None:
    models = [scores_by(name, model="small", recipe__weight_decay=decay) for decay in (0.0, 30.0)]
    assert models[1].std() < 0.8 * models[0].std()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"optimizer": "adam"}, TypeError, "optimizer: expected a function of parameters or None, got 'adam'"),
        ({"optimizer": lambda _: None}, TypeError, "expected a function of parameters that returns .*, got NoneType"),
        ({"device": "gpu"}, ValueError, "device: expected one that torch can use, got 'gpu'"),
        ({"device": "cuda:77"}, ValueError, "device: expected one that torch can use, got 'cuda:77'"),
        ({"device": 1.5}, ValueError, "device: expected one that torch can use, got 1.5"),
    ],
)
def test_what_is_no_optimizer_and_no_device_is_named(wrong: dict[str, Any], error: Any, message: str) -> None:
    X, y = make_classification(100, 6, random_state=0)
    with pytest.raises(error, match=message):
        MetricClassifier("f1", model="small", recipe=RECIPE, **wrong).fit(X, y)


# ---- another device ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def device() -> Iterator[str]:
    """A device with memory of its own: a GPU, or torch's lazy tensors, which every build has."""
    if torch.cuda.is_available():
        yield "cuda"
        return
    lazy = pytest.importorskip("torch._lazy.ts_backend")
    lazy.init()
    yield "lazy"


def test_a_model_is_trained_on_another_device_as_on_the_cpu(device: str) -> None:
    recipe, sgd = replace(RECIPE, warmup=4, rounds=2), partial(torch.optim.SGD, lr=0.05, foreach=False)
    places: set[str] = set()

    class Placed(nn.Sequential):
        def forward(self, x: Tensor) -> Any:
            if self.training:
                places.update((x.device.type, self[0].weight.device.type))
            return super().forward(x)

    found, _ = trained(Placed(*two_layers()), recipe, device=device, optimizer=sgd)
    assert places == {device}
    torch.testing.assert_close(found, trained(two_layers(), recipe, optimizer=sgd)[0], rtol=0, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="lazy tensors cannot be stacked, and there is no GPU")
def test_members_score_on_another_device_as_on_the_cpu() -> None:
    scores, x = [], rows().x[:40]
    for place in ("cpu", "cuda"):
        model = build_model("mlp", 6, seed=0).to(place)
        torch.manual_seed(0)
        members = members_of(model, 2)
        torch.manual_seed(0)
        values = members(x)
        values.square().sum().backward()
        assert {parameter.grad.device.type for parameter in members.parameters()} == {place}
        assert values.device.type == "cpu"
        scores.append(values.detach())
        scores.append(scores_in_both_modes(model, x.view(2, 20, 6))[1])
        scores.append(model.train()(x).detach())
    for of_cpu, of_device in zip(scores[:3], scores[3:], strict=True):
        torch.testing.assert_close(of_device, of_cpu, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_train_on_another_device_as_on_the_cpu(name: str, device: str) -> None:
    seen: set[str] = set()

    class Placed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.add(self.weight.device.type)
            return super().forward(x)

    torch.manual_seed(0)
    how = {"model": Placed(6, 1), "optimizer": partial(torch.optim.SGD, lr=0.05, foreach=False)}
    how["recipe"] = replace(RECIPE, warmup=4, rounds=2, trust_cap=5)
    found = scores_by(name, device=device, **how)
    assert device in seen
    np.testing.assert_allclose(found, scores_by(name, **how), rtol=0, atol=1e-4)


def test_a_model_that_is_solved_for_stays_where_it_is(device: str) -> None:
    recipe = replace(RECIPE, start="solved")
    assert torch.equal(trained("linear", recipe, device=device)[0], trained("linear", recipe)[0])
