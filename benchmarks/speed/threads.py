"""Whether a second thread is worth having, by width of the network: python -m benchmarks.speed.threads

`fit` gives torch one thread where a step is small (`metricgrad.training.networks`). Here the same training is
timed with one thread and with all cores, by wall time and by the processor time of all threads. On a machine with other
load, wall time says less.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from typing import Any

import torch

from benchmarks.speed.measuring import in_turns, made_up_table, middle, parser_of, ratio, self_timed, store, wide
from metricgrad.losses.binary import CrossEntropy
from metricgrad.training.data import Rows
from metricgrad.training.networks import PAPER_WIDTHS, build_model
from metricgrad.training.recipe import Recipe, recipe_for
from metricgrad.training.threads import MIN_WORK_FOR_THREADS, threads_for, work_of
from metricgrad.training.trainer import train

FEATURES = 100
STEPS = {1: 30, 3: 15, 10: 4}
"""Width as a multiple of the paper's network, and the number of steps timed together."""
TABM_STEPS = 15


def measure(name: str, spec: Any, recipe: Recipe, repeats: int, rows: Rows) -> dict[str, Any]:
    """Train on one thread and on all in turns."""
    processor: dict[str, list[float]] = {}

    def trained(threads: int) -> float:
        torch.set_num_threads(threads)
        model = build_model(spec, FEATURES)
        model.prepare(rows.x)
        wall, own = time.perf_counter(), time.process_time()
        for _ in train(model, CrossEntropy(), rows, recipe):
            pass
        processor.setdefault(str(threads), []).append(time.process_time() - own)
        return time.perf_counter() - wall

    cores = os.cpu_count() or 1
    several = max(cores, 2)
    walls = in_turns({str(n): lambda n=n: trained(n) for n in (1, several)}, repeats, timed=self_timed, what=name)
    torch.set_num_threads(1)
    processor = {n: own[1:] for n, own in processor.items()}  # the first lap does not count
    network = build_model(spec, FEATURES)
    work, before = work_of(network, recipe.set_size), torch.get_num_threads()
    torch.set_num_threads(several)
    with threads_for([network], recipe.set_size):
        chosen = torch.get_num_threads()
    torch.set_num_threads(before)
    return {
        "units": name,
        "work": work if math.isfinite(work) else None,
        "chosen": chosen,
        "threads": several,
        "seconds_a_step": {n: took / recipe.warmup for n, took in middle(walls).items()},
        "wall": ratio(walls[str(several)], walls["1"]),
        "processor": ratio(processor[str(several)], processor["1"]),
    }


def main() -> int:
    parser = parser_of(__doc__, repeats=5)
    asked = parser.parse_args()
    X, y = made_up_table(40_000, FEATURES)
    rows = Rows(torch.from_numpy(X), torch.from_numpy(y).float())
    kinds = [
        ("-".join(str(times * width) for width in PAPER_WIDTHS), wide(times), Recipe(warmup=steps, rounds=0))
        for times, steps in STEPS.items()
    ]
    kinds.append(("tabm", "tabm", replace(recipe_for("default", "tabm"), warmup=TABM_STEPS, rounds=0)))
    found = [measure(*kind, asked.repeats, rows) for kind in kinds]
    return store("threads", [], asked.folder, worth=MIN_WORK_FOR_THREADS, by_width=found)


if __name__ == "__main__":
    raise SystemExit(main())
