"""Metrics with money and groups, every strategy beside the choice: METRICGRAD_DATA=... python -m studies.money.run

One fit of `MetricClassifier(method="auto", folds=5)` trains every strategy on the same folds. Each that was not
dropped, and the choice, is judged once on test rows. Beside them are a rule written down by hand, the calibrated
probability of the usual loss times the money of the row, and the cost-sensitive models of empulse, where errors have
costs, with the threshold that is best on a part of the training rows. Every run is stored as it ends; run again to
continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.model_selection import train_test_split

from metricgrad import MetricClassifier, get_metric
from metricgrad.estimators.candidates import Candidate
from metricgrad.evaluation.store import Store
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.paper.datasets import data_folder
from metricgrad.training.calibration import calibrate
from metricgrad.training.plug_in import Rule
from studies import pages
from studies.money import page
from studies.strategies.run import Kept

TEST_SHARE = 0.4
FIRST_SEED = 400
"""Test rows of others, from 100 to 307, were looked at while the rule of choice was settled, and for older pages."""
MODELS = ("linear", "additive", "mlp", "lightgbm")
EMPULSE = {"linear": "CSLogitClassifier", "lightgbm": "CSBoostClassifier"}
"""Models of empulse that are like ours."""


class Table(NamedTuple):
    """Features, labels, and columns of the metric."""

    X: np.ndarray
    y: np.ndarray
    columns: dict[str, np.ndarray]


def frauds() -> Table:
    """Payments by card, with their amounts."""
    frame = pd.read_parquet(data_folder() / "ccfraud.parquet")
    return _table(frame, {"amount": frame["Amount"].to_numpy(float)})


def churn() -> Table:
    """Subscribers of television, with what each kind of error costs."""
    frame = pd.read_parquet(data_folder() / "extra" / "churn_tv.parquet")
    costs = {name.lower(): frame.pop(name).to_numpy(float) for name in ("C_FP", "C_FN", "C_TP", "C_TN")}
    return _table(frame, costs)


def incomes() -> Table:
    """Incomes of persons, with their sex."""
    frame = pd.read_parquet(data_folder() / "a9a.parquet")
    return _table(frame, {"sex": frame["f73"].to_numpy(int)})


def loans() -> Table:
    """Loans of a club, with what is paid back every month."""
    frame = pd.read_parquet(data_folder() / "rt30" / "club_loan.parquet")
    frame = frame.drop(columns=[name for name in frame if name.startswith("fold")])
    return _table(frame, {"amount": frame["installment"].to_numpy(float)})


def _table(frame: pd.DataFrame, columns: dict[str, np.ndarray]) -> Table:
    y = frame.pop("target").to_numpy(int)
    return Table(frame.to_numpy(np.float32), y, columns)


TABLES: Mapping[str, Callable[[], Table]] = {"fraud": frauds, "churn": churn, "income": incomes, "loans": loans}


def decided_by(model: Kept, candidate: Candidate) -> MetricClassifier:
    """Return the classifier that one of the candidates would have become."""
    own, rows = copy(model), candidate.held_out()
    metric = candidate.folds[0].trained.judge
    own.network_, own.rule_ = candidate.network(), candidate.rule
    own.threshold_ = best_threshold(metric, rows.scores, rows.y) if metric.decides else 0.0
    return own


GAINS: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "fraud": ({"amount": 1.0}, {}),
    "churn": ({"c_fn": 1.0, "c_tp": -1.0}, {"c_tn": 1.0, "c_fp": -1.0}),
    "loans": ({"amount": 1.0}, {"amount": -0.2}),
}
"""What calling a positive and a negative row gains: anyone who knows the metric can write it down."""


def by_hand(model: Kept, table: str, test: Table) -> float:
    """Return the value of the expected gain of a call, by calibrated probabilities of the usual loss."""
    usual = next(one for one in model.competition_.candidates if one.proper)
    scores, y, _ = usual.held_out()
    metric, positive = usual.folds[0].trained.judge, y[:, 0].numpy()
    own, (calibration, _) = copy(model), calibrate(scores.numpy(), positive, None)
    own.network_, own.threshold_ = usual.network(), 0.0
    own.rule_ = Rule("linear", calibration, positive=GAINS[table][0], negative=GAINS[table][1])
    if metric.decides:
        columns = {name: y[:, 1 + place].numpy() for place, name in enumerate(metric.columns)}
        own.threshold_ = best_threshold(metric, own.rule_.apply(scores.numpy(), columns), y)
    return float(own.score(test.X, test.y, columns=test.columns))


def by_empulse(name: str, train: Table, test: Table, metric: Any, seed: int) -> float:
    """Return the value of a model of empulse, by the threshold that is best on a fifth of the training rows."""
    from empulse import models
    from lightgbm import LGBMClassifier

    first, kept = train_test_split(np.arange(len(train.y)), test_size=0.2, stratify=train.y, random_state=seed)
    centre, scale = train.X[first].mean(0), train.X[first].std(0).clip(1e-9)
    X, X_kept, X_test = ((part - centre) / scale for part in (train.X[first], train.X[kept], test.X))
    costs = _costs(train)
    boosted = {"estimator": LGBMClassifier(n_jobs=1, verbosity=-1, random_state=seed)} if "Boost" in name else {}
    model = getattr(models, name)(**boosted)
    model.fit(X, train.y[first], **{key: _part(value, first) for key, value in costs.items()})
    chance = [np.clip(model.predict_proba(part)[:, 1], 1e-9, 1 - 1e-9) for part in (X_kept, X_test)]
    scores, unseen = (np.log(p / (1 - p)) for p in chance)
    held_out = _targets(train._replace(y=train.y[kept], columns={k: v[kept] for k, v in train.columns.items()}))
    cut = best_threshold(metric, scores, held_out) if metric.decides else 0.0
    return float(metric.value(metric(unseen - cut, _targets(test))))


def _costs(table: Table) -> dict[str, Any]:
    """Return the costs as empulse takes them: of rows, or of an amount that is lost where a positive is missed."""
    if "c_fp" in table.columns:
        return {f"{name[2:]}_cost": values for name, values in table.columns.items()}
    return {"fn_cost": table.columns["amount"], "fp_cost": float(np.median(table.columns["amount"]))}


def _part(value: Any, rows: np.ndarray) -> Any:
    return value[rows] if isinstance(value, np.ndarray) else value


def _targets(table: Table) -> np.ndarray:
    return np.column_stack((table.y, *table.columns.values()))


def outcome(run: dict[str, Any]) -> dict[str, Any]:
    """Fit once and judge every strategy, and the choice, on the test rows."""
    table, seed = TABLES[run["table"]](), run["seed"]
    train, test = train_test_split(np.arange(len(table.y)), test_size=TEST_SHARE, stratify=table.y, random_state=seed)
    known, unseen = (
        Table(table.X[part], table.y[part], {name: values[part] for name, values in table.columns.items()})
        for part in (train, test)
    )
    begun = time.process_time()
    model = Kept(run["metric"], "auto", run["model"], folds=5, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(known.X, known.y, columns=known.columns)
        rivals = {}
        name = EMPULSE.get(run["model"])
        if name and "sex" not in table.columns:
            rivals[name] = by_empulse(name, known, unseen, get_metric(run["metric"]), seed)
        if run["table"] in GAINS:
            rivals["by hand"] = by_hand(model, run["table"], unseen)
    each = {
        one.methods: decided_by(model, one).score(unseen.X, unseen.y, columns=unseen.columns)
        for one in model.competition_.candidates
        if len(one.folds) == len(model.competition_.best.folds)
    }
    board = model.leaderboard().set_index("methods")["value"]
    best, judge = model.competition_.best, model.competition_.judge
    return {
        "default": model.score(unseen.X, unseen.y, columns=unseen.columns),
        "chosen": best.methods,
        "judged": float(judge.metric.value(best.judged().loss(judge))),
        "held_out": {name: float(value) for name, value in board.items()},
        "each": each,
        "rivals": rivals,
        "rule": str(model.rule_) if model.rule_ is not None else "",
        "cpu": time.process_time() - begun,
        "positives": int(known.y.sum()),
        "rows": len(known.y),
    }


def main() -> None:
    parser = pages.parser_of(__doc__, page.RESULTS)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--cells", default=",".join(page.CELLS), help="separated by commas")
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    runs = [
        {"table": page.CELLS[cell][0], "metric": page.CELLS[cell][1], "model": model, "seed": FIRST_SEED + seed}
        for seed in range(asked.seeds)
        for model in asked.models.split(",")
        for cell in asked.cells.split(",")
    ]
    if not asked.report:
        pages.run_missing(Store(asked.results), runs, outcome)
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
