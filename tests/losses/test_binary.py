"""Hand-made losses against independent computations of what was published."""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from sklearn.metrics import jaccard_score, log_loss
from sklearn.utils.class_weight import compute_sample_weight
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.losses.binary import (
    AUCM,
    BASELINES,
    COSTS,
    TUNED,
    Balanced,
    CostSensitive,
    CrossEntropy,
    Focal,
    GlobalObjectives,
    LovaszHinge,
    LovaszSoftmax,
    Pairwise,
    SoftF1,
    SoftJaccard,
)
from metricgrad.metrics.registry import auc, f1, jaccard
from metricgrad.training.data import Rows
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.trainer import train

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(40, generator=GENERATOR, dtype=torch.float64)
TARGETS = torch.rand(40, generator=GENERATOR) < 0.3
WEIGHTS = torch.rand(40, generator=GENERATOR, dtype=torch.float64)
POSITIVES, NEGATIVES = SCORES[TARGETS], SCORES[~TARGETS]
SET_WISE = [name for name in BASELINES if name not in ("cross-entropy", "focal", "cost-sensitive")]
either = pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
each = pytest.mark.parametrize("name", BASELINES)


def weights_of(weights: Tensor | None) -> np.ndarray:
    return np.ones(40) if weights is None else weights.numpy()


def pairs(loss: Any, scores: Tensor, weights: Tensor | None) -> float:
    """Average a loss of a positive and a negative score over all pairs, one at a time."""
    w, total, heavy = weights_of(weights), 0.0, 0.0
    for i, j in product(TARGETS.nonzero()[:, 0].tolist(), (~TARGETS).nonzero()[:, 0].tolist()):
        total += w[i] * w[j] * loss(float(scores[i]), float(scores[j]))
        heavy += w[i] * w[j]
    return total / heavy


# ---- cross-entropy and its relatives -------------------------------------------------------------------------------


@either
def test_cross_entropy_is_the_weighted_log_loss(weights: Tensor | None) -> None:
    expected = log_loss(TARGETS.numpy(), SCORES.sigmoid().numpy(), sample_weight=weights)
    assert float(CrossEntropy()(SCORES, TARGETS, weights)) == pytest.approx(expected, rel=1e-12)


def test_a_row_of_weight_zero_sends_no_gradient() -> None:
    scores = torch.zeros(3, requires_grad=True)
    CrossEntropy()(scores, torch.tensor([1, 0, 1]), torch.tensor([1.0, 0.0, 3.0])).backward()
    np.testing.assert_allclose(scores.grad.numpy(), [-0.125, 0, -0.375])


def test_balanced_is_the_log_loss_under_balanced_class_weights() -> None:
    balanced = compute_sample_weight("balanced", TARGETS.numpy())
    expected = log_loss(TARGETS.numpy(), SCORES.sigmoid().numpy(), sample_weight=balanced)
    assert float(Balanced()(SCORES, TARGETS)) == pytest.approx(expected, rel=1e-8)


def test_balanced_with_one_class_is_the_cross_entropy_of_that_class() -> None:
    for targets in (torch.ones(40), torch.zeros(40)):
        assert torch.isclose(Balanced()(SCORES, targets), CrossEntropy()(SCORES, targets))


@pytest.mark.parametrize("cost", COSTS)
@either
def test_a_cost_is_the_weight_of_a_positive_row(cost: float, weights: Tensor | None) -> None:
    w = torch.from_numpy(weights_of(weights))
    reference = partial(F.binary_cross_entropy_with_logits, pos_weight=torch.tensor(cost), reduction="none")
    expected = (w * reference(SCORES, TARGETS.double())).sum() / w.sum()
    assert float(CostSensitive(cost)(SCORES, TARGETS, weights)) == pytest.approx(float(expected), rel=1e-7)


def test_the_costs_tried_are_those_of_the_paper() -> None:
    assert [make().weight for make in TUNED["cost-sensitive"]] == [0.3, 0.9, 2.7, 8.1, 24.3, 72.9]


