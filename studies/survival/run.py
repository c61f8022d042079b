"""Times until an event, some of which are censored, against Cox: python -m studies.survival.run

Harrell's concordance index of three tables that `scikit-survival` contains (install the extra `bench`). Rows are split
70/30, by whether their event was seen. `MetricRegressor("censored_concordance", method="direct")` chooses among squared
error, Cox's loss and direct search for the index on five folds of the training rows; the ridge penalty of Cox's model
and the number of boosted trees are chosen on five folds too. Test rows are looked at once, by the index as
scikit-survival computes it. Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, train_test_split
from sksurv import datasets
from sksurv.ensemble import GradientBoostingSurvivalAnalysis
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_censored

from metricgrad import MetricRegressor
from metricgrad.evaluation.store import Store
from studies import pages
from studies.survival import page

FIRST_SEED, TEST_SHARE, FOLDS = 100, 0.3, 5
RIDGES = (0.1, 1.0, 10.0, 100.0)
TREES = (25, 50, 100, 200)


class Table(NamedTuple):
    """Features, times, and whether the event was seen at that time or the row only followed until then."""

    X: np.ndarray
    times: np.ndarray
    events: np.ndarray

    def of(self, rows: np.ndarray) -> Table:
        """Return some of the rows."""
        return Table(self.X[rows], self.times[rows], self.events[rows])

    @property
    def outcome(self) -> np.ndarray:
        """Events and times as scikit-survival takes them."""
        return np.array(list(zip(self.events, self.times, strict=True)), dtype=[("event", bool), ("time", float)])

    def value(self, risks: np.ndarray) -> float:
        """Return Harrell's index of risks."""
        return float(concordance_index_censored(self.events, self.times, risks)[0])


LOADERS: Mapping[str, Callable[[], Any]] = {
    "gbsg2": datasets.load_gbsg2,
    "whas500": datasets.load_whas500,
    "veterans": datasets.load_veterans_lung_cancer,
}


def load(name: str) -> Table:
    """Read a table; categories become a column each but the first."""
    frame, outcome = LOADERS[name]()
    event, when = outcome.dtype.names
    X = pd.get_dummies(frame, drop_first=True).astype(float).to_numpy()
    return Table(X, outcome[when].astype(float), outcome[event].astype(bool))


def chosen(models: Mapping[Any, Any], table: Table, seed: int) -> tuple[Any, Any]:
    """Return the setting that is best on the folds of the rows, and its model of all rows."""
    parts = list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(table.X, table.events))
    values = {setting: np.mean([_value(model, table, *part) for part in parts]) for setting, model in models.items()}
    best = max(values, key=values.__getitem__)
    return best, _fitted(models[best], table)


def _value(model: Any, table: Table, train: np.ndarray, kept: np.ndarray) -> float:
    return table.of(kept).value(_fitted(model, table.of(train)).predict(table.X[kept]))


def _fitted(model: Any, table: Table) -> Any:
    return clone(model).fit(table.X, table.outcome)


def by_rival(method: str, train: Table, test: Table, seed: int) -> dict[str, Any]:
    """Train a model of scikit-survival."""
    centre, scale = train.X.mean(0), train.X.std(0).clip(1e-9)
    train, test = (own._replace(X=(own.X - centre) / scale) for own in (train, test))
    if method == "cox":
        models: dict[Any, Any] = {ridge: CoxPHSurvivalAnalysis(alpha=ridge) for ridge in RIDGES}
    else:
        depth = {"stumps": 1, "trees": 3}[method]
        models = {
            count: GradientBoostingSurvivalAnalysis(
                n_estimators=count, max_depth=depth, subsample=0.5, random_state=seed
            )
            for count in TREES
        }
    setting, model = chosen(models, train, seed)
    return {"value": test.value(model.predict(test.X)), "setting": setting}


def by_package(model: str, train: Table, test: Table, seed: int) -> dict[str, Any]:
    """Train a regressor of the package for the index itself."""
    own = MetricRegressor("censored_concordance", "direct", model, folds=FOLDS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own.fit(train.X, train.times, columns={"event": train.events.astype(float)})
    board = own.leaderboard()
    return {
        "value": test.value(-own.predict(test.X)),
        "chosen": str(board["methods"].iloc[0]),
        "units": str(board["units"].iloc[0]),
        "held_out": {f"{line.methods}, {line.units}": float(line.value) for line in board.itertuples()},
    }


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Train one model and judge it on the test rows."""
    begun, table, seed = time.process_time(), load(run["table"]), run["seed"]
    split = train_test_split(
        np.arange(len(table.times)), test_size=TEST_SHARE, stratify=table.events, random_state=seed
    )
    train, test = (table.of(rows) for rows in split)
    if run["method"] in page.RIVALS:
        found = by_rival(run["method"], train, test, seed)
    else:
        found = by_package(run["method"], train, test, seed)
    size = {"rows": len(train.times), "events": int(train.events.sum()), "test_events": int(test.events.sum())}
    return {**found, **size, "cpu": time.process_time() - begun}


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", default=",".join(page.TABLES))
    parser.add_argument("--methods", default=",".join(page.METHODS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    runs = [
        {"table": table, "method": method, "seed": seed}
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds)
        for table in asked.tables.split(",")
        for method in asked.methods.split(",")
    ]
    pages.run_missing(Store(asked.results), [] if asked.report else runs, outcome)
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
