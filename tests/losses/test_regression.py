"""Hand-made losses of numbers against numpy, scipy and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import huber as scipy_huber
from sklearn.metrics import mean_pinball_loss
from torch import Tensor

from metricgrad.losses.default import SquaredError, SquaredErrorOfEvents, proxy_for
from metricgrad.losses.regression import AbsoluteError, Huber, PartialLikelihood, Pinball, SoftWithin, Welsch
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.tasks import CENSORED

NUMBERS = st.floats(-20, 20, allow_subnormal=False)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3)), min_size=2, max_size=20)
EXPECTED = {
    "mse": np.square,
    "mae": np.abs,
    "huber": lambda e: scipy_huber(1, e / 0.3),
    "welsch": lambda e: 1 - np.exp(-np.square(e / 0.3) / 2),
    "soft-within": lambda e: 1 / (1 + np.exp(-(np.abs(e / 0.3) - 1) / 0.3)),
    "pinball": lambda e: np.where(e < 0, -0.8 * e, 0.2 * e),
}
LOSSES = {
    "mse": SquaredError(),
    "mae": AbsoluteError(),
    "huber": Huber(0.3),
    "welsch": Welsch(0.3),
    "soft-within": SoftWithin(0.3),
    "pinball": Pinball(0.8),
}


@given(ROWS, st.sampled_from(sorted(EXPECTED)))
def test_a_loss_is_the_weighted_mean_of_its_formula(rows: list[tuple[float, float, int]], name: str) -> None:
    scores, targets, weights = np.array(rows).T
    if not weights.sum():
        return
    loss = LOSSES[name]
    found = loss(*(torch.from_numpy(each) for each in (scores, targets, weights)))
    expected = np.average(EXPECTED[name](scores - targets), weights=weights)
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_a_finite_gradient_that_points_to_the_target(name: str) -> None:
    errors = torch.tensor([-900.0, -0.2, 0.2, 900.0], requires_grad=True)
    LOSSES[name](errors, torch.zeros(4)).backward()
    assert errors.grad is not None
    assert bool(errors.grad.isfinite().all())
    assert float(errors.grad[1]) < 0 < float(errors.grad[2])


def test_a_quantile_loses_what_scikit_learn_says() -> None:
    y, s = np.random.default_rng(0).normal(size=(2, 50))
    for quantile in (0.05, 0.5, 0.9):
        theirs = mean_pinball_loss(y, s, alpha=quantile)
        assert float(Pinball(quantile)(torch.from_numpy(s), torch.from_numpy(y))) == pytest.approx(theirs)
        assert float(get_metric(f"pinball({quantile})")(s, y)) == pytest.approx(theirs)


def test_a_narrow_step_counts_the_rows_beyond_it() -> None:
    scores, targets = torch.tensor([0.0, 0.4, 2.0, -3.0]), torch.zeros(4)
    assert float(SoftWithin(1.0, 0.01)(scores, targets)) == pytest.approx(0.5, abs=1e-6)


def test_only_events_count_where_rows_are_censored() -> None:
    targets = torch.tensor([[3.0, 1.0], [5.0, 0.0]])
    assert isinstance(proxy_for(CENSORED), SquaredErrorOfEvents)
    assert float(proxy_for(CENSORED)(torch.tensor([1.0, 1.0]), targets)) == 4
    assert float(proxy_for(CENSORED)(torch.ones(2), targets * torch.tensor([1.0, 0.0]), torch.ones(2))) == 0


@pytest.mark.parametrize("make", [Huber, Welsch, SoftWithin])
def test_a_width_is_positive(make: type[Huber]) -> None:
    with pytest.raises(ValueError, match="width: expected a positive finite number, got 0"):
        make(0)
    with pytest.raises(ValueError, match="quantile: expected a number between 0 and 1, got 1"):
        Pinball(1)
    with pytest.raises(ValueError, match="softness: expected a positive finite number, got -1"):
        SoftWithin(1, -1)


def partial_likelihood_by_definition(risks: Tensor, times: Tensor, events: Tensor, weights: Tensor) -> float:
    """Oracle: event by event, over all rows that are still there."""
    total = 0.0
    for risk, time, event, weight in zip(risks, times, events, weights, strict=True):
        if event:
            there = times >= time
            total += float(weight * (torch.log((weights * risks.exp())[there].sum()) - risk))
    return total / float((weights * events).sum())


def test_cox_is_the_partial_likelihood_of_the_events() -> None:
    generator = torch.Generator().manual_seed(0)
    times = torch.randint(1, 9, (40,), generator=generator).double()  # with ties
    events = (torch.rand(40, generator=generator) < 0.6).double()
    scores = torch.randn(40, generator=generator, dtype=torch.float64)
    weights = torch.randint(0, 3, (40,), generator=generator).double()
    targets = torch.stack((times, events), -1)
    for own in (torch.ones(40, dtype=torch.float64), weights):
        expected = partial_likelihood_by_definition(-scores, times, events, own)
        assert float(PartialLikelihood()(scores, targets, own)) == pytest.approx(expected, abs=1e-9)
    plain = PartialLikelihood()(scores, targets)
    assert float(plain) == pytest.approx(partial_likelihood_by_definition(-scores, times, events, torch.ones(40)))


def test_cox_of_rows_without_weight_or_events_has_a_finite_gradient() -> None:
    scores = torch.randn(2, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()
    targets = torch.stack((torch.arange(10.0).view(2, 5), torch.tensor([[0.0] * 5, [1.0] * 5])), -1)
    weights = torch.tensor([[1.0, 0, 0, 1, 1], [0.0, 1, 1, 1, 0]])
    loss = PartialLikelihood()(scores, targets, weights)
    loss.backward()
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())
    assert float(scores.grad[0].abs().sum()) == 0.0
    assert float(scores.grad[1, [0, 4]].abs().sum()) == pytest.approx(0.0, abs=1e-12)
