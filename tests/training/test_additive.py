"""Additive models: their knots, the linear model inside, monotone features, and how they are kept."""

from __future__ import annotations

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metricgrad.training.additive import Additive, AdditiveOptions, additive
from metricgrad.training.knots import bins_for, learn_knots
from metricgrad.training.networks import build_model

WIDE = st.one_of(
    st.floats(-(2.0**99), 2.0**99, width=32),
    st.sampled_from([0.0, 1.0, -1.0, 2.0**-126, 2.0**99]),
    st.integers(-3, 3).map(float),
)
SHAPES = st.tuples(st.integers(1, 60), st.integers(1, 4))
TABLES = SHAPES.flatmap(lambda shape: arrays(np.float32, shape, elements=WIDE))


def prepared(x: np.ndarray, options: AdditiveOptions | None = None, y: np.ndarray | None = None) -> Additive:
    model = Additive(x.shape[1], options=options).double()
    model.prepare(torch.from_numpy(x), None, None if y is None else torch.from_numpy(y))
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    return model


def scores(model: Additive, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(x).double())[:, 0].numpy()


# ---- knots ---------------------------------------------------------------------------------------------------------


@given(arrays(np.float64, st.integers(1, 200), elements=WIDE), st.integers(3, 16))
def test_knots_are_values_in_order_that_share_all_rows(values: np.ndarray, bins: int) -> None:
    knots, share = learn_knots(values, np.ones(len(values)), bins)
    assert (np.diff(knots) > 0).all()
    assert 1 <= len(knots) <= bins + 3
    assert values.min() <= knots[0] <= knots[-1] <= values.max()
    assert share.sum() == pytest.approx(1)
    if len(np.unique(values)) <= 2:
        np.testing.assert_array_equal(knots, np.unique(values))


def test_few_values_are_knots_each() -> None:
    values = np.array([1.0, 5, 2, 2, 2, 9] * 50)
    knots, share = learn_knots(values, np.ones(len(values)), 8)
    assert knots.tolist() == [1, 2, 5, 9]
    assert share.tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])


def test_many_zeros_are_one_knot_and_leave_the_others_theirs() -> None:
    tail = np.random.default_rng(0).exponential(size=500) + 1
    knots, share = learn_knots(np.append(np.zeros(9_500), tail), np.ones(10_000), 10)
    assert knots[0] == 0
    assert share[0] == pytest.approx(0.95)
    assert knots[1] == pytest.approx(tail.min(), abs=0.02)
    inner = knots[1:-1]
    assert len(inner) >= 9
    counts = np.histogram(tail, inner)[0]
    assert counts.max() < 1.5 * 500 / 9


def test_an_outlier_neither_stretches_the_bins_nor_the_outer_knots() -> None:
    values = np.append(np.random.default_rng(1).normal(size=2_000), 1e9)
    knots = learn_knots(values, np.ones(len(values)), 12).places
    assert knots[-1] < 15
    assert np.quantile(values, 0.99) < knots[-1]


def test_weights_are_repetitions_and_rows_of_weight_zero_do_not_count() -> None:
    rng = np.random.default_rng(2)
    values, weights = rng.normal(size=300), rng.integers(0, 4, 300)
    for found, expected in zip(
        learn_knots(values, weights.astype(float), 8),
        learn_knots(np.repeat(values, weights), np.ones(weights.sum()), 8),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected)


def test_values_that_are_not_finite_are_left_out() -> None:
    values = np.array([np.nan, 1, 2, np.inf, 3, -np.inf])
    assert learn_knots(values, np.ones(6), 8).places.tolist() == [1, 2, 3]
    assert learn_knots(np.full(3, np.nan), np.ones(3), 8).places.tolist() == [0]


def test_few_rows_have_few_bins() -> None:
    assert bins_for(1, 16) == 3
    assert bins_for(10**6, 16) == 16
    assert all(bins_for(rows, 16) <= bins_for(rows + 1, 16) for rows in range(2_000))


# ---- columns -------------------------------------------------------------------------------------------------------


