"""Processes of `torch.distributed` for tests, and what each does in them: it can only be imported by name from here."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from metricgrad.metrics.callable import black_box
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import new_surrogate
from metricgrad.training.data import Rows
from metricgrad.training.recipe import Recipe
from metricgrad.training.trainer import train

RANKS, STEPS, SETS = 2, 5, 3
Work = Callable[[int], Any]
Sets = tuple[Tensor, Tensor]


def on_ranks(folder: Path, works: dict[str, Work]) -> list[dict[str, Any]]:
    """Do all works on every rank, one after the other, and return what each returned, by rank."""
    folder.mkdir()
    torch.multiprocessing.spawn(_rank, (folder, works), RANKS)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


def _rank(rank: int, folder: Path, works: dict[str, Work]) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=RANKS, timeout=timedelta(seconds=60))
    torch.save({name: work(rank) for name, work in works.items()}, folder / f"{rank}.pt")
    dist.destroy_process_group()


# ---- a loop of a user's own ----------------------------------------------------------------------------------------


def drawn(step: int, rank: int, sets: int = SETS, rows: int = 60) -> Sets:
    """Sets of one rank: `(sets, rows, 4)` and `(sets, rows)`."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(sets, rows, 4, generator=generator)
    return x, (x[..., 0] + 0.5 * torch.randn(sets, rows, generator=generator) > 0.7).float()


class Scores(nn.Module):
    """A linear model, with its loss inside if it is given one, as modules of Lightning have it."""

    def __init__(self, loss: SurrogateLoss | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1)
        if loss is not None:
            self.loss = loss

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)[..., 0]


def followed(loss: SurrogateLoss, model: nn.Module, sets: Callable[[int], Sets], **refining: Any) -> dict[str, Any]:
    """Train a model for some steps by a loss that is refined, and return where both stand."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
    for step in range(STEPS):
        x, y = sets(step)
        scores = model(x)
        gap = loss.refine(scores, y, **refining)
        value = loss(scores, y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return state_of(loss, model, gap=gap) | {"value": float(value.detach())}


def state_of(loss: SurrogateLoss, model: nn.Module, **numbers: float) -> dict[str, Any]:
    """Return all that is learned, as data."""
    moments = [*loss.optimizer.means, *loss.optimizer.squares, *loss.optimizer.steps]
    linear = [tensor for name, tensor in model.state_dict().items() if "linear" in name]
    numbers = {"running_gap": loss.gap, "skipped": loss.skipped, **numbers}
    return {"surrogate": dict(loss.surrogate.state_dict()), "moments": moments, "model": linear, "numbers": numbers}


LOSSES: dict[str, Callable[..., SurrogateLoss]] = {
    "universal": lambda **options: SurrogateLoss("f1", **options),
    "of the paper": lambda **options: SurrogateLoss("f1", new_surrogate("paper", 0), **options),
    "clipped, relational": lambda **options: SurrogateLoss("auc", clip=1e-3, relational=1.0, **options),
    "ranking": lambda **options: SurrogateLoss("ndcg(5)", **options),
}


def of_rank(rank: int, name: str, gather: bool) -> dict[str, Any]:
    """Train by a loss on own sets under DDP."""
    model, loss = DistributedDataParallel(Scores()), LOSSES[name](gather=gather)
    return followed(loss, model, lambda step: drawn(step, rank), steps=2)


def inside_the_module(rank: int) -> dict[str, Any]:
    """Train by a loss that is part of the module that DDP wraps, from another start on every rank."""
    torch.manual_seed(rank)
    module = Scores(SurrogateLoss("auc", "scratch"))
    return followed(module.loss, DistributedDataParallel(module), lambda step: drawn(step, rank))


def from_scratch(rank: int) -> dict[str, Any]:
    """Refine a surrogate with another start on every rank, beside the module."""
    torch.manual_seed(rank)
    loss = SurrogateLoss("auc", "scratch")
    return followed(loss, DistributedDataParallel(Scores()), lambda step: drawn(step, rank))


def alone(rank: int) -> dict[str, Any]:
    """Train with sync=False."""
    model, loss = DistributedDataParallel(Scores()), SurrogateLoss("f1", sync=False)
    return followed(loss, model, lambda step: drawn(step, rank))


# ---- single calls --------------------------------------------------------------------------------------------------


def unequal(rank: int) -> dict[str, Any]:
    """Refine on sets of unequal number and size, some of one class only."""
    loss = SurrogateLoss("f1")
    x, y = drawn(0, rank, sets=2 + rank, rows=50 + 30 * rank)
    y[0] = 1 - rank * y[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gap = loss.refine(x[..., 0], y)
    return state_of(loss, Scores(), gap=gap) | {"warned": [str(warning.message) for warning in caught]}


def of_unequal_rows(rank: int) -> dict[str, Any]:
    """Follow sets that span ranks with unequal numbers of rows; the second has weights, in half precision."""
    x, y = drawn(0, rank, rows=(40, 70)[rank])
    scores = x[..., 0].bfloat16().requires_grad_()
    loss = SurrogateLoss("auc", gather=True)
    value = loss(scores, y, (x[..., 1].abs() if rank else torch.ones_like(y)).to(y))
    value.backward()
    return {"value": value.detach(), "gradient": scores.grad}


def several_classes(rank: int) -> dict[str, Any]:
    """Follow and refine sets of three classes that span ranks."""
    loss, generator = SurrogateLoss("macro_f1", gather=True), torch.Generator().manual_seed(rank)
    scores = torch.randn(2, 40, 3, generator=generator).requires_grad_()
    targets = torch.randint(3, (2, 40), generator=generator)
    gap = loss.refine(scores, targets)
    value = loss(scores, targets)
    value.backward()
    return state_of(loss, Scores(), gap=gap) | {"value": value.detach(), "gradient": scores.grad}


def positives_above(y_true: Any, y_score: Any) -> float:
    """Return a metric of a user: the share of positives among the ten highest scores."""
    return float(y_true[(-y_score).argsort()[:10]].mean())


def black_boxed(rank: int) -> dict[str, Any]:
    """Refine for a function of a user's on sets of unequal size."""
    loss = SurrogateLoss(black_box(positives_above, higher_is_better=True, max_calls=200), new_surrogate("default", 0))
    for step in range(3):
        x, y = drawn(step, rank, rows=40 + 20 * rank)
        gap = loss.refine(x[..., 0], y)
    return state_of(loss, Scores(), gap=gap) | {"calls": loss.calls}


