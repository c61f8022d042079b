"""MetricClassifier among scikit-learn's tools, with every model, method and metric, and with bad input."""

from __future__ import annotations

import io
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import skops.io
import torch
import torchmetrics.classification as tm
from recipes import TINY
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from metricgrad import Metric, MetricClassifier, Recipe, best_threshold, black_box, get_metric
from metricgrad.losses.binary import BASELINES, TUNED
from metricgrad.training import data as table
from metricgrad.training.networks import MODELS, mlp

STEEP = replace(TINY, learning_rate=0.2)  # for linear models, which have further to go
X, Y = make_classification(
    400, 6, n_informative=4, n_redundant=0, n_clusters_per_class=1, weights=[0.7], flip_y=0.1, random_state=0
)
NAMES = np.where(Y == 1, "yes", "no")


def quick(metric: Any = "f1", method: str = "sl-r", model: Any = "small", **how: Any) -> MetricClassifier:
    return MetricClassifier(metric, method, model, **{"recipe": TINY, "random_state": 0, **how})


def weights_of(model: MetricClassifier) -> list[torch.Tensor]:
    return list(model.network_.state_dict().values())


def same_weights(a: MetricClassifier, b: MetricClassifier) -> bool:
    return all(torch.equal(x, y) for x, y in zip(weights_of(a), weights_of(b), strict=True))


@pytest.mark.slow  # the whole conformance suite of scikit-learn
@pytest.mark.filterwarnings("ignore:y. one class has a single row")  # as it does in two of the checks
@parametrize_with_checks(
    [
        MetricClassifier(recipe=TINY),
        MetricClassifier(method="cross-entropy", model="linear", recipe=STEEP),
        MetricClassifier(method="cross-entropy", model="additive", recipe=STEEP),
    ]
)
def test_scikit_learn_finds_nothing_wrong(estimator: MetricClassifier, check: Callable[..., Any]) -> None:
    given = dict(estimator.get_params())
    check(estimator)  # raises where something is wrong
    assert estimator.get_params() == given, "a check, and what it calls, leave what they are given as it is"


# ---- what a fitted model says --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sl-r", "sl-s", "sl-u", "cross-entropy"])
@pytest.mark.parametrize("metric", ["f1", "average_precision"])
def test_every_method_learns(method: str, metric: str) -> None:
    model = quick(metric, method).fit(X, Y)
    assert model.score(X, Y) > 0.8
    assert roc_auc_score(Y, model.decision_function(X)) > 0.9


@pytest.mark.parametrize("method", BASELINES)
def test_every_baseline_is_a_method(method: str) -> None:
    model = quick("auc", method, recipe=replace(TINY, warmup=0, rounds=20)).fit(X, Y)
    assert model.score(X, Y) > 0.85


def test_the_cost_of_a_positive_row_is_the_one_that_loses_least_on_the_validation_rows() -> None:
    recipe = replace(TINY, warmup=3, rounds=8)
    tuned = quick("f1", "cost-sensitive", recipe=recipe).fit(X, Y)
    alone = [_with_one_cost(make, recipe) for make in TUNED["cost-sensitive"]]
    losses = [model.validation_loss_ for model in alone]
    assert len(set(losses)) > 1
    assert same_weights(tuned, alone[int(np.argmin(losses))])
    assert tuned.validation_loss_ == min(losses)
    assert len(tuned.history_) == len(alone[0].history_)


def _with_one_cost(make: Callable[[], nn.Module], recipe: Recipe) -> MetricClassifier:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TUNED, "cost-sensitive", (make,))
        return quick("f1", "cost-sensitive", recipe=recipe).fit(X, Y)


def test_predictions_are_decisions_of_at_least_zero() -> None:
    model = quick().fit(X, NAMES)
    assert list(model.classes_) == ["no", "yes"]
    decisions = model.decision_function(X)
    assert decisions.shape == (400,)
    assert decisions.dtype == np.float64
    np.testing.assert_array_equal(model.predict(X), np.where(decisions >= 0, "yes", "no"))


