"""Does it rank better? SL-R against RankNet, ListNet, LambdaRank and LightGBM: python -m studies.ranking.run

Reads METRICGRAD_DATA. Two public tables of queries, four metrics, two models, five seeds. Queries are split 60/20/20;
those whose documents all have one grade are left out. Every loss has the same steps and the same start, and its
checkpoint (LightGBM: its number of trees) is chosen on the validation queries by the metric under test. Every run is
stored as it ends; run again to continue. Writes docs/ranking.md at the end.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from metricgrad.evaluation.store import Store
from metricgrad.losses.ranking import QUERY_LOSSES
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows, Scaler, members, queries_of
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import get_recipe
from metricgrad.training.selection import Selection, loss_of, scores_of
from metricgrad.training.splits import split
from metricgrad.training.trainer import train
from studies.pages import command, parser_of
from studies.ranking.page import PAGE, RESULTS, page

DATASETS = ("mq2008", "lambdarank_example")
METRICS = ("ndcg(10)", "map", "mrr", "err(4)")
RATES = {"linear": 0.01, "mlp": 0.001}
"""Of the model's optimizer, for every method."""
TREES = "lightgbm"
METHODS = ("sl-r", *QUERY_LOSSES, TREES)
FIRST_SEED = 100
"""No choice was made on these seeds."""
MAX_TREES, TREE_RATE = 300, 0.05
"""Most trees, and their learning rate."""


class Parts(NamedTuple):
    """Training, validation and test queries."""

    train: Rows
    validation: Rows
    test: Rows


def parts_of(dataset: str, seed: int, folder: Path) -> Parts:
    """Read a table and split its informative queries; features are standardised by training and validation queries."""
    table = pd.read_parquet(folder / f"{dataset}.parquet")
    grades = table["target"].to_numpy(np.float32)
    queries = [rows for rows in queries_of(len(table), qid=table["query"]) if np.ptp(grades[rows])]
    chosen = split(np.zeros(len(queries)), seed, test=0.2, validation=0.25)
    X = table.drop(columns=["query", "target"]).to_numpy(np.float32)
    known = np.concatenate([queries[number] for number in (*chosen.train, *chosen.validation)])
    x = Scaler.fit(X[known]).transform(X)
    return Parts(
        *(_rows(x, grades, [queries[n] for n in own]) for own in (chosen.train, chosen.validation, chosen.test))
    )


def _rows(x: np.ndarray, grades: np.ndarray, queries: list[np.ndarray]) -> Rows:
    places = np.concatenate(queries)
    own = members(queries_of(len(places), group=[len(query) for query in queries]))
    return Rows(torch.as_tensor(x[places]), torch.as_tensor(grades[places]), None, torch.as_tensor(own))


def follow(method: str, metrics: list[Metric], model: str, parts: Parts, seed: int) -> Iterator[dict[str, Any]]:
    """Train one model, and yield the losses of the best checkpoint by each metric."""
    recipe = get_recipe("queries", learning_rate=RATES[model])
    network = build_model(model, parts.train.x.shape[1], seed)
    torch.manual_seed(seed)
    loss = make_loss(method, metrics[0], recipe)
    torch.manual_seed(seed)
    selections = [Selection(parts.validation, metric, recipe) for metric in metrics]
    *_, last = train(network, loss, parts.train, recipe, selection=selections, seed=seed)
    for metric, selection in zip(metrics, selections, strict=True):
        kept = selection.selected(network, isinstance(loss, SurrogateLoss))
        best = selection.followed if kept.verdict.followed else selection.control
        yield {
            "loss": loss_of(metric, parts.test, scores_of(kept.model, parts.test.x)),
            "validation": best.least,
            "followed": kept.verdict.followed,
            "trust": last.trust,
            "cosine": last.cosine,
        }


def grow(metrics: list[Metric], parts: Parts, seed: int) -> Iterator[dict[str, Any]]:
    """Fit LightGBM's lambdarank, and yield the loss of the best number of trees by each metric."""
    sizes = (parts.train.members >= 0).sum(-1).numpy()
    how = {"objective": "lambdarank", "learning_rate": TREE_RATE, "num_threads": 1, "seed": seed, "verbosity": -1}
    trees = lightgbm.train(how, lightgbm.Dataset(parts.train.x.numpy(), parts.train.y.numpy(), group=sizes), MAX_TREES)
    for metric in metrics:
        found = {
            count: loss_of(metric, parts.validation, grown(trees, parts.validation.x, count))
            for count in range(5, MAX_TREES + 1, 5)
        }
        best = min(found, key=found.__getitem__)
        loss = loss_of(metric, parts.test, grown(trees, parts.test.x, best))
        yield {"loss": loss, "validation": found[best], "trees": best}


def grown(trees: lightgbm.Booster, x: Tensor, count: int) -> Tensor:
    """Score rows by the first trees."""
    return torch.as_tensor(trees.predict(x.numpy(), num_iteration=count))


def jobs(datasets: list[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the jobs: a learned loss has one metric, any other loss and LightGBM all of them."""
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for dataset in datasets:
            yield {"dataset": dataset, "seed": seed, "model": "trees", "method": TREES, "metrics": METRICS}
            for model in RATES:
                for method in QUERY_LOSSES:
                    yield {"dataset": dataset, "seed": seed, "model": model, "method": method, "metrics": METRICS}
                for metric in METRICS:
                    yield {"dataset": dataset, "seed": seed, "model": model, "method": "sl-r", "metrics": (metric,)}


def carry_out(job: dict[str, Any], store: Store, folder: Path) -> None:
    """Carry out a job and store a record for each of its metrics."""
    begun = time.perf_counter()
    metrics, parts = [get_metric(name) for name in job["metrics"]], parts_of(job["dataset"], job["seed"], folder)
    if job["method"] == TREES:
        found = grow(metrics, parts, job["seed"])
    else:
        found = follow(job["method"], metrics, job["model"], parts, job["seed"])
    for run, outcome in zip(runs_of(job), list(found), strict=True):
        store.add(run, {**outcome, "seconds": (time.perf_counter() - begun) / len(metrics), "command": command()})


def runs_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a job, as they are stored."""
    plain = {key: value for key, value in job.items() if key != "metrics"}
    return [{**plain, "metric": metric} for metric in job["metrics"]]


def main() -> None:
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    store = Store(asked.results)
    todo = [] if asked.report else list(jobs(asked.datasets.split(","), asked.seeds))
    known = store.keys()
    with work_bar() as report:
        for done, job in enumerate(todo):
            if any(store.key(run) not in known for run in runs_of(job)):
                carry_out(job, store, Path(os.environ["METRICGRAD_DATA"]) / "extra")
            report("runs", done + 1, len(todo))
    text = page(asked.results)
    if asked.results == RESULTS:
        PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
