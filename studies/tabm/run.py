"""Networks and LightGBM on rt30 and the paper's datasets: METRICGRAD_DATA=... python -m studies.tabm.run

Each model is fitted as by default for F1 and for average precision, on 64 % of the rows; 16 % are for validation, where
F1 also gets its exact threshold, and test rows are used once. Models of five folds are `MetricClassifier` as it comes,
on training and validation rows together. Every run is stored as it ends; run again to continue. Writes docs/tabm.md at
the end.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from torch import nn

from metricgrad import MetricClassifier, best_threshold, get_metric
from metricgrad.evaluation.store import Store
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.jobs import train_each
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model, kind_of
from metricgrad.training.recipe import recipe_for
from metricgrad.training.selection import exact_scores
from metricgrad.training.splits import split
from metricgrad.training.tabm import TabM
from metricgrad.training.threads import one_thread
from studies import pages
from studies.tabm import page
from studies.warm_ups import shared_warm_ups

PAPER = ("ijcnn1", "covtype", "susy", "a9a", "codrna", "skin", "porto", "ccfraud")
MAX_ROWS, MAX_RARE_ROWS, RARE = 20_000, 60_000, 0.01
"""Rows of a table at most; more if positives are rare."""
TREES = {"objective": "binary", "learning_rate": 0.05, "num_leaves": 31, "verbosity": -1, "num_threads": 1, "seed": 0}
MAX_TREES, PATIENCE = 500, 50
Scored = tuple[torch.Tensor, torch.Tensor, str]
"""Scores of validation and test rows, and which loss was kept."""


@lru_cache(maxsize=1)
def parts_of(table: str, seed: int) -> tuple[Rows, Rows, Rows]:
    """Return training, validation and test rows of a table, of some of its rows if there are many."""
    folder = Path(os.environ["METRICGRAD_DATA"])
    frame = pd.read_parquet(folder / ("" if table in PAPER else "rt30") / f"{table}.parquet")
    y = frame["target"].to_numpy()
    x = frame.drop(columns=["target", "fold"], errors="ignore").to_numpy(np.float32)
    some = np.random.default_rng(seed).permutation(len(y))[: MAX_RARE_ROWS if y.mean() < RARE else MAX_ROWS]
    return TrainingData(x[some], y[some]).split(split(y[some], seed), standardise=True)


@contextmanager
def ablated(model: str) -> Iterator[None]:
    """Let the network be one without something while this is open."""
    with ExitStack() as changes:
        if model == page.NO_NORM:
            changes.enter_context(patch.object(nn.BatchNorm1d, "forward", lambda self, x: x))
        if model == page.RANDOM:
            changes.enter_context(patch.object(TabM, "prepare", _start_at_random(TabM.prepare)))
        if model == page.PLAIN:
            changes.enter_context(patch.object(TabM, "prepare", lambda *_: None))
        yield


def _start_at_random(prepare: Callable[..., None]) -> Callable[..., None]:
    """Return a way to prepare a network that adds a random weight to that of every ramp, as it was before."""

    def prepared(network: TabM, *rows: Any) -> None:
        prepare(network, *rows)
        ramps = (network.slope > 0).unsqueeze(-1)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(network.seed)
            noise = torch.empty_like(network.embedding).uniform_(-1, 1) * ramps
            network.embedding.add_(noise).mul_((ramps.sum(1, keepdim=True) + 1).rsqrt())

    return prepared


def networks(model: str, parts: tuple[Rows, Rows, Rows], seed: int) -> list[Scored]:
    """Train a network for every metric, from one warm-up, and return the scores of the models kept."""
    train, validation, test = parts
    name = model.split(",")[0]
    recipe = recipe_for("default", kind_of(name))
    recipe = replace(recipe, early_stopping=False) if model == page.BY_METRIC else recipe
    metrics = [get_metric(metric) for metric in page.METRICS]
    with warnings.catch_warnings(), one_thread(), ablated(model):
        network = build_model(name, train.x.shape[1], seed)
        network.prepare(train.x, train.w, train.y)
        warnings.simplefilter("ignore")  # of a surrogate that is not followed in the end
        runs = [(make_loss("sl-r", metric, recipe), [metric]) for metric in metrics]
        found = train_each(network, runs, train, recipe, validation=validation, seed=seed)
    return [
        (exact_scores(kept.model, validation.x), exact_scores(kept.model, test.x), _kept(kept.verdict.followed))
        for (kept,) in found
    ]


def _kept(followed: bool) -> str:
    return "surrogate" if followed else "cross-entropy"


def trees(parts: tuple[Rows, Rows, Rows]) -> list[Scored]:
    """Train LightGBM until its loss on validation rows has not fallen for some trees."""
    import lightgbm as lgb

    train, validation, test = parts
    sets = [lgb.Dataset(part.x.numpy(), part.y.numpy()) for part in (train, validation)]
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    booster = lgb.train(TREES, sets[0], MAX_TREES, valid_sets=[sets[1]], callbacks=[stop])
    scores = [torch.from_numpy(booster.predict(part.x.numpy(), raw_score=True)) for part in (validation, test)]
    return [(scores[0], scores[1], "log loss")] * len(page.METRICS)


@lru_cache(maxsize=1)
def folded(table: str, seed: int, name: str) -> dict[str, dict[str, Any]]:
    """Return what came by metric of `MetricClassifier` as it comes, whose strategies compete on five folds.

    The metrics share the warm-ups of the folds, as the trainer lets them; CPU seconds are of all of them.
    """
    train, validation, test = parts_of(table, seed)
    x, y = (np.concatenate([getattr(part, name).numpy() for part in (train, validation)]) for name in "xy")
    begun, found = time.process_time(), {}
    with warnings.catch_warnings(), shared_warm_ups([get_metric(metric) for metric in page.METRICS]):
        warnings.simplefilter("ignore")  # of a surrogate that is not followed in the end
        for metric in page.METRICS:
            model = MetricClassifier(metric, model=name, folds=5, random_state=seed).fit(x, y.astype(int))
            loss = get_metric(metric)(torch.as_tensor(model._decision(test.x.numpy())), test.y)
            kept = model.leaderboard()["methods"][0]
            found[metric] = {"validation": model.validation_loss_, "loss": float(loss), "kept": kept}
    return {metric: {**outcome, "seconds": time.process_time() - begun} for metric, outcome in found.items()}


@lru_cache(maxsize=1)
def outcomes(table: str, seed: int, model: str) -> dict[str, dict[str, Any]]:
    """Return losses on validation and test rows by metric, and the CPU seconds of all of them."""
    parts = parts_of(table, seed)
    begun = time.process_time()
    scored = trees(parts) if model == page.TREES else networks(model, parts, seed)
    seconds, found = time.process_time() - begun, {}
    for metric, (known, unseen, kept) in zip(page.METRICS, scored, strict=True):
        judge = get_metric(metric)
        cut = best_threshold(judge, known, parts[1].y) if judge.thresholded else 0.0
        losses = [float(judge(scores - cut, part.y)) for scores, part in zip((known, unseen), parts[1:], strict=True)]
        found[metric] = {"validation": losses[0], "loss": losses[1], "kept": kept, "seconds": seconds}
    return found


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Return what came of one run; those of a model on a table have been carried out together."""
    if run["model"] in page.FOLDED:
        return folded(run["table"], run["seed"], page.FOLDED[run["model"]])[run["metric"]]
    return outcomes(run["table"], run["seed"], run["model"])[run["metric"]]