def test_the_score_is_the_metric_as_people_know_it() -> None:
    weights = np.random.default_rng(0).random(400)
    model = quick("f1").fit(X, NAMES)
    assert model.score(X, NAMES) == pytest.approx(f1_score(Y, model.predict(X) == "yes"))
    assert model.score(X, NAMES, weights) == pytest.approx(
        f1_score(Y, model.predict(X) == "yes", sample_weight=weights)
    )


def test_a_metric_people_want_low_is_scored_negated() -> None:
    model = quick("error_rate", "cross-entropy").fit(X, Y)
    assert model.score(X, Y) == pytest.approx((model.predict(X) == Y).mean() - 1)


def test_the_history_tells_every_round() -> None:
    model = quick().fit(X, Y)
    phases = [(done.phase, done.number, done.of) for done in model.history_]
    assert phases == [("warm-up", n, 45) for n in range(3, 46, 3)] + [("rounds", n, 3) for n in (1, 2, 3)]
    assert model.history_[-1].gap > 0
    assert not model.interrupted_


def test_the_best_model_on_validation_rows_is_kept() -> None:
    model = quick("average_precision").fit(X, Y)
    seen = [done.validation for done in model.history_ if done.validation == done.validation]
    assert model.validation_loss_ == pytest.approx(min(seen), abs=1e-6)


def test_every_method_starts_from_the_same_warm_up() -> None:
    starts = [
        [done.loss for done in quick(method=method, model="mlp").fit(X, Y).history_ if done.phase == "warm-up"]
        for method in ("sl-r", "sl-s", "cross-entropy")
    ]
    assert starts[0] == starts[1] == starts[2]


def test_a_row_scores_the_same_whatever_rows_lie_beside_it() -> None:
    model = quick(model="mlp").fit(X, Y)
    alone = np.concatenate([model.decision_function(row[None]) for row in X[:20]])
    np.testing.assert_allclose(alone, model.decision_function(X)[:20], rtol=1e-10)


def test_large_tables_are_scored_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick().fit(X, Y)
    whole = model.decision_function(X)
    monkeypatch.setattr("metricgrad.training.data.ROWS_AT_ONCE", 64)
    np.testing.assert_allclose(model.decision_function(X), whole, rtol=1e-10)


# ---- threshold -----------------------------------------------------------------------------------------------------


def test_the_threshold_is_a_number_if_given() -> None:
    model = quick(threshold=1.5).fit(X, Y)
    free = quick().fit(X, Y)
    assert model.threshold_ == 1.5
    shift = free.threshold_ - 1.5
    np.testing.assert_allclose(model.decision_function(X), free.decision_function(X) + shift)


@pytest.mark.parametrize("metric", ["f1", "mcc", "error_rate", "jaccard"])
def test_no_other_threshold_is_better_on_the_validation_rows(metric: str) -> None:
    model = quick(metric, "cross-entropy", validation_fraction=0.5).fit(X, Y)
    best = min(done.validation for done in model.history_ if done.validation == done.validation)
    assert model.validation_loss_ == pytest.approx(best, abs=1e-6)


def test_a_threshold_of_cross_validation_is_near_the_best_one() -> None:
    model = quick(threshold="cv", method="cross-entropy").fit(X, Y)
    again = quick(threshold="cv", method="cross-entropy").fit(X, Y)
    raw = model.decision_function(X) + model.threshold_
    f1 = get_metric("f1")
    assert float(f1.best(raw, Y)) <= 1 - model.score(X, Y) < float(f1.best(raw, Y)) + 0.03
    assert model.threshold_ == again.threshold_ != best_threshold(f1, raw, Y)
    assert same_weights(model, quick(method="cross-entropy").fit(X, Y))


