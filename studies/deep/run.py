"""Networks in a loop of one's own, by the loss they follow: METRICGRAD_DATA=... python -m studies.deep.run TASK

Of every seed, a network is trained by cross-entropy, and kept after few steps (early) and after many (late). From
either, every loss takes the same number of steps on the same sets, once for each of three learning rates. Checkpoint
and rate are chosen by each metric on validation rows; what is chosen is then judged on test rows. A job is one loss
from one start with all its rates, stored as it ends; run again to continue.

Membranes have three splits (`--seeds 0,1,2`; a fourth would test the slices of the first), and remedies that are run
where they are named: `--losses iou-best-cut,iou-noise,iou-anchor`.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import CrossEntropy
from metricgrad.surrogate.fidelity import PROBED_SETS, cosine_on, directional_cosine
from studies import pages
from studies.deep import fashion, membranes, spam
from studies.deep.losses import Batch, Learned, Objective, plain
from studies.deep.problem import Plan, Problem, Values

RESULTS = pages.RESULTS / "deep.jsonl"
PLANS: dict[str, Plan] = {"fashion": fashion.PLAN, "spam": spam.PLAN, "membranes": membranes.PLAN}
STARTS = ("early", "late")
CHECK_OF_WARMUP = 200
"""Steps between two looks at validation rows while cross-entropy makes the starts."""

LARGE_SET = 1_000
"""Rows from which on single rows are too many to be probed, so that slopes along few directions are."""


class Kept(NamedTuple):
    """The best checkpoint by one metric on validation rows."""

    value: float
    step: int
    state: dict[str, Any]


class Best:
    """The best checkpoint by every metric, and all values of validation rows."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}
        self.curves: dict[str, list[float]] = {}

    def look(self, step: int, model: nn.Module, values: Values) -> None:
        """Keep the model by every metric it is best by."""
        for name, value in values.items():
            self.curves.setdefault(name, []).append(value)
            if name not in self.kept or value > self.kept[name].value:
                self.kept[name] = Kept(value, step, deepcopy(model.state_dict()))


def follow(
    problem: Problem,
    model: nn.Module,
    objective: Objective,
    rate: float,
    sets: torch.Generator,
    steps: int,
    look: Callable[[int], None],
) -> None:
    """Train for some steps of Adam along a cosine, and look at the model before each step and after the last."""
    optimizer = torch.optim.Adam(model.parameters(), rate)
    pace = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        look(step)
        batch = problem.batch(sets)
        optimizer.zero_grad()
        objective(problem.scores(model, batch), batch).backward()
        optimizer.step()
        pace.step()
    look(steps)


class Starts(NamedTuple):
    """The models that cross-entropy leaves after few and after many steps, and the best on its way."""

    states: dict[str, dict[str, Any]]
    best: Best


@lru_cache(maxsize=1)
def problem_of(task: str, seed: int) -> Problem:
    """Return one split of a task."""
    return PLANS[task].problem(seed)


@lru_cache(maxsize=1)
def starts_of(task: str, seed: int) -> Starts:
    """Train by cross-entropy at a constant rate, and keep both starts."""
    plan, problem = PLANS[task], problem_of(task, seed)
    model, best, states = problem.network(), Best(), {}
    optimizer, objective = torch.optim.Adam(model.parameters(), plan.warmup_rate), plain(CrossEntropy())
    sets = torch.Generator().manual_seed(1_000 + seed)
    for step in range(1, plan.late + 1):
        batch = problem.batch(sets)
        optimizer.zero_grad()
        objective(problem.scores(model, batch), batch).backward()
        optimizer.step()
        if step % min(CHECK_OF_WARMUP, plan.early) == 0:
            best.look(step, model, problem.validated(model))
        if step in (plan.early, plan.late):
            states[STARTS[len(states)]] = deepcopy(model.state_dict())
    return Starts(states, best)


def fidelity(problem: Problem, model: nn.Module, objective: Objective) -> Values:
    """Return gap, Spearman correlation and cosine of the surrogate on sets of validation rows; empty for others."""
    if not isinstance(objective, Learned):
        return {}
    scores, batch = problem.held_out(model)
    found = objective.loss.fidelity(scores, batch.targets, batch.weights)
    if scores.shape[-1] > LARGE_SET:
        some = [rows[:PROBED_SETS] for rows in (scores, batch.targets, torch.ones_like(scores))]
        cosine = directional_cosine(objective.loss, *some, pairs=32, generator=torch.Generator().manual_seed(0))
    else:
        cosine = cosine_on(objective.loss, scores, batch.targets, batch.weights)
    return {**{key: found[key] for key in ("gap", "spearman", "spread")}, "cosine": cosine}


