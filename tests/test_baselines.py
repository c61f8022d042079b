"""Hand-made losses against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from metricgrad.baselines import BASELINES, CrossEntropy

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(40, generator=GENERATOR, dtype=torch.float64)
TARGETS = torch.rand(40, generator=GENERATOR) < 0.3
WEIGHTS = torch.rand(40, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_cross_entropy_is_the_weighted_log_loss(weights: torch.Tensor | None) -> None:
    expected = log_loss(TARGETS.numpy(), SCORES.sigmoid().numpy(), sample_weight=weights)
    assert float(CrossEntropy()(SCORES, TARGETS, weights)) == pytest.approx(expected, rel=1e-12)


def test_cross_entropy_takes_the_rows_of_all_sets_together() -> None:
    loss = CrossEntropy()
    together = loss(SCORES, TARGETS, WEIGHTS)
    apart = loss(SCORES.view(4, 10), TARGETS.view(4, 10), WEIGHTS.view(4, 10))
    assert torch.isclose(together, apart)


def test_cross_entropy_of_enormous_scores_is_finite() -> None:
    loss = CrossEntropy()(torch.tensor([1e30, -1e30]), torch.tensor([0, 1]))
    assert float(loss) == pytest.approx(1e30)


def test_a_row_of_weight_zero_sends_no_gradient() -> None:
    scores = torch.zeros(3, requires_grad=True)
    CrossEntropy()(scores, torch.tensor([1, 0, 1]), torch.tensor([1.0, 0.0, 3.0])).backward()
    np.testing.assert_allclose(scores.grad.numpy(), [-0.125, 0, -0.375])


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_is_a_scalar_with_a_gradient(name: str) -> None:
    scores = SCORES.float().view(4, 10).requires_grad_()
    loss = BASELINES[name]()(scores, TARGETS.view(4, 10), WEIGHTS.float().view(4, 10))
    assert loss.shape == ()
    loss.backward()
    assert bool(scores.grad.isfinite().all())
    assert bool(scores.grad.any())
