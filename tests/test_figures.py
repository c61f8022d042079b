"""The arrays of the figures are what the paper says they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metricgrad.figures import FIGURE1, Figure2, figure1, figure2
from metricgrad.metrics import get_metric


def test_every_point_of_a_surface_is_the_loss_of_the_perturbed_set() -> None:
    arrays = figure1(points=7, seed=3)
    scores = torch.randn(10, generator=torch.Generator().manual_seed(3))
    targets = torch.arange(10) % 2
    assert tuple(arrays.losses) == FIGURE1
    for name, surface in arrays.losses.items():
        assert surface.shape == (7, 7)
        moved = scores.clone()
        moved[0] += float(arrays.shifts[2])
        moved[1] += float(arrays.shifts[5])
        assert surface[2, 5] == pytest.approx(float(get_metric(name)(moved, targets)))


def test_surfaces_are_steps_that_fall_as_the_two_are_told_apart() -> None:
    arrays = figure1()
    for surface in arrays.losses.values():
        assert len(np.unique(surface)) < 100
    ranking = arrays.losses["auc"]
    assert (np.diff(ranking, axis=0) >= -1e-7).all()
    assert (np.diff(ranking, axis=1) <= 1e-7).all()


@pytest.fixture(scope="module")
def arrays() -> Figure2:
    return figure2()


def test_alpha_starts_where_the_paper_says_and_ends_near_the_least_error(arrays: Figure2) -> None:
    assert arrays.alpha[0] == pytest.approx(0.3)
    reached = np.interp(arrays.alpha[-1], arrays.alphas, arrays.true)
    assert reached <= arrays.true.min() + 0.02
    assert np.interp(0.3, arrays.alphas, arrays.true) > reached + 0.2


def test_the_true_loss_is_the_share_of_rows_on_the_wrong_side(arrays: Figure2) -> None:
    by_hand = [np.mean((alpha * arrays.x - 1 >= 0) != (arrays.y == 1)) for alpha in arrays.alphas]
    np.testing.assert_allclose(arrays.true, by_hand, atol=1e-6)


def test_the_surrogate_is_true_where_the_model_stands(arrays: Figure2) -> None:
    gap = np.abs(arrays.surrogate[-1] - arrays.true)
    near = np.abs(arrays.alphas - arrays.alpha[-1]) < 0.05
    assert gap[near].mean() < 0.03
    assert gap[near].mean() < gap[arrays.alphas > 1.2].mean()


def test_the_example_is_reproducible_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = figure2(rounds=(0, 2)), figure2(rounds=(0, 2))
    np.testing.assert_array_equal(first.surrogate, second.surrogate)
    assert torch.equal(torch.get_rng_state(), before)
