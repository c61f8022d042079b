"""Gain over the proxy against calls of the metric: python -m studies.calls.run [--seeds 3] [--boxes g_mean]

The twenty boxes of `examples/black_boxes`, each with a limit of 300, 1,000 and 4,000 calls for a whole run: learning
the metric, refining, looks at validation rows and the threshold. Both losses train the same linear model with the same
steps from the same warm-up; checkpoint and threshold are chosen by the metric on validation rows, and fresh rows are
judged once. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import warnings

import torch

from metricgrad.evaluation.store import Store
from studies import pages
from studies.black_boxes.run import carry_out, names

RESULTS = pages.RESULTS / "calls.jsonl"
LIMITS = (300, 1_000, 4_000)
FIRST_SEED = 50
"""No seed that the way black boxes are learned was chosen with."""


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
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for name in asked.boxes.split(",")
        for limit in limits
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, lambda run: carry_out(run["box"], run["seed"], run["limit"]))
    show(store)


if __name__ == "__main__":
    main()
