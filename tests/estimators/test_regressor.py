"""Tests of the regressor: what it is trained for, what wins and why, and what scikit-learn expects."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from recipes import TINY
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.metrics import mean_absolute_error, mean_pinball_loss, r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from metricgrad import MetricRegressor, Recipe, TableRegressor, black_box, get_metric
from metricgrad.estimators.candidates import FoldModel, NumberCandidate
from metricgrad.estimators.metric_estimator import Trained, scores_in_double
from metricgrad.estimators.regressor import fit_beside_usual
from metricgrad.losses.default import SquaredError
from metricgrad.losses.regression import AbsoluteError, Pinball
from metricgrad.metrics.constants import Units
from metricgrad.strategies import direct
from metricgrad.strategies.number_losses import Longer
from metricgrad.training.data import Rows, Scaler
from metricgrad.training.direct import DirectSearch
from metricgrad.training.history import Round
from metricgrad.training.recipe import get_recipe
from metricgrad.training.trees import grow_trees, has_lightgbm

STEEP = replace(
    get_recipe("linear"), rounds=2, set_size=200, trust=-1.0, trust_cap=20, baseline_steps=150, learning_rate=0.05
)
SHORT = Recipe(
    warmup=120, rounds=8, set_size=100, refine_sets=2, trust=-1.0, trust_cap=20, check_every=4, learning_rate=0.02
)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3))
NOISE = RNG.normal(size=500)
PRICES = np.exp(3 + 0.6 * X[:, 0] - 0.3 * X[:, 1] + 0.15 * NOISE)
TRAINED, KEPT = slice(0, 400), slice(400, 500)
COUNTS = 40 + 10 * X[:, 0] + (2 + 3 * np.abs(X[:, 2])) * NOISE


@pytest.mark.slow  # the whole conformance suite of scikit-learn
@parametrize_with_checks(
    [
        MetricRegressor("r2", model="linear", recipe=STEEP),
        MetricRegressor("r2", "usual", recipe=replace(TINY, warmup=300, learning_rate=0.03)),
    ]
)
def test_scikit_learn_finds_nothing_wrong(estimator: MetricRegressor, check: Callable[..., Any]) -> None:
    given = dict(estimator.get_params())
    check(estimator)  # raises where something is wrong
    assert estimator.get_params() == given


@pytest.fixture(scope="module", autouse=True)
def short_search() -> Iterator[None]:
    """Let direct search try 300 candidates, a tenth of what it does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "DirectSearch", partial(DirectSearch, evaluations=300))
        yield


@pytest.fixture(scope="module")
def costly_shortage() -> MetricRegressor:
    model = MetricRegressor("step_cost(9,1)", model="linear", recipe=STEEP, random_state=1, folds=1)
    return model.fit(X[:400], COUNTS[:400])


@pytest.fixture(scope="module")
def folded() -> MetricRegressor:
    """The same on five folds, which is the default."""
    return MetricRegressor("step_cost(9,1)", model="linear", recipe=STEEP, random_state=1).fit(X[:400], COUNTS[:400])


# ---- what is trained for ---------------------------------------------------------------------------------------------


def test_a_cost_by_side_is_trained_for_and_lower_than_that_of_least_squares(costly_shortage: MetricRegressor) -> None:
    short = (costly_shortage.predict(X[400:]) < COUNTS[400:]).mean()
    assert short < 0.3
    usual = MetricRegressor("mse", "mse", "linear").fit(X[:400], COUNTS[:400])
    metric = get_metric("step_cost(9,1)")
    costs = [float(metric(model.predict(X[400:]), COUNTS[400:])) for model in (costly_shortage, usual)]
    assert costs[0] < 0.8 * costs[1]
    assert costly_shortage.score(X[400:], COUNTS[400:]) == pytest.approx(-costs[0])


def test_the_winner_is_said_in_the_unit_of_the_metric(costly_shortage: MetricRegressor) -> None:
    verdict, table = costly_shortage.verdict_, costly_shortage.leaderboard()
    assert table["methods"][0] == verdict.winner == verdict.strategy
    by_hand = table[~table["methods"].isin(("direct", "surrogate"))]["value"].min()
    assert table["value"][0] <= by_hand
    usual = table[table["methods"] == "mse"]["value"].min()
    assert verdict.unit * verdict.gain == pytest.approx(usual - table["value"][0])
    assert f"cost {table['value'][0]:.4g}" in str(verdict)
    assert f"over squared error on {verdict.rows:,} held-out rows (standard error" in str(verdict)
    assert {"mse", "mae", "huber", "direct", "surrogate"} <= set(table["methods"])
    assert any(name.startswith("pinball-") for name in table["methods"])
    assert set(table["model"]) == {"linear"}
    assert set(table["units"][table["methods"] != "mse"]) == {costly_shortage.units_.name}


