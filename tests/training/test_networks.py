"""The paper's network and the others: their layers, shapes, seeds and how they are saved."""

from __future__ import annotations

import pickle
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from metricgrad.training.networks import (
    MODELS,
    Dropout,
    Ensemble,
    ModuleEnsemble,
    Scorer,
    build_model,
    dropout_masks,
    members_of,
    mlp,
    scores_in_both_modes,
)


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


@pytest.mark.parametrize("spec", [*MODELS, partial(mlp, widths=(4,))])
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
        ("forest", ValueError, "model: expected one of mlp, small, linear, a module or a factory, got 'forest'"),
        (3, TypeError, "model: expected a name, a torch module or a factory, got 3"),
        (lambda features: features, TypeError, "model: expected the factory to return a torch module, got int"),
    ],
)
def test_what_is_no_model_is_refused(spec: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build_model(spec, 5)


@pytest.mark.parametrize("spec", [*MODELS, nn.Linear(5, 1)], ids=str)
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


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("name", MODELS)
def test_batches_scored_in_both_modes_at_once_are_those_scored_one_after_the_other(
    name: str, outputs: int | None
) -> None:
    at_once, in_turn = (build_model(name, 6, outputs=outputs).double() for _ in range(2))
    x = torch.randn(5, 40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    found = scores_in_both_modes(at_once, x)
    in_turn.name = None  # as if it were a module of the user's own
    torch.manual_seed(1)
    expected = scores_in_both_modes(in_turn, x)
    for one, other in zip(
        (*found, *at_once.state_dict().values()), (*expected, *in_turn.state_dict().values()), strict=True
    ):
        torch.testing.assert_close(one, other)
    assert found[0].shape == ((5, 40) if outputs is None else (5, 40, 3))


# ---- members -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("name", MODELS)
def test_members_are_trained_as_modules_one_after_the_other_would_be(name: str, outputs: int | None) -> None:
    x = torch.randn(2, 50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    start = build_model(name, 5, outputs=outputs).double()
    joint, apart = members_of(deepcopy(start), 3), ModuleEnsemble([deepcopy(start) for _ in range(3)])
    assert isinstance(joint, Ensemble)
    for members in (joint, apart):
        optimizer = torch.optim.Adam(members.parameters(), 0.1)
        for _ in range(4):
            torch.manual_seed(2)
            optimizer.zero_grad()
            scores = members(x)
            (scores.flatten(1).square().mean(1) * torch.tensor([1.0, -0.1, 0.3])).sum().backward()
            members.clip(0.5)
            optimizer.step()
        assert scores.shape == ((3, 2, 50) if outputs is None else (3, 2, 50, 3))
    for one, other in zip(joint.models, apart.models, strict=True):
        torch.testing.assert_close(one.eval()(x), other.eval()(x))


def test_a_member_computes_the_same_to_the_bit_however_many_there_are() -> None:
    x = torch.randn(1, 64, 7, generator=torch.Generator().manual_seed(0))
    few, many = members_of(build_model("mlp", 7), 1), members_of(build_model("mlp", 7), 4)
    for members in (few, many):
        optimizer = torch.optim.Adam(members.parameters(), 0.01)
        for _ in range(5):
            torch.manual_seed(2)
            optimizer.zero_grad()
            torch.autograd.backward([scores.square().mean() for scores in members(x)])
            optimizer.step()
    pairs = zip(few.models[0].parameters(), many.models[0].parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_first_member_is_the_model_itself_and_shares_its_memory() -> None:
    model = build_model("mlp", 5)
    members = members_of(model, 2)
    assert members.models[0] is model
    with torch.no_grad():
        next(members.parameters())[0].add_(1.0)
    assert torch.equal(next(model.parameters()), next(members.parameters())[0])
    assert not torch.equal(next(members.models[1].parameters()), next(model.parameters()))


def test_the_gradient_of_every_member_is_clipped_by_itself() -> None:
    members = members_of(build_model("linear", 4), 2)
    steep = torch.tensor([1e-6, 1e3])
    (members(torch.ones(3, 4)).sum(1) * steep).sum().backward()
    members.clip(1.0)
    norms = torch.stack([p.grad.flatten(1).norm(dim=1) for p in members.parameters()]).norm(dim=0)
    assert float(norms[0]) < 1e-4
    assert float(norms[1]) == pytest.approx(1.0)


def test_a_module_of_the_users_own_gets_the_same_dropout_in_every_copy() -> None:
    members = members_of(nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1), nn.Flatten(0)), 2)
    assert isinstance(members, ModuleEnsemble)
    scores = members(torch.randn(20, 4))
    assert torch.equal(scores[0], scores[1])
    assert scores.shape == (2, 20)
