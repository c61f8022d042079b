"""Probabilities of classes: what scikit-learn's metrics and meta-estimators make of them, and hard cases."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recipes import TINY
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, f1_score, log_loss, roc_auc_score
from sklearn.model_selection import TunedThresholdClassifierCV, cross_val_predict, cross_val_score, train_test_split

from metricgrad import MetricClassifier
from metricgrad.estimators.probabilities import Probabilities, fit_probabilities
from metricgrad.training.calibration import calibrate
from metricgrad.training.networks import MODELS
from metricgrad.training.trees import has_lightgbm

X, Y = make_classification(
    900, 6, n_informative=4, n_redundant=0, n_clusters_per_class=1, weights=[0.8], flip_y=0.1, random_state=0
)
FRUIT_X, FRUIT_Y = make_classification(
    900, 6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.6, 0.3], flip_y=0.05, random_state=0
)
FRUIT = np.array(["plum", "fig", "pear"])[FRUIT_Y]


def linear(metric: str = "f1", **how: Any) -> MetricClassifier:
    return MetricClassifier(metric, "cross-entropy", "linear", random_state=0, **how)


# ---- among scikit-learn's tools ------------------------------------------------------------------------------------


def test_the_log_loss_is_near_that_of_a_logistic_regression() -> None:
    own = cross_val_score(linear(folds=5), X, Y, scoring="neg_log_loss", cv=3)
    usual = cross_val_score(LogisticRegression(), X, Y, scoring="neg_log_loss", cv=3)
    assert np.isfinite(own).all()
    assert own.mean() > usual.mean() - 0.02


@pytest.mark.parametrize("metric", ["f1", "macro_f1"])
def test_probabilities_of_weighted_training_are_those_of_the_rows_all_the_same(metric: str) -> None:
    parts = train_test_split(X, Y, test_size=0.4, random_state=0)
    model = linear(metric, folds=5, class_weight="balanced").fit(parts[0], parts[2])
    usual = LogisticRegression(class_weight="balanced").fit(parts[0], parts[2])
    losses = [log_loss(parts[3], each.predict_proba(parts[1])) for each in (model, usual)]
    assert losses[0] < losses[1] - 0.1
    assert model.predict_proba(parts[1])[:, 1].mean() == pytest.approx(Y.mean(), abs=0.05)


def test_meta_estimators_of_scikit_learn_take_them() -> None:
    model, other = linear(folds=1), LogisticRegression()
    for each in (
        VotingClassifier([("own", model), ("other", other)], voting="soft"),
        StackingClassifier([("own", model), ("other", other)], cv=2),
        CalibratedClassifierCV(model, cv=2),
        TunedThresholdClassifierCV(model, scoring="f1", cv=2),
    ):
        fitted = each.fit(X, Y)
        assert f1_score(Y, fitted.predict(X)) > 0.7
        assert log_loss(Y, fitted.predict_proba(X)) < 0.35
    assert cross_val_predict(linear("macro_f1", folds=1), FRUIT_X, FRUIT, cv=2, method="predict_proba").shape == (
        900,
        3,
    )
    assert cross_val_score(linear("macro_f1", folds=1), FRUIT_X, FRUIT, cv=2, scoring="roc_auc_ovr").min() > 0.7


def test_predict_is_cut_where_the_metric_is_best_and_not_at_one_half() -> None:
    model = linear(folds=5).fit(X, Y)
    p = model.predict_proba(X)[:, 1]
    decided = model.predict(X) == 1
    assert not np.array_equal(decided, p >= 0.5)
    assert p[decided].min() > p[~decided].max()  # but at one place
    assert roc_auc_score(Y, p) == pytest.approx(roc_auc_score(Y, model.decision_function(X)))


# ---- columns, order and sums ---------------------------------------------------------------------------------------


def test_columns_are_in_the_order_of_the_classes_whichever_is_positive() -> None:
    names = np.where(Y == 1, "no", "yes")
    for positive in ("no", "yes"):
        model = linear(folds=1, positive_label=positive).fit(X, names)
        p = model.predict_proba(X)
        assert model.classes_.tolist() == ["no", "yes"]
        assert roc_auc_score(names == "yes", p[:, 1]) > 0.85
        assert np.allclose(p.sum(1), 1)
        assert np.array_equal(np.argsort(p[:, 1], kind="stable"), np.argsort(model.decision_function(X), kind="stable"))
        assert np.allclose(model.predict_log_proba(X), np.log(p))


@pytest.mark.parametrize("folds", [1, 3])
def test_several_classes_sum_to_one_and_are_better_than_their_shares(folds: int) -> None:
    model = linear("macro_f1", folds=folds).fit(FRUIT_X[:700], FRUIT[:700])
    p = model.predict_proba(FRUIT_X[700:])
    assert p.shape == (200, 3)
    assert np.allclose(p.sum(1), 1)
    usual = LogisticRegression().fit(FRUIT_X[:700], FRUIT[:700])
    assert log_loss(FRUIT[700:], p) < log_loss(FRUIT[700:], usual.predict_proba(FRUIT_X[700:])) + 0.05
    assert model.calibration_.brier == pytest.approx(brier_score_loss(FRUIT[700:], p, labels=model.classes_), abs=0.08)
    assert model.calibration_.brier < 0.8 * model.calibration_.base_brier


def test_a_metric_of_several_classes_has_two_columns_where_there_are_two() -> None:
    model = linear("macro_f1", folds=1).fit(X, Y)
    p = model.predict_proba(X)
    assert p.shape == (900, 2)
    assert np.allclose(p.sum(1), 1)
    assert roc_auc_score(Y, p[:, 1]) == pytest.approx(roc_auc_score(Y, model.decision_function(X)))


def test_each_of_several_labels_has_a_probability_of_its_own() -> None:
    x, y = make_multilabel_classification(600, 8, n_classes=4, random_state=0)
    model = linear("sample_f1", folds=1).fit(x[:400], y[:400])
    p = model.predict_proba(x[400:])
    assert p.shape == (200, 4)
    assert [roc_auc_score(y[400:, k], p[:, k]) for k in range(4)] == pytest.approx([0.85] * 4, abs=0.15)
    briers = [brier_score_loss(y[400:, k], p[:, k]) for k in range(4)]
    assert model.calibration_.brier == pytest.approx(np.mean(briers), abs=0.05)


@pytest.mark.parametrize("model", [name for name in MODELS if name != "lightgbm" or has_lightgbm()])
def test_every_kind_of_model_has_them(model: str) -> None:
    fitted = MetricClassifier("f1", "cross-entropy", model, TINY, random_state=0, folds=2).fit(X[:400], Y[:400])
    p = fitted.predict_proba(X[400:])
    assert roc_auc_score(Y[400:], p[:, 1]) == pytest.approx(roc_auc_score(Y[400:], fitted.decision_function(X[400:])))
    assert brier_score_loss(Y[400:], p[:, 1]) < fitted.calibration_.base_brier


def test_a_model_of_an_older_version_has_none() -> None:
    model = linear(folds=1).fit(X, Y)
    del model.__dict__["calibration_"]
    old = pickle.loads(pickle.dumps(model))
    assert old.predict(X).shape == (900,)
    with pytest.raises(ValueError, match="predict_proba: expected a model that was calibrated"):
        old.predict_proba(X)


# ---- what is said of them ------------------------------------------------------------------------------------------


def test_the_brier_score_is_that_of_rows_left_out_and_is_shown() -> None:
    held_out = np.arange(600, 900)
    model = linear().fit(X, Y, validation=held_out)
    known = model.calibration_
    p = model.predict_proba(X[held_out])[:, 1]
    assert (known.rows, known.method) == (300, "sigmoid")
    assert known.base_brier == pytest.approx(brier_score_loss(Y[held_out], np.full(300, Y[held_out].mean())))
    assert known.brier == pytest.approx(brier_score_loss(Y[held_out], p), abs=0.005)
    assert known.brier > brier_score_loss(Y[held_out], p)  # which was fitted to these rows
    assert f"Brier score {known.brier:.4f}" in model._repr_html_()


def test_weights_count_and_their_scale_does_not() -> None:
    weights = np.where(Y == 1, 4.0, 1.0)
    models = [linear(folds=2).fit(X, Y, sample_weight=scale * weights) for scale in (1.0, 1e-6)]
    first, second = (model.predict_proba(X) for model in models)
    assert np.allclose(first, second, atol=1e-6)
    share = np.average(Y, weights=weights)
    assert np.average(first[:, 1], weights=weights) == pytest.approx(share, abs=0.03)


# ---- hard cases ----------------------------------------------------------------------------------------------------

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Scores with ties, of one to four columns, targets that may lack a class, and weights that may be zero."""
    count, columns = draw(st.integers(2, 25)), draw(st.integers(1, 4))
    some = st.one_of(st.sampled_from([0.0, 1.0, -2.5]), NUMBERS)
    scores = np.array(
        draw(st.lists(st.lists(some, min_size=columns, max_size=columns), min_size=count, max_size=count))
    )
    classes = np.array(draw(st.lists(st.integers(0, max(columns - 1, 1)), min_size=count, max_size=count)))
    weights = draw(st.none() | st.lists(st.sampled_from([0.0, 1e-9, 1.0, 1e6]), min_size=count, max_size=count))
    w = None if weights is None or not any(weights) else np.array(weights)
    return (scores[:, 0], classes, w) if columns == 1 else (scores, np.eye(columns)[classes], w)


