"""Gain over the proxy against calls of the metric: python -m studies.calls.run [--seeds 3] [--boxes g_mean]

The twenty boxes of `examples/black_boxes`, each with a limit of 300, 1,000 and 4,000 calls for a whole run: learning
the metric, refining, looks at validation rows and the threshold. Both losses train the same linear model with the same
steps from the same warm-up; checkpoint and threshold are chosen by the metric on validation rows, and fresh rows are
judged once. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from copy import deepcopy
from typing import Any

import torch

from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import BASELINES
from metricgrad.training.methods import make_loss
from studies import pages
from studies.black_boxes.run import RECIPE, ROWS, box_of, follow, names, parts_of, value_of

RESULTS = pages.RESULTS / "calls.jsonl"
LIMITS = (300, 1_000, 4_000)


def carry_out(run: dict[str, Any]) -> dict[str, Any]:
    """Train for the metric within a limit of calls, and on the proxy."""
    box = box_of(run["box"])
    metric, repeats = box.metric, getattr(box, "repeats", 1)
    metric.budget.max_calls, before = run["limit"], metric.calls
    parts = parts_of(box, run["seed"], ROWS)
    with tempfile.TemporaryDirectory() as cold:
        os.environ["METRICGRAD_CACHE"] = cold
        begun = time.process_time()
        loss: Any = make_loss("sl-r", metric, RECIPE)
        learning = time.process_time() - begun
    learned = metric.calls - before
    model, selection = follow(loss, loss.judge, parts, RECIPE, run["seed"])
    calls = metric.calls - before
    ours = value_of(model, loss.judge, parts, repeats)
    used = metric.calls - before - repeats
    if box.proxy == "cross-entropy":  # the control is the same run as cross-entropy alone
        baseline = deepcopy(model)
        baseline.load_state_dict(selection.control.state)
    else:
        metric.budget.max_calls = 10**9
        baseline, _ = follow(BASELINES[box.proxy](), loss.judge, parts, RECIPE, run["seed"])
    assert selection.verdict is not None
    return {
        "ours": ours,
        "proxy": value_of(baseline, loss.judge, parts, repeats),
        "learned": learned,
        "trained": calls - learned,
        "calls": used,
        "learning_seconds": learning,
        "emulated": loss.judge.stand_in is not None,
        "out_of_calls": loss.out_of_calls,
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
            f"{run['box']:>26} {run['seed']} {run['limit']:>5}: {record['ours']:.4f}, {record['rival']} "
            f"{record['proxy']:.4f}, gain {sign * (record['ours'] - record['proxy']):+.4f}, {record['calls']:,} calls, "
            f"learned in {record['learning_seconds']:.1f} s"
        )


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--boxes", default=",".join(names()))
    parser.add_argument("--limits", default=",".join(map(str, LIMITS)))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    limits = [int(limit) for limit in asked.limits.split(",")]
    runs = [
        {"box": name, "seed": seed, "limit": limit}
        for seed in range(asked.seeds)
        for name in asked.boxes.split(",")
        for limit in limits
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, carry_out)
    show(store)


if __name__ == "__main__":
    main()
