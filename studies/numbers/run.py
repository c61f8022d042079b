"""Numbers judged by tolerances and costs: METRICGRAD_DATA=... python -m studies.numbers.run [--seeds 5]

Four tables, seven metrics: rented bikes by a cost (5 a unit short, 1 a unit over, 10 if short) and by fines of six
bands that no usual loss fits, house prices within 10 %, diamonds within 5 % and 10 %, flights within 5 and 15 minutes.
A linear model and a network are trained by every strategy of `MetricRegressor`, from the same rows; LightGBM by squared
error, absolute error and a quantile is the reference. Everything has its constant, chosen on validation rows; test rows
are judged once. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from metricgrad import MetricRegressor, get_metric
from metricgrad.estimators.metric_estimator import Trained, scores_in_double
from metricgrad.estimators.number_competition import NumberCompetition
from metricgrad.estimators.number_strategies import (
    MSE,
    Strategy,
    Truth,
    chosen_correction,
    quantile_of_constant,
)
from metricgrad.estimators.numbers_verdict import LEARNED
from metricgrad.evaluation.store import Store
from metricgrad.metrics.constants import Units
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
MODELS = ("linear", "mlp", "lightgbm")
CATEGORIES = {"bikes": ("hr", "mnth", "weekday", "season"), "king_county": ("zipcode",)}
"""Columns of numbers that are names of something."""
MAX_KNOWN, MAX_TEST, TEST_SHARE = 10_000, 10_000, 0.3
"""Rows to train and choose on, and to judge by; of a small table the share that is judged."""
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
    model, metric = MetricRegressor(run["metric"], model=run["model"], random_state=seed), get_metric(run["metric"])
    table, parts = model._prepared(X, y, None, None, None, None, metric, seed)
    assert table.scaler is not None
    with torch.random.fork_rng(devices=[]):
        competition = NumberCompetition(model, table, parts, metric, seed)
        competition.run()
    x = torch.from_numpy(table.scaler.transform(test_X))
    found = competition.strategies
    by_hand = [each for each in found if each.kept and each.name not in LEARNED and "longer" not in each.name]
    longer = [each for each in found if each.kept and each.name not in LEARNED]
    kinds = {
        "squared error": min((each for each in found if each.name == MSE), key=lambda each: each.loss),
        "best loss by hand": min(by_hand, key=lambda each: each.loss),
        "best loss by hand, longer": min(longer, key=lambda each: each.loss),
        "chosen": competition.best,
    }
    kinds |= {each.name: each for each in found if each.name in LEARNED and each.kept}
    values: dict[str, Any] = {}
    for kind, strategy in kinds.items():
        correction, _ = competition.correction(strategy)
        predictions = strategy.units.to_targets(scores_in_double(strategy.trained.network, x)).numpy()
        values[kind] = {
            "name": strategy.name,
            "log": strategy.units.log,
            "correction": correction.kind,
            "validation": float(metric.value(strategy.loss)),
            "test": float(metric.value(metric(correction.apply(predictions), test_y))),
            "plain": float(metric.value(metric(predictions, test_y))),
        }
    learned = {each.name: {"kept": each.kept, "value": float(metric.value(each.loss))} for each in found}
    return {"values": values, "validation": learned}


def boosted(run: dict[str, Any], X: Array, y: Array, test_X: Array, test_y: Array, seed: int) -> dict[str, Any]:
    """Return the values of LightGBM by three objectives, each with its constant, and of the best on validation rows."""
    import lightgbm

    metric = get_metric(run["metric"])
    parts = split(np.zeros(len(y)), seed, test=0.0, validation=0.2)
    truth = Truth(torch.from_numpy(y[parts.validation]), None)
    options = {"verbose": -1, "num_threads": 1, "learning_rate": 0.05, "seed": seed}
    nothing: Trained = Trained(None, [], False, None, metric)  # type: ignore[arg-type]
    found: dict[str, Any] = {}

    def grown(objective: str, units: Units, **more: float) -> tuple[Strategy, Array]:
        z = units.from_targets(y)
        train = lightgbm.Dataset(X[parts.train], z[parts.train])
        stop = [lightgbm.early_stopping(50, verbose=False)]
        trees = lightgbm.train(
            {**options, "objective": objective, **more},
            train,
            2_000,
            valid_sets=[train.create_valid(X[parts.validation], z[parts.validation])],
            callbacks=stop,
        )
        scores = torch.from_numpy(trees.predict(X[parts.validation]))
        predictions = units.to_targets(scores)
        correction, loss = chosen_correction(metric, predictions, truth, seed)
        tested = units.to_targets(torch.from_numpy(trees.predict(test_X))).numpy()
        value = float(metric.value(metric(correction.apply(tested), test_y)))
        return Strategy(objective, units, nothing, scores, loss, 0.0), np.array([value])

    logs = (False, True) if (y > 0).all() else (False,)
    squared = [grown("l2", Units.of(y[parts.train], log=log)) for log in logs]
    best, value = min(squared, key=lambda each: each[0].loss)
    tried = {"squared error": (best, value), "absolute error": grown("l1", best.units)}
    targets = torch.from_numpy(best.units.from_targets(y[parts.validation]))
    level = quantile_of_constant(metric, best, targets, truth)
    tried["quantile"] = grown("quantile", best.units, alpha=level)
    tried["chosen"] = min(tried.values(), key=lambda each: each[0].loss)
    for kind, (strategy, test) in tried.items():
        name = f"quantile {level:.2f}" if strategy.name == "quantile" else strategy.name
        validation = float(metric.value(strategy.loss))
        found[kind] = {"name": name, "log": best.units.log, "validation": validation, "test": float(test[0])}
    return {"values": found, "validation": {}}


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"dataset": dataset, "metric": metric, "model": model, "seed": seed}
        for seed in range(asked.seeds)
        for dataset, metric in CELLS
        for model in asked.models.split(",")
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, carry_out)
    for record in store:
        run, values = record["run"], record["values"]
        shown = ", ".join(f"{kind} {each['test']:.4g} ({each['name']})" for kind, each in values.items())
        print(f"{run['dataset']} {run['metric']} {run['model']} {run['seed']}: {shown}")


if __name__ == "__main__":
    main()
