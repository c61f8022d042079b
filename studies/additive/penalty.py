"""Choose the penalty of bends of additive models: METRICGRAD_DATA=... python -m studies.additive.penalty

Seeds of their own, and only training and validation rows: by cross-entropy on the validation rows, by which the ridge
penalty is chosen as well. Test rows are not looked at. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.metrics import log_loss

from metricgrad.evaluation.store import Store
from metricgrad.training import learned_columns
from studies import pages
from studies.additive import page
from studies.tables import fitted, thirty_tables, user_split

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
FIRST_SEED = 800
"""No seed of the comparison."""


def outcome(dataset: str, penalty: float, seed: int) -> dict[str, Any]:
    """Fit an additive model by cross-entropy, and return that of its validation rows."""
    rows = user_split(dataset, seed)
    usual, learned_columns.PIECE_PENALTY = learned_columns.PIECE_PENALTY, penalty
    try:
        model = fitted(rows, "additive", seed)
    finally:
        learned_columns.PIECE_PENALTY = usual
    scores = model.decision_function(rows.X[rows.validation]) + model.threshold_
    chances = 1 / (1 + np.exp(-scores))
    return {"cross_entropy": float(log_loss(rows.y[rows.validation], chances, labels=[0, 1]))}


def main() -> None:
    parser = pages.parser_of(__doc__, page.PENALTY)
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = [
        {"dataset": dataset, "penalty": penalty, "seed": seed}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for dataset in ([] if asked.report else thirty_tables())
        for penalty in PENALTIES
    ]
    store = Store(asked.results)
    pages.run_missing(store, runs, lambda run: outcome(**run))
    print(page.penalties(list(store)).to_string())


if __name__ == "__main__":
    main()
