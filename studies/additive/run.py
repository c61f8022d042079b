"""Additive against linear models on thirty tables: METRICGRAD_DATA=... python -m studies.additive.run [--seeds 3]

Models are trained by `MetricClassifier`, by cross-entropy: its ridge penalty, and the threshold of F1, are chosen on
validation rows, a fifth of the rows given; test rows are used once. `python -m studies.additive.penalty` chose the
penalty of bends beforehand, and `python -m studies.additive.scorecards` measures what rounding to points costs. Every
run is stored as it ends; run again to continue. Writes its part of docs/additive.md at the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from metricgrad import additive, get_metric
from metricgrad.evaluation.store import Store
from studies import pages
from studies.additive import page
from studies.tables import fitted, thirty_tables, user_split

SPECS = {page.LINEAR: "linear", page.ADDITIVE: "additive", page.PAIRS: additive(interactions=5)}


@lru_cache(maxsize=1)
def scores(dataset: str, model: str, seed: int) -> tuple[Any, Any]:
    """Return scores of the test rows, positive from the threshold on, and their targets."""
    rows = user_split(dataset, seed)
    return fitted(rows, SPECS[model], seed).decision_function(rows.test_X), rows.test_y


def outcome(dataset: str, metric: str, model: str, seed: int) -> dict[str, Any]:
    """Judge a model on the test rows; AP does not depend on the threshold."""
    return {"loss": float(get_metric(metric)(*scores(dataset, model, seed)))}


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = [
        {"dataset": dataset, "metric": metric, "model": model, "seed": seed}
        for seed in range(page.FIRST_SEED, page.FIRST_SEED + asked.seeds)
        for dataset in ([] if asked.report else thirty_tables())
        for model in SPECS
        for metric in page.METRICS
    ]
    pages.run_missing(Store(asked.results), runs, lambda run: outcome(**run))
    print(page.part(asked.results))
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
