"""The nearest reading of the recipe, for 100,000 rounds: METRICGRAD_DATA=... python -m studies.paper_recipe.long

AUC and F1 in all three modes on five datasets, side by side, with one seed: the reading that `run.py` found to come
nearest to the printed numbers in 5,000 rounds at most. A dataset takes about 20 minutes of one core. A checkpoint is
written every 1,000 rounds; run again to resume, or with `--so-far` to store what was reached.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from metricgrad.evaluation.store import Store
from studies import pages
from studies.paper_recipe.checkpoints import store_unfinished
from studies.paper_recipe.readings import ALL_AT_ONCE
from studies.paper_recipe.run import Member, train

RESULTS = pages.RESULTS / "paper_recipe_long.jsonl"
DATASETS = ("ijcnn1", "a9a", "codrna", "covtype", "ccfraud")
MEMBERS = [Member(ALL_AT_ONCE, metric, mode) for metric in ("auc", "f1") for mode in ("sl-r", "sl-s", "sl-u")]
SEED, ROUNDS, CHECK_EVERY = 0, 100_000, 1_000


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names, separated by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--so-far", action="store_true", help="only store what unfinished trainings have reached")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    unfinished = asked.results.parent / "unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    members = [{"metric": member.metric, **member.stored} for member in MEMBERS]
    runs = [
        {"dataset": dataset, "seed": SEED, "rounds": asked.rounds, "members": members}
        for dataset in asked.datasets.split(",")
    ]

    def state(run: dict[str, Any]) -> Path:
        return unfinished / f"long-{run['dataset']}.pickle"

    def outcome(run: dict[str, Any]) -> dict[str, Any]:
        return train(MEMBERS, (run["dataset"], SEED, run["rounds"]), state(run), CHECK_EVERY, compiled=True)

    store = Store(asked.results)
    if asked.so_far:
        store_unfinished(store, [(run, state(run)) for run in runs], "rounds")
    else:
        pages.run_missing(store, runs, outcome)


if __name__ == "__main__":
    main()
