from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, WhiteKernel

from metricgrad.surrogate.gaussian_process import GaussianProcess

RNG = np.random.default_rng(0)
X, UNSEEN = RNG.normal(size=(60, 3)), RNG.normal(size=(20, 3))
VALUES = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * RNG.normal(size=60)


def fitted(values: np.ndarray = VALUES) -> GaussianProcess:
    process = GaussianProcess(3)
    process.fit(torch.tensor(X), torch.tensor(values))
    return process


def in_scikit_learn(process: GaussianProcess) -> GaussianProcessRegressor:
    length, rough, noise, linear = process.settings.tolist()
    smooth = Matern(length, nu=2.5) if rough else RBF(length)
    kernel = smooth + linear / 3 * DotProduct(1e-9) + WhiteKernel(noise)
    return GaussianProcessRegressor(kernel, optimizer=None, alpha=0)


def standardised(x: np.ndarray) -> np.ndarray:
    return (x - X.mean(0)) / X.std(0, ddof=1)


def test_the_mean_is_that_of_scikit_learn() -> None:
    process, level, spread = fitted(), VALUES.mean(), VALUES.std(ddof=1)
    theirs = in_scikit_learn(process).fit(standardised(X), (VALUES - level) / spread).predict(standardised(UNSEEN))
    np.testing.assert_allclose(process(torch.tensor(UNSEEN)).numpy(), level + spread * theirs, atol=1e-8)


@pytest.mark.parametrize("block", [1, 8])
def test_what_is_explained_is_what_leaving_out_blocks_of_values_shows(block: int) -> None:
    process, wanted = GaussianProcess(3, block), (VALUES - VALUES.mean()) / VALUES.std(ddof=1)
    process.fit(torch.tensor(X), torch.tensor(VALUES))
    missed: list[float] = []
    for number in range(-(-60 // block)):
        left_out = np.arange(60) // block == number
        model = in_scikit_learn(process).fit(standardised(X)[~left_out], wanted[~left_out])
        missed += (wanted[left_out] - model.predict(standardised(X)[left_out])).tolist()
    assert float(process.explained) == pytest.approx(1 - np.mean(np.square(missed)), abs=1e-8)


def test_more_values_are_as_good_as_values_from_the_start_but_for_the_settings() -> None:
    process = GaussianProcess(3)
    process.fit(torch.tensor(X[:40]), torch.tensor(VALUES[:40]))
    process.add(torch.tensor(X[40:]), torch.tensor(VALUES[40:]))
    level, spread = VALUES[:40].mean(), VALUES[:40].std(ddof=1)
    scaled = [(x - X[:40].mean(0)) / X[:40].std(0, ddof=1) for x in (X, UNSEEN)]
    theirs = in_scikit_learn(process).fit(scaled[0], (VALUES - level) / spread).predict(scaled[1])
    np.testing.assert_allclose(process(torch.tensor(UNSEEN)).numpy(), level + spread * theirs, atol=1e-8)


def test_noise_alone_and_a_constant_explain_nothing() -> None:
    assert float(fitted(RNG.normal(size=60)).explained) < 0.3
    assert float(fitted(np.full(60, 3.0)).explained) == 0


def test_a_state_is_taken_over_whatever_its_number_of_points() -> None:
    process, other = fitted(), GaussianProcess(3)
    other.load(process.state_dict())
    assert torch.equal(other(torch.tensor(UNSEEN)), process(torch.tensor(UNSEEN)))