def failing(y_true: Any, y_score: Any) -> float:
    raise OSError("no disk")


def errors(rank: int) -> list[str]:
    """Return the errors of calls that fail on one rank, or that ranks cannot make together."""

    def error(call: Callable[[], Any]) -> str:
        try:
            call()
        except Exception as raised:
            return f"{type(raised).__name__}: {raised}"
        return ""

    broken = SurrogateLoss(black_box(failing, higher_is_better=True), new_surrogate("default", 0))
    x, y = drawn(0, rank, sets=2 + rank)
    gathering, scores = SurrogateLoss("auc", gather=True), x[..., 0].requires_grad_()
    halves = scores.to(torch.float64 if rank else torch.float32)
    return [
        error(lambda: broken.refine(scores, y)),
        error(lambda: gathering(scores, y)),
        error(lambda: gathering.refine(scores, y)),
        error(lambda: gathering(halves[:2], y[:2])),
    ]


def own_trainer(rank: int) -> bool:
    """Train on the first rank only by our own loop, which must not wait for the other."""
    if rank == 0:
        x, y = drawn(0, 0, sets=1, rows=200)
        recipe = Recipe(warmup=5, rounds=2, set_size=50)
        for _ in train(Scores(), SurrogateLoss("auc"), Rows(x[0], y[0]), recipe):
            pass
    return True


def resumed(rank: int) -> dict[str, Any]:
    """Train, load what the rank has saved into new objects, and go on."""
    loss, model = SurrogateLoss("f1"), DistributedDataParallel(Scores())
    followed(loss, model, lambda step: drawn(step, rank))
    other, again = SurrogateLoss("f1"), DistributedDataParallel(Scores())
    other.load_state_dict(loss.state_dict())
    again.load_state_dict(model.state_dict())
    return followed(other, again, lambda step: drawn(STEPS + step, rank))
