"""MetricClassifier: the positive class, validation rows of one's own, stopping, nested recipes, scale, and text."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import TINY
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score, get_scorer, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metricgrad import MetricClassifier, Recipe, black_box
from metricgrad.training.data import Scaler
from metricgrad.training.history import Round

X, Y = make_classification(
    400, 6, n_informative=4, n_redundant=0, n_clusters_per_class=1, weights=[0.7], flip_y=0.1, random_state=0
)
CREDIT = np.where(Y == 1, "bad", "good")  # the rare class comes first in order
TRAIN, HELD_OUT = np.arange(300), np.arange(300, 400)


def quick(metric: Any = "f1", method: str = "sl-r", model: Any = "small", **how: Any) -> MetricClassifier:
    return MetricClassifier(metric, method, model, **{"recipe": TINY, "random_state": 0, **how})


def same_weights(one: MetricClassifier, other: MetricClassifier) -> bool:
    pairs = zip(one.network_.state_dict().values(), other.network_.state_dict().values(), strict=True)
    return all(torch.equal(left, right) for left, right in pairs)


# ---- the positive class --------------------------------------------------------------------------------------------


def test_the_positive_label_is_what_the_metric_is_about() -> None:
    model = quick(positive_label="bad").fit(X, CREDIT)
    assert model.positive_label_ == "bad"
    assert model.score(X, CREDIT) == pytest.approx(f1_score(CREDIT, model.predict(X), pos_label="bad"))
    plain = quick().fit(X, Y)
    assert same_weights(model, plain)
    assert model.threshold_ == plain.threshold_
    assert ((model.predict(X) == "bad") == (plain.predict(X) == 1)).all()


def test_classes_are_in_order_and_the_decision_is_high_for_the_last_as_in_scikit_learn() -> None:
    model, plain = quick("auc", positive_label="bad").fit(X, CREDIT), quick("auc").fit(X, Y)
    assert model.classes_.tolist() == ["bad", "good"]
    np.testing.assert_array_equal(model.decision_function(X), -plain.decision_function(X))
    np.testing.assert_array_equal(model.predict(X) == "good", model.decision_function(X) > 0)
    assert get_scorer("roc_auc")(model, X, CREDIT) == pytest.approx(roc_auc_score(Y, plain.decision_function(X)))
    of_bad = make_scorer(f1_score, pos_label="bad")
    assert of_bad(model, X, CREDIT) == pytest.approx(f1_score(CREDIT, model.predict(X), pos_label="bad"))


@pytest.mark.parametrize("positive", [0, 1, np.int64(0), False])
def test_the_positive_label_may_be_a_number(positive: Any) -> None:
    model = quick(positive_label=positive).fit(X, Y)
    assert model.score(X, Y) == pytest.approx(f1_score(Y, model.predict(X), pos_label=int(positive)))


def test_a_score_on_the_threshold_belongs_to_the_positive_class_whichever_it_is() -> None:
    rows = X[:1]
    for positive in ("bad", "good"):
        model = quick(positive_label=positive).fit(X, CREDIT)
        model.threshold_ = float(model._raw_scores(rows)[0])
        assert model.decision_function(rows)[0] == 0
        assert model.predict(rows)[0] == positive


def test_a_positive_label_that_is_no_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"positive_label: expected one of \['bad', 'good'\], got 'awful'"):
        quick(positive_label="awful").fit(X, CREDIT)
    with pytest.raises(ValueError, match="positive_label: expected None where the metric is one of multiclass targets"):
        quick("macro_f1", "cross-entropy", positive_label="bad").fit(X, CREDIT)


def test_a_warm_start_keeps_the_positive_class() -> None:
    model = quick(positive_label="bad", warm_start=True).fit(X, CREDIT)
    with pytest.raises(ValueError, match=r"positive_label: expected that of the last fit, .*'bad'.*, got .*'good'"):
        model.set_params(positive_label="good").fit(X, CREDIT)


@pytest.mark.parametrize(
    ("names", "positives", "why"),
    [
        (("bad", "good"), 0.7, "the more frequent one"),
        (("bad", "good"), 0.3, None),
        (("no", "yes"), 0.7, None),
        (("negative", "positive"), 0.7, None),
        (("Y", "n"), 0.3, "a word for no"),
        ((0, 1), 0.7, None),
        ((False, True), 0.7, None),
    ],
)
def test_a_positive_class_that_was_hardly_meant_is_warned_of(
    names: tuple[Any, Any], positives: float, why: str | None
) -> None:
    y = np.where(np.arange(400) < 400 * positives, names[1], names[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = quick(method="cross-entropy", recipe=replace(TINY, warmup=3, rounds=0)).fit(X, y)
    assert model.positive_label_ == names[1]
    said = [(str(warning.message), warning.filename) for warning in caught if "positive class" in str(warning.message)]
    if why is None:
        assert said == []
    else:
        message, file = said[0]
        assert f"y: {names[1]!r} is taken as the positive class" in message
        assert f"but is {why}; set positive_label={names[0]!r} or positive_label={names[1]!r}" in message
        assert file == __file__


def test_nothing_is_warned_of_where_the_positive_label_is_given() -> None:
    model = quick(method="cross-entropy", positive_label="good").fit(X, CREDIT)  # warnings are errors here
    assert model.positive_label_ == "good"


# ---- validation rows of one's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["arrays", "lists", "frames", "sparse", "frame and array"])
def test_validation_rows_beside_the_others_are_as_good_as_some_of_them(kind: str) -> None:
    def held(rows: np.ndarray) -> Any:
        if kind == "lists":
            return rows.tolist()
        if kind in ("frames", "frame and array"):
            return pd.DataFrame(rows, columns=list("abcdef"))
        return scipy.sparse.csr_matrix(rows) if kind == "sparse" else rows

    beside = X[HELD_OUT] if kind == "frame and array" else held(X[HELD_OUT])
    model = quick().fit(held(X[TRAIN]), Y[TRAIN], validation=(beside, Y[HELD_OUT]))
    among = quick().fit(held(X), Y, validation=HELD_OUT)
    assert same_weights(model, among)
    assert (model.threshold_, model.validation_loss_) == (among.threshold_, among.validation_loss_)
    assert list(getattr(model, "feature_names_in_", "")) == list(getattr(among, "feature_names_in_", ""))


def test_validation_rows_beside_the_others_are_not_trained_on() -> None:
    fixed = {"method": "cross-entropy", "threshold": 0.0, "recipe": replace(TINY, warmup=9, rounds=0, check_every=100)}
    right = quick(**fixed).fit(X[TRAIN], Y[TRAIN], validation=(X[HELD_OUT], Y[HELD_OUT]))
    wrong = quick(**fixed).fit(X[TRAIN], Y[TRAIN], validation=(5 * X[HELD_OUT], 1 - Y[HELD_OUT]))
    assert same_weights(right, wrong)
    assert right.validation_loss_ != wrong.validation_loss_


def test_validation_rows_may_have_weights_and_others_then_weigh_one() -> None:
    weights = np.random.default_rng(0).uniform(0.1, 3, 400)
    model = quick().fit(X[TRAIN], Y[TRAIN], weights[TRAIN], (X[HELD_OUT], Y[HELD_OUT], weights[HELD_OUT]))
    assert same_weights(model, quick().fit(X, Y, weights, HELD_OUT))
    only = quick().fit(X[TRAIN], Y[TRAIN], validation=(X[HELD_OUT], Y[HELD_OUT], weights[HELD_OUT]))
    assert same_weights(only, quick().fit(X, Y, np.where(np.arange(400) < 300, 1.0, weights), HELD_OUT))
    score = 1 - f1_score(Y[HELD_OUT], only.predict(X[HELD_OUT]), sample_weight=weights[HELD_OUT])
    assert only.validation_loss_ == pytest.approx(score, abs=1e-6)


def test_labels_of_validation_rows_are_read_as_the_others() -> None:
    held_out = (X[HELD_OUT], CREDIT[HELD_OUT].astype(object))
    model = quick(positive_label="bad").fit(X[TRAIN], CREDIT[TRAIN], validation=held_out)
    assert same_weights(model, quick().fit(X, Y, validation=HELD_OUT))


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ((X[HELD_OUT][:, :5], Y[HELD_OUT]), "validation: expected the 6 features of X, got 5 features"),
        ((X[HELD_OUT], Y[HELD_OUT][:7]), "validation: expected a target for each of 100 rows, got 7"),
        ((X[HELD_OUT], Y[HELD_OUT] + 1), r"validation: expected the classes of y, \[0 1\], got .*2"),
        ((X[HELD_OUT], CREDIT[HELD_OUT]), "validation: expected targets as in y, int64 of shape .* got <U4 of shape"),
        ((X[HELD_OUT], Y[HELD_OUT], [1.0]), r"validation: expected a weight for each of 100 rows, got shape \(1,\)"),
        ((X[HELD_OUT], Y[HELD_OUT], np.zeros(100)), "sample_weight: expected positive weights in training and valid"),
    ],
)
def test_validation_rows_that_do_not_fit_are_named(validation: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X[TRAIN], Y[TRAIN], validation=validation)


def test_validation_rows_have_the_columns_of_the_table() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    with pytest.raises(ValueError, match=r"validation: expected the 6 features of X, got the columns \['f', 'e'"):
        quick().fit(frame[:300], Y[TRAIN], validation=(frame[300:][list("fedcba")], Y[HELD_OUT]))


def test_a_metric_with_columns_takes_its_validation_rows_by_number() -> None:
    metric = black_box(
        lambda y, s, amount: float((amount * (y != s)).sum()), higher_is_better=False, columns=("amount",)
    )
    with pytest.raises(ValueError, match=r"validation: expected numbers of rows, because the metric .* amount of them"):
        quick(metric).fit(X[TRAIN], Y[TRAIN], validation=(X[HELD_OUT], Y[HELD_OUT]), columns={"amount": np.ones(300)})


# ---- a callback that stops -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [True, np.bool_(True)])
def test_a_callback_that_returns_true_stops_and_the_best_so_far_is_kept(answer: Any) -> None:
    seen: list[Round] = []

    def enough(done: Round) -> Any:
        seen.append(done)
        return answer if done.steps >= 30 else None

    model = quick("auc", callback=enough).fit(X, Y)
    assert model.interrupted_
    assert [done.steps for done in model.history_] == list(range(3, 31, 3)) == [done.steps for done in seen]
    best = min(done.validation for done in seen if done.validation == done.validation)
    assert model.validation_loss_ == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("answer", [None, False, 1, "stop", [True], np.array([1.0, 2.0])])
def test_a_callback_that_returns_anything_else_does_not_stop(answer: Any) -> None:
    model = quick("auc", callback=lambda done: answer).fit(X, Y)
    assert not model.interrupted_
    assert len(model.history_) == 18


# ---- recipes that are searched -------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["default", TINY])
def test_fields_of_the_recipe_are_parameters(recipe: Recipe | str) -> None:
    model = MetricClassifier(recipe=recipe)
    before = Recipe() if recipe == "default" else recipe
    assert model.get_params()["recipe__rounds"] == before.rounds
    assert "recipe__rounds" not in model.get_params(deep=False)
    model.set_params(recipe__rounds=10, recipe__warmup=30, metric="auc")
    assert model.recipe == replace(before, rounds=10, warmup=30)
    assert model.get_params()["recipe__rounds"] == 10
    assert clone(model).recipe == model.recipe
    assert model.set_params(recipe=TINY, recipe__rounds=1).recipe == replace(TINY, rounds=1)
    assert before == (Recipe() if recipe == "default" else TINY), "recipes are not changed in place"


def test_a_field_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="recipe: expected fields of Recipe, got epochs"):
        MetricClassifier().set_params(recipe__epochs=3)
    with pytest.raises(ValueError, match="rounds: expected an integer of at least 0, got -1"):
        MetricClassifier().set_params(recipe__rounds=-1)
    with pytest.raises(ValueError, match="Invalid parameter 'epochs'"):
        MetricClassifier().set_params(epochs=3)


@pytest.mark.slow  # a search fits many models
def test_the_rounds_of_a_recipe_are_searched() -> None:
    search = GridSearchCV(quick(model="linear"), {"recipe__rounds": [0, 2]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["recipe__rounds"] in (0, 2)
    assert {len(search.cv_results_["params"]), search.best_estimator_.recipe.warmup} == {2, 45}
    assert len(search.best_estimator_.history_) == 15 + search.best_params_["recipe__rounds"]
    piped = make_pipeline(StandardScaler(), quick(model="linear"))
    grid = {"metricclassifier__recipe__rounds": [1], "metricclassifier__recipe": ["default", TINY]}
    grid["metricclassifier__recipe__warmup"] = [9]
    found = GridSearchCV(piped, grid, cv=2, error_score="raise").fit(X, Y).best_estimator_[-1]
    assert (found.recipe.rounds, found.recipe.warmup) == (1, 9)


@settings(max_examples=30)
@given(rounds=st.integers(0, 10**6), rate=st.floats(1e-6, 1.0), standardise=st.booleans())
def test_what_is_set_is_what_is_got_and_cloned(rounds: int, rate: float, standardise: bool) -> None:
    wanted = {"recipe__rounds": rounds, "recipe__learning_rate": rate, "recipe__standardise": standardise}
    model = MetricClassifier().set_params(**wanted)
    for each in (model, clone(model)):
        found = each.get_params()
        assert {name: found[name] for name in wanted} == wanted


def test_a_notebook_shows_the_recipe_once() -> None:
    shown = MetricClassifier(recipe=TINY)._repr_mimebundle_()["text/html"]
    assert "recipe__rounds" not in shown


# ---- scaling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_outliers_in_validation_rows_do_not_change_the_scale(kind: Any) -> None:
    plain, odd = X.copy(), X.copy()
    odd[HELD_OUT] *= 1e12
    models = [quick().fit(kind(rows), Y, validation=HELD_OUT) for rows in (plain, odd)]
    np.testing.assert_array_equal(models[0].scale_, models[1].scale_)
    np.testing.assert_array_equal(models[0].centre_, models[1].centre_)
    np.testing.assert_allclose(models[1].scale_, X[TRAIN].std(0))


def test_the_scale_is_that_of_the_training_rows_of_a_split_by_chance_too() -> None:
    model = quick(validation_fraction=0.5).fit(X, Y)
    assert not np.allclose(model.scale_, X.std(0), rtol=1e-6)
    heavy = np.linspace(0.1, 2, 400)
    weighed = quick().fit(X, Y, heavy, validation=HELD_OUT)
    mean = np.average(X[TRAIN], axis=0, weights=heavy[TRAIN])
    np.testing.assert_allclose(weighed.centre_, mean, atol=1e-12)


def test_a_threshold_by_cross_validation_scales_each_fold_by_its_own_training_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[np.ndarray] = []
    fit = Scaler.fit

    def spied(X: Any, rows: np.ndarray, *given: Any, **more: Any) -> Scaler:
        seen.append(rows)
        return fit(X, rows, *given, **more)

    monkeypatch.setattr(Scaler, "fit", spied)
    quick(threshold="cv", method="cross-entropy").fit(X, Y)
    assert len(seen) == 6
    assert len({tuple(part) for part in seen}) == 6
    assert all(len(part) < 400 for part in seen)


# ---- text in the features ------------------------------------------------------------------------------------------

COLOURS = np.where(np.arange(400) % 2, "red", "blue")


@pytest.mark.parametrize(
    ("table", "got"),
    [
        (pd.DataFrame({"age": X[:, 0], "colour": COLOURS}), "'blue' in the column 'colour'"),
        (pd.DataFrame({"age": X[:, 0], "colour": pd.Categorical(COLOURS)}), "'blue' in the column 'colour'"),
        (
            pd.DataFrame({"age": X[:, 0], "day": pd.Series(pd.date_range("2020-01-01", periods=400)).astype(object)}),
            "Timestamp.* in the column 'day'",
        ),
        (np.column_stack((X[:, 0].astype(object), COLOURS)), "'blue'"),
        (np.column_stack((COLOURS, COLOURS)), "'blue'"),
        ([[1.0, "blue"], [2.0, "red"]] * 200, "'blue'"),
    ],
    ids=["text", "category", "date", "object array", "text array", "lists"],
)
def test_text_in_the_features_names_the_estimator_for_tables(table: Any, got: str) -> None:
    with pytest.raises(
        ValueError, match=f"X: expected numbers, got {got}; use TableClassifier, which takes columns of a"
    ):
        quick().fit(table, Y)
    model = quick(method="cross-entropy").fit(X[:, :2], Y)
    with pytest.raises(ValueError, match="use TableClassifier"):
        model.predict(np.asarray(table, dtype=object))


def test_other_mistakes_keep_the_words_of_scikit_learn() -> None:
    with pytest.raises(ValueError, match="Input X contains NaN"):
        quick().fit(pd.DataFrame(np.where(X > 2, np.nan, X)), Y)
    assert cross_val_score(quick(model="linear"), pd.DataFrame(X), Y, cv=2).min() > 0.5