@given(rows())
def test_any_rows_give_finite_probabilities_that_sum_to_one(
    given_rows: tuple[np.ndarray, np.ndarray, np.ndarray | None],
) -> None:
    scores, y, w = given_rows
    found = fit_probabilities(scores, y, w)
    p = found.of(scores)
    assert p.shape == (len(y), max(2, scores.shape[-1] if scores.ndim > 1 else 2))
    assert np.isfinite(p).all()
    assert ((p >= 0) & (p <= 1)).all()
    assert np.allclose(p.sum(1), 1)
    assert 0 <= found.brier <= 2
    if scores.ndim == 1:
        order = np.argsort(scores, kind="stable")
        assert (np.diff(p[order, 1]) >= 0).all()
        assert len(np.unique(p[:, 1])) <= len(np.unique(scores))
    again = Probabilities.from_dict(found.to_dict())
    assert np.array_equal(again.of(scores), p)


@given(st.integers(0, 10_000))
def test_two_classes_are_calibrated_as_a_plug_in_rule_calibrates_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=300)
    y = (rng.random(300) < 1 / (1 + np.exp(-2 * scores))).astype(float)
    expected, odds = calibrate(scores, y)
    found = fit_probabilities(scores, y)
    assert found.calibrations == (expected,)
    assert found.brier == pytest.approx(brier_score_loss(y, 1 / (1 + np.exp(-odds))))


def test_steps_are_used_where_there_are_rows_enough_for_them_and_rank_as_scores_do() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=4000)
    y = (rng.random(4000) < np.where(scores > 0, 0.9, 0.1)).astype(float)
    found = fit_probabilities(scores, y)
    p = found.of(scores)[:, 1]
    assert found.method == "isotonic"
    assert np.array_equal(np.argsort(p, kind="stable"), np.argsort(scores, kind="stable"))
    assert np.abs(p - np.where(scores > 0, 0.9, 0.1)).mean() < 0.03


@pytest.mark.filterwarnings("ignore:y. one class has a single row")
def test_few_rows_one_of_a_class_are_enough() -> None:
    x, y = np.arange(8.0)[:, None], np.array([0] * 7 + [1])
    model = linear(recipe=TINY).fit(x, y)
    p = model.predict_proba(x)
    assert np.allclose(p.sum(1), 1)
    assert np.isfinite(model.calibration_.brier)
