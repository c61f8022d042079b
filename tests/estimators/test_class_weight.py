"""Weights of classes: what they change in training and in decisions, and what they leave alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recipes import TINY
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV
from sklearn.utils.class_weight import compute_class_weight

from metricgrad import MetricClassifier, best_threshold, black_box
from metricgrad.estimators.candidates import HeldOut
from metricgrad.estimators.labels import class_factors
from metricgrad.metrics.tasks import BINARY
from metricgrad.training.data import TrainingData

X, Y = make_classification(
    600, 6, n_informative=4, n_redundant=0, n_clusters_per_class=1, weights=[0.7], flip_y=0.1, random_state=0
)
NAMES = np.where(Y == 1, "bad", "good")
HELD_OUT = np.arange(400, 600)
FRUIT_X, FRUIT = make_classification(600, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)

SCORES = LogisticRegression().fit(X, Y).decision_function(X)
SLOPE = float(LogisticRegression(C=np.inf).fit(SCORES[:, None], Y).coef_[0, 0])
"""By how much the log-odds of the second class rise with the score."""


def model(metric: Any = "f1", **how: Any) -> MetricClassifier:
    return MetricClassifier(metric, "cross-entropy", "small", TINY, random_state=0, **how)


def same_network(one: MetricClassifier, other: MetricClassifier) -> bool:
    pairs = zip(one.network_.state_dict().values(), other.network_.state_dict().values(), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


# ---- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{0: 1.0, 1: 5.0}, {1: 5.0}, "balanced"])
def test_a_model_is_trained_as_with_these_weights_of_rows_and_judged_without(weights: Any) -> None:
    by_class = model(standardise=False, class_weight=weights).fit(X, Y, validation=HELD_OUT)
    factors = compute_class_weight(weights, classes=np.array([0, 1]), y=Y)
    train = np.setdiff1d(np.arange(600), HELD_OUT)
    by_row = model(standardise=False).fit(
        X[train], Y[train], sample_weight=factors[Y[train]], validation=(X[HELD_OUT], Y[HELD_OUT])
    )
    assert same_network(by_class, by_row)
    assert by_class.calibration_ == by_row.calibration_
    assert not same_network(by_class, model(standardise=False).fit(X, Y, validation=HELD_OUT))
    assert by_class.validation_loss_ == pytest.approx(1 - f1_score(Y[HELD_OUT], by_class.predict(X[HELD_OUT])))


def test_they_multiply_the_weights_of_rows_that_are_trained_on() -> None:
    weights = np.random.default_rng(0).uniform(0.5, 2, 600)
    table = TrainingData(X, Y, weights, class_weights=np.array([3.0, 1.0]))
    trained, judged = table.lazy_rows(np.arange(9), 10).w, table.validation_rows(np.arange(9)).w
    assert trained is not None
    assert judged is not None
    assert np.allclose(trained.numpy(), weights[:9] * np.where(Y[:9] == 0, 3, 1))
    assert np.allclose(judged.numpy(), weights[:9])


@pytest.mark.parametrize("positive", ["bad", "good"])
def test_labels_mean_the_same_whichever_is_positive(positive: str) -> None:
    given_weights = {"bad": 20.0}
    usual, moved = (
        model("accuracy", positive_label=positive, class_weight=each).fit(X, NAMES) for each in (None, given_weights)
    )
    assert (moved.predict(X) == "bad").mean() > (usual.predict(X) == "bad").mean() + 0.1


@given(st.lists(st.integers(0, 3), min_size=8, max_size=60), st.booleans())
def test_balanced_is_as_in_scikit_learn(targets: list[int], weighted: bool) -> None:
    y = np.array([0, 1, 2, 3, *targets])
    w = np.random.default_rng(0).integers(1, 4, len(y)) if weighted else np.ones(len(y), int)
    expected = compute_class_weight("balanced", classes=np.arange(4), y=np.repeat(y, w))
    assert np.allclose(class_factors("balanced", np.arange(4), y, w.astype(float)), expected)


# ---- decisions -----------------------------------------------------------------------------------------------------


def test_balanced_leaves_the_threshold_where_the_metric_is_best() -> None:
    balanced = model(class_weight="balanced").fit(X, Y, validation=HELD_OUT)
    scores = balanced.decision_function(X[HELD_OUT])
    assert best_threshold("f1", scores, Y[HELD_OUT]) == pytest.approx(0, abs=1e-6)
    explicit = dict(enumerate(compute_class_weight("balanced", classes=np.array([0, 1]), y=Y)))
    moved = model(class_weight=explicit).fit(X, Y, validation=HELD_OUT)
    assert same_network(balanced, moved)
    assert moved.threshold_ < balanced.threshold_


@given(st.floats(-5, 5))
def test_a_mapping_moves_the_threshold_by_the_logarithm_of_the_weights(log: float) -> None:
    estimator = MetricClassifier("f1", class_weight={0: 1.0, 1: float(np.exp(log))})
    estimator.classes_, estimator.positive_label_ = np.array([0, 1]), 1
    moved_by = estimator._moved_by(HeldOut(torch.from_numpy(SCORES), torch.from_numpy(Y), None), BINARY)
    assert SLOPE * moved_by == pytest.approx(-log, abs=0.05 * abs(log) + 1e-9)


def test_the_heavier_of_several_classes_is_predicted_more_often() -> None:
    usual = model("macro_f1").fit(FRUIT_X, FRUIT)
    for label in range(3):
        moved = model("macro_f1", class_weight={label: 20.0}).fit(FRUIT_X, FRUIT)
        assert (moved.predict(FRUIT_X) == label).mean() > (usual.predict(FRUIT_X) == label).mean() + 0.1
        assert np.allclose(moved.predict_proba(FRUIT_X).mean(0), 1 / 3, atol=0.1)


def test_they_can_be_searched() -> None:
    search = GridSearchCV(model(folds=1), {"class_weight": [None, "balanced", {1: 50.0}]}, cv=2).fit(X, Y)
    worst = search.cv_results_["params"][int(np.argmin(search.cv_results_["mean_test_score"]))]
    assert worst == {"class_weight": {1: 50.0}}


# ---- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "weights", "message"),
    [
        ("f1", "even", "class_weight: expected 'balanced', a mapping of labels to numbers or None, got 'even'"),
        ("f1", 3.0, "class_weight: expected 'balanced', a mapping"),
        ("f1", {2: 1.0}, r"class_weight: expected weights of the classes \[0, 1\], got one of 2"),
        ("f1", {1: -1.0}, "class_weight: expected positive numbers, got -1.0 for 1"),
        ("f1", {1: "many"}, "class_weight: expected positive numbers, got 'many' for 1"),
        (
            "sample_f1",
            "balanced",
            "class_weight: expected None, because the metric 'sample_f1' is one of several",
        ),
        (
            black_box(lambda y, s: 0.5, higher_is_better=True, name="half"),
            "balanced",
            "class_weight: expected None, because the metric 'half' takes no weights",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(metric: Any, weights: Any, message: str) -> None:
    y = np.column_stack((Y, 1 - Y)) if metric == "sample_f1" else Y
    with pytest.raises(ValueError, match=message):
        model(metric, class_weight=weights).fit(X, y)
