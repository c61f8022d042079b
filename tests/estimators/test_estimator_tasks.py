"""Tests of the classifier for several classes, several labels, and metrics that look at columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, matthews_corrcoef
from sklearn.utils.estimator_checks import check_classifiers_train, parametrize_with_checks

from metricgrad import MetricClassifier, Recipe, black_box

BRIEF = Recipe(
    warmup=60,
    rounds=10,
    set_size=60,
    refine_sets=2,
    trust_cap=20,
    check_every=10,
    learning_rate=0.03,
    model_steps=3,
    schedule="cosine",
    patience=None,
)
STEEP = Recipe(warmup=150, rounds=50, learning_rate=0.03, model_steps=3, schedule="cosine", patience=None)
NAMES = np.array(["fig", "pear", "plum"])


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit surrogates in a moment, and keep them here."""
    from metricgrad.surrogate import pretraining as universal

    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    small = universal.Fitting(groups=8, steps=20, sizes=(50,))
    for name in ("ON_DEMAND_OUTPUTS", "ON_DEMAND"):
        monkeypatch.setattr(universal, name, small)


def fruit(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        600, 6, n_informative=4, n_redundant=0, n_classes=3, weights=[0.75, 0.2], class_sep=1.5, random_state=seed
    )
    return X, NAMES[y]


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
@pytest.mark.parametrize("method", ["sl-r", "sl-s", "sl-u", "cross-entropy"])
def test_several_classes_are_learned_whatever_they_are_called(method: str) -> None:
    X, y = fruit()
    model = MetricClassifier("macro_f1", method, "linear", BRIEF).fit(X[:400], y[:400])
    found = model.predict(X[400:])
    assert set(found) <= set(NAMES)
    assert model.classes_.tolist() == ["fig", "pear", "plum"]
    assert model.decision_function(X[400:]).shape == (200, 3)
    assert model.threshold_.shape == (3,)
    assert model.score(X[400:], y[400:]) == pytest.approx(f1_score(y[400:], found, average="macro"))
    assert model.score(X[400:], y[400:]) > 0.6


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
@pytest.mark.parametrize(
    ("name", "judge"),
    [
        ("accuracy", accuracy_score),
        ("balanced_accuracy", balanced_accuracy_score),
        ("mcc", lambda y, found: matthews_corrcoef(y, found)),
    ],
)
def test_a_metric_of_two_classes_has_a_namesake_of_several(name: str, judge: Callable[..., float]) -> None:
    X, y = fruit()
    model = MetricClassifier(name, "cross-entropy", "linear", BRIEF).fit(X[:400], y[:400])
    assert model.task_ == "multiclass"
    assert model.score(X[400:], y[400:]) == pytest.approx(judge(y[400:], model.predict(X[400:])))
    two = y != "plum"
    assert MetricClassifier(name, "cross-entropy", "linear", BRIEF).fit(X[two], y[two]).task_ == "binary"


def test_what_has_learned_predicts_without_asking_its_metric() -> None:
    X, y = fruit()
    model = MetricClassifier("macro_f1", "cross-entropy", "linear", BRIEF).fit(X, y)
    known = model.predict(X)
    model.metric = "gone since"
    np.testing.assert_array_equal(model.predict(X), known)
    with pytest.raises(ValueError, match="gone since"):
        model.score(X, y)


@pytest.mark.parametrize(("name", "average"), [("macro_f1", "macro"), ("micro_f1", "micro")])
def test_a_metric_of_classes_has_a_namesake_of_labels(name: str, average: str) -> None:
    X, y = make_multilabel_classification(300, 6, n_classes=3, random_state=0)
    model = MetricClassifier(name, "cross-entropy", "linear", BRIEF).fit(X, y)
    assert model.task_ == "multilabel"
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average=average))


def test_offsets_are_tuned_on_the_validation_rows_alone() -> None:
    X, y = fruit()
    model = MetricClassifier("macro_f1", "cross-entropy", "linear", BRIEF).fit(X, y, validation=np.arange(450, 600))
    plain = MetricClassifier("macro_f1", "cross-entropy", "linear", BRIEF, threshold=0.0)
    plain.fit(X, y, validation=np.arange(450, 600))
    tuned, untuned = (f1_score(y[450:], m.predict(X[450:]), average="macro") for m in (model, plain))
    assert tuned >= untuned
    assert np.ptp(model.threshold_) > 0
    assert np.ptp(plain.threshold_) == 0
    assert model.validation_loss_ == pytest.approx(1 - tuned)


