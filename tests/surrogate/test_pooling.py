"""Sets of many rows go through a grid; a set repeated until it is one of those must pool to the same features."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metricgrad import SurrogateLoss, get_metric
from metricgrad.surrogate.config import config_for
from metricgrad.surrogate.network import new_surrogate
from metricgrad.surrogate.pooling import GRID_ROWS, SoftROC
from metricgrad.surrogate.standardising import class_weights

G = SoftROC(64).double()
COPIES = GRID_ROWS // 2 + 1
"""Of a set of at least two rows, so that all of them together are put on the grid."""
VALUE = 2e-4
"""A cubic between points 0.6 widths of a step apart is wrong by 0.6**4 / 384 of it at most, a feature by about that."""
SLOPE = 0.02
"""Its slope is wrong by 0.6**3 / 125 of the largest slope of a feature, which is 5 (a quarter of 1 / 0.05)."""
EXTREME = [-1e30, -400.0, -4.0, 0.0, 4.0, 400.0, 1e30]


def _row(score: float, target: int, weight: float) -> tuple[float, float, float]:
    return score, float(target), weight


ROWS = st.lists(
    st.builds(
        _row,
        st.one_of(st.floats(-4, 4), st.integers(-12, 12).map(lambda tenth: tenth / 4), st.sampled_from(EXTREME)),
        st.integers(0, 1),
        st.sampled_from([0.0, 0.25, 1.0, 3.0]),
    ),
    min_size=2,
    max_size=12,
).filter(lambda rows: any(weight for *_, weight in rows))


def pooled(scores: Tensor, targets: Tensor, weights: Tensor, feature: int) -> tuple[Tensor, Tensor]:
    """Return all features, and the gradient of one of them."""
    scores = scores.clone().requires_grad_()
    shares = weights / weights.sum()
    features = G(scores, targets, shares, class_weights(targets, shares))
    return features.detach(), torch.autograd.grad(features[feature], scores)[0]


@given(rows=ROWS, feature=st.integers(0, G.width - 1))
def test_a_set_repeated_onto_the_grid_has_the_same_features_and_gradient(rows, feature: int) -> None:
    columns = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    direct, slope = pooled(*columns, feature)
    many, slopes = pooled(*(column.repeat(COPIES) for column in columns), feature)
    torch.testing.assert_close(many, direct, rtol=0, atol=VALUE)
    together = slopes.view(COPIES, -1).sum(0)
    torch.testing.assert_close(together, slope, rtol=0, atol=SLOPE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("metric", ["f1", "average_precision", "precision", "macro_f1", "auc"])
def test_the_loss_of_a_large_set_is_that_of_the_small_one_it_repeats(metric: str, dtype: torch.dtype) -> None:
    start = new_surrogate(config_for(get_metric(metric)), 0) if metric == "macro_f1" else "universal"
    loss = SurrogateLoss(metric, start, frozen=True).to(dtype)
    generator = torch.Generator().manual_seed(0)
    shape = (3, 300, 4) if loss.metric.task.outputs else (3, 300)
    scores = torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()
    targets = torch.randint(0, 4 if loss.metric.task.outputs else 2, (3, 300), generator=generator)
    weights = torch.rand((3, 300), generator=generator, dtype=dtype)
    small = loss(scores, targets, weights)
    (slope,) = torch.autograd.grad(small, scores)
    large = loss(torch.cat([scores] * 4, 1), targets.repeat(1, 4), weights.repeat(1, 4))
    (slopes,) = torch.autograd.grad(large, scores)
    torch.testing.assert_close(large, small, rtol=0, atol=1e-4)
    torch.testing.assert_close(slopes, slope, rtol=0, atol=0.01 * float(slope.abs().max()))


def test_nan_in_a_large_set_reaches_the_loss() -> None:
    scores = torch.linspace(-1, 1, GRID_ROWS + 1)
    scores[5] = torch.nan
    assert SurrogateLoss("f1").eval()(scores, (scores > 0.5).float()).isnan()


def test_rows_far_beyond_the_thresholds_keep_a_finite_gradient() -> None:
    scores = torch.linspace(-1e4, 1e4, 3 * GRID_ROWS).sinh().clamp(-1e30, 1e30).requires_grad_()
    targets, weights = (scores > 0).float(), torch.ones(len(scores)) / len(scores)
    SoftROC(64)(scores, targets, weights, class_weights(targets, weights)).sum().backward()
    assert scores.grad.isfinite().all()
