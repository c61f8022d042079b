from copy import deepcopy

import pytest
import torch
from torch import nn

from metricgrad.surrogate.adam import Adam


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 3), (4,), (1, 4), (1,))
    return [nn.Parameter(torch.randn(*shape, generator=generator, dtype=dtype)) for shape in shapes]


def gradients(dtype: torch.dtype, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step + 1)
    return [torch.randn(p.shape, generator=generator, dtype=dtype) for p in parameters(dtype)]


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fused", [True, False])
def test_steps_are_those_of_torchs_class(dtype: torch.dtype, decay: float, fused: bool) -> None:
    ours, theirs = parameters(dtype), parameters(dtype)
    adam = Adam(ours, 0.01, decay, fused)
    kind = torch.optim.AdamW if decay else torch.optim.Adam
    expected = kind(theirs, 0.01, weight_decay=decay, fused=fused)
    for step in range(5):
        adam.step(gradients(dtype, step))
        for parameter, gradient in zip(theirs, gradients(dtype, step), strict=True):
            parameter.grad = gradient
        expected.step()
        for own, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(own, other, rtol=0 if not decay else 1e-6, atol=0 if not decay else 1e-7)
    assert all(parameter.grad is None for parameter in ours)


def test_goes_on_from_a_state_of_torchs_class() -> None:
    theirs = parameters(torch.float32)
    before = torch.optim.Adam(theirs, 0.01, fused=True)
    for parameter, gradient in zip(theirs, gradients(torch.float32, 0), strict=True):
        parameter.grad = gradient
    before.step()
    ours = deepcopy(theirs)
    after = Adam(ours, 0.5)
    after.load_state_dict(deepcopy(before.state_dict()))
    after.step(gradients(torch.float32, 1))
    for parameter, gradient in zip(theirs, gradients(torch.float32, 1), strict=True):
        parameter.grad = gradient
    before.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_state_is_restored_and_an_empty_one_starts_afresh() -> None:
    one, other = parameters(torch.float32), parameters(torch.float32)
    first = Adam(one, 0.01)
    empty = deepcopy(first.state_dict())
    first.step(gradients(torch.float32, 0))
    state, moved = deepcopy(first.state_dict()), [parameter.detach().clone() for parameter in one]
    second = Adam(other, 0.3)
    with torch.no_grad():
        for parameter, value in zip(other, moved, strict=True):
            parameter.copy_(value)
    second.load_state_dict(state)
    first.step(gradients(torch.float32, 1))
    second.step(gradients(torch.float32, 1))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    second.load_state_dict(empty)
    assert not any(mean.any() for mean in second.means)
    assert not any(map(float, second.steps))


def test_a_parameter_without_a_gradient_stays_where_it_is() -> None:
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    adam, expected = Adam(ours, 0.01), torch.optim.Adam(theirs, 0.01, fused=True)
    for step in range(2):
        given = gradients(torch.float32, step)
        adam.step([None, *given[1:]])
        for parameter, gradient in zip(theirs[1:], given[1:], strict=True):
            parameter.grad = gradient
        expected.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert set(adam.state_dict()["state"]) == {0, 1, 2, 3}
