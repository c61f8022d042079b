from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from metricgrad.surrogate.config import CONFIGS
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import new_surrogate

Optimizers = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizers] = {
    "Adam": lambda learned: torch.optim.Adam(learned, 0.01),
    "Adam with weight decay": lambda learned: torch.optim.Adam(learned, 0.01, weight_decay=0.1),
    "AdamW": lambda learned: torch.optim.AdamW(learned, 0.01, weight_decay=0.5),
    "SGD": lambda learned: torch.optim.SGD(learned, 0.5, momentum=0.9, weight_decay=0.1),
    "RMSprop": lambda learned: torch.optim.RMSprop(learned, 0.01, weight_decay=0.1),
}
ORDERS = ("refine first", "refine after zero_grad", "refine before backward", "refine after backward", "refine last")


class Module(nn.Module):
    """A user's module; as Lightning's modules do, it may hold its own loss."""

    def __init__(self, loss: SurrogateLoss | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1)
        if loss is not None:
            self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)[..., 0]


def sets(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(2, 60, 4, generator=generator)
    return x, (x[..., 0] + 0.5 * torch.randn(2, 60, generator=generator) > 0.7).float()


def one_step(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, order: str, step: int) -> None:
    x, y = sets(step)
    scores = module(x)
    if order == "refine first":
        loss.refine(scores, y)
    optimizer.zero_grad()
    if order == "refine after zero_grad":
        loss.refine(scores, y)
    value = loss(scores, y)
    if order == "refine before backward":
        loss.refine(scores, y)
    value.backward()
    if order == "refine after backward":
        loss.refine(scores, y)
    optimizer.step()
    if order == "refine last":
        loss.refine(scores, y)


def trained(inside: bool, one: Callable[..., None], optimizers: Optimizers, config: str = "default") -> Module:
    """Train a module for some steps; its loss is held inside, or beside it, which no optimizer sees."""
    loss = SurrogateLoss("f1") if config == "default" else SurrogateLoss("f1", new_surrogate(config, 0))
    module = Module(loss if inside else None)
    optimizer = optimizers(list(module.parameters()))
    for step in range(5):
        one(module, loss, optimizer, step=step)
    module.loss = loss
    return module


def assert_same(one: Module, other: Module) -> None:
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name
    for name, tensor in one.loss.surrogate.state_dict().items():
        assert torch.equal(tensor, other.loss.surrogate.state_dict()[name]), name
    assert one.loss.gap == pytest.approx(other.loss.gap, rel=0, abs=0, nan_ok=True)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("optimizers", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_loss_inside_the_module_learns_bit_for_bit_as_one_beside_it(
    optimizers: Optimizers, order: str, config: str
) -> None:
    def one(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, step: int) -> None:
        one_step(module, loss, optimizer, order, step)

    inside, beside = (trained(held, one, optimizers, config) for held in (True, False))
    assert_same(inside, beside)
    untouched = SurrogateLoss("f1") if config == "default" else SurrogateLoss("f1", new_surrogate(config, 0))
    for name, parameter in inside.loss.surrogate.named_parameters():
        assert not torch.equal(parameter, dict(untouched.surrogate.named_parameters())[name]), name


def test_gradients_may_be_accumulated_over_several_sets() -> None:
    def one(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, step: int) -> None:
        optimizer.zero_grad()
        for part in range(3):
            x, y = sets(3 * step + part)
            scores = module(x)
            (loss(scores, y) / 3).backward()
            loss.refine(scores, y)
        optimizer.step()

    assert_same(*(trained(inside, one, OPTIMIZERS["AdamW"]) for inside in (True, False)))


def test_the_optimizer_may_run_forward_and_backward_in_a_closure_as_lightning_does() -> None:
    def one(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, step: int) -> None:
        x, y = sets(step)

        def closure() -> Tensor:
            scores = module(x)
            loss.refine(scores, y)
            value: Tensor = loss(scores, y)
            optimizer.zero_grad()
            value.backward()
            return value

        optimizer.step(closure)

    assert_same(*(trained(inside, one, OPTIMIZERS["AdamW"]) for inside in (True, False)))


def test_clipping_the_module_does_not_see_the_gradients_of_the_surrogate() -> None:
    def one(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, step: int) -> None:
        x, y = sets(step)
        optimizer.zero_grad()
        scores = module(x)
        loss(scores, y).backward()
        loss.refine(scores, y)
        nn.utils.clip_grad_norm_(module.parameters(), 0.01)
        optimizer.step()

    assert_same(*(trained(inside, one, OPTIMIZERS["SGD"]) for inside in (True, False)))


def test_zeroing_gradients_in_place_leaves_the_surrogate_without_any() -> None:
    def one(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, step: int) -> None:
        x, y = sets(step)
        scores = module(x)
        loss.refine(scores, y)
        optimizer.zero_grad(set_to_none=False)
        module.zero_grad(set_to_none=False)
        loss(scores, y).backward()
        optimizer.step()
        assert all(parameter.grad is None for parameter in loss.parameters())

    assert_same(*(trained(inside, one, OPTIMIZERS["AdamW"]) for inside in (True, False)))


def test_a_module_that_is_unfrozen_as_a_whole_still_does_not_train_its_surrogate() -> None:
    def one(module: Module, loss: SurrogateLoss, optimizer: torch.optim.Optimizer, step: int) -> None:
        module.requires_grad_(True)  # as is done to fine-tune all layers
        one_step(module, loss, optimizer, "refine after backward", step)

    assert_same(*(trained(inside, one, OPTIMIZERS["AdamW"]) for inside in (True, False)))


@pytest.mark.parametrize("config", CONFIGS)
def test_refining_between_forward_and_backward_leaves_the_gradient_as_it_was(config: str) -> None:
    plain, refined = (SurrogateLoss("f1", new_surrogate(config, 0), learning_rate=0.1) for _ in range(2))
    x, y = sets(0)
    gradients = []
    for loss in (plain, refined):
        scores = x[..., 0].clone().requires_grad_()
        value = loss(scores, y)
        if loss is refined:
            loss.refine(scores, y)
        value.backward()
        gradients.append(scores.grad)
    assert torch.equal(*gradients)
    scores = x[..., 0].clone().requires_grad_()
    refined(scores, y).backward()
    assert not torch.equal(scores.grad, gradients[0])


def test_gradients_are_cleared_even_if_the_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, (x, y) = SurrogateLoss("f1"), sets(0)

    def stopped(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loss.optimizer, "step", stopped)
    with pytest.raises(KeyboardInterrupt):
        loss.refine(x[..., 0], y)
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in loss.parameters())


@settings(max_examples=20)
@given(
    calls=st.lists(st.sampled_from(["forward", "backward", "refine", "zero", "step", "clip"]), min_size=3, max_size=12)
)
def test_whatever_the_order_of_calls_the_surrogate_is_moved_by_refine_alone(calls: list[str]) -> None:
    def run(inside: bool) -> Module:
        loss = SurrogateLoss("f1")
        module = Module(loss if inside else None)
        optimizer = OPTIMIZERS["AdamW"](list(module.parameters()))
        values: list[Tensor] = []
        for place, call in enumerate(calls):
            x, y = sets(place)
            if call == "forward":
                values.append(loss(module(x), y))
            elif call == "backward" and values and not stale(calls[: place + 1]):
                values.pop().backward()
            elif call == "refine":
                loss.refine(module(x), y)
            elif call == "zero":
                optimizer.zero_grad()
            elif call == "step":
                optimizer.step()
            elif call == "clip":
                nn.utils.clip_grad_norm_(module.parameters(), 0.1)
        module.loss = loss
        return module

    assert_same(run(inside=True), run(inside=False))


def stale(calls: list[str]) -> bool:
    """Whether the model was moved after the last forward, so that torch itself refuses to go backward."""
    forwards = [place for place, call in enumerate(calls) if call == "forward"]
    return "step" in calls[forwards[-1] :]