@either
def test_focal_loss_is_its_published_formula(weights: Tensor | None) -> None:
    p = SCORES.sigmoid().numpy()
    right = np.where(TARGETS, p, 1 - p)
    expected = np.average(-((1 - right) ** 2) * np.log(right), weights=weights_of(weights))
    assert float(Focal()(SCORES, TARGETS, weights)) == pytest.approx(expected, rel=1e-7)


def test_focal_loss_without_focus_is_cross_entropy() -> None:
    assert torch.isclose(Focal(0)(SCORES, TARGETS, WEIGHTS), CrossEntropy()(SCORES, TARGETS, WEIGHTS))


def test_focal_loss_of_an_easy_row_is_a_hundredth_as_lin_et_al_say() -> None:
    score = torch.tensor([0.9], dtype=torch.float64).logit()
    ratio = CrossEntropy()(score, torch.ones(1)) / Focal()(score, torch.ones(1))
    assert float(ratio) == pytest.approx(100)


# ---- counts --------------------------------------------------------------------------------------------------------


@either
def test_soft_f1_is_dice_of_expected_counts(weights: Tensor | None) -> None:
    p, y, w = SCORES.sigmoid().numpy(), TARGETS.numpy(), weights_of(weights)
    tp, fp, fn = (w * p * y).sum(), (w * p * ~y).sum(), (w * (1 - p) * y).sum()
    assert float(SoftF1()(SCORES, TARGETS, weights)) == pytest.approx(1 - 2 * tp / (2 * tp + fp + fn))
    assert float(SoftJaccard()(SCORES, TARGETS, weights)) == pytest.approx(1 - tp / (tp + fp + fn))


@either
def test_soft_counts_of_certain_scores_are_the_metrics(weights: Tensor | None) -> None:
    certain = 1e3 * SCORES.sign()
    assert float(SoftF1()(certain, TARGETS, weights)) == pytest.approx(float(f1(SCORES, TARGETS, weights)))
    assert float(SoftJaccard()(certain, TARGETS, weights)) == pytest.approx(float(jaccard(SCORES, TARGETS, weights)))


def lovasz_by_definition(errors: np.ndarray, y: np.ndarray, w: np.ndarray) -> float:
    """Add up each error times the rise of scikit-learn's Jaccard loss as its row joins the mispredicted (Eq. 8)."""
    mispredicted, before, total = np.zeros(len(y), bool), 0.0, 0.0
    for row in np.argsort(-errors):
        mispredicted[row] = True
        now = 1 - jaccard_score(y, y ^ mispredicted, sample_weight=w)
        total += errors[row] * (now - before)
        before = now
    return total


@either
def test_lovasz_losses_are_the_extension_by_definition(weights: Tensor | None) -> None:
    signs = np.where(TARGETS, 1.0, -1.0)
    hinge = np.maximum(1 - SCORES.numpy() * signs, 0)
    wrong = np.abs(TARGETS.numpy() - SCORES.sigmoid().numpy())
    for loss, errors in ((LovaszHinge(), hinge), (LovaszSoftmax(), wrong)):
        expected = lovasz_by_definition(errors, TARGETS.numpy(), weights_of(weights))
        assert float(loss(SCORES, TARGETS, weights)) == pytest.approx(expected)


@pytest.mark.parametrize("found", list(product([0, 1], repeat=4)))
def test_the_lovasz_extension_is_the_jaccard_loss_at_every_corner(found: tuple[int, ...]) -> None:
    scores, targets = 60.0 * torch.tensor(found, dtype=torch.float64) - 30, torch.tensor([1, 1, 0, 0])
    expected = jaccard(scores, targets)
    assert float(LovaszSoftmax()(scores, targets)) == pytest.approx(float(expected), abs=1e-9)


def test_the_lovasz_hinge_is_convex_in_the_scores() -> None:
    other = SCORES.flip(0)
    loss = partial(LovaszHinge(), targets=TARGETS, weights=WEIGHTS)
    for share in np.linspace(0, 1, 11):
        chord = (1 - share) * loss(SCORES) + share * loss(other)
        assert float(loss((1 - share) * SCORES + share * other)) <= float(chord) + 1e-12