@pytest.mark.parametrize("threshold", ["validation", "cv"])
def test_where_no_threshold_matters_it_is_zero(threshold: str) -> None:
    assert quick("auc", threshold=threshold).fit(X, Y).threshold_ == 0


def test_a_recipe_that_trains_at_zero_cuts_at_zero() -> None:
    recipe = Recipe(warmup=60, rounds=3, learning_rate=0.03, form="zero", trust=-1.0)
    model = quick("f1", "sl-s", recipe=recipe).fit(X, Y)
    assert model.threshold_ == 0
    assert model.score(X, Y) > 0.7


# ---- models --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [*MODELS, nn.Linear(6, 1), lambda features: mlp(features, (8,))], ids=[*MODELS, "module", "factory"]
)
def test_a_model_is_a_name_a_module_or_a_factory(model: Any) -> None:
    assert quick(model=model, recipe=STEEP).fit(X, Y).score(X, Y) > 0.7


def test_a_module_of_the_user_is_copied_and_keeps_its_precision() -> None:
    own = nn.Linear(6, 1)
    before = own.weight.detach().clone()
    model = quick(model=own).fit(X, Y)
    assert torch.equal(own.weight, before)
    assert own.training
    assert model.network_.body.weight.dtype == torch.float32
    assert not torch.equal(model.network_.body.weight, before)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (nn.Linear(6, 2), ValueError, r"model: expected an output of shape \(\d+,\) or \(\d+, 1\), got \(\d+, 2\)"),
        (nn.AvgPool1d(6), ValueError, "model: expected a module with parameters to train, got"),
        (
            "forest",
            ValueError,
            "model: expected one of auto, readable, mlp, small, .*, a module or a factory, got 'forest'",
        ),
        (5, TypeError, "model: expected a name, a torch module or a factory, got 5"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quick(model=model).fit(X, Y)


# ---- metrics -------------------------------------------------------------------------------------------------------


def profit(y_true: Any, y_pred: Any) -> float:
    return float(10 * y_true[y_pred == 1].sum() - 4 * y_pred.sum())


def ranking(y_true: Any, y_score: Any, sample_weight: Any = None) -> float:
    return float(roc_auc_score(y_true, y_score, sample_weight=sample_weight))


@pytest.mark.parametrize(
    "metric",
    [
        black_box(profit, higher_is_better=True, labels=True, candidates=4),
        black_box(ranking, higher_is_better=True, value_range=(0, 1)),
        tm.BinaryF1Score(),
        tm.BinaryAUROC(),
    ],
    ids=["labels", "scores", "torchmetrics-labels", "torchmetrics-scores"],
)
def test_a_metric_may_be_any_callable(metric: Any) -> None:
    recipe = Recipe(warmup=45, rounds=2, surrogate_steps=1, refine_sets=4, set_size=100, learning_rate=0.03, trust=-1.0)
    model = quick(metric, "sl-s", recipe=recipe).fit(X, Y)
    known = {"profit": 200, "ranking": 0.9, "BinaryF1Score": 0.75, "BinaryAUROC": 0.9}
    name = metric.name if isinstance(metric, Metric) else type(metric).__name__
    assert model.score(X, Y) > known[name]
    assert roc_auc_score(Y, model.decision_function(X)) > 0.9


# ---- weights -------------------------------------------------------------------------------------------------------


def test_weighing_a_row_is_repeating_it_and_weight_zero_is_leaving_it_out() -> None:
    counts = np.random.default_rng(0).integers(0, 3, 400)
    weighed = quick(model="mlp").fit(X, Y, sample_weight=counts)
    repeated = quick(model="mlp").fit(np.repeat(X, counts, axis=0), np.repeat(Y, counts))
    assert same_weights(weighed, repeated)
    assert weighed.threshold_ == repeated.threshold_


def test_weights_change_what_is_learned() -> None:
    model = quick("f1").fit(X, Y, sample_weight=np.where(X[:, 0] > 0, 10.0, 0.1))
    assert not same_weights(model, quick("f1").fit(X, Y))


def test_weights_are_refused_where_the_metric_takes_none() -> None:
    metric = black_box(profit, higher_is_better=False, labels=True)
    weights = np.linspace(1, 2, 400)
    message = "sample_weight: expected equal weights because the metric 'profit' takes none, got 1 to 2"
    with pytest.raises(ValueError, match=message):
        quick(metric, "cross-entropy").fit(X, Y, weights)
    quick(metric, "cross-entropy").fit(X, Y, np.full(400, 3.0))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(400), "sample_weight: expected at least one positive weight, got only zeros"),
        (Y.astype(float), "sample_weight: expected a positive weight in both classes, got one class of zeros"),
        (-np.ones(400), "Negative values in data passed to `sample_weight`"),
        (np.ones(3), r"sample_weight.shape == \(3,\), expected \(400,\)"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(X, Y, weights)


# ---- going on ------------------------------------------------------------------------------------------------------


def test_a_warm_start_goes_on_from_the_last_model() -> None:
    going_on = quick(warm_start=True).fit(X, Y)
    first, scale = going_on.validation_loss_, going_on.scale_
    network = going_on.network_
    kept = [tensor.clone() for tensor in weights_of(going_on)]
    going_on.set_params(recipe=Recipe(warmup=0, rounds=2, trust=-1.0, check_every=1)).fit(X, Y)
    assert going_on.validation_loss_ <= first
    assert len(going_on.history_) == 2
    np.testing.assert_array_equal(going_on.scale_, scale)
    assert going_on.network_ is not network
    assert all(torch.equal(a, b) for a, b in zip(kept, network.state_dict().values(), strict=True))


def test_a_warm_start_and_a_cross_validated_threshold_do_not_disturb_each_other() -> None:
    model = quick(warm_start=True, threshold="cv", method="cross-entropy").fit(X, Y).fit(X, Y)
    twin = quick(warm_start=True, method="cross-entropy").fit(X, Y).fit(X, Y)
    assert same_weights(model, twin)


def test_a_warm_start_needs_the_same_features_and_classes() -> None:
    model = quick(warm_start=True).fit(X, Y)
    with pytest.raises(ValueError, match="X has 5 features, but MetricClassifier is expecting 6"):
        model.fit(X[:, :5], Y)
    with pytest.raises(ValueError, match=r"y: expected the classes of the last fit, \[0 1\], to go on, got \['no'"):
        model.fit(X, NAMES)


# ---- input ---------------------------------------------------------------------------------------------------------


def test_a_data_frame_is_known_by_its_columns() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = quick().fit(frame, pd.Series(NAMES))
    assert list(model.feature_names_in_) == list("abcdef")
    np.testing.assert_array_equal(model.decision_function(frame), quick().fit(X, NAMES).decision_function(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("fedcba")])


def test_sparse_and_dense_input_agree() -> None:
    holes = X * (np.random.default_rng(0).random(X.shape) < 0.6)
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.coo_array):
        sparse = quick(standardise=False).fit(kind(holes), Y)
        dense = quick(standardise=False).fit(holes, Y)
        np.testing.assert_array_equal(sparse.decision_function(kind(holes)), dense.decision_function(holes))
    scaled = quick().fit(scipy.sparse.csr_matrix(holes), Y)  # without centring, zeros stay zeros
    assert scaled.score(holes, Y) == pytest.approx(quick().fit(holes, Y).score(holes, Y), abs=0.05)
    np.testing.assert_array_equal(scaled.centre_, np.zeros(6))


