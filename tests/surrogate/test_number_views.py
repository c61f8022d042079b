"""What a surrogate of numbers sees: it follows the metric where targets are shifted or scaled."""

from __future__ import annotations

import pytest
import torch

from metricgrad.metrics.constants import Units, in_units
from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate.config import config_for
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.pretraining import Fitting, fit_universal
from metricgrad.surrogate.synthetic import sets_for
from metricgrad.surrogate.views import view_named

SHORT = Fitting(steps=400, sizes=(50,))
GENERATOR = torch.Generator().manual_seed(5)
TARGETS, NOISE = 1 + 2 * torch.rand(200, generator=GENERATOR), 0.15 * torch.randn(200, generator=GENERATOR)


@pytest.fixture(scope="module")
def fitted() -> dict[str, Surrogate]:
    names = ("within(0.1)", "step_cost(5,1,10)")
    found = {name: fit_universal(get_metric(name), fitting=SHORT).requires_grad_(False) for name in names}
    # In units of their tolerance, both count the rows beyond 1.
    found["within_units(1)"] = Surrogate(config_for(get_metric("within_units(1)"))).requires_grad_(False)
    found["within_units(1)"].load_state_dict(found["within(0.1)"].state_dict())
    return found


def both(name: str, surrogate: Surrogate, sets: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[list[float], ...]:
    metric = get_metric(name)
    return [float(metric(*rows)) for rows in sets], [float(surrogate(*rows)) for rows in sets]


def test_a_relative_tolerance_is_followed_where_the_same_errors_are_made_at_higher_targets(
    fitted: dict[str, Surrogate],
) -> None:
    sets = [(TARGETS + shift + 2 * NOISE, TARGETS + shift) for shift in (0.0, 3.0, 10.0)]
    true, smooth = both("within(0.1)", fitted["within(0.1)"], sets)
    assert true[0] > 0.4
    assert true[2] < 0.02
    assert smooth == pytest.approx(true, abs=0.12)


def test_an_absolute_tolerance_is_followed_where_targets_and_errors_are_scaled(fitted: dict[str, Surrogate]) -> None:
    sets = [(scale * (TARGETS + NOISE), scale * TARGETS) for scale in (1.0, 5.0, 20.0)]
    true, smooth = both("within_units(1)", fitted["within_units(1)"], sets)
    assert true[2] - true[0] > 0.6
    assert smooth == pytest.approx(true, abs=0.12)


def test_a_cost_is_followed_where_targets_and_errors_are_scaled(fitted: dict[str, Surrogate]) -> None:
    sets = [(scale * (TARGETS + 2 * NOISE), scale * TARGETS) for scale in (0.5, 1.0, 2.0, 4.0)]
    true, smooth = both("step_cost(5,1,10)", fitted["step_cost(5,1,10)"], sets)
    assert sorted(smooth) == smooth
    assert smooth[3] - smooth[0] == pytest.approx(true[3] - true[0], rel=0.5)


@pytest.mark.parametrize("name", ["within(0.1)", "within_units(1)"])
@pytest.mark.parametrize("log", [False, True])
def test_a_surrogate_is_the_same_in_the_units_that_a_model_is_trained_in(
    fitted: dict[str, Surrogate], name: str, log: bool
) -> None:
    units = Units.of(TARGETS.numpy(), log=log)
    inside = Surrogate(config_for(in_units(get_metric(name), units)))
    inside.load_state_dict(fitted[name].state_dict())
    scores, targets = (torch.from_numpy(units.from_targets(each.numpy())) for each in (TARGETS + NOISE, TARGETS))
    expected = fitted[name](TARGETS + NOISE, TARGETS)
    torch.testing.assert_close(inside(scores, targets).detach(), expected, atol=1e-4, rtol=1e-3)


def test_a_metric_of_proportions_is_seen_without_level_and_spread() -> None:
    surrogate = Surrogate(config_for(get_metric("spearman")))
    torch.testing.assert_close(
        surrogate(7 * (TARGETS + NOISE) + 90, 7 * TARGETS + 90), surrogate(TARGETS + NOISE, TARGETS), atol=1e-4, rtol=0
    )


def test_censored_rows_are_seen_apart_from_events() -> None:
    metric = get_metric("censored_concordance")
    surrogate = Surrogate(config_for(metric)).requires_grad_(False)
    scores, targets, weights = sets_for(metric)(2, 8, 50, torch.Generator().manual_seed(1))
    assert 0.2 < float(targets[..., 1].mean()) < 1
    none_censored = torch.stack((targets[..., 0], torch.ones_like(scores)), -1)
    losses = surrogate(scores, targets, weights)
    assert losses.shape == (16,)
    assert bool((losses != surrogate(scores, none_censored, weights)).all())


def test_rows_without_weight_do_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    for name in ("mae", "within(0.1)", "within_units(2)", "r2"):
        surrogate = Surrogate(config_for(get_metric(name)))
        scores, targets = torch.randn(2, 3, 12, generator=generator)
        padded = [torch.nn.functional.pad(each, (0, 4), value=7.0) for each in (scores, targets)]
        present = torch.nn.functional.pad(torch.ones(3, 12), (0, 4))
        torch.testing.assert_close(surrogate(*padded, present), surrogate(scores, targets))


def test_a_view_that_is_not_known_is_named() -> None:
    for name in ("errors", "errors(x)", "ratios()", "nothing(1)"):
        with pytest.raises(ValueError, match=r"view: expected one of rows, .*, errors, ratios, got"):
            view_named(name)
