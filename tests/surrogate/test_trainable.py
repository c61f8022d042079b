from __future__ import annotations

import copy
import math

import pytest
import torch
from score_sets import digits, profit, random_sets
from torch import nn

from metricgrad.metrics.callable import black_box
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.trainable import DEAD_REFININGS


def test_clip_bounds_the_step_of_the_surrogate() -> None:
    sets = digits(8, 50, seed=0)
    for clip, bounded in ((1e-12, True), (None, False)):
        loss = SurrogateLoss("auc", learning_rate=1e-3, clip=clip)
        before = [parameter.clone() for parameter in loss.surrogate.parameters()]
        loss.refine(*sets)
        moved = max(float((a - b).abs().max()) for a, b in zip(before, loss.surrogate.parameters(), strict=True))
        assert (moved < 5e-4) is bounded


def test_a_loss_is_set_to_training_unless_told_otherwise_and_its_surrogate_never_is() -> None:
    loss = SurrogateLoss("auc")
    for said, training in (((False,), False), ((), True), ((True,), True)):
        assert loss.train(*said) is loss
        assert loss.training is training
        assert not loss.surrogate.training


def test_a_loss_moves_to_double_precision_and_goes_on_refining() -> None:
    scores, targets = random_sets(4, 40)
    loss = SurrogateLoss("auc")
    loss.refine(scores, targets)
    single = float(loss(scores, targets).detach())
    for moved in (copy.deepcopy(loss).double(), copy.deepcopy(loss).to(torch.float64)):
        assert moved(scores, targets).dtype == torch.float64
        assert float(moved(scores, targets).detach()) == pytest.approx(single, abs=1e-5)
        assert {mean.dtype for mean in moved.optimizer.means} == {torch.float64}
        assert {int(step) for step in moved.optimizer.steps} == {1}
        moved.refine(scores, targets)
        moved.refine(scores.double(), targets.double())
        assert {int(step) for step in moved.optimizer.steps} == {3}
        assert moved.running_gap.dtype == torch.float64
        assert math.isfinite(moved.gap)
    both = nn.ModuleDict({"model": nn.Linear(2, 1), "loss": loss}).double()
    both["loss"].refine(scores, targets)


def test_a_metric_without_a_known_range_stretches_the_output() -> None:
    torch.manual_seed(0)
    loss = SurrogateLoss(black_box(profit, higher_is_better=True), "scratch", learning_rate=3e-3)
    sets = [digits(32, 50, seed)[:2] for seed in range(12)]
    gaps = [loss.refine(*some, steps=16) for some in sets]
    first = loss.metric(*sets[0])
    assert float(loss.surrogate.low) == pytest.approx(float(first.min()))
    assert float(loss.surrogate.high) == pytest.approx(float(first.max()))
    assert loss.surrogate.config.link == "linear"
    assert gaps[-1] < 0.7 * gaps[0]
    assert loss.fidelity(*sets[0])["spearman"] > 0.7


def test_the_output_is_stretched_once_and_never_that_of_a_surrogate_with_a_range_of_its_own() -> None:
    given = Surrogate(SurrogateLoss(black_box(profit, higher_is_better=True), "scratch").surrogate.config)
    given.low.fill_(-3.0)
    loss = SurrogateLoss(black_box(profit, higher_is_better=True), given)
    loss.refine(*digits(8, 50, seed=0)[:2])
    assert (float(loss.surrogate.low), float(loss.surrogate.high)) == (-3, 1)

    losses = iter([0.0, 1.0, 5.0, 9.0])
    loss = SurrogateLoss(black_box(lambda y, s: next(losses), higher_is_better=False, name="next"), "scratch")
    for seed in (0, 1):
        loss.refine(*digits(2, 50, seed)[:2])
        assert (float(loss.surrogate.low), float(loss.surrogate.high)) == (0, 1)


def test_a_bounded_metric_is_never_stretched() -> None:
    loss = SurrogateLoss("auc", "scratch")
    loss.refine(*digits(8, 50, seed=0))
    assert (float(loss.surrogate.low), float(loss.surrogate.high)) == (0, 1)


def saturated(loss: SurrogateLoss) -> None:
    """Shift the output of a surrogate to where its sigmoid is flat."""
    with torch.no_grad():
        loss.surrogate.last.bias.add_(40)


def test_a_saturated_surrogate_is_rescaled_and_then_made_linear() -> None:
    loss, sets = SurrogateLoss("auc"), digits(8, 100, seed=0)
    assert loss.refine(*sets) < 0.05
    assert loss.revived == 0
    saturated(loss)
    for _ in range(DEAD_REFININGS - 1):
        assert loss.refine(*sets) > 0.4
    with pytest.warns(UserWarning, match=r"the surrogate of AUC was saturated, 0\.\d+ from the metric .* rescaled"):
        assert loss.refine(*sets) > 0.4
    assert loss.refine(*sets) < 0.1
    assert loss.surrogate.config.link == "sigmoid"
    saturated(loss)
    for _ in range(DEAD_REFININGS - 1):
        loss.refine(*sets)
    with pytest.warns(UserWarning, match="its output function is a line from now on"):
        loss.refine(*sets)
    assert loss.refine(*sets) < 0.1
    assert (loss.revived, loss.surrogate.config.link) == (2, "linear")
    other = SurrogateLoss("auc")
    other.load_state_dict(loss.state_dict())
    assert other(sets[0].requires_grad_(), *sets[1:]) == loss(sets[0], *sets[1:])


def test_a_dead_surrogate_is_not_trusted() -> None:
    loss, sets = SurrogateLoss("auc"), digits(8, 100, seed=0)
    saturated(loss)
    assert loss.fidelity(*sets)["spearman"] == 0


def test_a_straightened_surrogate_is_at_the_level_of_the_metric_and_cannot_saturate() -> None:
    loss = SurrogateLoss("f1")
    with torch.no_grad():
        loss.surrogate.last.bias.add_(30.0)
    loss.straighten()
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(12, 200, generator=generator) < 0.3).float()
    scores = torch.randn(12, 200, generator=generator) + targets * torch.linspace(0, 3, 12)[:, None]
    assert loss.refine(scores, targets) > 0.3
    assert loss.surrogate.config.link == "linear"
    with torch.no_grad():
        losses = loss.surrogate(scores, targets)
    true = loss.metric(scores, targets)
    assert float((losses - true).abs().mean()) < 0.05
    assert math.isclose(float(losses.mean()), float(true.mean()), abs_tol=0.02)
    assert loss.revived == 0
    loss.refine(scores, targets)
    assert loss.surrogate.config.link == "linear"


def test_a_frozen_surrogate_cannot_be_straightened_and_a_state_dict_keeps_what_is_to_be_done() -> None:
    with pytest.raises(RuntimeError, match="not frozen"):
        SurrogateLoss("f1", frozen=True).straighten()
    first, second = SurrogateLoss("f1"), SurrogateLoss("f1")
    first.straighten()
    second.load_state_dict(first.state_dict())
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(4, 100, generator=generator) < 0.3).float()
    second.refine(torch.randn(4, 100, generator=generator) + targets, targets)
    assert second.surrogate.config.link == "linear"
