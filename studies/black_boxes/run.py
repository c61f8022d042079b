"""Twenty black boxes: metricgrad against the natural proxy loss, with the calls of the metric counted.

Every box of `examples/black_boxes` brings its metric, its table and its proxy. Both losses train the same linear model
by the same steps from the same warm-up; checkpoint and threshold are chosen by the metric on validation rows, and fresh
rows are judged once. Every run is stored as it is done; run again to continue.

    python benchmarks/black_boxes.py [--seeds 5] [--boxes g_mean,rounded_f1]
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import BASELINES
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.reporting.progress import work_bar
from metricgrad.training.data import Rows
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection, exact_scores
from metricgrad.training.trainer import train
from studies.common import command, parser_of

ROOT = Path(__file__).parents[2]
BOXES = ROOT / "examples" / "black_boxes"
RESULTS = ROOT / "results" / "black_boxes.jsonl"
ROWS = {"train": 3_600, "validation": 2_400, "test": 12_000}
MODEL, RATE = "linear", 0.01
RECIPE = Recipe(warmup=900, rounds=300, trust_cap=300, check_every=25, learning_rate=RATE)
CALLS = 20_000
"""Calls of the metric that a run may take, those that teach the surrogate included."""


class Counted:
    """A callable that counts its calls."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.fn, self.calls = fn, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Count, and call."""
        self.calls += 1
        return self.fn(*args, **kwargs)


def names() -> list[str]:
    """Return every box there is."""
    return sorted(path.stem for path in BOXES.glob("*.py") if path.stem != "tables")


def box_of(name: str) -> ModuleType:
    """Load a box by name."""
    if str(BOXES) not in sys.path:
        sys.path.insert(0, str(BOXES))
    return importlib.import_module(name)


class Taught(NamedTuple):
    """A box whose metric counts its calls, the surrogate every seed starts from, and the calls that took."""

    box: ModuleType
    metric: Metric
    counter: Counted
    loss: nn.Module
    calls: int


def teach(name: str, method: str = "sl-r", recipe: Recipe = RECIPE) -> Taught:
    """Load a box and fit its universal surrogate; nothing is known of its metric before."""
    box = box_of(name)
    counter = Counted(box.metric.function.fn)
    function = replace(box.metric.function, fn=counter)
    best = function.at_best if box.metric.thresholded else None
    metric = replace(box.metric, function=function, best_function=best)
    with tempfile.TemporaryDirectory() as cold:
        os.environ["METRICGRAD_CACHE"] = cold
        loss = make_loss(method, metric, recipe)
    return Taught(box, metric, counter, loss, counter.calls)


def parts_of(box: ModuleType, seed: int, rows: dict[str, int]) -> dict[str, Rows]:
    """Draw the table of a box, and scale its features by the rows trained on."""
    X, y, *columns = box.data(seed, sum(rows.values()))
    known = X[: rows["train"]]
    x = torch.as_tensor((X - known.mean(0)) / known.std(0), dtype=torch.float32)
    targets = torch.as_tensor(np.stack((y, *columns[0].values()), -1) if columns else y).float()
    sizes = list(rows.values())
    return {name: Rows(*part) for name, *part in zip(rows, x.split(sizes), targets.split(sizes), strict=True)}


def follow(loss: nn.Module, metric: Metric, parts: dict[str, Rows], recipe: Recipe, seed: int) -> tuple[Any, Selection]:
    """Train by one loss; return the model kept, and the guard that chose it."""
    model = build_model(MODEL, parts["train"].x.shape[1], seed)
    guard = Selection(parts["validation"], metric, recipe)
    torch.manual_seed(seed)
    for _ in train(model, loss, parts["train"], recipe, guard=guard, seed=seed):
        pass
    return model, guard


def value_of(model: Any, metric: Metric, parts: dict[str, Rows], repeats: int) -> float:
    """Cut where the metric is best on validation rows, and judge the fresh rows as people know it."""
    kept, fresh = (exact_scores(model, parts[part].x) for part in ("validation", "test"))
    shifted = fresh - best_threshold(metric, kept, parts["validation"].y)
    return float(np.mean([float(metric.value(metric(shifted, parts["test"].y))) for _ in range(repeats)]))


def carry_out(taught: Taught, seed: int, recipe: Recipe = RECIPE, rows: dict[str, int] = ROWS) -> dict[str, Any]:
    """Train for the metric and by the proxy, and count the calls of the first."""
    box, metric, counter, *_ = taught
    parts, repeats = parts_of(box, seed, rows), getattr(box, "repeats", 1)
    before = counter.calls
    loss = copied(taught.loss)
    model, guard = follow(loss, metric, parts, recipe, seed)
    ours = value_of(model, metric, parts, repeats)
    calls = counter.calls - before - repeats
    if box.proxy == "cross-entropy":  # the companion is the very run that cross-entropy alone would be
        rival = deepcopy(model)
        rival.load_state_dict(guard.safe.state)
    else:
        rival, _ = follow(BASELINES[box.proxy](), metric, parts, recipe, seed)
    assert guard.verdict is not None
    return {
        "ours": ours,
        "proxy": value_of(rival, metric, parts, repeats),
        "taught": taught.calls,
        "calls": taught.calls + calls,
        "gap": loss.gap,
        "followed": guard.verdict.followed,
        "higher_is_better": metric.higher_is_better,
        "label": metric.label,
        "rival": box.proxy,
    }


def copied(loss: nn.Module) -> Any:
    """Return a surrogate loss of its own for one seed, which still counts calls where all seeds do."""
    metric = loss.metric
    loss.metric = None
    own = deepcopy(loss)
    own.metric = loss.metric = metric
    own.optimizer = torch.optim.Adam(own.surrogate.parameters(), loss.optimizer.defaults["lr"], fused=True)
    return own


def show(store: Store) -> None:
    """Print what is stored, run by run."""
    for record in store:
        sign = 1 if record["higher_is_better"] else -1
        print(
            f"{record['run']['box']:>26} {record['run']['seed']}: {record['label']} {record['ours']:.4f}, "
            f"{record['rival']} {record['proxy']:.4f}, gain {sign * (record['ours'] - record['proxy']):+.4f}, "
            f"{record['calls']:,} calls"
        )


def main() -> None:
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--boxes", default=",".join(names()))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    store = Store(asked.results)
    seeds, boxes = range(asked.first, asked.first + asked.seeds), asked.boxes.split(",")
    with work_bar() as report:
        for number, name in enumerate([] if asked.report else boxes):
            known = store.keys()
            wanted = [run for seed in seeds if store.key(run := {"box": name, "seed": seed}) not in known]
            taught = teach(name) if wanted else None
            for run in wanted:
                begun = time.perf_counter()
                outcome = carry_out(taught, run["seed"])
                store.add(run, {**outcome, "seconds": time.perf_counter() - begun, "command": command()})
            report("boxes", number + 1, len(boxes))
    show(store)


if __name__ == "__main__":
    main()
