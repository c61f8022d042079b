"""The Qini coefficient against brute force in plain Python, and the loss made by hand that belongs to it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricgrad import MetricClassifier, get_metric
from metricgrad.losses.uplift import ClassTransformation
from metricgrad.metrics.columns import savings
from metricgrad.strategies.registry import strategies_for
from metricgrad.strategies.strategy import Setting
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES

Array = np.ndarray
QINI = get_metric("qini(treatment)")


def curve(s: Array, y: Array, t: Array, w: Array) -> list[tuple[float, float]]:
    """Weight of the rows at each threshold, and what treating them has gained there."""
    points = [(0.0, 0.0)]
    for cut in np.unique(s)[::-1]:
        above = s >= cut
        treated, control = w[above & (t == 1)].sum(), w[above & (t == 0)].sum()
        helped, anyway = (w[above & (t == arm) & (y == 1)].sum() for arm in (1, 0))
        points.append((treated + control, helped - (anyway * treated / control if control else 0.0)))
    return points


def area(points: list[tuple[float, float]]) -> float:
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(points))


def brute(s: Array, y: Array, t: Array, w: Array) -> float:
    if not w[t == 1].sum() or not w[t == 0].sum():
        return 0.0
    own, best = curve(s, y, t, w), curve(y * (2.0 * t - 1), y, t, w)
    random = area([own[0], own[-1]])
    return (area(own) - random) / (area(best) - random) if area(best) > random + 1e-12 else 0.0


def value(s: Array, y: Array, t: Array, w: Array | None = None) -> float:
    return float(QINI.value(QINI(torch.from_numpy(s), torch.from_numpy(np.column_stack((y, t)).astype(float)), w)))


@settings(max_examples=60)
@given(size=st.integers(2, 40), seed=st.integers(0, 2**32 - 1), levels=st.sampled_from([2, 6, 1000]))
def test_the_qini_coefficient_agrees_with_brute_force_with_ties_and_weights(size: int, seed: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    s, y, t = rng.integers(0, levels, size) / 2, rng.integers(0, 2, size), rng.integers(0, 2, size)
    w = rng.integers(0, 4, size).astype(float)
    w[0] = 1.0
    assert value(s, y, t, w) == pytest.approx(brute(s, y, t, w), abs=1e-9)
    assert value(s, y, t) == pytest.approx(brute(s, y, t, np.ones(size)), abs=1e-9)
    repeated = np.repeat(np.arange(size), w.astype(int))
    assert value(s, y, t, w) == pytest.approx(value(s[repeated], y[repeated], t[repeated]), abs=1e-9)


def test_the_best_ranking_has_one_and_chance_and_a_single_arm_have_zero() -> None:
    rng = np.random.default_rng(0)
    y, t = rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    assert value(y * (2.0 * t - 1), y, t) == pytest.approx(1.0)
    assert value(np.zeros(400), y, t) == pytest.approx(0.0)
    assert value(rng.normal(size=400), y, np.ones(400, int)) == pytest.approx(0.0)


def test_a_treatment_other_than_zero_and_one_is_an_error_that_quotes_it() -> None:
    with pytest.raises(ValueError, match="'treatment': expected 0 or 1 in every row, got 2"):
        QINI([1.0, 0.0], [[1, 2], [0, 0]])


def test_no_rule_decides_by_the_treatment_and_the_class_transformation_is_tried() -> None:
    setting = Setting(QINI, RECIPES["linear"], build_model("linear", 3, 0))
    names = [strategy.name for strategy in strategies_for(setting)]
    assert names == ["proper", "transformed", "direct", "sl-r"]
    of_money = [strategy.name for strategy in strategies_for(setting._replace(metric=savings(1, "amount")))]
    assert "plug-in" in of_money
    assert "transformed" not in of_money


def test_the_class_transformation_is_cross_entropy_of_another_class_with_arms_of_equal_weight() -> None:
    rng = np.random.default_rng(1)
    s, y, t = torch.from_numpy(rng.normal(size=50)), rng.integers(0, 2, 50), (rng.random(50) < 0.2).astype(int)
    z = np.where(t == 1, y, 1 - y)
    each = np.where(z == 1, np.log1p(np.exp(-s.numpy())), np.log1p(np.exp(s.numpy())))
    expected = (each[t == 1].mean() + each[t == 0].mean()) / 2
    loss = ClassTransformation()(s, torch.from_numpy(np.column_stack((y, t)).astype(float)))
    assert float(loss) == pytest.approx(expected)


def test_a_linear_model_finds_the_uplift_that_the_probability_of_a_response_hides() -> None:
    rng = np.random.default_rng(2)
    X, t = rng.normal(size=(3_000, 3)), rng.integers(0, 2, 3_000)
    y = rng.random(3_000) < 1 / (1 + np.exp(-(1.5 * X[:, 0] + t * 1.5 * X[:, 1])))
    test = np.arange(3_000) >= 2_000
    known = {"treatment": t[~test]}
    model = MetricClassifier("qini(treatment)", "direct", "linear", folds=1, random_state=0)
    scores = model.fit(X[~test], y[~test].astype(int), columns=known).decision_function(X[test])
    usual = MetricClassifier("qini(treatment)", "cross-entropy", "linear", folds=1, random_state=0)
    plain = usual.fit(X[~test], y[~test].astype(int), columns=known).decision_function(X[test])
    found, chance = (value(each, y[test].astype(int), t[test]) for each in (scores, plain))
    assert found > 0.15
    assert found > chance + 0.05
