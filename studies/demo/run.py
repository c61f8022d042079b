"""The demonstration, stored; and what its model was chosen from: python -m studies.demo.run [--choices]

`results/demo.json` is what `metricgrad demo` says. `--choices` trains a linear and an additive model, with one hour for
all days or one for working days and another for free days, on seven splits of the same hours by other seeds: of the
days a quarter are judged and a fifth choose. Every run is stored in `results/demo_choices.jsonl` as it ends.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import torch

from metricgrad import MetricRegressor
from metricgrad.demo.bikes import HOUR_FREE, HOUR_WORKING, SEPARATOR, load_bikes
from metricgrad.demo.trial import METHODS, METRIC, run_demo
from metricgrad.estimators.regressor import fit_beside_usual
from metricgrad.evaluation.store import Store
from metricgrad.reporting.progress import work_bar
from studies import pages

RESULTS = pages.RESULTS / "demo.json"
CHOICES = pages.RESULTS / "demo_choices.jsonl"
FIRST_SEED, SEEDS = 900, 7
"""Other splits than those of the demonstration."""
JUDGED = 0.25
"""Share of the days that a choice is judged on."""


def features(split_hours: bool) -> pd.DataFrame:
    """Return the features of the demonstration, or those with one hour for all days and whether it is a working day."""
    X = load_bikes().X
    if split_hours:
        return X
    working, free = (X.filter(regex=f"^{name}{SEPARATOR}") for name in (HOUR_WORKING, HOUR_FREE))
    hours = pd.DataFrame(working.to_numpy() + free.to_numpy()).add_prefix(f"hour{SEPARATOR}")
    rest = X.drop(columns=[*working, *free])
    return pd.concat([hours, working.sum(axis=1).rename("working day"), rest], axis=1)


def carry_out(run: dict[str, Any]) -> dict[str, Any]:
    """Train one model, by squared error, the best usual loss and the cost, and judge it on days of its own."""
    X, (_, y, day) = features(run["split_hours"]), load_bikes()
    days = np.random.default_rng(run["seed"]).permutation(np.unique(day))
    judged = np.isin(day, days[: int(JUDGED * len(days))])
    model = MetricRegressor(METRIC, method="surrogate", model=run["model"], random_state=run["seed"], folds=1)
    fitted = fit_beside_usual(model, X[~judged], y[~judged], groups=day[~judged])
    return {"costs": {method: -fitted[name].score(X[judged], y[judged]) for method, name in METHODS.items()}}


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--choices", action="store_true", help="train what the model was chosen from")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.choices:
        runs = [
            {"model": model, "split_hours": split_hours, "seed": seed}
            for seed in range(FIRST_SEED, FIRST_SEED + SEEDS)
            for model in ("linear", "additive")
            for split_hours in (False, True)
        ]
        pages.run_missing(Store(CHOICES), runs, carry_out)
        return
    if not asked.report:
        with work_bar() as report:
            result = run_demo(report=report)
        asked.results.write_text(json.dumps(result.record(pages.command()), indent=1) + "\n", "utf-8")
    print(json.loads(asked.results.read_text("utf-8"))["verdict"])


if __name__ == "__main__":
    main()
