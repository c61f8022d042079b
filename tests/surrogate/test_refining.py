from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from score_sets import digits, random_sets
from sklearn.metrics import f1_score
from torch import nn

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Surrogate, new_surrogate
from metricgrad.surrogate.pretrained import load_universal


@pytest.mark.parametrize("start", ["scratch", load_universal("auc")], ids=["scratch", "another metric's"])
@pytest.mark.parametrize("metric", ["f1", "average_precision"])
def test_refining_lowers_the_gap_on_real_sets_kept_out(metric: str, start: str | Surrogate) -> None:
    torch.manual_seed(0)
    loss = SurrogateLoss(metric, copy.deepcopy(start), learning_rate=3e-3)
    held_out = digits(64, 100, seed=1)
    before = loss.fidelity(*held_out)
    gaps = [loss.refine(*digits(64, 100, seed=seed), steps=16) for seed in range(2, 12)]
    after = loss.fidelity(*held_out)
    assert after["gap"] < 0.5 * before["gap"]
    assert gaps[-1] < 0.5 * gaps[0]
    assert after["spearman"] > 0.9


@pytest.mark.parametrize("metric", ["f1", "average_precision"])
def test_refining_makes_a_universal_surrogate_truer_where_it_is_used(metric: str) -> None:
    loss, sets = SurrogateLoss(metric, learning_rate=1e-4), digits(32, 100, seed=1)
    gaps = [loss.refine(*sets) for _ in range(40)]
    assert gaps[-1] < 0.8 * gaps[0]


def test_gap_is_the_running_mean_of_what_refine_returns() -> None:
    loss = SurrogateLoss("auc")
    assert math.isnan(loss.gap)
    sets = digits(8, 50, seed=0)
    by_hand = float((loss.metric(*sets) - loss.surrogate(*sets)).abs().mean())
    first = loss.refine(*sets)
    assert first == pytest.approx(by_hand, rel=1e-4)
    assert loss.gap == pytest.approx(first)
    second = loss.refine(*digits(8, 50, seed=1))
    assert loss.gap == pytest.approx(0.9 * first + 0.1 * second)


def test_sets_are_shared_out_over_the_steps() -> None:
    one, four = SurrogateLoss("auc", start=load_universal("auc")), SurrogateLoss("auc", start=load_universal("auc"))
    scores, targets, weights = digits(8, 50, seed=0)
    one.refine(scores, targets, weights, steps=4)
    for part in range(4):
        two_sets = slice(2 * part, 2 * part + 2)
        four.refine(scores[two_sets], targets[two_sets], weights[two_sets])
    for left, right in zip(one.surrogate.parameters(), four.surrogate.parameters(), strict=True):
        torch.testing.assert_close(left, right)
    assert {int(step) for step in one.optimizer.steps} == {4}


def test_refining_leaves_the_model_alone() -> None:
    scores, targets = random_sets(4, 40)
    SurrogateLoss("auc").refine(scores, targets)
    assert scores.grad is None


def test_the_metric_may_judge_other_scores_than_the_surrogate_sees() -> None:
    scores, targets = random_sets(4, 40)
    loss = SurrogateLoss("auc")
    other = scores.detach().flip(-1)
    expected = (loss.metric(other, targets) - loss.surrogate(scores, targets)).abs().mean()
    assert loss.refine(scores, targets, judged=other) == pytest.approx(float(expected.detach()), rel=1e-4)
    with pytest.raises(ValueError, match=r"judged: expected the shape of scores, \(4, 40\), got \(40, 4\)"):
        loss.refine(scores, targets, judged=other.T)


def test_the_relational_part_counts_while_refining() -> None:
    sets = digits(16, 50, seed=0)
    plain, relational = (SurrogateLoss("auc", relational=value) for value in (0.0, 1.0))
    assert plain.refine(*sets) == relational.refine(*sets)
    assert not torch.equal(plain.surrogate(*sets), relational.surrogate(*sets))


def test_sets_of_one_class_are_skipped_counted_and_warned_of_once() -> None:
    scores, targets = random_sets(4, 40)
    loss = SurrogateLoss("auc")
    both = copy.deepcopy(loss)
    targets[1], targets[3] = 0, 1
    with pytest.warns(UserWarning, match="refine: left out 2 of 4 sets that held one class only") as caught:
        gap = loss.refine(scores, targets)
    assert caught[0].filename == __file__
    assert gap == pytest.approx(both.refine(scores[::2], targets[::2]))
    assert torch.equal(loss(scores, targets), both(scores, targets))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss.refine(scores, targets)
        assert math.isnan(loss.refine(scores, torch.ones(4, 40)))
    assert loss.skipped == 8
    assert math.isfinite(loss.gap)


def test_a_frozen_loss_refuses_to_refine_and_has_nothing_to_learn() -> None:
    scores, targets = random_sets(4, 40)
    loss = SurrogateLoss("auc", frozen=True)
    with pytest.raises(
        RuntimeError, match="refine: expected a surrogate that is not frozen, got one made with frozen=True"
    ):
        loss.refine(scores, targets)
    assert loss.optimizer is None
    assert not any(parameter.requires_grad for parameter in loss.parameters())
    loss(scores, targets).backward()
    assert float(scores.grad.abs().max()) > 0


