"""Records made up for tests: whole folders of them, and the paper's printed tables as if we had run them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from metricgrad.evaluation.store import Store
from metricgrad.paper.printed import LOSSES, MODES, TABLE2, TABLE3, TABLE3_METHODS
from metricgrad.training.history import Round
from metricgrad.training.recipe import get_recipe

ROUNDS = 30


def a_round(phase: str, number: int, of: int, **measured: Any) -> Round:
    """Return a round; what is not given was not measured."""
    known = {"phase": phase, "number": number, "of": of, "best": False, **measured}
    return Round(**{field.name: known.get(field.name, math.nan) for field in fields(Round)})


def run(dataset: str, metric: str, method: str, seed: int = 0, replicate: int = 0, **more: Any) -> dict[str, Any]:
    """Return what identifies a run; `changes` are of its recipe."""
    named = {"dataset": dataset, "metric": metric, "method": method, "seed": seed, "replicate": replicate}
    recipe, changes = more.get("recipe", "default"), more.pop("changes", {})
    content = get_recipe(recipe, **changes).content
    return {"model": "mlp", "recipe": recipe, "content": content, **named, **more}


def outcome(metric: str, loss: float, *, learned: bool = True, **more: Any) -> dict[str, Any]:
    """Return what is kept of a run that has one loss under both protocols."""
    fall = [loss * (1 + math.exp(-i / 5)) for i in range(ROUNDS)]
    unknown: list[float | None] = [None] * ROUNDS
    return {
        "test": {protocol: {metric: loss} for protocol in ("honest", "paper")},
        "validation_loss": loss,
        "seconds": 12.5,
        "rows": {"train": 600, "validation": 200, "test": 200},
        "positive_share": 0.25,
        "subset": None,
        "history": {
            "steps": [75 * (i + 1) for i in range(ROUNDS)],
            "validation": fall,
            "loss": [1.1 * x for x in fall],
            "gap": [0.1 * math.exp(-i / 9) for i in range(ROUNDS)] if learned else unknown,
            "trust": [0.9] * ROUNDS if learned else unknown,
        },
        "setting": None,
        "verdict": {"followed": True, "gain": 0.1, "error": 0.01},
        "followed": None,
        "command": f"metricgrad reproduce table2 --metric {metric}",
        **more,
    }


def add(store: Store, run: Mapping[str, Any], loss: float, **more: Any) -> None:
    """Store a run with one loss."""
    learned = str(run["method"]).startswith("sl-")
    store.add(run, outcome(run["metric"], loss, learned=learned, **more))


def printed(folder: Path, *, seeds: int = 1, spread: float = 0.0) -> Store:
    """Store the printed Tables 2 and 3 as runs; seeds lie `spread` apart, evenly around the printed loss."""
    store = Store(folder / "runs.jsonl")
    for dataset in TABLE2:
        cells = {(metric, mode): TABLE2[dataset][metric][mode] for metric in LOSSES for mode in MODES}
        cells |= {
            (metric, baseline): TABLE3[dataset][metric][baseline]
            for metric in TABLE3_METHODS
            for baseline in TABLE3_METHODS[metric]
        }
        for (metric, method), loss in cells.items():
            for seed in range(seeds):
                shifted = loss + spread * (seed - (seeds - 1) / 2)
                add(store, run(dataset, metric, method, seed), shifted)
                if metric == "jaccard":
                    add(store, run(dataset, "error_rate", method, seed, replicate=1), shifted)
    return store


def small(folder: Path) -> Store:
    """Store some runs of three datasets, two seeds each, one dataset in part, one cell in a second setting."""
    store = Store(folder / "runs.jsonl")
    for dataset in ("a9a", "codrna", "susy"):
        part = "68 % of the rows" if dataset == "codrna" else None
        for seed in range(2):
            for metric in ("auc", "error_rate", "f1"):
                for method, loss in {**TABLE2[dataset][metric], **TABLE3[dataset][metric]}.items():
                    add(store, run(dataset, metric, method, seed), loss * (1 + seed / 50), subset=part)
    add(store, run("a9a", "f1", "sl-r", changes={"rounds": 5}), 0.4)
    return store
