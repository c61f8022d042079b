"""The paper's minimal example does what its Figure 2 shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metricgrad.experiments import Figure2, figure2


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