def test_features_far_from_zero_are_scaled_without_losing_them() -> None:
    moved = X + 1e9
    assert quick("auc").fit(moved, Y).score(moved, Y) == pytest.approx(quick("auc").fit(X, Y).score(X, Y), abs=0.01)


def test_a_constant_feature_does_no_harm() -> None:
    constant = np.column_stack((X, np.full(400, 1e6)))
    model = quick().fit(constant, Y)
    assert model.scale_[-1] == 1
    assert model.score(constant, Y) > 0.75


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.where(X > 2, np.nan, X), Y, "Input X contains NaN"),
        (X, np.zeros(400), r"y: expected two classes, got one class only: 0\.0$"),
        (X, np.arange(400) % 3, "Only binary classification is supported. The type of the target is multiclass"),
        (X, X[:, 0], "Unknown label type: continuous"),
        (X[:1], Y[:1], "Found array with 1 sample.* while a minimum of 2 is required"),
        (X[:2], [0, 1], "y must have a class with enough rows for every part"),
        (X, Y[:9], "inconsistent numbers of samples"),
    ],
)
def test_data_that_cannot_be_learned_from_is_refused(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(x, y)


def test_a_class_of_one_row_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="y: one class has a single row, so the validation rows hold one class only"):
        quick(method="cross-entropy").fit(X, np.arange(400) == 7)