def tables() -> list[str]:
    """Return the names of all tables, those of the least cells first."""
    folder = Path(os.environ["METRICGRAD_DATA"])
    small = [path.stem for path in (folder / "rt30").glob("*.parquet")]
    return sorted(small, key=lambda name: _cells(folder / "rt30" / f"{name}.parquet")) + sorted(PAPER)


def _cells(path: Path) -> int:
    shape = pq.read_metadata(path)
    return int(shape.num_rows * shape.num_columns)


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--seeds", type=int, default=2)
    every = (*page.MODELS, *page.ABLATIONS, *page.FOLDED)
    parser.add_argument("--models", default=";".join(every), help="separated by semicolons")
    parser.add_argument("--tables", help="separated by commas; by default all")
    asked = parser.parse_args()
    wanted = asked.models.split(";")
    names = [] if asked.report else asked.tables.split(",") if asked.tables else tables()
    runs = [
        {"table": table, "metric": metric, "model": model, "seed": seed}
        for seed in range(page.FIRST_SEED, page.FIRST_SEED + asked.seeds)
        for table in names
        for model in wanted
        for metric in page.METRICS
        if model not in page.ABLATIONS or (table in page.ABLATED and seed == page.FIRST_SEED)
    ]
    with torch.random.fork_rng(devices=[]):
        pages.run_missing(Store(asked.results), runs, outcome)
    if asked.results == page.RESULTS and {record["run"]["model"] for record in Store(page.RESULTS)} >= {*page.MODELS}:
        page.main()


if __name__ == "__main__":
    main()