@pytest.mark.slow  # the whole conformance suite of scikit-learn
@parametrize_with_checks(
    [MetricClassifier("macro_f1", "cross-entropy", "linear", STEEP)],
    # What scikit-learn itself expects of TunedThresholdClassifierCV, in the same words.
    expected_failed_checks=lambda _: {"check_classifiers_train": "Threshold at probability 0.5 does not hold"},
)
def test_scikit_learn_finds_nothing_wrong_with_several_classes(estimator, check) -> None:
    given = dict(estimator.get_params())
    check(estimator)  # raises where something is wrong
    assert estimator.get_params() == given


class WithoutProbabilities(MetricClassifier):
    """Scikit-learn wants the class of the highest probability to be predicted, and all else as it is here."""

    @property
    def predict_proba(self) -> None:
        raise AttributeError("predict_proba")


@pytest.mark.parametrize("metric", ["macro_f1", "auc"])
def test_but_for_its_threshold_a_classifier_is_as_scikit_learn_wants_it(metric: str) -> None:
    check_classifiers_train("WithoutProbabilities", WithoutProbabilities(metric, "cross-entropy", "linear", STEEP))
    fitted = MetricClassifier(metric, "cross-entropy", "linear", STEEP).fit(*make_classification(100, random_state=0))
    with pytest.raises(ValueError, match="X has 3 features, but MetricClassifier is expecting 20"):
        fitted.predict_proba(np.zeros((2, 3)))


def test_two_classes_are_decided_by_one_number() -> None:
    X, y = make_classification(300, 6, random_state=0)
    model = MetricClassifier("macro_f1", "cross-entropy", "linear", BRIEF).fit(X, y)
    assert model.decision_function(X).shape == (300,)
    assert np.array_equal(model.predict(X), (model.decision_function(X) >= 0).astype(int))
    assert model.score(X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
def test_several_labels_have_a_threshold_each() -> None:
    X, y = make_multilabel_classification(500, 8, n_classes=4, random_state=0)
    model = MetricClassifier("sample_f1", "sl-r", "linear", BRIEF).fit(X[:400], y[:400])
    found = model.predict(X[400:])
    assert found.shape == (100, 4)
    assert set(np.unique(found)) <= {0, 1}
    assert model.score(X[400:], y[400:]) == pytest.approx(f1_score(y[400:], found, average="samples", zero_division=0))


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
def test_a_metric_that_looks_at_a_column_is_given_it() -> None:
    X, y = make_classification(500, 6, random_state=0)
    amount = np.exp(np.random.default_rng(0).normal(size=500))

    def lost_money(y_true, y_pred, amount):
        return (amount * (y_true != y_pred)).sum() / amount.sum()

    metric = black_box(
        lost_money, higher_is_better=False, labels=True, columns=("amount",), value_range=(0, 1), candidates=4
    )
    model = MetricClassifier(metric, "sl-r", "linear", BRIEF)
    model.fit(X[:400], y[:400], columns={"amount": amount[:400]})
    wrong = model.predict(X[400:]) != y[400:]
    score = model.score(X[400:], y[400:], columns={"amount": amount[400:]})
    assert score == pytest.approx(-(amount[400:] * wrong).sum() / amount[400:].sum())
    for columns in (None, {"price": amount[:400]}):
        with pytest.raises(ValueError, match="columns: expected amount for the metric 'lost_money', got"):
            clone(model).fit(X[:400], y[:400], columns=columns)
    with pytest.raises(ValueError, match="columns: expected finite numbers of at least 0"):
        clone(model).fit(X[:400], y[:400], columns={"amount": -amount[:400]})
    with pytest.raises(ValueError, match="columns: expected a number for each of 400 rows, got 500"):
        clone(model).fit(X[:400], y[:400], columns={"amount": amount})
    with pytest.raises(ValueError, match="columns: expected none for the metric 'f1', got amount"):
        MetricClassifier("f1").fit(X, y, columns={"amount": amount})


def test_labels_that_do_not_suit_the_metric_are_refused() -> None:
    X, y = fruit()
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        MetricClassifier("f1").fit(X, y)
    with pytest.raises(ValueError, match="y: expected a column of 0 and 1 for every label"):
        MetricClassifier("sample_f1").fit(X, y)
    with pytest.raises(ValueError, match="method: expected one of auto, sl-r, sl-s, sl-u, cross-entropy, got 'focal'"):
        MetricClassifier("macro_f1", "focal").fit(X, y)
    with pytest.raises(ValueError, match="threshold: expected 'validation' or a number for several outputs"):
        MetricClassifier("macro_f1", threshold="cv").fit(X, y)
