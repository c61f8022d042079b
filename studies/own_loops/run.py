"""Custom training loops over several seeds: python -m studies.own_loops.run [--seeds 5] [--examples NAME,...]

The programs are `examples/plot_06_segmentation.py` (pictures, by IoU) and `examples/plot_07_within_ten_percent.py`
(prices, by the share within ten percent). Every seed is stored as it ends; run again to continue.
"""

from __future__ import annotations

import importlib
import sys

import torch

from metricgrad.evaluation.store import Store
from studies import pages

RESULTS = pages.RESULTS / "own_loops.jsonl"
EXAMPLES = ("plot_06_segmentation", "plot_07_within_ten_percent")


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--examples", default=",".join(EXAMPLES))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.insert(0, str(pages.ROOT / "examples"))
    store = Store(asked.results)
    runs = [{"example": name, "seed": seed} for name in asked.examples.split(",") for seed in range(asked.seeds)]
    pages.run_missing(
        store,
        [] if asked.report else runs,
        lambda run: {"values": importlib.import_module(run["example"]).compare(run["seed"])},
    )
    for record in store:
        values = ", ".join(f"{name} {value:.4f}" for name, value in record["values"].items())
        print(f"{record['run']['example']} {record['run']['seed']}: {values}")


if __name__ == "__main__":
    main()
