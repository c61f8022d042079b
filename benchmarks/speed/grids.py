"""Runs of a block of Table 2 as a fleet, one after the other, and in processes: python -m benchmarks.speed.grids

Seven metrics, three modes, one dataset, one seed: 21 models. All three ways train the same models (tests hold a member
of a fleet to the model it would be alone); the budget `quick` is shortened to a share of its steps. Processor time is
compared, which for one thread is the waiting time on an idle machine; for processes also wall time, including their
start.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from copy import deepcopy

import torch

from benchmarks.speed.measuring import claim, in_turns, middle, parser_of, processor_seconds, ratio, seconds, store
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.evaluation.grid import run_grid
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import BUDGETS, Run, execute, jobs_of, prepared, table_runs
from metricgrad.training.networks import build_model
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train


def cut(share: float) -> tuple[tuple[str, int], ...]:
    """Return the changes of the recipe that a share of the quick budget makes."""
    quick = BUDGETS["quick"]["default"]
    fewer = {name: max(1, round(share * quick[name])) for name in ("warmup", "rounds", "trust_cap")}
    return tuple(sorted({**quick, **fewer}.items()))


def alone(run: Run) -> Iterator[str]:
    """Train one run by `trainer.train`, and yield its metric."""
    parts, recipe, metric = prepared(run.dataset, run.seed, run.how.standardise), run.how, get_metric(run.metric)
    torch.manual_seed(run.seed)
    loss = make_loss(run.method, metric, recipe)
    model = deepcopy(build_model(run.model, parts.train.x.shape[1], run.seed))
    torch.manual_seed(run.seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not faithful yet")
        guard = Selection(parts.validation, metric, recipe)
        for _ in train(model, loss, parts.train, recipe, selection=guard, seed=run.seed):
            pass
    yield run.metric


def main() -> int:
    parser = parser_of(__doc__, repeats=3)
    parser.add_argument("--dataset", default="digits8", help="the default needs no files")
    parser.add_argument("--share", type=float, default=0.15, help="of the steps of the budget quick")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = table_runs(["table2"], ["honest"], datasets=[asked.dataset], seeds=[0], changes=cut(asked.share))
    (job,) = jobs_of(runs)
    contestants = {
        "fleet": lambda: list(execute(job, ["honest"], brief=True)),
        "one after the other": lambda: [list(alone(run)) for run in runs],
    }
    times = in_turns(contestants, asked.repeats, timed=processor_seconds, warm=False, what=f"{len(runs)} runs")
    cores = os.cpu_count() or 1
    ways = {
        "fleet": contestants["fleet"],
        "processes": lambda: list(run_grid(runs, alone, n_jobs=max(2, cores))),
    }
    walls = in_turns(ways, max(1, asked.repeats // 2), warm=False, timed=seconds, what=f"{cores} processes")
    fleet = ratio(times["fleet"], times["one after the other"])
    claims = [claim(f"{len(runs)} runs of Table 2 as a fleet, over one after the other", fleet, at_most=1 / 3)]
    return store(
        "grids",
        claims,
        asked.folder,
        dataset=asked.dataset,
        changes=dict(cut(asked.share)),
        runs=len(runs),
        cores=cores,
        seconds=middle(times),
        wall_seconds=middle(walls),
        processes=ratio(walls["fleet"], walls["processes"]),
    )


if __name__ == "__main__":
    raise SystemExit(main())
