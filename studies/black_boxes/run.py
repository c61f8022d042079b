"""Twenty black boxes against their proxy losses: python -m studies.black_boxes.run [--seeds 3] [--boxes g_mean]

Every box in `examples/black_boxes` has its metric, its table and its proxy. Both losses train the same linear model
with the same steps from the same warm-up; checkpoint and threshold are chosen by the metric on validation rows, and
fresh rows are judged once. Calls of the metric are counted, and limited for a whole run (learning the metric, refining,
looks at validation rows and the threshold) to 300, 1,000 and, as by default, 4,000. Every run is stored as it ends; run
again to continue.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import warnings
from copy import deepcopy
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import BASELINES
from metricgrad.metrics.called_sets import MAX_CALLS
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.training.data import Rows
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe, get_recipe
from metricgrad.training.selection import Selection, exact_scores
from metricgrad.training.trainer import train
from studies import pages

BOXES = pages.ROOT / "examples" / "black_boxes"
RESULTS = pages.RESULTS / "black_boxes.jsonl"
ROWS = {"train": 3_600, "validation": 2_400, "test": 12_000}
LIMITS = (300, 1_000, MAX_CALLS)
FIRST_SEED = 50
"""The way black boxes are learned was chosen with seed 0 of these boxes."""
MODEL, RATE = "linear", 0.01
RECIPE = get_recipe("default-0.1", warmup=900, rounds=300, trust_cap=300, check_every=25, learning_rate=RATE)


def names() -> list[str]:
    """Return every box there is."""
    return sorted(path.stem for path in BOXES.glob("*.py") if path.stem != "tables")


def box_of(name: str) -> ModuleType:
    """Load a box by name."""
    if str(BOXES) not in sys.path:
        sys.path.insert(0, str(BOXES))
    return importlib.import_module(name)


def parts_of(box: ModuleType, seed: int, rows: dict[str, int]) -> dict[str, Rows]:
    """Draw the table of a box, and standardise its features by the training rows."""
    X, y, *columns = box.data(seed, sum(rows.values()))
    known = X[: rows["train"]]
    x = torch.as_tensor((X - known.mean(0)) / known.std(0), dtype=torch.float32)
    targets = torch.as_tensor(np.stack((y, *columns[0].values()), -1) if columns else y).float()
    sizes = list(rows.values())
    return {name: Rows(*part) for name, *part in zip(rows, x.split(sizes), targets.split(sizes), strict=True)}


def follow(loss: nn.Module, metric: Metric, parts: dict[str, Rows], recipe: Recipe, seed: int) -> tuple[Any, Selection]:
    """Train on one loss; return the selected model and its selection."""
    model = build_model(MODEL, parts["train"].x.shape[1], seed)
    selection = Selection(parts["validation"], metric, recipe)
    torch.manual_seed(seed)
    for _ in train(model, loss, parts["train"], recipe, selection=selection, seed=seed):
        pass
    return model, selection


def value_of(model: Any, metric: Metric, parts: dict[str, Rows], repeats: int) -> float:
    """Choose the threshold on validation rows, and return the value of the metric on fresh rows."""
    kept, fresh = (exact_scores(model, parts[part].x) for part in ("validation", "test"))
    shifted = fresh - best_threshold(metric, kept, parts["validation"].y)
    return float(np.mean([float(metric.value(metric(shifted, parts["test"].y))) for _ in range(repeats)]))


def carry_out(
    name: str, seed: int, limit: int = MAX_CALLS, recipe: Recipe = RECIPE, rows: dict[str, int] = ROWS
) -> dict[str, Any]:
    """Train for the metric within a limit of calls, and on the proxy; nothing is known of the metric beforehand."""
    box = box_of(name)
    metric, repeats = box.metric, getattr(box, "repeats", 1)
    parts = parts_of(box, seed, rows)
    metric.budget.max_calls, metric.budget.calls = limit, 0
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as cold:
        os.environ["METRICGRAD_CACHE"] = cold
        loss: Any = make_loss("sl-r", metric, recipe)
    learned, seconds = metric.calls, time.process_time() - begun
    model, selection = follow(loss, loss.judge, parts, recipe, seed)
    ours = value_of(model, loss.judge, parts, repeats)
    calls = metric.calls - repeats
    if box.proxy == "cross-entropy":  # the control is the same run as cross-entropy alone
        baseline = deepcopy(model)
        baseline.load_state_dict(selection.control.state)
    else:
        baseline, _ = follow(BASELINES[box.proxy](), loss.judge, parts, recipe, seed)
    assert selection.verdict is not None
    return {
        "ours": ours,
        "proxy": value_of(baseline, loss.judge, parts, repeats),
        "taught": learned,
        "calls": calls,
        "learning_seconds": seconds,
        "emulated": loss.judge.stand_in is not None,
        "out_of_calls": loss.out_of_calls,
        "gap": loss.gap,
        "followed": selection.verdict.followed,
        "higher_is_better": metric.higher_is_better,
        "label": metric.label,
        "rival": box.proxy,
    }


def show(store: Store) -> None:
    """Print what is stored, run by run."""
    for record in store:
        sign, run = (1 if record["higher_is_better"] else -1), record["run"]
        print(
            f"{run['box']:>26} {run['seed']} {run['limit']:>5}: {record['label']} {record['ours']:.4f}, "
            f"{record['rival']} {record['proxy']:.4f}, gain {sign * (record['ours'] - record['proxy']):+.4f}, "
            f"{record['calls']:,} calls, learned in {record['learning_seconds']:.1f} s"
        )


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--boxes", default=",".join(names()))
    parser.add_argument("--limits", default=",".join(map(str, LIMITS)))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"box": name, "seed": seed, "limit": int(limit)}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for name in asked.boxes.split(",")
        for limit in asked.limits.split(",")
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, lambda run: carry_out(run["box"], run["seed"], run["limit"]))
    show(store)


if __name__ == "__main__":
    main()