def test_three_rows_are_enough() -> None:
    model = quick(method="cross-entropy", model="linear")
    with pytest.warns(UserWarning, match="y: one class has a single row"):
        assert set(model.fit([[0.0], [1.0], [2.0]], [0, 0, 1]).predict([[0.0], [2.0]])) <= {0, 1}


@pytest.mark.parametrize(
    ("argument", "value", "error", "message"),
    [
        ("metric", "f11", ValueError, "metric: unknown name 'f11'; did you mean f1"),
        (
            "metric",
            3,
            TypeError,
            "metric: expected a name, .*, a scorer or a callable, got 3",
        ),
        ("method", "adam", ValueError, "method: expected one of auto, sl-r, sl-s, sl-u, .*cross-entropy.*, got 'adam'"),
        ("recipe", "fast", ValueError, "recipe: expected one of default, .* or a Recipe, got 'fast'"),
        ("threshold", "test", ValueError, "threshold: expected 'validation', 'cv' or a finite number, got 'test'"),
        ("threshold", None, ValueError, "threshold: expected 'validation', 'cv' or a finite number, got None"),
        ("threshold", np.nan, ValueError, "threshold: expected 'validation', 'cv' or a finite number, got nan"),
        ("validation_fraction", 1.0, ValueError, "validation_fraction: expected a number between 0 and 1, got 1.0"),
        ("validation_fraction", "a", ValueError, "validation_fraction: expected a number between 0 and 1, got 'a'"),
        ("random_state", -1, ValueError, "random_state: expected zero or more, got -1"),
        ("random_state", "x", ValueError, "'x' cannot be used to seed"),
    ],
)
def test_bad_arguments_are_named(argument: str, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quick(**{argument: value}).fit(X, Y)


def test_cross_validation_of_few_rows_is_refused_by_name() -> None:
    few = np.array([0, 0, 0, 1, 0, 0])
    with pytest.raises(
        ValueError, match=r"threshold: expected at least 2 rows of each class .* for 'cv', got \[5, 1\]"
    ):
        quick(threshold="cv", method="cross-entropy").fit(X[:6], few)


def test_labels_never_seen_cannot_be_scored() -> None:
    model = quick().fit(X, NAMES)
    with pytest.raises(ValueError, match=r"y: expected the classes \['no' 'yes'\], got .*'maybe'"):
        model.score(X[:2], ["yes", "maybe"])


# ---- among scikit-learn's tools ------------------------------------------------------------------------------------


def test_it_works_in_pipelines_searches_and_cross_validation() -> None:
    pipeline = make_pipeline(StandardScaler(), quick(model="linear", recipe=STEEP))
    assert cross_val_score(pipeline, X, NAMES, cv=2).min() > 0.7
    grid = {"metricclassifier__metric": ["f1", "auc"], "metricclassifier__method": ["sl-u", "cross-entropy"]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="roc_auc", error_score="raise").fit(X, NAMES)
    assert search.best_score_ > 0.9
    assert set(search.predict(X)) == {"yes", "no"}


def test_a_clone_is_unfitted_and_alike() -> None:
    model = quick("mcc", threshold="cv", model=nn.Linear(6, 1)).fit(X, Y)
    copy = clone(quick("mcc", threshold=0.5))
    assert (copy.metric, copy.threshold, copy.recipe) == ("mcc", 0.5, TINY)
    assert not hasattr(clone(model), "network_")


@pytest.mark.parametrize("model", [*MODELS, nn.Linear(6, 1)], ids=str)
def test_joblib_and_pickle_bring_the_model_back(model: Any) -> None:
    fitted = quick(model=model).fit(X, NAMES)
    file = io.BytesIO()
    joblib.dump(fitted, file)
    file.seek(0)
    for copy in (joblib.load(file), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(copy.decision_function(X), fitted.decision_function(X))
        np.testing.assert_array_equal(copy.predict(X), fitted.predict(X))
        assert copy.history_ == fitted.history_ or str(copy.history_) == str(fitted.history_)


@pytest.mark.parametrize("model", MODELS)
def test_skops_brings_the_model_back_trusting_our_own_types_only(model: str) -> None:
    fitted = quick(model=model).fit(X, NAMES)
    data = skops.io.dumps(fitted)
    types = skops.io.get_untrusted_types(data=data)
    ours = {
        "metricgrad.estimators.classifier.MetricClassifier",
        "metricgrad.estimators.probabilities.Probabilities",
        "metricgrad.training.calibration.Calibration",
        "metricgrad.training.history.Round",
        "metricgrad.training.history.Tried",
        "metricgrad.training.history.Verdict",
        "metricgrad.training.networks.Scorer",
        "metricgrad.training.recipe.Recipe",
    }
    followed = {f"metricgrad.training.history.{name}" for name in ("Round", "Tried", "Verdict")}
    assert set(types) == (ours - followed if model == "lightgbm" else ours)
    copy = skops.io.loads(data, trusted=types)
    np.testing.assert_array_equal(copy.decision_function(X), fitted.decision_function(X))
    np.testing.assert_array_equal(copy.predict_proba(X), fitted.predict_proba(X))
    assert copy.recipe == TINY
    copy.set_params(warm_start=True).fit(X, NAMES)  # and it can learn on


# ---- reproducibility -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sl-r", "sl-s", "cross-entropy"])
def test_the_same_seed_gives_the_same_model_to_the_bit(method: str) -> None:
    first, again, other = (quick(method=method, model="mlp", random_state=s).fit(X, Y) for s in (3, 3, 4))
    assert same_weights(first, again)
    assert first.threshold_ == again.threshold_
    assert not same_weights(first, other)


@pytest.mark.slow  # fits in several states of the world
def test_the_state_of_the_world_is_neither_used_nor_changed() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model = quick(method="sl-s", model="mlp", threshold="cv").fit(X, Y)
    assert torch.equal(before[0], torch.random.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(2)
    assert same_weights(model, quick(method="sl-s", model="mlp", threshold="cv").fit(X, Y))


def test_a_random_state_is_a_source_of_seeds() -> None:
    source = np.random.RandomState(0)
    models = [quick(random_state=source).fit(X, Y) for _ in range(2)]
    assert not same_weights(*models)
    assert same_weights(models[0], quick(random_state=np.random.RandomState(0)).fit(X, Y))


# ---- Ctrl-C --------------------------------------------------------------------------------------------------------


class CtrlC:
    """An error rate that presses Ctrl-C at one of its calls."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> float:
        self.calls += 1
        if self.calls == self.at:
            signal.raise_signal(signal.SIGINT)
        return float(np.average(y_true != y_pred, weights=sample_weight))


@pytest.fixture
def python_handles_ctrl_c() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("python_handles_ctrl_c")
@pytest.mark.parametrize("verbose", [False, True])
def test_ctrl_c_keeps_the_best_model_so_far(verbose: bool) -> None:
    # With a look at every second round of three steps, the fifth look is in the tenth round of the warm-up.
    metric = black_box(CtrlC(at=4 * 6 + 1), higher_is_better=False, labels=True, candidates=4)
    model = quick(metric, "cross-entropy", verbose=verbose)
    with pytest.warns(UserWarning, match="fit: stopped by the user; the best model so far is kept"):
        model.fit(X, Y)
    assert model.interrupted_
    assert [done.number for done in model.history_] == list(range(3, 28, 3))
    seen = [done.validation for done in model.history_ if done.validation == done.validation]
    assert len(seen) == 4
    assert model.validation_loss_ <= min(seen)
    assert (model.predict(X) == Y).mean() > 0.7


@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_ctrl_c_while_tuning_keeps_the_best_of_the_models_so_far() -> None:
    recipe = replace(TINY, warmup=0, rounds=4)
    calm = black_box(CtrlC(at=0), higher_is_better=False, labels=True, candidates=4)
    _ = quick(calm, "focal", recipe=recipe).fit(X, Y)
    metric = black_box(CtrlC(at=calm.function.fn.calls + 2), higher_is_better=False, labels=True, candidates=4)
    with pytest.warns(UserWarning, match="stopped by the user"):
        model = quick(metric, "cost-sensitive", recipe=recipe).fit(X, Y)
    assert model.interrupted_
    assert len(model.history_) == 4
    assert (model.predict(X) == Y).mean() > 0.7


@pytest.mark.usefixtures("python_handles_ctrl_c")
def test_ctrl_c_while_cross_validating_falls_back_on_the_validation_rows() -> None:
    calm = quick(
        black_box(CtrlC(at=0), higher_is_better=False, labels=True, candidates=4),
        "cross-entropy",
        threshold="validation",
    ).fit(X, Y)
    pressed = calm.metric.function.fn.calls
    metric = black_box(CtrlC(at=pressed), higher_is_better=False, labels=True, candidates=4)
    with pytest.warns(UserWarning, match="stopped by the user"):
        model = quick(metric, "cross-entropy", threshold="cv").fit(X, Y)
    assert model.interrupted_
    assert same_weights(model, calm)
    assert model.threshold_ == calm.threshold_


def test_progress_is_shown_if_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "160")
    quick(verbose=True).fit(X, Y)
    shown = capsys.readouterr().err
    assert "training: warm-up" in shown
    assert "validation F1 0." in shown


def test_a_table_of_one_yes_or_no_column_is_learned_as_any_other() -> None:
    x = np.tile([[0.0], [1.0]], (50, 1))
    model = quick(model="linear").fit(x, x[:, 0].astype(int))
    assert model.score(x, x[:, 0].astype(int)) == 1.0


def test_a_class_of_zero_weight_is_refused_in_large_tables_too() -> None:
    x = np.random.RandomState(0).normal(size=(10_001, 2))
    y = (x[:, 0] > 0).astype(int)
    with pytest.raises(ValueError, match="sample_weight: expected a positive weight in both classes"):
        quick().fit(x, y, sample_weight=(y == 0).astype(float))


@pytest.mark.parametrize("module", [nn.Linear(7, 1), nn.Linear(X.shape[1], 1).double()])
def test_a_model_that_does_not_fit_the_table_is_named(module: nn.Module) -> None:
    with pytest.raises(ValueError, match=rf"model: expected a module that scores {X.shape[1]} features in single"):
        quick(model=module).fit(X, Y)


def test_accuracy_is_scored_as_people_know_it() -> None:
    model = quick(metric="accuracy", model="linear").fit(X, Y)
    assert model.score(X, Y) == pytest.approx((model.predict(X) == Y).mean())


# ---- validation rows of one's own, and a limit of time ---------------------------------------------------------------


def test_checkpoint_and_threshold_are_chosen_on_the_validation_rows_given() -> None:
    given = np.random.RandomState(0).permutation(400)[:150]
    model = quick(method="cross-entropy").fit(X, Y, validation=given)
    scores = model.decision_function(X[given])
    assert model.validation_loss_ == pytest.approx(1 - f1_score(Y[given], scores >= 0), abs=1e-6)
    assert model.validation_loss_ == pytest.approx(float(get_metric("best_f1")(scores, Y[given])), abs=1e-6)
    assert same_weights(model, quick(method="cross-entropy").fit(X, Y, validation=np.isin(np.arange(400), given)))


def test_rows_given_for_validation_are_not_trained_on() -> None:
    given = np.arange(0, 400, 5)
    wrong = Y.copy()
    wrong[given] = 1 - wrong[given]
    fixed = {"method": "cross-entropy", "threshold": 0.0, "recipe": replace(TINY, warmup=9, rounds=0, check_every=100)}
    # With one look at the validation rows, at the end, their labels change nothing.
    right = quick(**fixed).fit(X, Y, validation=given)
    assert same_weights(right, quick(**fixed).fit(X, wrong, validation=given))
    assert not same_weights(right, quick(**fixed).fit(X, wrong, validation=given + 1))


def test_validation_rows_that_leave_one_class_are_refused() -> None:
    with pytest.raises(ValueError, match="validation: expected to leave both classes to train on, got one class only"):
        quick().fit(X, Y, validation=Y == 1)
    with pytest.raises(ValueError, match="threshold: expected no 'cv' with given validation rows"):
        quick(threshold="cv").fit(X, Y, validation=[0, 1])
    with pytest.warns(UserWarning, match="validation: the validation rows hold one class only"):
        quick().fit(X, Y, validation=np.flatnonzero(Y == 1)[:20])


def test_the_time_limit_stops_training_and_keeps_the_best_so_far() -> None:
    long = replace(TINY, rounds=100_000)
    model = quick(method="cross-entropy", recipe=long, time_limit=1e-9).fit(X, Y)
    assert model.interrupted_
    assert len(model.history_) == 1
    assert np.isfinite(model.decision_function(X)).all()
    within = quick(method="cross-entropy", time_limit=1e9).fit(X, Y)
    assert not within.interrupted_
    assert same_weights(within, quick(method="cross-entropy").fit(X, Y))


@pytest.mark.parametrize("limit", [0, -1, "1", float("nan"), True])
def test_a_time_limit_is_a_positive_number(limit: object) -> None:
    with pytest.raises(ValueError, match="time_limit: expected a positive number of seconds or None"):
        quick(time_limit=limit).fit(X, Y)


@pytest.mark.parametrize("threshold", ["validation", "cv"])
def test_a_large_table_is_scaled_as_it_is_drawn_and_gives_the_same_model(
    monkeypatch: pytest.MonkeyPatch, threshold: str
) -> None:
    rng = np.random.default_rng(0)
    X = (3 + 2 * rng.standard_normal((900, 4))).astype(np.float32)
    y, weights = X[:, 0] + rng.standard_normal(900) > 5, rng.uniform(0.5, 2, 900)
    short = Recipe(warmup=6, rounds=3, set_size=50, trust=-1)

    def fitted() -> MetricClassifier:
        return MetricClassifier("f1", recipe=short, threshold=threshold).fit(X, y, weights)

    whole = fitted()
    drawn_rows: list[tuple[int, ...]] = []
    lazy = table.LazyFeatures
    taken = lazy.__getitem__
    monkeypatch.setattr(lazy, "__getitem__", lambda own, some: drawn_rows.append(own.shape) or taken(own, some))
    monkeypatch.setattr(table, "LAZY_CELLS", 0)
    drawn = fitted()
    assert drawn_rows  # else nothing was drawn
    assert np.array_equal(whole.decision_function(X), drawn.decision_function(X))
    assert whole.threshold_ == drawn.threshold_
