"""Which ridge the control of a linear model has: METRICGRAD_DATA=... python -m studies.solver.control [--seeds 3]

The start of a linear or additive model is the minimum of cross-entropy at the ridge penalty with the least
cross-entropy on validation rows. The control, which competes with the surrogate's model, is either that model, or the
best of all penalties by the metric on validation rows. Both are tried in the same run: rounds, checks and the
surrogate's models are the same, so that only the control and the verdict can differ. Thirty tables, and 6,000 rows of
each of the paper's datasets; thresholds are chosen on validation rows, test rows are used once. Run again to continue.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from metricgrad.evaluation.runs import split_table
from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.paper.experiments import prepared
from metricgrad.training.data import Parts
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import get_recipe
from metricgrad.training.selection import Selection, exact_scores
from metricgrad.training.trainer import train
from studies import pages
from studies.tables import table, thirty_tables
from studies.win.run import DATASETS as PAPER

RESULTS = pages.RESULTS / "control.jsonl"
MODELS, METRICS = ("linear", "additive"), ("f1", "average_precision")
FIRST_SEED, ROWS = 500, 6_000
CONTROLS = ("by cross-entropy", "by metric")


def parts_of(dataset: str, seed: int) -> Parts:
    """Load a table, split it by a seed and standardise it on the training rows."""
    if dataset in PAPER:
        return prepared(dataset, seed, standardise=True, rows=ROWS)
    return split_table(*table(dataset), seed, standardise=True)


def test_loss(model: nn.Module, metric: Metric, parts: Parts) -> float:
    """Return the loss on test rows at the best threshold of the validation rows."""
    kept, fresh = (exact_scores(model, part.x) for part in (parts.validation, parts.test))
    cut = best_threshold(metric, kept, parts.validation.y) if metric.thresholded else 0.0
    return float(metric(fresh - cut, parts.test.y))


def outcome(dataset: str, metric: str, model: str, seed: int) -> dict[str, Any]:
    """Follow a surrogate once, with both controls beside it, and judge what each leads to."""
    parts, judge, recipe = parts_of(dataset, seed), get_metric(metric), get_recipe("linear")
    network = build_model(model, parts.train.x.shape[1], seed)
    network.prepare(parts.train.x, None, parts.train.y)
    torch.manual_seed(seed)
    loss = make_loss("sl-r", judge, recipe)
    selections = [Selection(parts.validation, judge, recipe) for _ in CONTROLS]
    for done in train(network, loss, parts.train, recipe, selection=selections, seed=seed):
        if done.phase == "warm-up":  # at every penalty; the trainer checks the best by cross-entropy only
            selections[1].check(network, followed=False)
    found: dict[str, Any] = {}
    for name, selection in zip(CONTROLS, selections, strict=True):
        chosen, control = selection.selected(network, True), deepcopy(network)
        control.load_state_dict(selection.control.state)
        found[name] = {
            "loss": test_loss(chosen.model, judge, parts),
            "control": test_loss(control, judge, parts),
            "followed": chosen.verdict.followed,
            "largest_weight": max(float(p.abs().max()) for p in control.parameters()),
        }
    return found


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"dataset": dataset, "metric": metric, "model": model, "seed": seed}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for dataset in ([] if asked.report else [*thirty_tables(), *PAPER])
        for model in MODELS
        for metric in METRICS
    ]
    with torch.random.fork_rng(devices=[]):
        pages.run_missing(Store(asked.results), runs, lambda run: outcome(**run))


if __name__ == "__main__":
    main()
