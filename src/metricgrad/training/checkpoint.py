"""A checkpoint: a file with the state of a long run, from which it goes on after a stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch


class Checkpoint:
    """One file, rewritten at intervals and removed at the end.

    Parameters
    ----------
    path : Path
        Where; its folder is made when it is first written.
    every : float
        Seconds between two writes at least.

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
        """Return the checkpoint of one of several runs of a job, a file of its own beside this one."""
        part = Checkpoint(self.path.with_stem(f"{self.path.stem}-{number}"), self.every)
        self.parts.append(part)
        return part

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.perf_counter() - self.written >= self.every

    def write(self, state: dict[str, Any]) -> None:
        """Write a state of plain data and tensors; a run that is stopped meanwhile finds the last one."""
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
        """Remove the file and those of its parts, and the folder if nothing else is in it."""
        for part in self.parts:
            part.path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        if self.path.parent.is_dir() and not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
