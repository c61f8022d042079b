"""Boosted shapes and penalties of features, which readable models are compared with, do what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.training.additive import Additive
from studies.readable import boosting, designs, smoothing

SEEDS = st.integers(0, 10_000)


def table(seed: int, rows: int = 300, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return features with ties, and classes that follow a step of the first."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, features)).round(1)
    y = (generator.random(rows) < np.where(x[:, 0] > 0.5, 0.8, 0.2)).astype(float)
    y[:2] = 0, 1
    return x, y


@given(SEEDS, st.integers(1, 30))
def test_products_of_bins_are_those_of_indicators(seed: int, most: int) -> None:
    x, _ = table(seed, rows=60)
    places = [np.unique(values)[:most] for values in x.T]
    rows = boosting.binned(x, places)
    weights = np.random.default_rng(seed).random(len(x))
    there = np.stack([(rows.codes == number).any(0) for number in range(rows.sizes.sum())], 1).astype(float)
    np.testing.assert_allclose(rows.products(weights), there.T @ (there * weights[:, None]), atol=1e-4)
    np.testing.assert_allclose(rows.sums(weights), weights @ there)
    shapes = np.arange(rows.sizes.sum(), dtype=float)
    np.testing.assert_allclose(rows.scores(shapes), there @ shapes)


@given(SEEDS)
def test_slopes_move_as_the_quadratic_loss_does(seed: int) -> None:
    x, y = table(seed)
    rows = boosting.binned(x, boosting.learn_places(x, y))
    curves = np.full(len(y), 0.25)
    shapes, slopes = np.zeros(int(rows.sizes.sum())), rows.sums(0.5 - y)
    boosting._Steps(rows, curves).round(shapes, slopes)
    np.testing.assert_allclose(slopes, rows.sums(0.5 - y + curves * rows.scores(shapes)), atol=1e-3)


@given(SEEDS)
def test_boosted_shapes_are_no_worse_on_held_out_rows_than_none(seed: int) -> None:
    x, y = table(seed, rows=120)
    places = boosting.learn_places(x, y)
    rows = boosting.binned(x, places)
    kept, out = np.arange(0, 80), np.arange(80, 120)
    base, shapes = boosting.boosted(rows.of(kept), y[kept], rows.of(out), y[out])
    assert boosting.log_loss(base + rows.of(out).scores(shapes), y[out]) <= boosting.log_loss(np.full(40, base), y[out])


def test_a_step_is_found_and_constant_features_and_one_class_do_no_harm() -> None:
    x, y = table(0, rows=1_000)
    x[:, 2] = 1.0
    places = boosting.learn_places(x, y)
    rows = boosting.binned(x, places)
    _, shapes = boosting.boosted(rows.of(np.arange(700)), y[:700], rows.of(np.arange(700, 1_000)), y[700:])
    first = shapes[: rows.sizes[0]]
    assert first[places[0] > 0.7].mean() - first[places[0] < 0.3].mean() > 1.5
    only = boosting.boosted(rows, np.zeros(1_000), rows, y)
    assert np.isfinite(only[0])
    assert np.isfinite(only[1]).all()


@given(SEEDS, st.integers(2, 64))
def test_the_rarer_class_counts_for_half_at_most(seed: int, bins: int) -> None:
    _, y = table(seed)
    weights = boosting.balanced(y, bins)
    rare = y == (y.mean() <= 0.5)
    share = weights[rare].sum() / weights.sum()
    assert weights.sum() == pytest.approx(len(y))
    assert min(rare.mean(), 0.5) - 1e-9 <= share <= 0.5 + 1e-9


def test_a_feature_without_an_effect_is_smoothed_away_and_another_is_not() -> None:
    x, y = table(1, rows=2_000)
    model = Additive(3).double()
    model.prepare(torch.from_numpy(x))
    smoothing.smoothed(model, torch.from_numpy(x), y)
    weights = model.head.weight[0].detach().numpy()
    encoding = model.encoding
    bends = np.array([weights[3:][encoding.source[encoding.start].numpy() == n].std() for n in range(3)])
    assert bends[0] > 5 * bends[1:].max()


@given(SEEDS)
def test_the_inverse_is_one(seed: int) -> None:
    half = np.random.default_rng(seed).normal(size=(4, 4))
    matrix = half @ half.T + np.eye(4)
    np.testing.assert_allclose(smoothing._inverse(matrix) @ matrix, np.eye(4), atol=1e-8)


def test_a_mean_with_ebm_keeps_the_rows_that_ebm_has_held_out() -> None:
    own = designs.Found(np.array([1.0]), np.array([0.0, 1.0, 2.0]), np.arange(3))
    other = designs.Found(np.array([3.0]), np.array([4.0, 6.0]), np.array([0, 2]))
    mean = designs.mean_of({"a": own, "b": other}, ("a", "b"))
    assert mean.test.tolist() == [2.0]
    assert mean.tuning.tolist() == [2.0, 4.0]
    assert mean.rows.tolist() == [0, 2]