def test_batch_norm_learns_from_the_sets_and_judges_by_what_it_learned() -> None:
    loss = SurrogateLoss("auc", new_surrogate("paper", 0).eval())
    scores, targets = random_sets(4, 40)
    before = loss.surrogate.g.norm.running_mean.clone()
    for mode in (True, False):
        loss.train(mode)
        loss(scores, targets)
        assert torch.equal(loss.surrogate.g.norm.running_mean, before)
    loss.refine(scores, targets)
    assert not torch.equal(loss.surrogate.g.norm.running_mean, before)
    assert not loss.surrogate.training
    alone, together = loss(scores[:1], targets[:1]), loss(scores[:1].repeat(3, 1), targets[:1].repeat(3, 1))
    torch.testing.assert_close(alone, together)


def test_the_construction_of_the_paper_is_refined_too() -> None:
    torch.manual_seed(0)
    loss = SurrogateLoss("average_precision", "scratch", config="paper", learning_rate=1e-2)
    scores, targets, weights = digits(32, 100, seed=0)
    gaps = [loss.refine(scores / 20 + 2, targets, weights) for _ in range(100)]
    assert gaps[-1] < 0.5 * gaps[0]


def test_sets_of_several_outputs_have_one_true_loss_each() -> None:
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(60).expand(5, 60) % 3
    targets = nn.functional.one_hot(classes, 3).float()
    scores = targets + torch.randn(5, 60, 3, generator=generator)
    loss = SurrogateLoss("macro_f1", form="zero")
    true = loss.true(scores, targets, torch.ones(5, 60))
    expected = [
        1 - f1_score(rows, called, average="macro")
        for rows, called in zip(classes.numpy(), scores.argmax(-1).numpy(), strict=True)
    ]
    np.testing.assert_allclose(true.numpy(), expected, rtol=1e-6)


def test_a_metric_that_takes_no_weights_learns_from_natural_sets() -> None:
    calls = []

    def misses(y_true: np.ndarray, y_score: np.ndarray) -> float:
        calls.append(len(y_true))
        return float(1 - y_true[np.argsort(y_score)[-10:]].mean())

    loss = SurrogateLoss(black_box(misses, higher_is_better=False, value_range=(0, 1)), "scratch")
    scores, targets, weights = digits(8, 60, seed=0, share=None)
    assert math.isfinite(loss.refine(scores, targets))
    assert math.isfinite(loss.refine(scores, targets, weights))
    assert calls == [60] * 16
    weights[0, :2] = torch.tensor([2.0, 3.0])
    with pytest.raises(
        ValueError, match="weights: expected equal weights, because metric 'misses' has no argument sample"
    ):
        loss.refine(scores, targets, weights)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            black_box(lambda y, s: math.nan, higher_is_better=False, name="blank"),
            "metric 'blank': expected one finite number, got nan on set 0",
        ),
        (
            black_box(lambda y, s: [][0], higher_is_better=False, name="broken"),
            r"metric 'broken' failed on set 0 \(.*IndexError",
        ),
        (
            black_box(lambda y, s: 7, higher_is_better=False, name="far", value_range=(0, 1)),
            "metric 'far': expected a value from 0 to 1, got 7",
        ),
        (
            Metric("hole", lambda s, t, w: s.mean(-1) * math.nan, "hole"),
            "expected a loss from 0 to 1 from 'hole', got n",
        ),
        (Metric("far", lambda s, t, w: s.mean(-1) + 7, "far"), "expected a loss from 0 to 1 from 'far', got"),
        (Metric("all", lambda s, t, w: s.mean(), "all"), r"expected one loss per set from 'all', \(4,\), got \(\)"),
    ],
)
def test_a_metric_that_is_no_loss_breaks_nothing_but_the_call(metric: Metric, message: str) -> None:
    loss = SurrogateLoss(metric, "scratch")
    before = copy.deepcopy(loss.surrogate.state_dict())
    with pytest.raises(ValueError, match=message):
        loss.refine(*random_sets(4, 40))
    assert all(torch.equal(before[name], tensor) for name, tensor in loss.surrogate.state_dict().items())
    assert math.isnan(loss.gap)


@pytest.mark.parametrize("value_range", [None, (0, 1)])
def test_a_constant_metric_keeps_a_surrogate_from_scratch_finite_and_untrusted(value_range) -> None:
    loss = SurrogateLoss(
        black_box(lambda y, s: 0.25, higher_is_better=False, name="same", value_range=value_range), "scratch"
    )
    scores, targets = random_sets(8, 40)
    for _ in range(5):
        loss.refine(scores, targets)
    assert bool(loss(scores, targets).isfinite())
    assert math.isnan(loss.fidelity(scores, targets)["spearman"])