def test_prices_are_trained_in_logarithms_and_counts_as_they_are() -> None:
    prices = MetricRegressor("within(0.1)", "mse", "linear").fit(X, PRICES)
    assert prices.units_.log
    assert "log" in str(prices.verdict_)
    forced = MetricRegressor("within(0.1)", "mse", "linear", units="standardised").fit(X, PRICES)
    assert not forced.units_.log
    assert prices.score(X, PRICES) > forced.score(X, PRICES)
    assert not MetricRegressor("within_units(3)", "mse", "linear").fit(X, COUNTS).units_.log
    with pytest.raises(ValueError, match="y: expected numbers above 0 with units='log', got -"):
        MetricRegressor(units="log").fit(X, X[:, 0])


def test_a_quantile_is_met_by_about_its_share_of_rows() -> None:
    model = MetricRegressor("pinball(0.8)", "hand-made", "linear", STEEP).fit(X, COUNTS)
    assert (model.predict(X) >= COUNTS).mean() == pytest.approx(0.8, abs=0.1)
    assert model.score(X, COUNTS) == pytest.approx(-mean_pinball_loss(COUNTS, model.predict(X), alpha=0.8))


@pytest.mark.parametrize("kind", ["small", "mlp", "additive", torch.nn.Sequential(torch.nn.Linear(3, 1))])
def test_any_kind_of_model_is_trained(kind: Any) -> None:
    recipe = STEEP if kind == "additive" else SHORT
    model = MetricRegressor("mae", model=kind, recipe=recipe, folds=1).fit(X, COUNTS)
    assert mean_absolute_error(COUNTS, model.predict(X)) < 0.9 * np.abs(COUNTS - COUNTS.mean()).mean()


def test_tabm_is_trained() -> None:
    recipe = replace(SHORT, warmup=60, rounds=2, trust_cap=5)
    model = MetricRegressor("rmse", "usual", "tabm", recipe=recipe).fit(X, COUNTS)
    assert r2_score(COUNTS, model.predict(X)) > 0.2


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_trees_follow_every_loss_that_lightgbm_knows_and_are_averaged() -> None:
    model = MetricRegressor("pinball(0.9)", model="lightgbm", units="standardised").fit(X, COUNTS)
    board = model.leaderboard()
    assert {name.split("-")[0] for name in board["methods"]} == {"mse", "mae", "pinball"}
    assert (board["methods"][0].split("-")[0], board["folds"][0]) == ("pinball", 5)
    squared = MetricRegressor("pinball(0.9)", "mse", "lightgbm", units="standardised").fit(X, COUNTS)
    assert squared.leaderboard()["methods"].tolist() == ["mse"]
    assert model.validation_loss_ < squared.validation_loss_


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
@pytest.mark.parametrize(
    ("loss", "objective"),
    [
        (SquaredError(), {}),
        (AbsoluteError(), {"objective": "regression_l1"}),
        (Pinball(0.8), {"objective": "quantile", "alpha": 0.8}),
    ],
)
def test_trees_predict_what_lightgbm_does(loss: torch.nn.Module, objective: dict[str, Any]) -> None:
    from lightgbm import LGBMRegressor

    rows = [Rows(torch.from_numpy(X[part]).float(), torch.from_numpy(PRICES[part])) for part in (TRAINED, KEPT)]
    trees = grow_trees(*rows, seed=0, loss=loss)
    count = len(trees.roots)
    theirs = LGBMRegressor(n_estimators=count, learning_rate=0.05, verbosity=-1, n_jobs=1, **objective)
    theirs.fit(rows[0].x.numpy(), PRICES[TRAINED])
    np.testing.assert_allclose(trees(rows[1].x)[:, 0].numpy(), theirs.predict(rows[1].x.numpy()), rtol=1e-6)


