"""The average of models of folds: the mean of their standardised scores, as one model where that can be."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metricgrad.training.additive import additive
from metricgrad.training.averaging import averaged
from metricgrad.training.networks import Average, Scorer, build_model

X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
numbers = st.floats(-3, 3)
spreads = st.floats(0.01, 100)


def models_of(name: str, k: int, outputs: int | None = None) -> list[Scorer]:
    """Build models of one kind with different weights; additive ones share their knots."""
    first = build_model(additive(bins=4) if name == "additive" else name, 3, 0, outputs)
    first.prepare(X)
    models = []
    for seed in range(k):
        model = pickle.loads(pickle.dumps(first)).eval()
        torch.manual_seed(seed)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        models.append(model)
    return models


def mean_of_standardised(models: list[Scorer], centre: Tensor, scale: Tensor) -> Tensor:
    total = 0
    for model, c, s in zip(models, centre.double(), scale.double(), strict=True):
        scores = model.double()(X.double())
        total = total + ((scores.reshape(len(X), -1) - c) / s).reshape(scores.shape)
    return (total / len(models)).detach()


@given(st.lists(st.tuples(numbers, spreads), min_size=2, max_size=4))
@pytest.mark.parametrize("name", ["linear", "additive", "small"])
def test_an_average_scores_as_the_mean_of_standardised_scores(name: str, scales: list[tuple[float, float]]) -> None:
    centre, scale = torch.tensor(scales).unsqueeze(-1).unbind(1)
    models = models_of(name, len(scales))
    with torch.no_grad():
        torch.testing.assert_close(
            averaged(models, centre, scale)(X.double()), mean_of_standardised(models, centre, scale)
        )


@pytest.mark.parametrize("name", ["linear", "additive"])
def test_the_average_of_linear_models_is_one_of_the_same_kind(name: str) -> None:
    models = models_of(name, 3)
    mean = averaged(models, torch.zeros(3, 1), torch.ones(3, 1))
    assert type(mean.body) is type(models[0].body)
    assert mean.folds == 1
    assert sum(p.numel() for p in mean.parameters()) == sum(p.numel() for p in models[0].parameters())


def test_several_outputs_have_a_scale_each() -> None:
    models = models_of("small", 2, outputs=3)
    centre, scale = torch.randn(2, 3), torch.rand(2, 3) + 0.5
    with torch.no_grad():
        found = averaged(models, centre, scale)(X.double())
    assert found.shape == (200, 3)
    torch.testing.assert_close(found, mean_of_standardised(models, centre, scale))


def test_additive_models_with_other_knots_are_refused() -> None:
    first, second = models_of("additive", 2)
    other = build_model(additive(bins=4), 3)
    other.prepare(X**3)
    assert averaged([first, second], torch.zeros(2, 1), torch.ones(2, 1)).name == "additive"
    with pytest.raises(ValueError, match="expected additive models with the same knots"):
        averaged([first, other], torch.zeros(2, 1), torch.ones(2, 1))


def test_an_average_of_networks_is_pickled_as_plain_arrays_and_comes_back_equal() -> None:
    mean = averaged(models_of("small", 2), torch.zeros(2, 1), torch.ones(2, 1)).eval()
    state = mean.__getstate__()
    assert state["folds"] == 2
    assert not any(isinstance(value, Tensor) for value in state["weights"].values())
    again = pickle.loads(pickle.dumps(mean))
    assert isinstance(again.body, Average)
    with torch.no_grad():
        assert torch.equal(again(X.double()), mean(X.double()))
