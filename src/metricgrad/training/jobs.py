"""Jobs: many runs from one warm-up, and the checkpoint from which they go on after a stop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.loader import random_state, set_random_state
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Best, Selected, Selection
from metricgrad.training.solver import Problem
from metricgrad.training.trainer import NotFinite, TrainingRun, train


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


class Start(NamedTuple):
    """Where every run of a job stands after the warm-up."""

    model: dict[str, Tensor]
    selections: dict[Metric, Selection]
    random: list[Tensor]
    seconds: float
    problem: Problem | None = None

    @classmethod
    def of(cls, run: TrainingRun) -> Start:
        """Return where a run stands that has just been warmed up, with the selections that watched it."""
        by_metric = {selection.decided: selection for selection in run.selections}
        return cls(deepcopy(run.model.state_dict()), by_metric, random_state(run.loader), run.seconds, run.problem)

    def moved(self, best: Best, metric: Metric) -> Start:
        """Return a start from another model, which is then what a learned loss has to beat."""
        selection = copy(self.selections[metric])
        selection.control = best
        return self._replace(model=best.state, selections={metric: selection})

    def hand_over(self, run: TrainingRun) -> None:
        """Put a run there, by copies."""
        run.model.load_state_dict(self.model)
        set_random_state(run.loader, self.random)
        if run.problem and self.problem:
            run.problem.ridge = self.problem.ridge
        for selection in run.selections:
            known = self.selections[selection.decided]
            selection.control, selection.history = replace(known.control), list(known.history)
        run.begun -= self.seconds


def warm_up(model: nn.Module, rows: Rows, recipe: Recipe, *, selections: Sequence[Selection], seed: int = 0) -> Start:
    """Train a copy of a model along cross-entropy, for runs that start from it with some of these selections."""
    model = deepcopy(model)
    run = TrainingRun(model, rows, recipe, selections, seed)
    for _ in run.warm_up():
        pass
    return Start.of(run)


def train_each(
    model: nn.Module,
    runs: Sequence[tuple[nn.Module, Sequence[Metric]]],
    rows: Rows,
    recipe: Recipe,
    *,
    validation: Rows,
    seed: int = 0,
    checkpoint: Checkpoint | None = None,
) -> list[list[Selected]]:
    """Train a copy of a model for each run, a loss and the metrics by which its models are chosen, one after the other.

    Runs share only the warm-up, which is the same for all of them, so that the result of one does not depend on which
    others were asked for. Returns the model selected by each metric of each run.
    """
    starts: dict[bool, Start] = {}
    found = []
    for number, (loss, metrics) in enumerate(runs):
        torch.manual_seed(seed)
        weighted = _weighted(metrics)
        if weighted not in starts:
            alike = dict.fromkeys(m for _, some in runs if _weighted(some) == weighted for m in some)
            checks = [Selection(validation, metric, recipe) for metric in alike]
            starts[weighted] = warm_up(model, rows, recipe, selections=checks, seed=seed)
        own, selections = deepcopy(model), [Selection(validation, metric, recipe) for metric in metrics]
        try:
            part = checkpoint.part(number) if checkpoint else None
            first = starts[weighted]
            for _ in train(own, loss, rows, recipe, selection=selections, seed=seed, start=first, checkpoint=part):
                pass
        except NotFinite:
            name = type(loss).__name__
            warnings.warn(f"the loss {name} stopped being finite; its best model before is kept", stacklevel=2)
        found.append([each.selected(own, isinstance(loss, SurrogateLoss)) for each in selections])
    return found


def _weighted(metrics: Sequence[Metric]) -> bool:
    return all(metric.takes_weights for metric in metrics)