def prepared(problem: Problem, objective: Objective, state: dict[str, Any], seed: int) -> Objective:
    """Return what a model will follow; a surrogate is refined on sets of the start first, if it asks for it."""
    if isinstance(objective, Learned):
        model, sets = problem.network(), torch.Generator().manual_seed(3_000 + seed)
        model.load_state_dict(state)

        @torch.no_grad()
        def draw() -> tuple[Tensor, Batch]:
            batch = problem.batch(sets)
            return problem.scores(model, batch), batch

        objective.prepare(draw)
    return objective


def trained_by(task: str, seed: int, loss: str, start: str) -> dict[str, Any]:
    """Train by one loss from one start at all rates; return what was chosen by each metric, and how it was."""
    plan, problem, starts = PLANS[task], problem_of(task, seed), starts_of(task, seed)
    runs, found = {}, {}
    first = prepared(problem, plan.losses[loss](problem, seed), starts.states[start], seed)
    for rate in plan.rates:
        model, best = problem.network(), Best()
        model.load_state_dict(starts.states[start])
        objective = deepcopy(first) if isinstance(first, Learned) else plan.losses[loss](problem, seed)
        if not found:
            found = {"start": fidelity(problem, model, objective), "reach": problem.reach(model, objective)}

        def look(step: int, model: nn.Module = model, best: Best = best) -> None:
            if step % plan.check_every == 0 or step == plan.steps:
                best.look(step, model, problem.validated(model))

        sets = torch.Generator().manual_seed(2_000 + seed)
        follow(problem, model, objective, rate, sets, plan.steps, look)
        found[f"{rate:g}"] = fidelity(problem, model, objective)
        runs[rate] = best
    return {**judged(problem, {f"{rate:g}": best for rate, best in runs.items()}), "fidelity": found}


def judged(problem: Problem, runs: dict[str, Best]) -> dict[str, Any]:
    """Return, by every metric, the run that is best on validation rows and its value on test rows."""
    chosen, model = {}, problem.network()
    tested: dict[tuple[str, int], Values] = {}
    for metric in next(iter(runs.values())).kept:
        rate = max(runs, key=lambda rate: runs[rate].kept[metric].value)
        kept = runs[rate].kept[metric]
        if (rate, kept.step) not in tested:
            model.load_state_dict(kept.state)
            tested[rate, kept.step] = problem.tested(model)
        values = tested[rate, kept.step]
        own = {name.partition(":")[2]: value for name, value in values.items() if name.startswith(f"{metric}:")}
        chosen[metric] = {"rate": rate, "step": kept.step, "validation": kept.value, "test": values[metric], **own}
    return {"chosen": chosen, "curves": {rate: best.curves for rate, best in runs.items()}}


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Carry out one job."""
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if run["start"] == "none":
            starts = starts_of(run["task"], run["seed"])
            found = judged(problem_of(run["task"], run["seed"]), {"warm-up": starts.best})
        else:
            found = trained_by(**run)
    plan = PLANS[run["task"]]
    steps = {"early": plan.early, "late": plan.late, "after": plan.steps}
    return {**_finite(found), "steps": steps, "cpu": time.process_time() - begun}


def _finite(value: Any) -> Any:
    """Return the same with None for what is not a number, as JSON has it."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def jobs(task: str, seeds: list[int], losses: list[str], starts: list[str]) -> list[dict[str, Any]]:
    """Return the jobs of a task, those of a seed together, as they share the starts; first the warm-up itself."""
    return [
        {"task": task, "seed": seed, "loss": loss, "start": start}
        for seed in seeds
        for loss, start in [("cross-entropy", "none"), *((loss, start) for start in starts for loss in losses)]
    ]


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("task", choices=list(PLANS))
    parser.add_argument("--seeds", default="0,1,2,3,4", help="separated by commas; 100 and above are for trying out")
    parser.add_argument("--losses", default="", help="separated by commas; by default all")
    parser.add_argument("--starts", default=",".join(STARTS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    store = Store(asked.results)
    plan = PLANS[asked.task]
    losses = asked.losses.split(",") if asked.losses else [name for name in plan.losses if name not in plan.extra]
    if not asked.report:
        seeds = [int(seed) for seed in asked.seeds.split(",")]
        pages.run_missing(store, jobs(asked.task, seeds, losses, asked.starts.split(",")), outcome)
    for record in store:
        run = record["run"]
        if run["task"] == asked.task:
            values = ", ".join(f"{name} {one['test']:.4f}" for name, one in record["chosen"].items())
            print(f"{run['seed']} {run['loss']} {run['start']}: {values}, {record['cpu']:.0f} s")


if __name__ == "__main__":
    main()
