"""Loops of one's own over several seeds: pictures judged by IoU, and prices by how many come within ten percent.

The programs are `examples/plot_06_segmentation.py` and `examples/plot_07_within_ten_percent.py`. Every seed is stored
as it is done; run again to continue.

    python benchmarks/own_loops.py [--seeds 5] [--examples plot_06_segmentation]
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import torch

from metricgrad.evaluation.store import Store
from studies.common import command, parser_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "own_loops.jsonl"
EXAMPLES = ("plot_06_segmentation", "plot_07_within_ten_percent")


def main() -> None:
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--examples", default=",".join(EXAMPLES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(ROOT / "examples"))
    store = Store(asked.results)
    known = store.keys()
    runs = [{"example": name, "seed": seed} for name in asked.examples.split(",") for seed in range(asked.seeds)]
    for run in [] if asked.report else runs:
        if store.key(run) not in known:
            begun = time.perf_counter()
            values = importlib.import_module(run["example"]).compare(run["seed"])
            store.add(run, {"values": values, "seconds": time.perf_counter() - begun, "command": command()})
    for record in store:
        values = ", ".join(f"{name} {value:.4f}" for name, value in record["values"].items())
        print(f"{record['run']['example']} {record['run']['seed']}: {values}")


if __name__ == "__main__":
    main()
