"""Numbers judged by tolerances and costs: METRICGRAD_DATA=... python -m studies.numbers.run [--seeds 3]

Four tables, seven metrics: rented bikes by a cost (5 a unit short, 1 a unit over, 10 if short) and by fines of six
bands that no usual loss fits, house prices within 10 %, diamonds within 5 % and 10 %, flights within 5 and 15 minutes.
One fit of `MetricRegressor` on five folds, its default, trains a linear model or a network by every strategy; every
choice among them is judged from the same models. LightGBM is the reference, on the same folds (`boosted.py`); `auto`
lets all models compete.
Everything has its constant, chosen on held-out rows; test rows are judged once. Every run is stored as it ends; run
again to continue.
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
from metricgrad.estimators.candidates import Candidate
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.metric_estimator import scores_in_double
from metricgrad.estimators.number_competition import BY_HAND_LOSSES, LONGER, METHODS
from metricgrad.evaluation.store import Store
from metricgrad.metrics.constants import Correction, chosen_correction
from metricgrad.metrics.registry import Metric
from metricgrad.training.data import Scaler
from studies import pages
from studies.numbers import boosted

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
FOLDS = 5
AUTO = "auto"
"""All models that compete by default in `TableRegressor` and on the command line."""
MODELS = ("linear", "mlp", "lightgbm", AUTO)
OR_MIXED = "chosen or mixed"
"""What `auto` comes to where models may be mixed, as they are by default."""
CONTINUED = "lightgbm continued"
"""Trees that go on along the gradient of the surrogate, on the first cell."""
CATEGORIES = {"bikes": ("hr", "mnth", "weekday", "season"), "king_county": ("zipcode",)}
"""Columns of numbers that are names of something."""
MAX_KNOWN, MAX_TEST, TEST_SHARE = 10_000, 10_000, 0.3
"""Rows to train and choose on, and to judge by; of a small table the share that is judged."""
KINDS = {
    "squared error": ("mse",),
    "best loss by hand": BY_HAND_LOSSES,
    "best loss by hand, longer": (*BY_HAND_LOSSES, LONGER),
    "without the surrogate": (*BY_HAND_LOSSES, LONGER, "direct"),
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
    by_model = {"lightgbm": boosted.grown, CONTINUED: boosted.continued}
    outcome = by_model.get(run["model"], competed)(run, *known, seed)
    return {**outcome, "cpu_seconds": time.process_time() - begun, "known_rows": len(known[1])}


def competed(run: dict[str, Any], X: Array, y: Array, test_X: Array, test_y: Array, seed: int) -> dict[str, Any]:
    """Return the values of the strategies of a model, by their kind, and which one was chosen."""
    metric = get_metric(run["metric"])
    model = MetricRegressor(run["metric"], model=run["model"], random_state=seed, folds=run["folds"])
    found = model._competed(X, y)

    def among(*names: str) -> Competition:
        return found.among([each for each in found.candidates if each.strategy.name in names])

    def judged(competition: Competition) -> dict[str, Any]:
        return _values(metric, copy(model)._adopt(competition), test_X, test_y)

    learned = [each for each in found.candidates if each.strategy.learned]
    beaten = {each.strategy.name: among(each.strategy.name, *BY_HAND_LOSSES) for each in learned}
    values = {kind: judged(among(*names)) for kind, names in KINDS.items()}
    if run["model"] == AUTO:
        values[OR_MIXED] = judged(found)
    whole = [each for each in learned if len(each.folds) == run["folds"]]
    values |= {each.strategy.name: judged(found.among([each])) for each in whole}
    scaled = torch.from_numpy(Scaler(model.centre_, model.scale_).transform(test_X))
    for each in whole:
        both = (each, among(*KINDS["best loss by hand, longer"]).best)
        values[f"{each.strategy.name}, averaged with by hand"] = mixed(metric, both, scaled, test_y, seed)
    validation = {
        each.methods: {
            "kept": each.strategy.name not in beaten or beaten[each.strategy.name].best is each,
            "value": float(metric.value(each.judged().loss(found.judge))),
            "folds": len(each.folds),
        }
        for each in found.candidates
        if each.folds
    }
    return {"values": values, "validation": validation, "rate": found.best.recipe.learning_rate}


def _values(metric: Metric, model: MetricRegressor, test_X: Array, test_y: Array) -> dict[str, Any]:
    """Return what was chosen, and its values on held-out and on test rows, there without its constant too."""
    predictions = model.predict(test_X)
    correction, model.correction_ = model.correction_, Correction()
    return {
        "won": model.results_[0]["model"],
        "name": model.results_[0]["methods"],
        "log": model.units_.log,
        "correction": correction.kind,
        "validation": model.results_[0]["value"],
        "test": float(metric.value(metric(predictions, test_y))),
        "plain": float(metric.value(metric(model.predict(test_X), test_y))),
    }


def mixed(
    metric: Metric, both: tuple[Candidate, Candidate], scaled: torch.Tensor, test_y: Array, seed: int
) -> dict[str, Any]:
    """Return the values of the mean of the predictions of two strategies, with a constant of its own."""
    first, second = (each.held_out() for each in both)
    held_out = first._replace(scores=(first.scores + second.scores) / 2)
    correction, loss = chosen_correction(metric, *held_out, seed=seed)
    tested = [each.units.to_targets(scores_in_double(each.network(), scaled)) for each in both if each.units]
    predictions = correction.apply(((tested[0] + tested[1]) / 2).numpy())
    names = " and ".join(each.methods for each in both)
    value = float(metric.value(metric(predictions, test_y)))
    return {"name": names, "validation": float(metric.value(loss)), "test": value, "correction": correction.kind}


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--models", default=",".join((*MODELS, CONTINUED)))
    parser.add_argument("--datasets", default=",".join(dict.fromkeys(dataset for dataset, _ in CELLS)))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    runs = [
        {"dataset": dataset, "metric": metric, "model": model, "seed": seed, "folds": FOLDS}
        for seed in range(asked.seeds)
        for model in asked.models.split(",")
        for dataset, metric in CELLS
        if dataset in asked.datasets.split(",") and (model != CONTINUED or (dataset, metric) == CELLS[0])
    ]
    store = Store(asked.results)
    pages.run_missing(store, [] if asked.report else runs, carry_out)
    for record in store:
        run, values = record["run"], record["values"]
        shown = ", ".join(f"{kind} {each['test']:.4g} ({each['name']})" for kind, each in values.items())
        print(f"{run['dataset']} {run['metric']} {run['model']} {run['seed']}: {shown}")


if __name__ == "__main__":
    main()
