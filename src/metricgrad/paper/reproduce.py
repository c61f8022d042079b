"""The paper's tables and figures, made again: what is missing is run, what is stored is not run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from metricgrad.evaluation.grid import run_grid
from metricgrad.evaluation.store import Store
from metricgrad.paper import figure_plots, figures
from metricgrad.paper.datasets import names as known_datasets
from metricgrad.paper.datasets import table1 as held
from metricgrad.paper.experiments import BUDGETS, TABLES, Run, execute, jobs_of, table_runs
from metricgrad.paper.printed import TABLE1
from metricgrad.paper.protocols import PROTOCOLS
from metricgrad.training.networks import MODELS
from metricgrad.training.recipe import Recipe, get_recipe

FIGURES = ("figure1", "figure2", "figure3")
TARGETS = ("table1", *TABLES, *FIGURES, "all")
UNFINISHED = "unfinished"
"""Folder beside the results, with how far long jobs have come."""
SEEDS = {"quick": 2, "standard": 3, "paper": 1}
"""Seeds of a cell if nobody says otherwise."""


@dataclass(frozen=True)
class Plan:
    """What to run, how, and how it is to be shown: the runs of some tables, under some protocols."""

    runs: tuple[Run, ...]
    protocols: tuple[str, ...]
    datasets: tuple[str, ...]
    absent: tuple[str, ...] = ()
    recipe: Recipe = field(default_factory=Recipe)


def make_plan(
    target: str,
    *,
    protocol: str = "honest",
    datasets: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
    budget: str = "quick",
    recipe: str | None = None,
    rounds: int | None = None,
    steps: int | None = None,
    model: str = "mlp",
) -> Plan:
    """Return the runs a table needs.

    Parameters
    ----------
    target : {"table1", "table2", "table3", "figure1", "figure2", "figure3", "all"}
        What to make again; figures and Table 1 need no runs.
    protocol : {"honest", "paper", "both"}
        How models are scored; it costs nothing to ask for both, but for one column.
    datasets, metrics, methods : sequence of str, optional
        Only some of the table. By default the paper's datasets that are held here.
    seeds : int, optional
        How many, from 0 on.
    budget : {"quick", "standard", "paper"}
        Minutes, hours, or the 300,000 rounds of the paper with its own recipe.
    recipe : {"default", "paper"}, optional
        How models are trained; `paper` for the budget of that name, else `default`.
    rounds, steps : int, optional
        Rounds of Algorithm 1, or model steps in all, half of them warm-up if the recipe has one.
    model : str
        Name of a model.
    """
    for name, value, allowed in (
        ("target", target, TARGETS),
        ("protocol", protocol, (*PROTOCOLS, "both")),
        ("budget", budget, tuple(BUDGETS)),
        ("recipe", recipe or "default", ("default", "paper")),
        ("model", model, tuple(MODELS)),
    ):
        if value not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds: expected at least 1, got {seeds}")
    recipe = recipe or ("paper" if budget == "paper" else "default")
    protocols = tuple(PROTOCOLS) if protocol == "both" else (protocol,)
    chosen, absent = _datasets(datasets)
    grid: dict[str, Any] = {
        "datasets": chosen,
        "seeds": range(SEEDS[budget] if seeds is None else seeds),
        "metrics": metrics,
        "methods": methods,
        "model": model,
        "recipe": recipe,
        "changes": _changes(recipe, budget, rounds, steps),
    }
    how = get_recipe(recipe, **dict(grid["changes"]))
    asked = [name for name in TABLES if target in (name, "all")]
    runs = table_runs(asked, protocols, **grid) if asked else []
    return Plan(tuple(runs), protocols, tuple(chosen), tuple(absent), how)


def _datasets(asked: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return which datasets to use, and which of the paper's are not held here."""
    if asked is None:
        there = {row.name: row.ours is not None for row in held()}
        return [n for n in TABLE1 if there.get(n)], [n for n in TABLE1 if not there.get(n)]
    for name in asked:
        if name not in known_datasets():
            raise ValueError(f"datasets: expected some of {', '.join(known_datasets())}, got {name!r}")
    return list(dict.fromkeys(asked)), []


def _changes(recipe: str, budget: str, rounds: int | None, steps: int | None) -> tuple[tuple[str, Any], ...]:
    changes: dict[str, Any] = dict(BUDGETS[budget][recipe])
    if steps is not None:
        if rounds is not None:
            raise ValueError(f"steps: expected either rounds or steps, got both, {rounds} and {steps}")
        known = get_recipe(recipe)
        warmup = steps // 2 if known.warmup else 0
        changes |= {"rounds": max((steps - warmup) // known.model_steps, 1)} | ({"warmup": warmup} if warmup else {})
    if rounds is not None:
        changes["rounds"] = rounds
    if (rounds or steps) is not None:
        changes["baseline_steps"] = None
    plain = get_recipe(recipe)
    return tuple(sorted((name, value) for name, value in changes.items() if getattr(plain, name) != value))


def carry_out(
    plan: Plan,
    store: Store,
    *,
    command: str,
    engine: str = "local",
    n_jobs: int | None = None,
    address: str | None = None,
    brief: bool = False,
) -> Iterator[tuple[int, int]]:
    """Run what is not stored yet, store every run as its job is done, and yield how many of how many are there.

    A brief record holds the loss under the protocols of the plan alone; otherwise it holds all there are. On this
    machine a long job that is stopped goes on where it was.
    """
    known = store.keys()
    missing = [run for run in plan.runs if store.key(run.as_dict()) not in known]
    done = len(plan.runs) - len(missing)
    yield done, len(plan.runs)
    jobs = jobs_of(missing)
    work = partial(execute, protocols=plan.protocols, brief=True) if brief else execute
    if engine == "local":
        work = partial(work, unfinished=store.path.parent / UNFINISHED)
    for _, results in run_grid(jobs, work, engine=engine, n_jobs=n_jobs, address=address):
        for run, outcome in results:
            store.add(run, {**outcome, "command": command})
        done += len(results)
        yield done, len(plan.runs)


def draw(
    target: str,
    out: Path,
    dataset: str = "digits8",
    metric: str = "f1",
    recipe: Recipe | str = "default",
    seed: int = 0,
) -> list[Path]:
    """Draw a figure of the paper into a folder: as PNG, as SVG and as arrays; return the files.

    Dataset, metric and recipe are those of Figure 3; the others need none.
    """
    arrays: Any
    if target == "figure3":
        arrays = figures.figure3(dataset, metric, recipe, seed=seed)
    else:
        arrays = getattr(figures, target)(seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    drawn = getattr(figure_plots, f"plot_{target}")(arrays)
    files = [out / f"{target}.{kind}" for kind in ("png", "svg", "npz")]
    for file in files[:2]:
        drawn.savefig(file, dpi=150)
    figures.save_arrays(arrays, files[2])
    return files
