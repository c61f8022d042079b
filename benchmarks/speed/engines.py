"""The same runs by every engine, with two workers each: python -m benchmarks.speed.engines

A small part of Table 2 is run in this process, on two local processes, on a Ray and on a Dask cluster of two local
workers. Stored are the seconds and the largest difference of any test loss from those of this process.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.measuring import store
from metricgrad.evaluation.store import Store
from metricgrad.paper.reproduce import carry_out, make_plan

NAME = "engines"
COMMAND = "metricgrad reproduce table2 --datasets digits8,breast_cancer --metrics auc,f1 --seeds 2 --rounds 60 --jobs 2"
ENGINES = {"one process": ("local", 1), "two processes": ("local", 2), "Ray": ("ray", 2), "Dask": ("dask", 2)}


def losses_by(engine: str, n_jobs: int) -> tuple[dict[str, float], float]:
    """Run the plan by an engine; return its test losses by run, and the seconds."""
    plan = make_plan("table2", datasets=["digits8", "breast_cancer"], metrics=["auc", "f1"], seeds=2, rounds=60)
    with tempfile.TemporaryDirectory() as folder:
        found, begun = Store(Path(folder) / "runs.jsonl"), time.perf_counter()
        for _ in carry_out(plan, found, command=COMMAND, engine=engine, n_jobs=n_jobs):
            pass
        seconds = time.perf_counter() - begun
        losses = {
            f"{record['run']['dataset']} {record['run']['metric']} {record['run']['method']} {record['run']['seed']} "
            f"{record['run']['replicate']} {protocol} {name}": loss
            for record in found
            for protocol, by_metric in record["test"].items()
            for name, loss in by_metric.items()
        }
    return losses, seconds


def measure() -> list[dict[str, Any]]:
    """Return for every engine its seconds, how many losses it has, and how far they are from those of one process."""
    rows: list[dict[str, Any]] = []
    alone: dict[str, float] = {}
    for name, (engine, n_jobs) in ENGINES.items():
        losses, seconds = losses_by(engine, n_jobs)
        alone = alone or losses
        assert losses.keys() == alone.keys()
        largest = max(abs(losses[key] - alone[key]) for key in alone)
        rows.append({"engine": name, "seconds": seconds, "losses": len(losses), "largest_difference": largest})
    return rows


if __name__ == "__main__":
    store(NAME, [], engines=measure())
