"""Numbers judged by tolerances and costs: METRICGRAD_DATA=... python -m studies.numbers.run [--seeds 5] [--folds]

Four tables, seven metrics: rented bikes by a cost (5 a unit short, 1 a unit over, 10 if short) and by fines of six
bands that no usual loss fits, house prices within 10 %, diamonds within 5 % and 10 %, flights within 5 and 15 minutes.
A linear model and a network are trained by every strategy of `MetricRegressor`, from the same rows; LightGBM by squared
error, absolute error and a quantile is the reference. Everything has its constant, chosen on validation rows; test rows
are judged once. Every run is stored as it ends; run again to continue. With `--folds`, five folds against one split, on
two of the cells.
"""

from __future__ import annotations

import os
import time
import warnings
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricgrad import MetricRegressor, get_metric
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.number_competition import BY_HAND_LOSSES, LONGER, METHODS
from metricgrad.evaluation.store import Store
from metricgrad.metrics.constants import Correction, Units, chosen_correction, in_units
from metricgrad.strategies.number_losses import quantile_of_constant
from metricgrad.training.splits import split
from studies import pages

Array = NDArray[Any]
RESULTS = pages.RESULTS / "numbers.jsonl"
FINES = "bands(-5:4,-20:10,-60:30,+15:1,+40:5,+120:20)"
CELLS = (
    ("bikes", "step_cost(5,1,10)"),
    ("bikes", FINES),
    ("king_county", "within(0.1)"),
    ("diamonds", "within(0.05)"),
    ("diamonds", "within(0.1)"),
    ("flights", "within_units(5)"),
    ("flights", "within_units(15)"),
)
"""Tables and metrics."""
FOLDED_CELLS, FOLDS = (CELLS[0], CELLS[2]), (1, 5)
"""What folds are looked at on, and how many; 1 is one split."""
MODELS = ("linear", "mlp", "lightgbm")
CATEGORIES = {"bikes": ("hr", "mnth", "weekday", "season"), "king_county": ("zipcode",)}
"""Columns of numbers that are names of something."""
MAX_KNOWN, MAX_TEST, TEST_SHARE = 10_000, 10_000, 0.3
"""Rows to train and choose on, and to judge by; of a small table the share that is judged."""
KINDS = {
    "squared error": ("mse",),
    "best loss by hand": BY_HAND_LOSSES,
    "best loss by hand, longer": (*BY_HAND_LOSSES, LONGER),
    "chosen": METHODS["auto"],
}
"""Strategies that compete for each kind of model."""
FIRST_SEED = 4_100
"""No earlier look has used these seeds."""


def rows_of(name: str, seed: int) -> tuple[Array, Array, Array, Array]:
    """Return features and targets of known rows, and of test rows."""
    frame = pd.read_parquet(Path(os.environ["METRICGRAD_DATA"]) / "numbers" / f"{name}.parquet")
    order = np.random.default_rng(seed).permutation(len(frame))
    test = min(MAX_TEST, int(TEST_SHARE * len(order)))
    frame = frame.iloc[order[: test + MAX_KNOWN]]
    y = frame.pop("target").to_numpy(np.float64)
    frame = frame.astype(dict.fromkeys(CATEGORIES.get(name, ()), str))
    X = pd.get_dummies(frame).to_numpy(np.float32)
    return X[test:], y[test:], X[:test], y[:test]


def carry_out(run: dict[str, Any]) -> dict[str, Any]:
    """Train the strategies of one model, and judge what each of them comes to on test rows."""
    seed = FIRST_SEED + run["seed"]
    known = rows_of(run["dataset"], seed)
    begun = time.process_time()
    outcome = (boosted if run["model"] == "lightgbm" else competed)(run, *known, seed)
    return {**outcome, "cpu_seconds": time.process_time() - begun, "known_rows": len(known[1])}


