"""The paper's tables and figures made again: missing runs are trained, stored ones are reused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from metricgrad.evaluation.grid import run_grid
from metricgrad.evaluation.store import Store
from metricgrad.paper import figures
from metricgrad.paper.datasets import names as known_datasets
from metricgrad.paper.datasets import table1
from metricgrad.paper.experiments import BUDGETS, TABLES, Run, execute, jobs_of, table_runs
from metricgrad.paper.printed import TABLE1
from metricgrad.paper.protocols import PROTOCOLS
from metricgrad.training.networks import MODELS, TREES
from metricgrad.training.recipe import Recipe, get_recipe

FIGURES = ("figure1", "figure2", "figure3")
TARGETS = ("table1", *TABLES, *FIGURES, "all")
UNFINISHED = "unfinished"
"""Folder beside the results, for checkpoints of long jobs."""
SEEDS = {"quick": 2, "standard": 5, "paper": 1}
"""Default number of seeds of a cell, by budget."""


@dataclass(frozen=True)
class Plan:
    """The runs of some tables, under which protocols and on which datasets they are shown, and their recipe."""

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
    """Return the runs a target of `TARGETS` needs; figures and Table 1 need none.

    Datasets, metrics and methods choose a part of the table; by default the paper's datasets that are available here.
    The budget is minutes, hours, or the 300,000 rounds of the paper with its own recipe; `rounds` of Algorithm 1, or
    model `steps` in total, half of them warm-up if the recipe has one, replace its length. Seeds count from 0.
    """
    for name, value, allowed in (
        ("target", target, TARGETS),
        ("protocol", protocol, (*PROTOCOLS, "both")),
        ("budget", budget, tuple(BUDGETS)),
        ("recipe", recipe or "default", ("default", "paper")),
        ("model", model, tuple(name for name in MODELS if name != TREES)),
    ):
        if value not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {value!r}")
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds: expected at least 1, got {seeds}")
    recipe = recipe or ("paper" if budget == "paper" else "default")
    protocols = tuple(PROTOCOLS) if protocol == "both" else (protocol,)
    chosen, absent = _datasets(datasets)
    changes = _budget_changes(recipe, budget, rounds, steps)
    tables = [name for name in TABLES if target in (name, "all")]
    runs = table_runs(
        tables,
        protocols,
        datasets=chosen,
        seeds=range(SEEDS[budget] if seeds is None else seeds),
        metrics=metrics if tables else None,
        methods=methods if tables else None,
        model=model,
        recipe=recipe,
        changes=changes,
    )
    return Plan(tuple(runs), protocols, tuple(chosen), tuple(absent), get_recipe(recipe, **dict(changes)))


def _datasets(asked: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the datasets to use, and those of the paper that are not available here."""
    if asked is None:
        available = {row.name for row in table1() if row.ours is not None}
        return [name for name in TABLE1 if name in available], [name for name in TABLE1 if name not in available]
    for name in asked:
        if name not in known_datasets():
            raise ValueError(f"datasets: expected some of {', '.join(known_datasets())}, got {name!r}")
    return list(dict.fromkeys(asked)), []


def _budget_changes(recipe: str, budget: str, rounds: int | None, steps: int | None) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a recipe that a budget, or a number of rounds or steps, changes."""
    plain = get_recipe(recipe)
    changes: dict[str, Any] = dict(BUDGETS[budget][recipe])
    if rounds is not None and steps is not None:
        raise ValueError(f"steps: expected either rounds or steps, got both, {rounds} and {steps}")
    if steps is not None:
        warmup = steps // 2 if plain.warmup else 0
        rounds = max((steps - warmup) // plain.model_steps, 1)
        changes |= {"warmup": warmup} if warmup else {}
    if rounds is not None:
        changes |= {"rounds": rounds, "baseline_steps": None}
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
    """Train what is not stored yet, store every run as its job is done, and yield how many of how many are stored.

    A brief record holds the loss under the protocols of the plan only; otherwise under all of them. On this machine a
    long job that is stopped resumes from its checkpoint.
    """
    known = store.keys()
    missing = [run for run in plan.runs if store.key(run.as_dict()) not in known]
    done = len(plan.runs) - len(missing)
    yield done, len(plan.runs)
    work = partial(execute, protocols=plan.protocols, brief=True) if brief else execute
    if engine == "local":
        work = partial(work, unfinished=store.path.parent / UNFINISHED)
    for _, results in run_grid(jobs_of(missing), work, engine=engine, n_jobs=n_jobs, address=address):
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
    """Draw a figure of the paper into a folder, as PNG, as SVG and as arrays, and return the files.

    Dataset, metric and recipe are those of Figure 3; the others need none. Figure 2 is also a page to play with.
    """
    settings = (dataset, metric, recipe) if target == "figure3" else ()
    arrays = getattr(figures, target)(*settings, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    figure = getattr(figures, f"plot_{target}")(arrays)
    files = [out / f"{target}.{kind}" for kind in ("png", "svg", "npz")]
    for file in files[:2]:
        figure.savefig(file, dpi=150)
    figures.save_arrays(arrays, files[2])
    if target == "figure2":
        from metricgrad.paper.player import write_player

        files.append(out / "figure2.html")
        write_player(files[-1], seed=seed)
    return files
