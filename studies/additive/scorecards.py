"""What rounding to points costs on thirty tables: METRICGRAD_DATA=... python -m studies.additive.scorecards

An additive model for F1 by cross-entropy, its scorecards by the rows it was fitted to, and both on test rows, which are
used once. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

from typing import Any

import torch

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies import pages
from studies.additive.page import CARDS, FIRST_SEED, NOW
from studies.tables import fitted, thirty_tables, user_split

POINTS = (10, 20, 50)


def outcome(dataset: str, seed: int, levels: str) -> dict[str, Any]:
    """Return losses on test rows of a model and of its cards, and how many levels a card has."""
    rows, judge = user_split(dataset, seed), get_metric("f1")
    model = fitted(rows, "additive", seed)
    found: dict[str, Any] = {"model": float(judge(model.decision_function(rows.test_X), rows.test_y))}
    for points in POINTS:
        card = model.scorecard(rows.X, rows.y, points=points)
        total = card.points({f"x{number}": column for number, column in enumerate(rows.test_X.T)})
        loss = float(judge(total - card.threshold + 0.5, rows.test_y))
        found[str(points)] = {"loss": loss, "size": int((card.frame["level"] != "missing").sum())}
    return found


def main() -> None:
    parser = pages.parser_of(__doc__, CARDS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--levels", default=NOW, help="what the code that runs calls levels, to compare with others")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = [
        {"dataset": dataset, "seed": seed, "levels": asked.levels}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for dataset in ([] if asked.report else thirty_tables())
    ]
    pages.run_missing(Store(asked.results), runs, lambda run: outcome(**run))


if __name__ == "__main__":
    main()
