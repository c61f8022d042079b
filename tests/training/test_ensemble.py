"""Members trained side by side are those trained one after the other, and both modes at once are each by itself."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from metricgrad.training.ensemble import Ensemble, ModuleEnsemble, members_of, scores_in_both_modes
from metricgrad.training.networks import MODELS, build_model

LAYERED = [name for name in MODELS if build_model(name, 2).layered]


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("name", LAYERED)
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
@pytest.mark.parametrize("name", LAYERED)
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
