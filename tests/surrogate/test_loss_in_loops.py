"""A loss in the loops that people have: mixed precision, compiled, with checkpoints, copies, accumulated gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import new_surrogate


def positives_at_the_top(y_true: np.ndarray, y_score: np.ndarray) -> float:
    return float(y_true[np.argsort(-y_score, kind="stable")[:20]].mean())


LOSSES: dict[str, Callable[[], SurrogateLoss]] = {
    "refined": lambda: SurrogateLoss("average_precision"),
    "frozen": lambda: SurrogateLoss("average_precision", frozen=True),
    "refined, of the paper": lambda: SurrogateLoss("average_precision", new_surrogate("paper", 0)),
    "frozen, of the paper": lambda: SurrogateLoss("average_precision", new_surrogate("paper", 0), frozen=True),
    "refined, of large sets": lambda: SurrogateLoss("ndcg(5)"),
    "refined, of a black box": lambda: SurrogateLoss(
        black_box(positives_at_the_top, higher_is_better=True, max_calls=400), new_surrogate("default", 0)
    ),
}


def sets(step: int, count: int = 4, rows: int = 80) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(count, rows, 5, generator=generator)
    return x, (x[..., 0] + x[..., 1].relu() + 0.5 * torch.randn(count, rows, generator=generator) > 1.2).float()


class Loop:
    """A user's module with its loss inside, an optimizer, and steps with both."""

    def __init__(self, loss: SurrogateLoss) -> None:
        torch.manual_seed(0)
        self.module = nn.ModuleDict({"model": nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 1)), "loss": loss})
        # Not Adam: it would turn rounding into steps of the bias, which no loss depends on.
        self.optimizer = torch.optim.SGD(self.module.parameters(), 0.2, momentum=0.9)
        self.model: Any = self.module["model"]
        self.step = 0

    def train(self, steps: int, precision: torch.dtype | None = None, parts: int = 1) -> list[float]:
        """Take some steps, each accumulated over parts of its sets, and return the losses."""
        found, loss = [], self.module["loss"]
        for _ in range(steps):
            x, y = sets(self.step)
            self.optimizer.zero_grad()
            with torch.autocast("cpu", precision) if precision else nullcontext():
                for features, targets in zip(x.chunk(parts), y.chunk(parts), strict=True):
                    value = loss(self.model(features)[..., 0], targets)
                    (value / parts).backward()
                scores = self.model(x)[..., 0]
                if not loss.frozen:
                    loss.refine(scores, y)
            self.optimizer.step()
            self.step += 1
            found.append(float(value.detach()))
        return found

    @property
    def state(self) -> dict[str, Any]:
        return {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}

    def load(self, state: dict[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]


def learned(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in loop.module.state_dict().items() if isinstance(tensor, Tensor)}


def assert_close(one: Loop, other: Loop, **tolerance: float) -> None:
    torch.testing.assert_close(learned(one), learned(other), equal_nan=True, **tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_training_goes_on_to_the_bit_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    loop, other = Loop(LOSSES[name]()), Loop(LOSSES[name]())
    loop.train(6)
    torch.save(loop.state, tmp_path / "checkpoint.pt")
    other.load(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
    assert other.module["loss"].calls == loop.module["loss"].calls
    assert loop.train(6) == other.train(6)
    assert_close(loop, other, rtol=0, atol=0)
    assert other.module["loss"].calls == loop.module["loss"].calls


def test_training_goes_on_to_the_bit_with_an_emulator_that_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr("metricgrad.surrogate.cache.universal_for", lambda *_: new_surrogate("default", 0))

    def emulated() -> SurrogateLoss:
        profit = black_box(positives_at_the_top, higher_is_better=True, max_calls=200)
        return SurrogateLoss(profit, progress=lambda *_: None)

    loop, other = Loop(emulated()), Loop(emulated())
    loop.train(6)
    other.load(copy.deepcopy(loop.state))  # optimizers of torch share theirs
    assert other.module["loss"].calls == loop.module["loss"].calls > 80
    assert loop.train(6) == other.train(6)
    assert_close(loop, other, rtol=0, atol=0)
    x, y = sets(0)
    judged = [each.module["loss"].metric(x[..., 0], y) for each in (loop, other, Loop(emulated()))]
    assert torch.equal(judged[0], judged[1])
    assert not torch.equal(judged[0], judged[2])


@pytest.mark.parametrize("name", LOSSES)
def test_a_deep_copy_trains_on_to_the_bit_and_on_its_own(name: str) -> None:
    loop = Loop(LOSSES[name]())
    loop.train(6)
    other, third = copy.deepcopy(loop), copy.deepcopy(loop)
    assert loop.train(3) == other.train(3) == third.train(3)
    assert_close(loop, other, rtol=0, atol=0)
    assert_close(loop, third, rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name in LOSSES if "of a black box" not in name])
def test_gradients_accumulated_over_parts_are_those_of_all_sets_at_once(name: str) -> None:
    loop, whole = Loop(LOSSES[name]()), Loop(LOSSES[name]())
    loop.train(5, parts=4)
    whole.train(5)
    assert_close(loop, whole, rtol=0, atol=2e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_bfloat16_trains_about_as_float32_does_and_keeps_what_is_learned_in_float32(name: str) -> None:
    mixed, plain = Loop(LOSSES[name]()), Loop(LOSSES[name]())
    found, expected = mixed.train(10, torch.bfloat16), plain.train(10)
    assert found == pytest.approx(expected, abs=0.02)
    assert found != expected
    assert {tensor.dtype for tensor in learned(mixed).values() if tensor.is_floating_point()} == {torch.float32}
    assert mixed.module["loss"].gap == pytest.approx(plain.module["loss"].gap, abs=0.02, nan_ok=True)


def test_a_model_in_bfloat16_as_a_whole_is_trained_too() -> None:
    loop, metric = Loop(SurrogateLoss("average_precision")), get_metric("average_precision")
    x, y = sets(1000, 1, 2000)

    def true() -> float:
        with torch.no_grad():
            return float(metric(loop.model(x.to(next(loop.model.parameters()).dtype))[..., 0].float(), y))

    before = true()
    loop.model.bfloat16()
    for step in range(100):
        x_drawn, y_drawn = sets(step)
        scores = loop.model(x_drawn.bfloat16())[..., 0]
        loop.module["loss"].refine(scores, y_drawn)
        loop.optimizer.zero_grad()
        loop.module["loss"](scores, y_drawn).backward()
        loop.optimizer.step()
    assert true() < before - 0.2


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("name", ["refined", "frozen", "refined, of the paper", "refined, of large sets"])
def test_a_compiled_model_is_trained_as_a_plain_one(name: str) -> None:
    torch.compiler.reset()
    compiled, plain = Loop(LOSSES[name]()), Loop(LOSSES[name]())
    compiled.model = torch.compile(compiled.model, backend="aot_eager", fullgraph=True)
    assert compiled.train(5) == pytest.approx(plain.train(5), abs=1e-4)
    assert_close(compiled, plain, rtol=0, atol=1e-3)


@pytest.mark.slow  # compiles
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch hides it from users
@pytest.mark.parametrize("name", ["refined", "frozen", "refined, of the paper"])
def test_a_step_may_be_compiled_as_a_whole_with_loss_and_refine_in_it(name: str) -> None:
    torch.compiler.reset()
    compiled, plain = Loop(LOSSES[name]()), Loop(LOSSES[name]())

    def step(loop: Loop, x: Tensor, y: Tensor) -> Tensor:
        scores = loop.model(x)[..., 0]
        if not loop.module["loss"].frozen:
            loop.module["loss"].refine(scores, y)
        value: Tensor = loop.module["loss"](scores, y)
        return value

    for loop, run in ((compiled, torch.compile(step, backend="aot_eager")), (plain, step)):
        for number in range(4):
            value = run(loop, *sets(number))
            loop.optimizer.zero_grad()
            value.backward()
            loop.optimizer.step()
    assert_close(compiled, plain, rtol=0, atol=1e-3)
