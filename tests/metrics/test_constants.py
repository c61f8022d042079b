"""The best constant of numbers against brute force, and metrics in other units."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.constants import Correction, Units, best_along, best_constant, chosen_correction, in_units
from metricgrad.metrics.registry import get_metric

EXACT = (
    "within(0.3)",
    "within_units(1)",
    "bands(1:1,-2:5,+4:2)",
    "relative_bands(0.2:1,-0.5:3)",
    "pinball(0.8)",
    "step_cost(5,1,10)",
    "mae",
    "mape",
)
NUMBERS = st.one_of(st.integers(-4, 4).map(float), st.floats(-50, 50).map(lambda number: round(number, 6)))
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), min_size=1, max_size=15)


def columns(rows: list[tuple[float, float, int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).T


def tried(name: str, scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, kind: str) -> float:
    """The least loss at every constant at which a row meets a limit, and on both sides of it."""
    metric = get_metric(name)
    cost = metric.function
    size = targets.abs() if cost.relative else torch.ones_like(targets)
    limits = torch.tensor(cost.limits, dtype=torch.float64).unsqueeze(-1)
    met = limits * size - (scores - targets) if kind == "shift" else (targets + limits * size) / scores
    met = met[met.isfinite()].flatten().unsqueeze(-1)
    constants = torch.cat((met, met - 1e-9, met + 1e-9, torch.zeros(1, 1)))
    moved = scores + constants if kind == "shift" else scores * constants
    return float(metric(moved, targets, weights).min())


@given(ROWS, st.sampled_from(EXACT))
def test_the_best_shift_is_that_of_trying_all(rows: list[tuple[float, float, int]], name: str) -> None:
    scores, targets, weights = columns(rows)
    least = tried(name, scores, targets, weights, "shift")
    scale = 1 + float(get_metric(name)(scores, targets, weights)) * 1e-6
    _, loss = best_along(get_metric(name), scores, targets, weights, "shift")
    assert float(loss) == pytest.approx(least, abs=1e-6 * scale, rel=1e-6)
    if float(weights.sum()):
        found = best_constant(name, scores, targets, weights)
        moved = get_metric(name)(found.apply(scores.numpy()), targets, weights)
        assert float(moved) == pytest.approx(least, abs=1e-6 * scale, rel=1e-6)


@given(ROWS, st.sampled_from(EXACT))
def test_the_best_factor_is_that_of_trying_all(rows: list[tuple[float, float, int]], name: str) -> None:
    scores, targets, weights = columns(rows)
    scores = scores.abs() + 0.5
    _, loss = best_along(get_metric(name), scores, targets, weights, "factor")
    assert float(loss) <= tried(name, scores, targets, weights, "factor") * (1 + 1e-6) + 1e-6


def test_many_sets_have_the_constants_of_each() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, targets, weights = torch.rand(3, 2, 4, 30, generator=generator, dtype=torch.float64).unbind(0)
    for name in (*EXACT, "rmse", "r2", "rmsle"):
        metric = get_metric(name)
        for kind in ("shift", "factor"):
            together = best_along(metric, scores, targets, weights, kind)
            for place in np.ndindex(2, 4):
                alone = best_along(metric, scores[place], targets[place], weights[place], kind)
                for many, one in zip(together, alone, strict=True):
                    assert float(many[place]) == pytest.approx(float(one), abs=1e-9)


def test_squares_have_the_constant_of_least_squares() -> None:
    scores, targets = np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0, 7.0])
    assert best_constant("rmse", scores, targets).shift == pytest.approx((targets - scores).mean())
    slope = np.linalg.lstsq(scores[:, None], targets, rcond=None)[0][0]
    assert best_constant("r2", scores, targets, kind="factor").factor == pytest.approx(slope)


def test_a_function_of_any_kind_is_searched_on_a_grid() -> None:
    rng = np.random.default_rng(0)
    targets = rng.lognormal(size=300)
    metric = black_box(lambda y, s: float(np.median(np.abs(s - y))), higher_is_better=False, task="regression")
    found = best_constant(metric, targets + 5, targets)
    assert found.shift == pytest.approx(-5, abs=0.05)
    plain = get_metric("rmsle")
    factor = best_constant(plain, 3 * targets, targets, kind="factor").factor
    assert factor == pytest.approx(1 / 3, rel=0.02)


def test_an_isotonic_map_mends_what_is_bent() -> None:
    rng = np.random.default_rng(0)
    targets = rng.uniform(1, 10, 400)
    bent = np.log(targets) + 0.01 * rng.normal(size=400)
    metric = get_metric("within(0.1)")
    losses = {
        kind: float(metric(best_constant(metric, bent, targets, kind=kind).apply(bent), targets))
        for kind in ("none", "shift", "isotonic")
    }
    assert losses["isotonic"] < 0.05 < losses["shift"] <= losses["none"]
    assert "knots" in str(best_constant(metric, bent, targets, kind="isotonic"))


def test_an_order_needs_no_constant_and_a_factor_needs_predictions_above_0() -> None:
    assert best_constant("spearman", [1.0, 2.0], [2.0, 3.0]).kind == "none"
    assert best_constant("mae", [-1.0, 2.0], [2.0, 3.0], kind="factor").kind == "none"
    with pytest.raises(ValueError, match="kind: expected one of none, shift, factor, isotonic, got 'x'"):
        best_constant("mae", [1.0], [1.0], kind="x")
    with pytest.raises(ValueError, match="predictions: expected at least one row"):
        best_constant("mae", [], [])


def test_a_correction_says_what_it_does() -> None:
    assert str(Correction()) == "as predicted"
    assert str(Correction("factor", factor=1.25)) == "times 1.25"
    assert str(Correction("shift", -3.0)) == "less 3"


# ---- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("name", ["within(0.1)", "step_cost(5,1,10)", "rmsle", "spearman"])
def test_a_metric_in_other_units_loses_what_it_does_in_its_own(name: str, log: bool) -> None:
    rng = np.random.default_rng(0)
    targets = rng.lognormal(3, 1, 200)
    scores = targets * rng.lognormal(0, 0.2, 200)
    units, metric = Units.of(targets, log=log), get_metric(name)
    inside = in_units(metric, units)
    sets = [torch.from_numpy(units.from_targets(each)) for each in (scores, targets)]
    assert float(inside(*sets)) == pytest.approx(float(metric(scores, targets)), abs=0.006)
    assert abs(float(sets[1].mean())) < 1e-9
    found = best_constant(metric, scores, targets, kind=units.kind).apply(scores)
    assert float(inside.best(*sets)) == pytest.approx(float(metric(found, targets)), rel=1e-6)


def test_constant_targets_have_units_too() -> None:
    units = Units.of(np.full(5, 3.0))
    assert (units.centre, units.scale) == (3.0, 1.0)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), min_size=1, max_size=30),
    st.sampled_from((*EXACT, "rmse", "r2", "spearman")),
    st.booleans(),
    st.sampled_from((1, 12)),
)
def test_the_chosen_map_never_loses_more_on_the_rows_that_chose_it(
    rows: list[tuple[float, float, int]], name: str, weighted: bool, times: int
) -> None:
    scores, targets, weights = columns(rows * times)
    own = weights + 1 if weighted else None
    metric = get_metric(name)
    correction, loss = chosen_correction(metric, scores, targets, own, seed=3)
    moved = float(metric(correction.apply(scores.numpy()), targets, own))
    plain = float(metric(scores, targets, own))
    assert moved <= plain
    assert loss <= plain