# ---- pairs ---------------------------------------------------------------------------------------------------------


@either
def test_pairwise_ranking_is_the_mean_over_all_pairs(weights: Tensor | None) -> None:
    expected = pairs(lambda above, below: math.log1p(math.exp(below - above)), SCORES, weights)
    assert float(Pairwise()(SCORES, TARGETS, weights)) == pytest.approx(expected)


def test_pairwise_ranking_in_bits_bounds_the_area_above_the_roc_curve() -> None:
    assert float(Pairwise()(SCORES, TARGETS, WEIGHTS)) / math.log(2) >= float(auc(SCORES, TARGETS, WEIGHTS))


@either
def test_aucm_is_the_square_loss_of_all_pairs(weights: Tensor | None) -> None:
    expected = pairs(lambda above, below: (1 - (above - below)) ** 2, SCORES.sigmoid(), weights)
    assert float(AUCM()(SCORES, TARGETS, weights)) == pytest.approx(expected)


@pytest.mark.parametrize("margin", [0.05, 0.6, 1.0])
def test_aucm_is_the_saddle_of_the_published_objective(margin: float) -> None:
    p = (2 * SCORES + 4 * TARGETS - 2).sigmoid().numpy()
    y, share = TARGETS.numpy(), float(TARGETS.double().mean())

    def published(a: float, b: float, alpha: float) -> float:
        """F of Yuan et al. (2021), as an expectation over rows of both classes."""
        rows = (1 - share) * (p - a) ** 2 * y + share * (p - b) ** 2 * ~y
        gap = share * (1 - share) * margin + share * p * ~y - (1 - share) * p * y
        return float((rows + 2 * alpha * gap - share * (1 - share) * alpha**2).mean())

    inner = minimize(lambda ab: published(*ab, alpha=0.0), [0.5, 0.5])
    outer = minimize(lambda alpha: -published(*inner.x, alpha=alpha[0]), [0.5], bounds=[(0, None)])
    loss = float(AUCM(margin)(torch.from_numpy(p).logit(), TARGETS))
    assert loss == pytest.approx(-outer.fun / (share * (1 - share)), rel=1e-5)
    assert (outer.x[0] == 0) == (margin == 0.05)


def lagrangian(loss: GlobalObjectives, w: np.ndarray) -> float:
    """The bound of Eban et al. (2017) anchor by anchor, row by row."""
    total = 0.0
    thresholds, multipliers = loss.thresholds.detach().tolist(), loss.multipliers.detach().tolist()
    for anchor, threshold, multiplier in zip(loss.anchors.tolist(), thresholds, multipliers, strict=True):
        missed = np.average([math.log2(1 + math.exp(threshold - s)) for s in POSITIVES], weights=w[TARGETS])
        alarms = np.average([math.log2(1 + math.exp(s - threshold)) for s in NEGATIVES], weights=w[~TARGETS])
        total += missed + abs(multiplier) * (alarms - anchor)
    return total / len(loss.anchors)


@either
def test_global_objectives_is_the_lagrangian_of_its_anchors(weights: Tensor | None) -> None:
    loss = GlobalObjectives(7)
    with torch.no_grad():
        loss.multipliers.copy_(torch.linspace(-1, 2, 7))
    value = loss(SCORES, TARGETS, weights).item()
    assert value == pytest.approx(lagrangian(loss, weights_of(weights)), rel=1e-6)


def test_thresholds_of_global_objectives_start_at_the_false_alarm_rates_of_their_anchors() -> None:
    loss = GlobalObjectives(5)
    loss(SCORES, TARGETS)
    for anchor, threshold in zip(loss.anchors, loss.thresholds, strict=True):
        above = float((threshold.float() <= NEGATIVES.float()).double().mean())
        assert 0 <= above - float(anchor) < 1 / len(NEGATIVES) + 1e-9


