"""Methods of rankings on one split: rankers by loss, and LightGBM's lambdarank; parts of a split are whole queries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricgrad.estimators.ranker import MetricRanker
from metricgrad.evaluation.comparison_result import Trial
from metricgrad.losses.ranking import QUERY_LOSSES
from metricgrad.metrics.registry import Metric
from metricgrad.training.data import Rows, members, queries_of
from metricgrad.training.history import Round
from metricgrad.training.methods import METHODS
from metricgrad.training.networks import TREES
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import loss_of
from metricgrad.training.splits import Split

Array = NDArray[Any]
RANKING_METHODS = (*METHODS, *QUERY_LOSSES, TREES)
RANKING_BASELINES = ("lambdarank", "listnet", "ranknet", TREES)
"""LambdaRank above all, then other hand-made losses, and trees."""
MAX_TREES, TREE_RATE, TREES_AT_ONCE = 300, 0.05, 10
"""Of LightGBM: most trees, their learning rate, and after how many the validation queries are looked at."""


def run_rankings(
    X: Any,
    grades: Array,
    queries: Array,
    parts: Split,
    *,
    metric: Metric,
    methods: Sequence[str],
    model: Any,
    recipe: Recipe | str,
    seed: int,
) -> list[Trial]:
    """Train every method on the training queries, choose on validation queries, and judge on test queries.

    `X` are encoded features, `(rows, features)`; grades and queries are `(rows,)`.
    """
    known = np.concatenate((parts.train, parts.validation))
    validation = np.arange(len(parts.train), len(known))
    trials = []
    for method in methods:
        begun = time.perf_counter()
        history: tuple[Round, ...] = ()
        if method == TREES:
            scores = _by_trees(X, grades, queries, parts, metric, seed)
        else:
            ranker = MetricRanker(metric, method, model, recipe, random_state=seed)
            ranker.fit(X[known], grades[known], qid=queries[known], validation=validation)
            scores, history = ranker.predict(X[parts.test]), tuple(ranker.history_)
        loss = _loss(metric, scores, grades[parts.test], queries[parts.test])
        seconds = time.perf_counter() - begun
        trials.append(Trial(seed, method, float("nan"), seconds, None, True, history, test_loss=loss))
    return trials


def _loss(metric: Metric, scores: Any, grades: Array, queries: Array) -> float:
    """Return the mean loss of the queries whose grades differ."""
    own = torch.as_tensor(members(queries_of(len(grades), qid=queries)))
    rows = Rows(torch.empty(len(grades), 0), torch.as_tensor(grades, dtype=torch.float32), None, own)
    return loss_of(metric, rows, torch.as_tensor(np.asarray(scores, float)))


def _by_trees(X: Any, grades: Array, queries: Array, parts: Split, metric: Metric, seed: int) -> Array:
    """Return scores of the test rows by LightGBM's lambdarank, with as many trees as are best on validation queries."""
    import lightgbm

    found = queries_of(len(parts.train), qid=queries[parts.train])
    train, kept = parts.train[np.concatenate(found)], parts.validation
    how = {"objective": "lambdarank", "learning_rate": TREE_RATE, "num_threads": 1, "seed": seed, "verbosity": -1}
    data = lightgbm.Dataset(X[train], grades[train].astype(int), group=[len(query) for query in found])
    trees = lightgbm.train(how, data, MAX_TREES)
    losses = {
        count: _loss(metric, trees.predict(X[kept], num_iteration=count), grades[kept], queries[kept])
        for count in range(TREES_AT_ONCE, MAX_TREES + 1, TREES_AT_ONCE)
    }
    best = min(losses, key=losses.__getitem__)
    return np.asarray(trees.predict(X[parts.test], num_iteration=best))
