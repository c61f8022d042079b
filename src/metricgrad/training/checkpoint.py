"""A logbook: how far a long fleet has come, on disk, so that it goes on after a stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from metricgrad.training.loader import random_state, set_random_state
from metricgrad.training.trainer import Pace

if TYPE_CHECKING:
    from metricgrad.training.ensemble_trainer import Fleet


class Checkpoint:
    """One file, written anew at times and removed in the end.

    Parameters
    ----------
    path : Path
        Where; its folder is made when it is first written.
    every : float
        Seconds between two writings at least.

    Attributes
    ----------
    spent : float
        Seconds that were spent before the last stop.
    """

    def __init__(self, path: Path, every: float = 120.0) -> None:
        self.path, self.every = path, every
        self.spent, self.begun = 0.0, time.perf_counter()
        self.written = self.begun
        self.parts: list[Checkpoint] = []

    def part(self, number: int) -> Checkpoint:
        """Return the logbook of one of several parts of the work, a file of its own beside this one."""
        part = Checkpoint(self.path.with_stem(f"{self.path.stem}-{number}"), self.every)
        self.parts.append(part)
        return part

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.perf_counter() - self.written >= self.every

    def write(self, state: dict[str, Any]) -> None:
        """Keep a state of plain data and tensors; whoever is stopped here finds the last one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        torch.save({**state, "spent": self.spent + time.perf_counter() - self.begun}, fresh)
        fresh.replace(self.path)
        self.written = time.perf_counter()

    def read(self) -> dict[str, Any] | None:
        """Return the last state, if there is one; loading it runs no code of the file."""
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, weights_only=True)
        self.spent = state["spent"]
        return state

    def close(self) -> None:
        """Remove the file and those of its parts, and the folder if that is all there was."""
        for part in self.parts:
            part.path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


def state_of(fleet: Fleet, optimizer: torch.optim.Optimizer, pace: Pace) -> dict[str, Any]:
    """Return where everything stands between two rounds, as plain data and tensors."""
    return {
        "models": [dict(model.state_dict()) for model in fleet.models],
        "losses": [dict(member.loss.state_dict()) for member in fleet.members],
        "skipped": [loss.skipped for group in fleet.groups for loss in group.losses],
        "optimizers": [each.state_dict() for each in _optimizers(fleet, optimizer)],
        "random": random_state(fleet.sets),
        "keepers": [keeper.state() for keepers in fleet.keepers for keeper in keepers],
        "gone": fleet.gone,
        "taken": pace.taken,
    }


def go_on(fleet: Fleet, known: dict[str, Any], optimizer: torch.optim.Optimizer, pace: Pace) -> int:
    """Put everything where it stood, and return the number of the next round."""
    losses = [member.loss for member in fleet.members]
    for module, state in zip([*fleet.models, *losses], [*known["models"], *known["losses"]], strict=True):
        module.load_state_dict(state)
    for loss, skipped in zip((one for group in fleet.groups for one in group.losses), known["skipped"], strict=True):
        loss.skipped = skipped
    for each, state in zip(_optimizers(fleet, optimizer), known["optimizers"], strict=True):
        each.load_state_dict(state)
    set_random_state(fleet.sets, known["random"])
    for keeper, state in zip((one for own in fleet.keepers for one in own), known["keepers"], strict=True):
        keeper.go_on(state)
    fleet.gone, pace.taken, pace.groups = known["gone"], known["taken"], optimizer.param_groups
    fleet.begun -= known["spent"]
    return int(known["number"])


def _optimizers(fleet: Fleet, optimizer: torch.optim.Optimizer) -> list[torch.optim.Optimizer]:
    return [optimizer, *(group.optimizer for group in fleet.groups if group.optimizer)]
