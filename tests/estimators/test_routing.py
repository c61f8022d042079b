"""Columns, weights and groups that scikit-learn's tools pass on to the estimators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
import sklearn
from recipes import TINY
from sklearn.metrics import f1_score, get_scorer, log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from metricgrad import MetricClassifier, MetricRegressor
from metricgrad.training.plug_in import Rule

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 3))
Y = (RNG.random(600) < 1 / (1 + np.exp(1 - 2 * X[:, 0]))).astype(int)
AMOUNT = np.exp(RNG.normal(size=600))
COLUMNS = pd.DataFrame({"amount": AMOUNT})
WEIGHTS = RNG.uniform(0.2, 3, 600)
SAVED = "sum(amount * tp) - 0.5 * fp"


@pytest.fixture(autouse=True)
def routed() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def linear(metric: str) -> MetricClassifier:
    return MetricClassifier(metric, "cross-entropy", "linear", TINY, random_state=0)


def test_columns_and_weights_reach_the_last_step_of_a_pipeline_in_cross_validation() -> None:
    model = linear(SAVED).set_fit_request(columns=True, sample_weight=True)
    model.set_score_request(columns=True, sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    piped = Pipeline([("scaled", scaler), ("model", model)])
    params = {"columns": COLUMNS, "sample_weight": WEIGHTS}
    found = cross_validate(piped, X, Y, cv=StratifiedKFold(3), params=params, return_estimator=True)
    for (train, test), score, fitted in zip(
        StratifiedKFold(3).split(X, Y), found["test_score"], found["estimator"], strict=True
    ):
        x = StandardScaler().fit(X[train]).transform
        by_hand = linear(SAVED).fit(x(X[train]), Y[train], WEIGHTS[train], columns={"amount": AMOUNT[train]})
        known = {"amount": AMOUNT[test]}
        assert score == pytest.approx(by_hand.score(x(X[test]), Y[test], WEIGHTS[test], columns=known))
        assert np.array_equal(fitted[-1].predict(x(X[test])), by_hand.predict(x(X[test])))


def test_a_search_passes_them_on_too() -> None:
    model = linear(SAVED).set_fit_request(columns=True).set_score_request(columns=True)
    search = GridSearchCV(model, {"recipe__learning_rate": [1e-4, 0.03], "class_weight": [None, "balanced"]}, cv=2)
    search.fit(X, Y, columns=COLUMNS)
    assert search.score(X, Y, columns=COLUMNS) == search.best_estimator_.score(X, Y, columns=COLUMNS)
    assert np.ptp(search.cv_results_["mean_test_score"]) > 0


class Ruled(MetricClassifier):
    """Decides by probability times amount, whatever was found."""

    def fit(self, X, y, sample_weight=None, validation=None, columns=None, groups=None) -> Ruled:
        super().fit(X, y, sample_weight, validation, columns, groups)
        self.rule_ = Rule("power", self.calibration_.calibrations[0], "amount", 1.0, 1e-6)
        return self


@pytest.mark.parametrize("method", ["predict", "decision_function"])
def test_a_rule_gets_its_columns_where_it_predicts(method: str) -> None:
    model = Ruled(SAVED, "cross-entropy", "linear", TINY, random_state=0).set_fit_request(columns=True)
    request = getattr(model, f"set_{method}_request")
    request(columns=True)
    # cross_val_predict has no way to pass on what only predict takes, a pipeline has.
    piped = Pipeline([("scaled", StandardScaler()), ("model", model)]).fit(X, Y, columns=COLUMNS)
    found = getattr(piped, method)(X, columns=COLUMNS)
    scaled = piped[0].transform(X)
    assert np.array_equal(found, getattr(piped[-1], method)(scaled, COLUMNS))
    with pytest.raises(ValueError, match="columns: expected amount"):
        getattr(piped, method)(X)


def test_probabilities_are_routed_nothing_and_cross_validated() -> None:
    model = linear("f1").set_fit_request(sample_weight=True)
    p = cross_val_predict(model, X, Y, cv=3, method="predict_proba", params={"sample_weight": WEIGHTS})
    assert p.shape == (600, 2)
    assert np.allclose(p.sum(1), 1)
    scorer = get_scorer("neg_log_loss").set_score_request(sample_weight=True)
    found = cross_validate(model, X, Y, cv=3, scoring=scorer, params={"sample_weight": WEIGHTS})
    parts = [test for _, test in StratifiedKFold(3).split(X, Y)]
    expected = [-log_loss(Y[test], p[test], sample_weight=WEIGHTS[test]) for test in parts]
    assert found["test_score"] == pytest.approx(expected)


def test_groups_are_not_divided_by_the_models_that_are_asked_to() -> None:
    groups = np.arange(600) // 20
    model = linear("f1").set_fit_request(groups=True)
    found = cross_validate(model, X, Y, cv=KFold(2), params={"groups": groups}, return_estimator=True)
    (train, test), *_ = KFold(2).split(X)
    by_hand = linear("f1").fit(X[train], Y[train], groups=groups[train])
    assert found["test_score"][0] == pytest.approx(f1_score(Y[test], by_hand.predict(X[test])))


def test_a_regressor_passes_on_columns_and_weights() -> None:
    times = np.exp(1 + X[:, 0] + 0.3 * RNG.normal(size=600))
    event = pd.DataFrame({"event": (RNG.random(600) < 0.8).astype(float)})
    model = MetricRegressor("censored_concordance", "usual", "linear").set_fit_request(columns=True)
    model.set_score_request(columns=True)
    piped = Pipeline([("scaled", StandardScaler()), ("model", model)])
    found = cross_validate(piped, X, times, cv=2, params={"columns": event})
    assert found["test_score"].min() > 0.8
    weighed = MetricRegressor("mae", "usual", "linear").set_fit_request(sample_weight=True)
    weighed.set_score_request(sample_weight=True)
    scores = cross_validate(weighed, X, times, cv=2, params={"sample_weight": WEIGHTS}, return_estimator=True)
    (_, test), *_ = KFold(2).split(X)
    errors = np.abs(scores["estimator"][0].predict(X[test]) - times[test])
    assert scores["test_score"][0] == pytest.approx(-np.average(errors, weights=WEIGHTS[test]))
