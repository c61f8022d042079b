"""Probing finds the gradient of the smoothed metric, and tells a surrogate that follows it from one that does not."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import Metric, auc
from metricgrad.surrogate.fidelity import (
    PROBE_WIDTH,
    cosine_on,
    directional_cosine,
    gradient_cosine,
    smoothed_gradients,
    trust_on,
)
from metricgrad.surrogate.loss import SurrogateLoss


def sets(count: int = 3, n: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(count, n, generator=generator) < 0.3).double()
    return torch.randn(count, n, generator=generator, dtype=torch.float64) * 3 + 2 * y, y


def smooth_auc(scores: Tensor, targets: Tensor, width: float = PROBE_WIDTH) -> Tensor:
    """Oracle: the mean AUC loss under Gaussian noise, pair by pair, in closed form."""
    sigma = (width * scores.detach().std(-1))[..., None, None]
    below = torch.special.ndtr((scores[..., None, :] - scores[..., :, None]) / (sigma * math.sqrt(2)))
    pairs = targets[..., :, None] * (1 - targets[..., None, :])
    return (below * pairs).sum((-1, -2)) / pairs.sum((-1, -2))


def true_gradient(scores: Tensor, targets: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(smooth_auc(leaf, targets).sum(), leaf)
    return gradient


def test_many_probes_find_the_gradient_of_the_smoothed_auc() -> None:
    scores, y = sets()
    found = smoothed_gradients(auc, scores, y, pairs=10_000, generator=torch.Generator().manual_seed(1)).mean(0)
    true = true_gradient(scores, y)
    assert float((found - true).norm()) < 0.15 * float(true.norm())


def loss_like(surrogate: Any, metric: Metric = auc) -> Any:
    return SimpleNamespace(surrogate=lambda scores, targets, weights: surrogate(scores, targets), metric=metric)


def test_the_cosine_is_one_for_the_metric_itself_minus_one_against_it_and_nothing_across() -> None:
    scores, y = sets()
    generator = torch.Generator().manual_seed(2)
    along = gradient_cosine(loss_like(smooth_auc), scores, y, pairs=4_000, generator=generator)
    against = gradient_cosine(loss_like(lambda s, t: -smooth_auc(s, t)), scores, y, pairs=4_000, generator=generator)
    across = gradient_cosine(loss_like(lambda s, t: s.mean(-1)), scores, y, pairs=4_000, generator=generator)
    assert along == pytest.approx(1, abs=0.05)
    assert against == pytest.approx(-1, abs=0.05)
    assert across == pytest.approx(0, abs=0.1)


def test_few_probes_are_noisy_but_not_biased() -> None:
    scores, y = sets(4, 200)
    generator = torch.Generator().manual_seed(3)
    half = loss_like(lambda s, t: smooth_auc(s, t) + 0.2 * (s - s.detach().mean(-1, keepdim=True)).sin().mean(-1))
    exact = gradient_cosine(half, scores, y, pairs=4_000, generator=generator)
    few = [gradient_cosine(half, scores, y, generator=generator) for _ in range(20)]
    assert 0.3 < exact < 0.97
    assert sum(few) / 20 == pytest.approx(exact, abs=0.08)


def test_a_bundled_surrogate_points_where_its_metric_does() -> None:
    generator = torch.Generator().manual_seed(4)
    y = (torch.rand(4, 400, generator=generator) < 0.25).float()
    scores = torch.randn(4, 400, generator=generator) + 1.5 * y
    for name in ("auc", "f1", "average_precision"):
        assert gradient_cosine(SurrogateLoss(name), scores, y, pairs=1_000, generator=generator) > 0.9
    untrained = SurrogateLoss("auc", "scratch")
    assert abs(gradient_cosine(untrained, scores, y, pairs=1_000, generator=generator)) < 0.9


def test_a_metric_that_points_nowhere_gives_no_cosine() -> None:
    scores, y = sets()
    flat = Metric("flat", lambda s, t, w: s.new_zeros(s.shape[:-1]), "flat")
    assert math.isnan(gradient_cosine(loss_like(smooth_auc, flat), scores, y))
    assert math.isnan(gradient_cosine(loss_like(lambda s, t: 0 * s.sum(-1)), scores, y))


def test_sets_whose_losses_hardly_differ_beside_the_range_of_the_surrogate_have_no_correlation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def near(y_true: Any, y_score: Any) -> float:
        return float(y_score.mean())

    generator = torch.Generator().manual_seed(0)
    scores, targets = torch.randn(6, 50, generator=generator), (torch.arange(50) % 2).float().expand(6, 50)
    loss = SurrogateLoss(black_box(near, higher_is_better=False), "scratch")
    spread = float(loss.metric(scores, targets).std(correction=0))
    for low in (0.0, -1000.0):
        loss.surrogate.low.fill_(low)
        loss.surrogate.high.fill_(low + 1.0)
        monkeypatch.setattr("metricgrad.surrogate.fidelity.MIN_RELATIVE_SPREAD", 0.9 * spread)
        assert math.isfinite(trust_on(loss, scores, targets, None))
        monkeypatch.setattr("metricgrad.surrogate.fidelity.MIN_RELATIVE_SPREAD", 1.1 * spread)
        assert math.isnan(trust_on(loss, scores, targets, None))
    monkeypatch.setattr("metricgrad.surrogate.fidelity.MIN_RELATIVE_SPREAD", loss.fidelity(scores, targets)["spread"])
    assert math.isfinite(trust_on(loss, scores, targets, None))


def test_few_calls_tell_the_gradient_of_the_metric_from_others() -> None:
    scores, y = sets(8)
    generator, weights = torch.Generator().manual_seed(2), torch.ones_like(scores)
    along = directional_cosine(loss_like(smooth_auc), scores, y, weights, generator=generator)
    against = directional_cosine(loss_like(lambda s, t: -smooth_auc(s, t)), scores, y, weights, generator=generator)
    across = directional_cosine(loss_like(lambda s, t: s.mean(-1)), scores, y, weights, generator=generator)
    assert along == pytest.approx(0.95, abs=0.15)
    assert against == pytest.approx(-0.95, abs=0.15)
    assert across == pytest.approx(0, abs=0.15)
    flat = Metric("flat", lambda scores, targets, weights: scores[..., 0] * 0, "flat")
    assert math.isnan(directional_cosine(loss_like(smooth_auc, flat), scores, y, weights, generator=generator))


def test_the_cosine_of_a_black_box_is_probed_within_a_share_of_its_calls() -> None:
    def shifted(y_true, y_score):  # depends on the order of rows, so that no emulator fits
        return float((y_true[1:] * (y_score[:-1] > y_score[1:])).mean())

    metric = black_box(shifted, higher_is_better=True, value_range=(0, 1), max_calls=1_000)
    loss = SurrogateLoss(metric, "scratch")
    scores, y = (each.float() for each in sets(8))
    first = cosine_on(loss, scores, y, None)
    assert -1 <= first <= 1
    assert 0 < loss.probing_calls == loss.calls <= 48
    for _ in range(20):
        last = cosine_on(loss, scores, y, None)
    assert loss.calls == loss.probing_calls <= 100
    assert cosine_on(loss, scores, y, None) == last == loss.known_cosine
