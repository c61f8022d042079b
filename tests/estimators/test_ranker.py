"""MetricRanker among scikit-learn's tools, with every method and metric, with queries of any kind and bad input."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import recipes
import scipy.sparse
import sklearn
import torch
from sklearn.base import clone
from sklearn.metrics import ndcg_score
from sklearn.model_selection import GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from metricgrad import MetricRanker, Recipe
from metricgrad.estimators.ranker import whole_queries
from metricgrad.losses.ranking import QUERY_LOSSES
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import RANKING
from metricgrad.training.data import queries_of
from metricgrad.training.recipe import get_recipe

TINY = replace(recipes.TINY, set_size=400, sets=8, refine_sets=4)


def made(queries: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw queries of unequal size, whose grades follow two features, and their sizes."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, 12, queries)
    X = rng.normal(size=(group.sum(), 5))
    y = (X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=len(X))).round().clip(0, 3)
    return X, y, group


X, Y, GROUP = made()
QID = np.arange(len(GROUP)).repeat(GROUP)


def quick(metric: Any = "ndcg(10)", method: str = "listnet", model: Any = "linear", **how: Any) -> MetricRanker:
    return MetricRanker(metric, method, model, **{"recipe": TINY, "random_state": 0, **how})


def same(one: MetricRanker, other: MetricRanker) -> bool:
    return bool(np.array_equal(one.predict(X), other.predict(X)))


def mean_ndcg(scores: np.ndarray, y: np.ndarray, k: int = 10) -> float:
    """Have scikit-learn judge every query that tells anything."""
    cuts = np.cumsum(GROUP)[:-1]
    pairs = [(g, s) for g, s in zip(np.split(y, cuts), np.split(scores, cuts), strict=True) if np.ptp(g) > 0]
    return float(np.mean([ndcg_score([2**g - 1], [s], k=k) for g, s in pairs]))


# ---- what it learns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sl-r", "sl-s", "sl-u", *QUERY_LOSSES])
@pytest.mark.filterwarnings("ignore:the surrogate of")  # three rounds do not make a surrogate from scratch faithful
def test_every_method_ranks_better_than_chance(method: str) -> None:
    fitted = quick("ndcg(10)", method).fit(X, Y, group=GROUP)
    chance = mean_ndcg(np.random.default_rng(1).normal(size=len(Y)), Y)
    assert fitted.score(X, Y, group=GROUP) > chance + 0.1


def test_patience_does_not_end_a_warm_up_whose_validation_loss_is_unknown() -> None:
    patient = replace(TINY, warmup=60, check_every=1, patience=2, schedule="plateau")
    ranker = quick(recipe=patient).fit(X, Y, group=GROUP)
    assert len([done for done in ranker.history_ if done.phase == "warm-up"]) == 20


@pytest.mark.parametrize("metric", [metric.name for metric in builtin_metrics(RANKING)])
def test_every_metric_of_rankings_can_be_scored(metric: str) -> None:
    fitted = quick(metric).fit(X, Y, group=GROUP)
    scores, judge, found = fitted.predict(X), get_metric(metric), []
    for rows in np.split(np.arange(len(Y)), np.cumsum(GROUP)[:-1]):
        if np.ptp(Y[rows]):
            found.append(float(judge(scores[rows], Y[rows])))
    assert fitted.score(X, Y, group=GROUP) == pytest.approx(1 - np.mean(found), rel=1e-6)


def test_the_score_is_the_mean_of_scikit_learn_over_queries_that_tell_anything() -> None:
    fitted = quick().fit(X, Y, group=GROUP)
    assert fitted.score(X, Y, group=GROUP) == pytest.approx(mean_ndcg(fitted.predict(X), Y), rel=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8, np.float32, bool, list])
def test_grades_may_be_of_any_type_of_number(dtype: Any) -> None:
    grades = (Y > 1).astype(float) if dtype is bool else Y
    given = grades.astype(int).tolist() if dtype is list else grades.astype(dtype)
    fitted = quick().fit(X, grades, group=GROUP)
    assert same(fitted, quick().fit(X, given, group=GROUP))
    assert fitted.score(X, given, group=GROUP) == pytest.approx(fitted.score(X, grades, group=GROUP), rel=1e-12)


def test_queries_are_told_by_size_or_by_name_and_rows_may_be_in_any_order() -> None:
    fitted = quick().fit(X, Y, group=GROUP)
    assert same(fitted, quick().fit(X, Y, qid=QID))
    assert same(fitted, quick().fit(X, Y, qid=[f"query {number}" for number in QID]))
    order = np.random.default_rng(0).permutation(len(Y))
    assert fitted.score(X[order], Y[order], qid=QID[order]) == pytest.approx(fitted.score(X, Y, group=GROUP))


def test_the_verdict_names_the_proxy() -> None:
    verdict = quick("map", "ranknet", recipe=replace(TINY, rounds=0)).fit(X, Y, group=GROUP).verdict_
    assert str(verdict) == "kept LambdaRank"


def test_queries_that_tell_nothing_change_nothing() -> None:
    extra = np.random.default_rng(3).normal(size=(8, 5))
    scale = {"standardise": False}
    fitted = quick(**scale).fit(X, Y, group=GROUP)
    more = np.concatenate((X, extra)), np.concatenate((Y, np.full(8, 2.0)))
    again = quick(**scale).fit(*more, group=[*GROUP, 5, 3])
    assert same(fitted, again)
    assert again.score(*more, group=[*GROUP, 5, 3]) == pytest.approx(again.score(X, Y, group=GROUP))


def test_a_row_of_weight_zero_is_absent_and_one_of_two_is_there_twice() -> None:
    weights = np.full(len(Y), 3.0)
    assert same(quick().fit(X, Y, group=GROUP, sample_weight=weights), quick().fit(X, Y, group=GROUP))
    weights[::4] = 0
    there = weights > 0
    lighter = quick().fit(X, Y, group=GROUP, sample_weight=weights)
    assert same(lighter, quick().fit(X[there], Y[there], qid=QID[there]))
    expected = lighter.score(X[there], Y[there], qid=QID[there])
    assert lighter.score(X, Y, group=GROUP, sample_weight=weights) == pytest.approx(expected)
    counts = np.random.default_rng(0).integers(0, 4, len(Y))
    again = np.repeat(np.arange(len(Y)), counts)
    assert same(quick().fit(X, Y, qid=QID, sample_weight=7.0 * counts), quick().fit(X[again], Y[again], qid=QID[again]))
    for given in ([1.5, *weights[1:]], [5000.0, *weights[1:]]):
        with pytest.raises(ValueError, match=r"sample_weight: expected equal weights, or how often .* at most 1,000"):
            quick().fit(X, Y, group=GROUP, sample_weight=given)


@pytest.mark.filterwarnings("ignore:group, qid. neither is given")
def test_without_queries_all_rows_are_one_and_some_are_held_out() -> None:
    ranker = quick("ndcg").fit(X, Y)
    assert ranker.score(X, Y) == pytest.approx(ndcg_score([2**Y - 1], [ranker.predict(X)], k=10))
    assert ranker.score(X, Y) > 0.9
    held_out = np.arange(len(Y)) % 4 == 0
    given = quick("ndcg").fit(X, Y, validation=held_out)
    assert 1 - given.validation_loss_ == pytest.approx(given.score(X[held_out], Y[held_out]))
    outliers = X + 1e3 * held_out[:, None]
    assert np.array_equal(given.centre_, quick("ndcg").fit(outliers, Y, validation=held_out).centre_)


def test_rows_without_queries_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="group, qid: neither is given, so that all rows are ranked as one query"):
        quick().fit(X, Y)


@pytest.mark.slow  # the whole conformance suite of scikit-learn
@pytest.mark.filterwarnings("ignore:group, qid. neither is given")  # which scikit-learn knows nothing of
@parametrize_with_checks(
    [MetricRanker("ndcg(10)", "listnet", "linear", TINY), MetricRanker("map", "sl-r", "small", TINY)]
)
def test_scikit_learn_finds_nothing_wrong(estimator: MetricRanker, check: Callable[..., Any]) -> None:
    given = dict(estimator.get_params())
    check(estimator)  # raises where something is wrong
    assert estimator.get_params() == given


def test_a_checkpoint_is_chosen_on_the_queries_given_which_are_whole() -> None:
    held_out = QID >= 45
    fitted = quick().fit(X, Y, qid=QID, validation=held_out)
    assert same(fitted, quick().fit(X, Y, qid=QID, validation=np.flatnonzero(held_out)))
    loss = 1 - fitted.score(X[held_out], Y[held_out], qid=QID[held_out])
    assert fitted.validation_loss_ == pytest.approx(loss, rel=1e-5)
    cut = held_out.copy()
    cut[-1] = False
    with pytest.raises(ValueError, match=r"validation: expected whole queries, got \d+ of the \d+ rows of query 59"):
        quick().fit(X, Y, qid=QID, validation=cut)


def test_queries_held_out_are_not_trained_on() -> None:
    held_out, noise = QID >= 45, np.random.default_rng(0)
    changed, scale = X.copy(), {"standardise": False}
    changed[held_out] = noise.normal(size=(held_out.sum(), 5))
    how = {"recipe": Recipe(warmup=6, rounds=0, sets=8, learning_rate=0.03), **scale}  # one look, at the end
    one, other = (quick(**how).fit(x, Y, qid=QID, validation=held_out) for x in (X, changed))
    assert same(one, other)


TRAIN, HELD_OUT = QID < 45, QID >= 45


@pytest.mark.parametrize(
    "kind", [np.asarray, scipy.sparse.csr_matrix, lambda rows: pd.DataFrame(rows, columns=list("abcde"))]
)
def test_validation_queries_beside_the_others_are_as_good_as_some_of_them(kind: Any) -> None:
    among = quick().fit(kind(X), Y, qid=QID, validation=HELD_OUT)
    by_size = quick().fit(
        kind(X[TRAIN]), Y[TRAIN], group=GROUP[:45], validation=(kind(X[HELD_OUT]), Y[HELD_OUT], GROUP[45:])
    )
    renumbered = QID[HELD_OUT] - 45  # the same names as queries trained on, which they are not
    by_name = quick().fit(
        kind(X[TRAIN]), Y[TRAIN], qid=QID[TRAIN], validation=(kind(X[HELD_OUT]), Y[HELD_OUT], renumbered)
    )
    for ranker in (by_size, by_name):
        np.testing.assert_array_equal(ranker.predict(kind(X)), among.predict(kind(X)))
        assert ranker.validation_loss_ == among.validation_loss_


def test_validation_queries_beside_others_that_have_weights_weigh_as_much() -> None:
    weights = np.where(np.arange(len(Y)) % 4, 3.0, 0.0)
    beside = (X[HELD_OUT], Y[HELD_OUT], GROUP[45:])
    ranker = quick().fit(X[TRAIN], Y[TRAIN], group=GROUP[:45], sample_weight=weights[TRAIN], validation=beside)
    assert same(ranker, quick().fit(X, Y, qid=QID, sample_weight=np.where(HELD_OUT, 3.0, weights), validation=HELD_OUT))


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ((X[HELD_OUT], Y[HELD_OUT]), r"validation: expected \(X, y, group\), or \(X, y, qid\) .*, got \(X, y\)"),
        ((X[HELD_OUT], Y[HELD_OUT], [3, 4]), r"validation: group: expected sizes that add up to \d+ rows, got 7"),
        ((X[HELD_OUT][:, :2], Y[HELD_OUT], GROUP[45:]), "validation: expected the 5 features of X, got 2 features"),
        ((X[HELD_OUT], Y[HELD_OUT] * 0, GROUP[45:]), "validation: expected queries whose documents differ in grade"),
    ],
)
def test_validation_queries_that_do_not_fit_are_named(validation: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X[TRAIN], Y[TRAIN], group=GROUP[:45], validation=validation)


def test_outliers_in_validation_queries_do_not_change_the_scale() -> None:
    odd = X.copy()
    odd[HELD_OUT] *= 1e12
    plain, other = (quick().fit(rows, Y, qid=QID, validation=HELD_OUT) for rows in (X, odd))
    np.testing.assert_array_equal(plain.scale_, other.scale_)
    np.testing.assert_array_equal(plain.centre_, other.centre_)


def test_a_callback_that_returns_true_stops_and_recipes_can_be_searched() -> None:
    fitted = quick(callback=lambda done: done.steps >= 9).fit(X, Y, group=GROUP)
    assert fitted.interrupted_
    assert fitted.history_[-1].steps == 9
    assert MetricRanker().set_params(recipe__rounds=7).recipe == replace(get_recipe("queries"), rounds=7)


def test_text_in_the_features_is_named() -> None:
    with pytest.raises(ValueError, match="X: expected numbers, got 'red'; encode it first"):
        quick().fit(np.full(X.shape, "red", dtype=object), Y, group=GROUP)


# ---- scikit-learn's tools ------------------------------------------------------------------------------------------


def test_it_works_in_pipelines_and_is_cloned_and_pickled() -> None:
    piped = make_pipeline(StandardScaler(), quick()).fit(X, Y, metricranker__group=GROUP)
    assert mean_ndcg(piped.predict(X), Y) > 0.8
    fitted = quick("map", "ranknet").fit(X, Y, group=GROUP)
    assert not hasattr(clone(fitted), "network_")
    assert clone(fitted).get_params() == fitted.get_params()
    assert same(fitted, pickle.loads(pickle.dumps(fitted)))


def test_queries_go_along_in_cross_validation() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        ranker = quick().set_fit_request(qid=True).set_score_request(qid=True)
        found = cross_val_score(ranker, X, Y, cv=GroupKFold(3), params={"qid": QID, "groups": QID})
    assert found.shape == (3,)
    assert found.min() > 0.7


def test_sparse_and_dense_input_agree() -> None:
    thin = np.where(np.abs(X) > 0.5, X, 0)
    dense = quick(standardise=False).fit(thin, Y, group=GROUP)
    sparse = quick(standardise=False).fit(scipy.sparse.csr_matrix(thin), Y, group=GROUP)
    np.testing.assert_allclose(dense.predict(thin), sparse.predict(scipy.sparse.csr_matrix(thin)))


def test_scikit_learn_is_told_what_it_takes() -> None:
    tags = get_tags(quick())
    assert tags.input_tags.sparse
    assert tags.target_tags.required


def test_the_same_seed_gives_the_same_model_whatever_torch_drew_before() -> None:
    torch.manual_seed(1)
    one = quick(model="small").fit(X, Y, group=GROUP)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert same(one, quick(model="small").fit(X, Y, group=GROUP))
    assert torch.equal(before, torch.get_rng_state())
    assert joblib.hash(one.predict(X)) != joblib.hash(
        quick(model="small", random_state=1).fit(X, Y, group=GROUP).predict(X)
    )


def test_a_notebook_shows_what_fitting_found() -> None:
    shown = quick().fit(X, Y, group=GROUP)._repr_mimebundle_()["text/html"]
    assert "NDCG@10 0." in shown
    assert "on validation rows" in shown


def test_rounds_are_called_back_and_time_is_limited() -> None:
    seen: list[int] = []
    endless = Recipe(warmup=0, rounds=10**6, sets=4, check_every=1)
    fitted = quick(recipe=endless, time_limit=0.2, callback=lambda done: seen.append(done.number)).fit(X, Y, qid=QID)
    assert fitted.interrupted_
    assert len(fitted.history_) == len(seen) > 0


# ---- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "f1"}, r"metric: expected one of rankings \(ndcg, map, mrr, err\), got 'f1'"),
        ({"method": "cross-entropy"}, "method: expected one of sl-r, sl-s, sl-u, ranknet, listnet, lambdarank, got"),
        ({"validation_fraction": 1.0}, "validation_fraction: expected a number between 0 and 1, got 1.0"),
        ({"time_limit": 0}, "time_limit: expected a positive number of seconds or None, got 0"),
        ({"recipe": "slow"}, "recipe: expected one of .*queries.*, got 'slow'"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**change).fit(X, Y, group=GROUP)


@pytest.mark.parametrize(
    ("y", "how", "message"),
    [
        (Y - 1, {"group": GROUP}, "y: expected grades of at least 0, got -1"),
        (Y, {"group": GROUP, "qid": QID}, "group, qid: expected one of them"),
        (Y, {"group": [len(Y)]}, "y: expected two queries at least whose documents differ in grade, got 1"),
        (Y * 0, {"group": GROUP}, "y: expected two queries at least whose documents differ in grade, got 0"),
        (Y, {"group": GROUP, "validation": np.ones(len(Y), bool)}, "validation must be some of"),
        (Y + 9 * (QID == 0), {"group": GROUP, "metric": "err"}, "targets: expected grades of at most 4, got"),
    ],
)
def test_queries_that_cannot_be_learned_from_are_refused(y: np.ndarray, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(how.get("metric", "map")).fit(X, y, **{key: value for key, value in how.items() if key != "metric"})


def test_validation_queries_have_to_tell_something() -> None:
    y = np.where(QID >= 50, 1.0, Y)
    with pytest.raises(ValueError, match="validation: expected queries whose documents differ in grade on both sides"):
        quick().fit(X, y, qid=QID, validation=QID >= 50)


def test_grades_of_other_rows_cannot_be_scored() -> None:
    fitted = quick().fit(X, Y, group=GROUP)
    with pytest.raises(ValueError, match=f"y: expected a grade for each of {len(Y)} rows, got 2"):
        fitted.score(X, Y[:2], group=[2])


def test_rows_are_whole_queries_or_the_one_they_cut_is_named() -> None:
    queries = queries_of(6, group=[1, 2, 3])
    assert whole_queries(queries, np.array([1, 0, 0, 1, 1, 1], bool)).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="validation: expected whole queries, got 2 of the 3 rows of query 2"):
        whole_queries(queries, np.array([1, 0, 0, 0, 1, 1], bool))