def competed(run: dict[str, Any], X: Array, y: Array, test_X: Array, test_y: Array, seed: int) -> dict[str, Any]:
    """Return the values of the strategies of a model, by their kind, and which one was chosen."""
    metric = get_metric(run["metric"])
    model = MetricRegressor(run["metric"], model=run["model"], random_state=seed, folds=run.get("folds", 1))
    found = model._competed(X, y)

    def among(*names: str) -> Competition:
        return found.among([each for each in found.candidates if each.strategy.name in names])

    learned = [each.strategy.name for each in found.candidates if each.strategy.learned]
    kept = {name: among(name, *BY_HAND_LOSSES) for name in learned}
    kinds = {kind: among(*names) for kind, names in KINDS.items()}
    kinds |= {name: own for name, own in kept.items() if own.best.strategy.name == name}
    values: dict[str, Any] = {}
    for kind, competition in kinds.items():
        own = copy(model)._adopt(competition)
        predictions = own.predict(test_X)
        correction, own.correction_ = own.correction_, Correction()
        values[kind] = {
            "name": own.results_[0]["methods"],
            "log": own.units_.log,
            "correction": correction.kind,
            "validation": own.results_[0]["value"],
            "test": float(metric.value(metric(predictions, test_y))),
            "plain": float(metric.value(metric(own.predict(test_X), test_y))),
        }
    validation = {
        each.methods: {
            "kept": each.strategy.name not in kept or kept[each.strategy.name].best is each,
            "value": float(metric.value(each.judged().loss(found.judge))),
        }
        for each in found.candidates
    }
    return {"values": values, "validation": validation}


def boosted(run: dict[str, Any], X: Array, y: Array, test_X: Array, test_y: Array, seed: int) -> dict[str, Any]:
    """Return the values of LightGBM by three objectives, each with its constant, and of the best on validation rows."""
    import lightgbm

    metric = get_metric(run["metric"])
    parts = split(np.zeros(len(y)), seed, test=0.0, validation=0.2)
    truth = torch.from_numpy(y[parts.validation])
    options = {"verbose": -1, "num_threads": 1, "learning_rate": 0.05, "seed": seed}

    def grown(name: str, units: Units, **more: Any) -> tuple[dict[str, Any], Units, torch.Tensor]:
        z = units.from_targets(y)
        train = lightgbm.Dataset(X[parts.train], z[parts.train])
        stop = [lightgbm.early_stopping(50, verbose=False)]
        kept = [train.create_valid(X[parts.validation], z[parts.validation])]
        trees = lightgbm.train({**options, **more}, train, 2_000, valid_sets=kept, callbacks=stop)
        scores = torch.from_numpy(trees.predict(X[parts.validation]))
        correction, loss = chosen_correction(metric, units.to_targets(scores), truth, seed=seed)
        tested = units.to_targets(torch.from_numpy(trees.predict(test_X))).numpy()
        value = float(metric.value(metric(correction.apply(tested), test_y)))
        values = {"name": name, "log": units.log, "validation": float(metric.value(loss)), "test": value}
        return values | {"loss": loss}, units, scores

    logs = (False, True) if (y > 0).all() else (False,)
    squared = [grown("l2", Units.of(y[parts.train], log=log), objective="l2") for log in logs]
    best, units, scores = min(squared, key=lambda each: each[0]["loss"])
    targets = torch.from_numpy(units.from_targets(y[parts.validation]))
    level = quantile_of_constant(in_units(metric, units), scores, targets, truth, None)
    found = {
        "squared error": best,
        "absolute error": grown("l1", units, objective="l1")[0],
        "quantile": grown(f"quantile {level:.2f}", units, objective="quantile", alpha=level)[0],
    }
    found["chosen"] = min(found.values(), key=lambda each: each["loss"])
    shown = ("name", "log", "validation", "test")
    return {"values": {kind: {name: each[name] for name in shown} for kind, each in found.items()}, "validation": {}}


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--folds", action="store_true", help="five folds against one split")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"dataset": dataset, "metric": metric, "model": model, "seed": seed}
        for seed in range(asked.seeds)
        for dataset, metric in CELLS
        for model in asked.models.split(",")
    ]
    if asked.folds:
        runs = [
            {"dataset": dataset, "metric": metric, "model": model, "seed": seed, "folds": folds}
            for seed in range(asked.seeds)
            for model in MODELS[:2]
            for dataset, metric in FOLDED_CELLS
            for folds in FOLDS
        ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, carry_out)
    for record in store:
        run, values = record["run"], record["values"]
        shown = ", ".join(f"{kind} {each['test']:.4g} ({each['name']})" for kind, each in values.items())
        print(f"{run['dataset']} {run['metric']} {run['model']} {run['seed']}: {shown}")


if __name__ == "__main__":
    main()