@given(TABLES)
def test_columns_are_finite_centred_and_in_order_whatever_the_table(x: np.ndarray) -> None:
    model = prepared(x)
    model.encoding.check()
    columns = model.design(torch.from_numpy(x).double())
    assert columns.shape == (len(x), len(model.penalty)) == (len(x), model.head.in_features)
    size = np.abs(x).max(initial=1.0)
    assert float(columns.mean(0).abs().max()) < 1e-9 * size
    ramps = columns[:, x.shape[1] :] + model.encoding.mean[x.shape[1] :]
    assert float(ramps.min() if ramps.numel() else 0) >= 0
    assert float(ramps.max() if ramps.numel() else 0) <= 1
    assert (model.penalty > 0).sum() + (np.ptp(x, axis=0) == 0).sum() >= model.head.in_features


@given(arrays(np.float64, 200, elements=st.floats(-50, 50)), st.floats(-3, 3))
def test_the_linear_model_is_contained(values: np.ndarray, weight: float) -> None:
    model = prepared(values[:, None].astype(np.float32))
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.weight[0, 0] = weight
    low, high = (float(end) for end in model.encoding.outer())
    x = values.astype(np.float32)[:, None]
    inside = (x[:, 0] >= low) & (x[:, 0] <= high)
    expected = weight * x[inside, 0].astype(float) + model.head.bias.item() - weight * model.encoding.mean[0].item()
    np.testing.assert_allclose(scores(model, x)[inside], expected, atol=1e-9)


def test_a_column_of_two_values_has_one_weight() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack((rng.integers(0, 2, 500), rng.normal(size=500), np.ones(500))).astype(np.float32)
    model = prepared(x)
    features = torch.cat((torch.arange(3), model.encoding.source[model.encoding.start]))
    assert (features == 0).sum() == 1
    assert (features == 2).sum() == 1
    assert (features == 1).sum() > 5
    assert float(model.design(torch.from_numpy(x).double())[:, 2].abs().max()) == 0


def test_scores_are_linear_between_knots_and_constant_beyond() -> None:
    x = np.random.default_rng(3).normal(size=(3_000, 1)).astype(np.float32)
    model = prepared(x)
    knots = model.encoding.knots.numpy()
    grid = np.linspace(knots[0], knots[-1], 999)
    at = scores(model, knots[:, None])
    np.testing.assert_allclose(scores(model, grid[:, None]), np.interp(grid, knots, at), atol=1e-9)
    far = scores(model, np.array([[-1e20], [1e20], [-np.inf], [np.inf]]))
    np.testing.assert_allclose(far, at[[0, -1, 0, -1]])
    missing = scores(model, np.array([[np.nan], [0.0]]))
    assert missing[0] == missing[1]


def test_a_model_that_is_not_prepared_is_linear() -> None:
    model, x = Additive(3), torch.randn(5, 3)
    torch.testing.assert_close(model(x), x @ model.head.weight.T + model.head.bias)


# ---- monotone ------------------------------------------------------------------------------------------------------


@given(TABLES, st.sampled_from([1, -1]))
def test_a_monotone_feature_never_turns(x: np.ndarray, sign: int) -> None:
    model = prepared(x, additive(monotone={0: sign}))
    bounds = model.bounds
    assert bounds is not None
    model.project()
    assert bool(((model.head.weight >= bounds[:, 0]) & (model.head.weight <= bounds[:, 1])).all())
    grid = np.tile(x[:1], (50, 1))
    grid[:, 0] = np.linspace(x[:, 0].min() - 1, x[:, 0].max() + 1, 50, dtype=np.float32)
    steps = np.diff(scores(model, grid)) * sign
    assert (steps >= -1e-9 * max(1.0, float(np.abs(scores(model, grid)).max()))).all()


def test_without_monotone_features_nothing_is_bounded() -> None:
    assert prepared(np.random.default_rng(0).normal(size=(90, 2)).astype(np.float32)).bounds is None