def test_descent_on_a_multiplier_of_global_objectives_ascends() -> None:
    loss = GlobalObjectives(3)
    loss(SCORES, TARGETS).backward()
    given = loss.multipliers.grad.clone()
    for i in range(3):
        values = []
        for step in (-0.1, 0.1):
            moved = GlobalObjectives(3)
            moved.load_state_dict(loss.state_dict())
            moved.multipliers.data[i] += step
            values.append(moved(SCORES, TARGETS).item())
        assert float(given[i]) == pytest.approx(-(values[1] - values[0]) / 0.2, rel=1e-4)


def test_the_best_thresholds_within_their_false_alarms_are_where_global_objectives_rests() -> None:
    def excess(threshold: float, anchor: float) -> float:
        return float(F.softplus(NEGATIVES - threshold).mean()) / math.log(2) - anchor

    loss = GlobalObjectives(3).double()
    loss(SCORES, TARGETS)
    best = [brentq(excess, -10, 20, args=(float(anchor),), xtol=1e-14) for anchor in loss.anchors]
    slopes = [float((t - POSITIVES).sigmoid().mean() / (NEGATIVES - t).sigmoid().mean()) for t in best]
    loss.load_state_dict({**loss.state_dict(), "thresholds": torch.tensor(best), "multipliers": torch.tensor(slopes)})
    value = loss(SCORES, TARGETS)
    value.backward()
    missed = [float(F.softplus(t - POSITIVES).mean()) / math.log(2) for t in best]
    assert value.item() == pytest.approx(np.mean(missed), rel=1e-6)
    np.testing.assert_allclose(loss.thresholds.grad, 0, atol=1e-6)
    np.testing.assert_allclose(loss.multipliers.grad, 0, atol=1e-6)


# ---- all of them ---------------------------------------------------------------------------------------------------


@each
def test_a_gradient_is_the_slope_of_the_loss(name: str) -> None:
    loss = BASELINES[name]().double()
    scores = SCORES.view(4, 10).clone().requires_grad_()
    targets, weights = TARGETS.view(4, 10), WEIGHTS.view(4, 10)
    loss(scores, targets, weights)  # thresholds of global objectives start at the first call
    assert torch.autograd.gradcheck(lambda s: loss(s, targets, weights), scores)
    assert torch.autograd.gradcheck(lambda s: loss(s, targets), scores)


@each
def test_a_weight_is_as_good_as_repetition(name: str) -> None:
    times = torch.arange(40) % 4
    repeated = SCORES.repeat_interleave(times), TARGETS.repeat_interleave(times)
    weighted = BASELINES[name]()(SCORES, TARGETS, times.double())
    assert weighted.item() == pytest.approx(BASELINES[name]()(*repeated).item(), rel=1e-6)


@each
def test_only_ratios_of_weights_matter(name: str) -> None:
    loss = BASELINES[name]()
    assert torch.isclose(loss(SCORES, TARGETS, WEIGHTS), loss(SCORES, TARGETS, 1e6 * WEIGHTS))


@each
def test_the_order_of_rows_does_not_matter(name: str) -> None:
    loss, order = BASELINES[name](), torch.randperm(40, generator=torch.Generator().manual_seed(1))
    assert torch.isclose(loss(SCORES, TARGETS, WEIGHTS), loss(SCORES[order], TARGETS[order], WEIGHTS[order]))


@pytest.mark.parametrize("name", ["cross-entropy", "focal", "cost-sensitive"])
def test_losses_of_rows_take_the_rows_of_all_sets_together(name: str) -> None:
    loss = BASELINES[name]()
    apart = loss(SCORES.view(4, 10), TARGETS.view(4, 10), WEIGHTS.view(4, 10))
    assert torch.isclose(loss(SCORES, TARGETS, WEIGHTS), apart)


@pytest.mark.parametrize("name", SET_WISE)
def test_losses_of_sets_are_the_mean_over_sets(name: str) -> None:
    loss = BASELINES[name]()
    loss(SCORES, TARGETS, WEIGHTS)
    sets = list(zip(SCORES.view(4, 10), TARGETS.view(4, 10), WEIGHTS.view(4, 10), strict=True))
    together = loss(*(torch.stack(part).view(2, 2, 10) for part in zip(*sets, strict=True)))
    assert torch.isclose(together, torch.stack([loss(*one) for one in sets]).mean())


