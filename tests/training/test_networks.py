"""The paper's network and the others: their layers, shapes, seeds and how they are saved."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from metricgrad.training.dropout import dropout_masks
from metricgrad.training.networks import MODELS, TREES, Dropout, Scorer, build_model, mlp

NETWORKS = [name for name in MODELS if name != TREES]


def test_the_network_of_the_paper_has_its_layers_in_its_order() -> None:
    layers = list(mlp(7))
    kinds = [nn.Linear, nn.LeakyReLU, nn.BatchNorm1d, nn.Dropout] * 3 + [nn.Linear]
    assert all(isinstance(layer, kind) for layer, kind in zip(layers, kinds, strict=True))
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [layer.in_features for layer in dense] == [7, 100, 30, 10]
    assert [layer.out_features for layer in dense] == [100, 30, 10, 1]
    assert {layer.p for layer in layers if isinstance(layer, nn.Dropout)} == {0.2}
    assert [layer.num_features for layer in layers if isinstance(layer, nn.BatchNorm1d)] == [100, 30, 10]


@pytest.mark.parametrize("share", [1e-6, 0.2, 0.5, 0.9])
def test_dropout_drops_its_share_and_makes_up_for_it(share: float) -> None:
    torch.manual_seed(0)
    kept = Dropout(share)(torch.ones(401, 501))
    assert set(kept.unique().tolist()) <= {0.0, float(torch.tensor(1 / (1 - share)))}
    assert abs(float((kept == 0).float().mean()) - share) < 5 * (0.25 / kept.numel()) ** 0.5
    assert len({tuple(row) for row in (kept > 0).tolist()}) > 390 * (share > 0.1)
    torch.testing.assert_close(Dropout(share).eval()(kept), kept, rtol=0, atol=0)


def test_dropout_drawn_at_once_is_that_drawn_one_after_the_other() -> None:
    torch.manual_seed(3)
    at_once = dropout_masks(0.2, [7, 12, 1], 3, torch.float64)
    torch.manual_seed(3)
    in_turn = [[Dropout(0.2)(torch.ones(count, dtype=torch.float64)) for count in (7, 12, 1)] for _ in range(3)]
    for place, together in enumerate(at_once):
        torch.testing.assert_close(together, torch.stack([each[place] for each in in_turn]), rtol=0, atol=0)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 4)])
def test_scores_have_the_axes_of_the_rows(name: str, shape: tuple[int, ...]) -> None:
    network = build_model(name, 6).eval()
    x = torch.randn(*shape, 6)
    scores = network(x)
    assert scores.shape == shape
    torch.testing.assert_close(scores.flatten(), network(x.reshape(-1, 6)))


@pytest.mark.parametrize("body", [nn.Linear(6, 1), nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))])
def test_an_output_may_have_an_axis_of_one_or_none(body: nn.Module) -> None:
    assert Scorer(body)(torch.randn(2, 3, 6)).shape == (2, 3)


def test_an_output_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"model: expected an output of shape \(6,\) or \(6, 1\), got \(6, 2\)"):
        Scorer(nn.Linear(5, 2))(torch.randn(2, 3, 5))
    with pytest.raises(ValueError, match=r"model: expected an output of shape \(3,\) or \(3, 1\), got tuple"):
        Scorer(nn.LSTM(5, 1))(torch.randn(3, 5))


@pytest.mark.parametrize("spec", [*NETWORKS, partial(mlp, widths=(4,))])
def test_weights_follow_the_seed_and_nothing_else(spec: Any) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (build_model(spec, 5, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_a_module_is_copied() -> None:
    own = nn.Linear(5, 1)
    network = build_model(own, 5)
    with torch.no_grad():
        network.body.weight.zero_()
    assert bool(own.weight.any())


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (
            "forest",
            ValueError,
            "model: expected one of mlp, small, .*, a module or a factory, got 'forest'",
        ),
        (3, TypeError, "model: expected a name, a torch module or a factory, got 3"),
        (lambda features: features, TypeError, "model: expected the factory to return a torch module, got int"),
    ],
)
def test_what_is_no_model_is_refused(spec: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_model(spec, 5)


@pytest.mark.parametrize("spec", [*NETWORKS, nn.Linear(5, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_scores_the_same_after_copying_and_pickling(spec: Any, dtype: torch.dtype) -> None:
    network = build_model(spec, 5, seed=3).to(dtype)
    x = torch.randn(20, 5, dtype=dtype)
    network(x)  # batch norm has something to remember
    network.eval()
    for copy in (deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(copy(x), network(x))
        assert not copy.training
        assert all(p.requires_grad for p in copy.parameters())
        with torch.no_grad():
            for p in copy.parameters():
                p.zero_()
        assert bool(network(x).any())


# ---- both modes ----------------------------------------------------------------------------------------------------