def test_a_function_of_your_own_is_trained_for() -> None:
    def cost(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        return float(np.where(y_pred < y_true, 6 * (y_true - y_pred), y_pred - y_true).mean())

    metric = black_box(cost, higher_is_better=False, task="regression", max_calls=800)
    model = MetricRegressor(metric, model="linear", recipe=STEEP).fit(X, COUNTS)
    assert (model.predict(X) < COUNTS).mean() < 0.35
    with pytest.raises(ValueError, match="sample_weight: expected equal weights because the metric 'cost' takes none"):
        model.fit(X, COUNTS, sample_weight=np.arange(1.0, 501))


def test_times_that_are_censored_are_ordered() -> None:
    until = np.exp(2.5 + 0.8 * RNG.normal(size=500))
    times, event = np.minimum(PRICES, until), (until >= PRICES).astype(float)
    model = MetricRegressor("censored_concordance", model="linear", recipe=STEEP, folds=2)
    model.fit(X, times, columns={"event": event})
    assert model.correction_.kind == "none"
    assert model.score(X, times, columns={"event": event}) > 0.8
    with pytest.raises(ValueError, match="columns: expected"):
        model.fit(X, times)


# ---- rows and weights ------------------------------------------------------------------------------------------------


def test_weights_move_the_constant() -> None:
    y = np.where(np.arange(500) % 2 == 0, 0.0, 10.0)
    noise = RNG.normal(size=(500, 2))
    model = MetricRegressor("mae", "mse", "linear")
    low = model.fit(noise, y, sample_weight=np.where(y == 0, 5.0, 1.0)).predict(noise).mean()
    high = model.fit(noise, y, sample_weight=np.where(y == 0, 1.0, 5.0)).predict(noise).mean()
    assert low < 3
    assert high > 7


def test_validation_rows_may_be_given_and_groups_are_not_divided() -> None:
    model = MetricRegressor("mae", "mse", "linear")
    by_number = clone(model).fit(X, COUNTS, validation=np.arange(400, 500)).predict(X)
    apart = clone(model).fit(X[:400], COUNTS[:400], validation=(X[400:], COUNTS[400:])).predict(X)
    np.testing.assert_allclose(by_number, apart)
    assert np.isfinite(clone(model).fit(X, COUNTS, groups=np.arange(500) // 25).predict(X)).all()


def test_a_fitted_model_is_the_same_again_and_after_pickling(costly_shortage: MetricRegressor) -> None:
    again = clone(costly_shortage).fit(X[:400], COUNTS[:400])
    np.testing.assert_array_equal(again.predict(X), costly_shortage.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(again)).predict(X), again.predict(X))


# ---- stopping and mistakes -------------------------------------------------------------------------------------------


def test_a_time_limit_and_a_callback_end_the_competition() -> None:
    model = MetricRegressor("mae", model="linear", time_limit=1e-3).fit(X, COUNTS)
    assert model.interrupted_
    tried = model.leaderboard()["folds"] > 0
    assert tried[0]
    assert tried.sum() < 4
    assert set(model.leaderboard()["note"][~tried]) == {"not tried: training was stopped before"}
    calls: list[int] = []
    stopped = MetricRegressor("mae", model="small", recipe=SHORT, callback=lambda done: calls.append(1) or True)
    assert stopped.fit(X, COUNTS).interrupted_
    assert len(calls) == 1
    assert np.isfinite(stopped.predict(X)).all()


@pytest.mark.parametrize("targets", [COUNTS, PRICES], ids=["one unit", "two units"])
def test_a_warm_up_can_be_stopped_and_its_best_model_is_kept(targets: np.ndarray) -> None:
    seen: list[str] = []

    def enough(done: Round) -> bool:
        seen.append(done.phase)
        return len(seen) == 25

    recipe = replace(SHORT, check_every=5, patience=None)
    model = MetricRegressor("mae", model="small", recipe=recipe, callback=enough).fit(X, targets)
    assert seen == ["warm-up"] * len(seen)
    assert len(seen) == 25 < recipe.warmup / recipe.model_steps
    assert model.interrupted_
    board = model.leaderboard()
    assert board["methods"][board["folds"] > 0].tolist() == ["mse"]
    assert str(model.verdict_).startswith("kept squared error")
    assert mean_absolute_error(targets, model.predict(X)) < 0.7 * mean_absolute_error(
        targets, np.full(500, np.median(targets))
    )


def test_patience_ends_a_warm_up_that_gains_nothing() -> None:
    seen: dict[int | None, list[int]] = {2: [], None: []}
    for patience, steps in seen.items():
        recipe = replace(SHORT, warmup=400, rounds=0, check_every=5, patience=patience)
        noise = np.random.default_rng(1).normal(size=500)
        model = MetricRegressor("mae", "mse", "small", recipe, callback=lambda done, to=steps: to.append(done.steps))
        model.fit(X, noise)
    assert max(seen[2]) < 200
    assert max(seen[None]) == 400


def test_few_rows_and_constant_targets_are_fitted_too() -> None:
    few = MetricRegressor("within(0.1)", model="linear", recipe=STEEP).fit(X[:8], PRICES[:8])
    assert np.isfinite(few.predict(X)).all()
    same = MetricRegressor("mae", model="linear", recipe=STEEP).fit(X, np.full(500, 7.0))
    np.testing.assert_allclose(same.predict(X), 7, atol=1e-3)


def test_networks_learn_faster_by_default_and_a_recipe_is_followed_as_it_is() -> None:
    for model, recipe, expected in (("mlp", "default", 1e-2), ("linear", "default", 1e-2), ("mlp", SHORT, 0.02)):
        assert MetricRegressor(model=model, recipe=recipe)._recipe_for(model).learning_rate == expected
    assert MetricRegressor(model="tabm")._recipe_for("tabm").learning_rate == get_recipe("tabm").learning_rate


def test_a_tolerance_that_every_prediction_keeps_leaves_nothing_to_a_surrogate() -> None:
    model = MetricRegressor("within_units(500)", model="linear", recipe=STEEP).fit(X, COUNTS)
    assert model.score(X, COUNTS) == 1
    assert str(model.verdict_).startswith("kept squared error")


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"metric": "f1"}, "metric: expected one of numbers .*, got 'f1' of binary"),
        ({"method": "x"}, "method: expected one of auto, usual, hand-made, mse, surrogate, direct, got 'x'"),
        ({"units": "x"}, "units: expected 'auto', 'log' or 'standardised', got 'x'"),
        ({"folds": 0}, "folds: expected an integer of at least 1 or None, got 0"),
        ({"folds": 501}, "folds: expected at most 500, .*, got 501"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        MetricRegressor(**given).fit(X, COUNTS)  # type: ignore[arg-type]


def test_a_notebook_shows_what_won(costly_shortage: MetricRegressor) -> None:
    assert costly_shortage.verdict_.winner in costly_shortage._card()
    assert f"{costly_shortage.units_.name} units" in costly_shortage._card()
    alone = MetricRegressor("mae", "mse", "linear", units="standardised").fit(X, COUNTS)
    value = alone.leaderboard()["value"][0]
    assert str(alone.verdict_) == f"kept squared error (standardised units, {alone.correction_}; MAE {value:.4g})"


def test_made_up_rows_are_predicted_nearly_as_well_as_they_can_be() -> None:
    features, y = make_regression(600, 5, noise=10.0, random_state=0)
    model = MetricRegressor("r2", model="linear", recipe=STEEP, folds=1).fit(features[:500], y[:500])
    assert model.score(features[500:], y[500:]) > 0.97


# ---- readable models, and the usual ones beside --------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "additive"])
@pytest.mark.parametrize("targets", [PRICES, COUNTS], ids=["logarithms", "numbers"])
def test_contributions_add_up_to_the_prediction_before_its_correction(model: str, targets: Any) -> None:
    units = "log" if targets is PRICES else "standardised"
    fitted = MetricRegressor("mae", "mse", model, STEEP, units=units).fit(X, targets)
    found = fitted.explain(X)
    inside = np.ones(len(X), bool)
    total = np.full(len(X), found.base)
    for column, term in zip(X.T, found.terms.values(), strict=True):
        total += np.interp(column, term.places, term.contribution)
        inside &= (column >= term.places[0]) & (column <= term.places[-1])
    plain = np.exp(total) if units == "log" else total
    assert inside.mean() > 0.9
    np.testing.assert_allclose(fitted.correction_.apply(plain[inside]), fitted.predict(X)[inside], rtol=1e-5, atol=1e-5)
    assert found.of == ("logarithms" if units == "log" else "numbers")
    assert ("×" in str(found.drawn(1))) == (units == "log")


def test_one_hot_features_are_joined_to_their_column() -> None:
    names = pd.Series(np.array(["low", "mid", "top"])[RNG.integers(0, 3, 500)], name="tier")
    frame = pd.concat([pd.get_dummies(names, prefix="tier", prefix_sep="=", dtype=float), pd.Series(X[:, 0])], axis=1)
    frame.columns = [*frame.columns[:3], "size"]
    target = 10 + names.map({"low": 0.0, "mid": 5.0, "top": 20.0}).to_numpy() + X[:, 0]
    fitted = MetricRegressor("mae", "mse", "additive", STEEP, units="standardised").fit(frame, target)
    found = fitted.explain(separator="=").frame.set_index(["feature", "level"])["contribution"]
    tiers = found["tier"]
    assert list(tiers.index) == ["low", "mid", "top"]
    assert tiers["mid"] - tiers["low"] == pytest.approx(5, abs=0.5)
    assert tiers["top"] - tiers["low"] == pytest.approx(20, abs=0.5)
    alone = fitted.explain()
    assert set(alone.importance.index) == {"tier=low", "tier=mid", "tier=top", "size"}


def test_a_network_has_no_terms() -> None:
    fitted = MetricRegressor("mae", "mse", "small", TINY).fit(X, COUNTS)
    with pytest.raises(ValueError, match="model: expected a linear or additive one"):
        fitted.explain()


def test_models_beside_the_chosen_one_are_those_that_other_methods_find() -> None:
    given = ("step_cost(5,1,10)", "surrogate", "linear", STEEP)
    found = fit_beside_usual(MetricRegressor(*given, random_state=1), X, COUNTS)
    alone = {
        name: MetricRegressor(given[0], method, *given[2:], random_state=1).fit(X, COUNTS)
        for name, method in {"squared error": "mse", "best loss by hand": "hand-made"}.items()
    }
    assert list(found) == [*alone, "chosen"]
    values = [model.results_[0]["value"] for model in found.values()]
    assert values == sorted(values, reverse=True)  # costs on validation rows
    for name, model in alone.items():
        np.testing.assert_allclose(found[name].predict(X), model.predict(X), rtol=1e-6)
        assert found[name].results_[0]["methods"] == model.results_[0]["methods"]
        assert str(found[name].verdict_) == str(model.verdict_)


# ---- folds ---------------------------------------------------------------------------------------------------------


def test_five_folds_are_the_default_where_strategies_compete(folded: MetricRegressor) -> None:
    assert folded.results_[0]["folds"] == 5
    assert folded.verdict_.rows == 400
    assert folded._card().count("the rows that each fold left out") == 1
    assert folded.network_.folds == 1  # linear models average into one
    short = (folded.predict(X[400:]) < COUNTS[400:]).mean()
    assert short < 0.3
    for given in ({"X": X[:49], "y": COUNTS[:49]}, {"X": X, "y": COUNTS, "validation": np.arange(100)}):
        few = MetricRegressor("mae", model="linear", recipe=STEEP).fit(**given)  # type: ignore[arg-type]
        assert few.results_[0]["folds"] == 1
    assert MetricRegressor("mae", "usual", "linear", STEEP).fit(X, COUNTS).results_[0]["folds"] == 1


@pytest.mark.parametrize("kind", ["linear", "additive", "small"])
def test_the_average_of_the_folds_predicts_the_average_of_their_predictions(kind: str) -> None:
    recipe = SHORT if kind == "small" else STEEP
    model = MetricRegressor("mae", "mse", kind, recipe, units="standardised", folds=3)
    found = model._competed(X, COUNTS)
    model._adopt(found)
    x = torch.from_numpy(Scaler(model.centre_, model.scale_).transform(X))
    units = [fold.trained.network for fold in found.best.folds]
    single = [model.units_.to_targets(scores_in_double(network, x)).numpy() for network in units]
    assert np.ptp(np.stack(single), axis=0).max() > 1e-3
    np.testing.assert_allclose(model.predict(X), model.correction_.apply(np.mean(single, axis=0)), rtol=1e-6)
    assert model.network_.folds == (3 if kind == "small" else 1)
    if kind != "small":
        assert model.explain().of == "numbers"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_the_constant_is_found_on_predictions_by_models_that_have_not_seen_the_row() -> None:
    model = MetricRegressor("step_cost(9,1)", "mse", "linear", STEEP, folds=4, units="standardised")
    found = model._competed(X, COUNTS, groups=np.arange(500) // 10)
    rows = found.best.held_out()
    assert sorted(rows.y.tolist()) == sorted(COUNTS.tolist())  # each once, as exactly as given
    metric = get_metric("step_cost(9,1)")
    model._adopt(found)
    corrected = model.correction_.apply(rows.scores.numpy())
    assert float(metric(corrected, rows.y)) < 0.8 * float(metric(rows.scores, rows.y))
    for parts in (fold.rows.x for fold in found.best.folds):
        assert len(parts) == 125 or 120 <= len(parts) <= 130


def test_only_squared_error_is_trained_in_the_units_that_lose() -> None:
    table = MetricRegressor("within(0.1)", "hand-made", "linear", STEEP, folds=2).fit(X, PRICES).leaderboard()
    assert set(table[table["units"] == "standardised"]["methods"]) == {"mse"}
    assert {"mse", "mae", "huber"} < set(table[table["units"] == "log"]["methods"])


def test_models_compete_in_one_leaderboard() -> None:
    model = MetricRegressor("mae", "mse", "readable", folds=2).fit(X, COUNTS)
    assert set(model.leaderboard()["model"]) == {"linear", "additive"}
    assert model.results_[0]["model"] in model._card()
    network = MetricRegressor("mae", "usual", "auto", SHORT, folds=2, time_limit=1e-3).fit(X, COUNTS)
    trees = {"lightgbm"} if has_lightgbm() else set()
    assert set(network.leaderboard()["model"]) == {"linear", "additive", "tabm", *trees}


def test_ctrl_c_in_a_later_fold_keeps_what_there_is() -> None:
    class Stop:
        def __init__(self, at: int) -> None:
            self.at, self.calls = at, 0

        def __call__(self, done: Any) -> None:
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt

    counted = Stop(10**9)
    MetricRegressor("mae", "usual", "linear", STEEP, folds=3, callback=counted).fit(X, COUNTS)
    model = MetricRegressor("mae", "usual", "linear", STEEP, folds=3, callback=Stop(counted.calls // 2))
    with pytest.warns(UserWarning, match="stopped by the user"):
        model.fit(X, COUNTS)
    assert model.interrupted_
    assert 1 <= model.results_[0]["folds"] < 3
    assert mean_absolute_error(COUNTS, model.predict(X)) < 0.9 * np.abs(COUNTS - COUNTS.mean()).mean()


def test_functions_of_numbers_may_be_given_as_for_classes() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=200)

    def median(y_true, y_pred):
        return float(np.median(abs(y_true - y_pred)))

    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    for metric in ("sklearn.metrics.median_absolute_error", black_box(median, higher_is_better=False)):
        model = MetricRegressor(metric, "usual", "linear", folds=1).fit(X, y)
        assert model.score(X, y) == pytest.approx(-median(y, model.predict(X)), rel=1e-6)
        of_table = TableRegressor(metric, "usual", "linear", folds=1).fit(table, "y")
        assert of_table.score(table) == pytest.approx(-median(y, of_table.predict(table)), rel=1e-6)


def test_targets_of_zero_are_counted_where_errors_are_relative_to_them() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.where(np.arange(200) < 37, 0.0, np.exp(X[:, 0]))
    with pytest.warns(UserWarning, match="y: 37 of 200 targets are 0, .* choose mae or rmsle, or leave these rows out"):
        MetricRegressor("mape", "mse", "linear", folds=1).fit(X, y)
    MetricRegressor("mape", "mse", "linear", folds=1).fit(X[37:], y[37:])
    MetricRegressor("mae", "mse", "linear", folds=1).fit(X, y)


def test_the_loss_that_goes_on_is_named() -> None:
    longer = Longer()
    assert longer.named(Pinball(0.3)) == "pinball, longer"
    assert longer.named(SquaredError()) == "squared error, longer"
    candidate = NumberCandidate("small", get_recipe("default"), longer, Units(), get_metric("mae"))
    for methods, shown in ((["pinball, longer"] * 2, "pinball, longer"),
                           (["pinball, longer", "huber, longer"], "huber or pinball, longer")):  # fmt: skip
        candidate.folds = [FoldModel(Trained(*[None] * 5, method=method), None, None) for method in methods]  # type: ignore[arg-type]
        assert candidate.methods == shown


def test_an_unknown_model_is_refused_with_those_that_compete() -> None:
    with pytest.raises(
        ValueError, match=r"model: expected one of auto, readable, mlp, .*, a module or a factory, got 'xg"
    ):
        MetricRegressor(model="xgboost").fit(np.eye(9), np.arange(9.0))