@each
@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32])
def test_targets_may_be_of_any_kind(name: str, kind: torch.dtype) -> None:
    loss = BASELINES[name]()
    assert torch.equal(loss(SCORES, TARGETS.to(kind)), loss(SCORES, TARGETS))


def sets_at_the_edge() -> dict[str, tuple[Tensor, Tensor]]:
    scores, targets = SCORES.float(), TARGETS.float()
    return {
        "usual": (scores, targets),
        "all positive": (scores, torch.ones(40)),
        "all negative": (scores, torch.zeros(40)),
        "one row": (scores[:1], targets[:1]),
        "all tied": (torch.zeros(40), targets),
        "huge": (1e30 * scores, targets),
        "huge and right": (1e30 * (2 * targets - 1), targets),
        "tiny": (1e-30 * scores, targets),
    }


@each
@pytest.mark.parametrize("edge", sets_at_the_edge())
def test_loss_and_gradients_are_finite_at_the_edge(name: str, edge: str) -> None:
    scores, targets = sets_at_the_edge()[edge]
    scores = scores.clone().requires_grad_()
    module = BASELINES[name]()
    loss = module(scores, targets, torch.ones_like(scores))
    loss.backward()
    assert loss.shape == ()
    assert bool(loss.isfinite())
    assert all(bool(p.grad.isfinite().all()) for p in (scores, *module.parameters()))
    assert edge != "usual" or bool(scores.grad.any())


@pytest.mark.parametrize("name", ["pairwise", "aucm"])
@pytest.mark.parametrize("targets", [torch.ones(40), torch.zeros(40)])
def test_a_set_without_pairs_loses_nothing(name: str, targets: Tensor) -> None:
    assert float(BASELINES[name]()(SCORES, targets)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CostSensitive(0), "weight: expected a positive finite number, got 0"),
        (lambda: CostSensitive(math.inf), "weight: expected a positive finite number, got inf"),
        (lambda: Focal(-1), "gamma: expected a finite number of at least 0, got -1"),
        (lambda: AUCM(0), "margin: expected a positive finite number, got 0"),
        (lambda: GlobalObjectives(0), "anchors: expected at least 1, got 0"),
    ],
)
def test_a_setting_out_of_range_is_an_error_that_says_so(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def toy() -> Rows:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(300, 4, generator=generator)
    y = (x[:, 0] - x[:, 1] + 0.5 * torch.randn(300, generator=generator) > 0.8).float()
    return Rows(x, y)


STEPS = Recipe(warmup=0, rounds=20, anchor=0.0, set_size=100, learning_rate=0.05, trust=-1.0)


@each
def test_every_baseline_learns_to_rank_through_the_trainer(name: str) -> None:
    rows, model, loss = toy(), build_model("linear", 4, seed=3), BASELINES[name]()
    before = float(auc(model(rows.x).detach(), rows.y))
    for _ in train(model, loss, rows, STEPS):
        pass
    assert float(auc(model(rows.x).detach(), rows.y)) < min(before - 0.1, 0.08)


def test_parameters_of_a_loss_are_learned_along_with_the_model() -> None:
    loss = GlobalObjectives()
    for done in train(build_model("linear", 4), loss, toy(), STEPS):
        if done.number == 1:
            before = loss.thresholds.detach().clone()
    assert bool((loss.thresholds != before).all())
    assert bool((loss.multipliers != 1).all())


def test_a_parameter_of_the_loss_does_not_change_the_steps_of_the_model() -> None:
    class Aloof(nn.Module):
        """Cross-entropy beside a parameter that nothing depends on."""

        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Parameter(torch.ones(2))

        def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
            return CrossEntropy()(scores, targets, weights)

    models = [build_model("linear", 4) for _ in range(2)]
    for model, loss in zip(models, (CrossEntropy(), Aloof()), strict=True):
        for _ in train(model, loss, toy(), STEPS):
            pass
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in models), strict=True))