# ---- options and copies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 1}, "bins: expected an integer of at least 2, got 1"),
        ({"bins": 2.5}, "bins: expected an integer of at least 2, got 2.5"),
        ({"interactions": -1}, "interactions: expected an integer of at least 0, got -1"),
        ({"monotone": {"age": 0}}, "monotone: expected 1 or -1 for 'age', got 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        additive(**options)  # type: ignore[arg-type]


def test_names_become_numbers_or_are_refused() -> None:
    assert additive(monotone={"b": 1, 0: -1}).with_numbers(["a", "b"]).monotone == {1: 1, 0: -1}
    with pytest.raises(ValueError, match=r"monotone: expected features of the table \(a, b\), got 'c'"):
        additive(monotone={"c": 1}).with_numbers(["a", "b"])
    with pytest.raises(ValueError, match="a feature's name or a number below 2, got 2"):
        prepared(np.zeros((4, 2), np.float32), additive(monotone={2: 1}))


@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_score_as_the_model_does(copied) -> None:  # type: ignore[no-untyped-def]
    x = torch.randn(400, 3)
    model = build_model(additive(bins=5, monotone={1: 1}), 3)
    model.prepare(x)
    torch.nn.init.normal_(model.body.head.weight)
    other = copied(model)
    torch.testing.assert_close(other(x), model(x), rtol=0, atol=0)
    assert other.body.options == model.body.options
    assert other.name == "additive"


def test_a_state_is_taken_whatever_its_knots() -> None:
    x = torch.randn(500, 2)
    model, other = Additive(2), Additive(2)
    model.prepare(x)
    other.prepare(x[:60])
    assert model.sizes != other.sizes
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.design(x), model.design(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("buffer", "change", "message"),
    [
        ("knots", lambda t: t.flip(0), "knots of every feature in order"),
        ("source", lambda t: t + 1, "knots of every feature in order"),
        ("start", lambda t: t + 10**6, "encoding.start"),
        ("start", lambda t: torch.full_like(t, -1), "encoding.start"),
    ],
)
def test_buffers_that_do_not_belong_together_are_refused(buffer: str, change, message: str) -> None:  # type: ignore[no-untyped-def]
    model = prepared(np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32))
    setattr(model.encoding, buffer, change(getattr(model.encoding, buffer)))
    with pytest.raises(ValueError, match=message):
        model.encoding.check()


# ---- pairs ---------------------------------------------------------------------------------------------------------


def crossed(rows: int = 3_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 5)).astype(np.float32)
    x[:, 4] = x[:, 4] > 0
    score = 2 * (x[:, 0] * x[:, 1] > 0) + x[:, 2] + 2 * x[:, 3] * x[:, 4] + rng.normal(size=rows)
    return x, (score > 1).astype(np.float64)


def test_the_best_pairs_are_those_that_the_target_was_made_from() -> None:
    x, y = crossed()
    model = prepared(x, additive(interactions=2), y)
    model.encoding.check()
    assert {tuple(pair) for pair in model.encoding.pair.tolist()} == {(0, 1), (3, 4)}
    columns = model.design(torch.from_numpy(x).double())
    assert columns.shape[1] == model.head.in_features == len(model.penalty)
    assert float(columns.mean(0).abs().max()) < 1e-9


def test_the_columns_of_a_pair_are_steps_in_both_features() -> None:
    x, y = crossed(500)
    model = prepared(x, additive(interactions=1), y)
    first = model.encoding.columns - len(model.encoding.pair)
    columns = (model.design(torch.from_numpy(x).double()) + model.encoding.mean)[:, first:].numpy()
    for column, (a, b), (c, d) in zip(columns.T, model.encoding.pair, model.encoding.cut, strict=True):
        np.testing.assert_array_equal(column, (x[:, a] >= c.item()) & (x[:, b] >= d.item()))


def test_monotone_features_are_in_no_pair() -> None:
    x, y = crossed(800)
    model = prepared(x, additive(interactions=3, monotone={0: 1}), y)
    assert 0 not in model.encoding.pair
    assert len(model.encoding.pair)


def test_monotone_features_need_a_single_score() -> None:
    with pytest.raises(ValueError, match="monotone: expected a model of one output, got 3"):
        Additive(2, 3, additive(monotone={0: 1})).prepare(torch.zeros(4, 2))


def test_pairs_of_several_outputs_are_those_of_all_of_them() -> None:
    x, y = crossed()
    labels = np.column_stack((np.random.default_rng(1).integers(0, 2, len(x)), y))
    model = Additive(x.shape[1], 2, additive(interactions=2))
    model.prepare(torch.from_numpy(x), None, torch.from_numpy(labels))
    assert {tuple(pair) for pair in model.encoding.pair.tolist()} == {(0, 1), (3, 4)}


def test_many_rows_are_scored_as_few_are() -> None:
    x = torch.randn(5_000, 3, dtype=torch.float64)
    model = build_model("additive", 3).double().eval()
    model.prepare(x)
    torch.nn.init.normal_(model.body.head.weight)
    with torch.no_grad():
        torch.testing.assert_close(model(x), model.body(x)[:, 0])
