"""Where rankers stand beside a published benchmark, yandex_ltr by NDCG@10: python -m studies.ranking.published

Reads METRICGRAD_DATA. The table has the training and test queries of CatBoost's benchmark, and the value is computed as
there: gain 2^grade - 1, a query without relevant documents counts 1, documents of equal score are ordered worst first.
A fifth of the training queries chooses checkpoints, and size and number of trees; LightGBM is then grown again on all
training queries. Test queries are looked at once. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import torch

from metricgrad import MetricRanker
from metricgrad.evaluation.store import Store
from metricgrad.paper.datasets import data_folder
from studies import pages
from studies.ranking.page import PUBLISHED_RESULTS
from studies.ranking.page import main as write_page

TOP = 10
METHODS = ("sl-r",)
OBJECTIVES = ("lambdarank", "regression")
LEAVES = (7, 15, 31)
MAX_TREES, TREE_RATE, EVERY = 600, 0.05, 20
FIRST_SEED = 100
VALIDATION_SHARE = 0.2


def ndcg(scores: np.ndarray, grades: np.ndarray, queries: np.ndarray) -> float:
    """Return NDCG@10 as CatBoost's benchmark has it; queries are numbers in rising order of rows."""
    gains = 2.0**grades - 1
    discounts = np.append(1 / np.log2(np.arange(TOP) + 2), 0.0)
    found = []
    for rows in np.split(np.arange(len(queries)), np.flatnonzero(np.diff(queries)) + 1):
        place = np.minimum(np.arange(len(rows)), TOP)
        order = np.lexsort((grades[rows], -scores[rows]))  # of equal scores the lower grade first
        best = (np.sort(gains[rows])[::-1] * discounts[place]).sum()
        found.append((gains[rows][order] * discounts[place]).sum() / best if best > 0 else 1.0)
    return float(np.mean(found))


class Part:
    """Features, grades and queries of some rows."""

    def __init__(self, X: np.ndarray, grades: np.ndarray, queries: np.ndarray) -> None:
        self.X, self.grades, self.queries = X, grades, queries

    def of(self, mask: np.ndarray) -> Part:
        """Return some of the rows."""
        return Part(self.X[mask], self.grades[mask], self.queries[mask])

    @property
    def sizes(self) -> np.ndarray:
        """Documents of every query, in order."""
        return np.diff(np.flatnonzero(np.r_[True, np.diff(self.queries) != 0, True]))

    def value(self, scores: np.ndarray) -> float:
        """Return what scores of the rows are worth."""
        return ndcg(np.asarray(scores), self.grades, self.queries)


def parts(folder: Path) -> tuple[Part, Part]:
    """Return training and test rows as they are given."""
    table = pd.read_parquet(folder / "extra" / "yandex_ltr.parquet")
    test, queries = table.pop("split_test").to_numpy() == 1, table.pop("query").to_numpy()
    grades = table.pop("target").to_numpy(float)
    whole = Part(table.to_numpy(np.float32), grades, queries)
    return whole.of(~test), whole.of(test)


def held_out(train: Part, seed: int) -> np.ndarray:
    """Return which training rows belong to queries that choose."""
    names = np.unique(train.queries)
    chosen = np.random.default_rng(seed).permutation(names)[: int(VALIDATION_SHARE * len(names))]
    return np.isin(train.queries, chosen)


def by_package(model: str, method: str, train: Part, test: Part, seed: int) -> dict[str, Any]:
    """Train a ranker of the package."""
    kept = held_out(train, seed)
    ranker = MetricRanker("ndcg(10)", method, model, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranker.fit(train.X, train.grades, qid=train.queries, validation=kept)
    inside = train.of(kept)
    verdict = ranker.verdict_
    return {
        "value": test.value(ranker.predict(test.X)),
        "validation": inside.value(ranker.predict(inside.X)),
        "followed": bool(verdict is not None and verdict.followed),
    }


def by_trees(objective: str, train: Part, test: Part, seed: int) -> dict[str, Any]:
    """Grow LightGBM on four fifths of the queries to choose its size, then on all."""
    kept = held_out(train, seed)
    first, inside = train.of(~kept), train.of(kept)
    found: dict[tuple[int, int], float] = {}
    for leaves in LEAVES:
        trees = _grown(objective, leaves, MAX_TREES, first, seed)
        for count in range(EVERY, MAX_TREES + 1, EVERY):
            found[leaves, count] = inside.value(trees.predict(inside.X, num_iteration=count))
    leaves, count = max(found, key=found.__getitem__)
    trees = _grown(objective, leaves, count, train, seed)
    value = test.value(trees.predict(test.X))
    return {"value": value, "validation": found[leaves, count], "leaves": leaves, "trees": count}


def _grown(objective: str, leaves: int, count: int, rows: Part, seed: int) -> lightgbm.Booster:
    how = {"objective": objective, "num_leaves": leaves, "learning_rate": TREE_RATE, "num_threads": 1, "seed": seed}
    data = lightgbm.Dataset(rows.X, rows.grades, group=rows.sizes if objective == "lambdarank" else None)
    return lightgbm.train({**how, "verbosity": -1}, data, count)


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Train one ranker and judge it on the test queries."""
    begun = time.process_time()
    train, test = parts(data_folder())
    if run["model"] == "lightgbm":
        found = by_trees(run["method"], train, test, run["seed"])
    else:
        found = by_package(run["model"], run["method"], train, test, run["seed"])
    return {**found, "cpu": time.process_time() - begun}


def main() -> None:
    parser = pages.parser_of(__doc__, PUBLISHED_RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", default="lightgbm,linear,additive,mlp")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = [
        {"dataset": "yandex_ltr", "model": model, "method": method, "seed": seed}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for model in asked.models.split(",")
        for method in (OBJECTIVES if model == "lightgbm" else METHODS)
    ]
    pages.run_missing(Store(asked.results), [] if asked.report else runs, outcome)
    if asked.results == PUBLISHED_RESULTS:
        write_page()


if __name__ == "__main__":
    main()
