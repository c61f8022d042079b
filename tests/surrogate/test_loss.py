from __future__ import annotations

import copy
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tm
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from torch import Tensor, nn

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.loss import DEAD_REFININGS, SurrogateLoss, clip_gradients
from metricgrad.surrogate.network import CONFIGS, Surrogate, SurrogateConfig, config_for, new_surrogate
from metricgrad.surrogate.pretrained import load_universal, save_surrogate
from metricgrad.surrogate.pretraining import Fitting
from metricgrad.training.loader import SetSampler


def random_sets(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(shape, generator=generator) < 0.3).float()
    targets[..., 0], targets[..., 1] = 1, 0
    return (torch.randn(shape, generator=generator) + targets).requires_grad_(), targets


def digits(sets: int, size: int, seed: int, share: float | None = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Sets of real rows, scored by how far an image is from the mean eight, with noise so that sets differ."""
    x, y = load_digits(return_X_y=True)
    features, eights = torch.tensor(x, dtype=torch.float32), torch.tensor(y == 8).float()
    generator = torch.Generator().manual_seed(seed)
    rows, weights = SetSampler(eights, size, share, generator=generator).draw(sets)
    distance = (features - features[eights == 1].mean(0)).norm(dim=-1)
    noise = 8 * torch.rand(sets, 1, generator=generator) * torch.randn(sets, size, generator=generator)
    return noise - distance[rows], eights[rows], weights


def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
    called = y_score >= np.quantile(y_score, 0.8)
    return float(300 * y_true[called].sum() - 20 * called.sum())


# ---- forward: what the model follows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(), (4,), (2, 3)])
def test_forward_is_the_mean_surrogate_loss_of_the_sets(axes: tuple[int, ...]) -> None:
    scores, targets = random_sets(*axes, 40)
    loss = SurrogateLoss("auc")
    value = loss(scores, targets)
    assert value.shape == ()
    torch.testing.assert_close(value, loss.surrogate(scores, targets).mean())
    value.backward()
    assert bool(scores.grad.isfinite().all())
    assert float(scores.grad.abs().max()) > 0


def test_following_the_loss_makes_a_model_better_by_the_true_metric() -> None:
    scores, targets = random_sets(8, 200)
    metric, loss = get_metric("auc"), SurrogateLoss("auc", frozen=True)
    moved = scores.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([moved], 0.05)
    for _ in range(20):
        optimizer.zero_grad()
        loss(moved, targets).backward()
        optimizer.step()
    assert float(metric(moved, targets).mean()) < 0.7 * float(metric(scores, targets).mean())


def test_targets_and_weights_without_leading_axes_hold_for_every_set() -> None:
    for config in CONFIGS:
        loss = SurrogateLoss("auc", "scratch", config=config)
        scores, targets = random_sets(4, 40)
        weights = torch.rand(40)
        whole = loss(scores, targets[0].expand(4, 40), weights.expand(4, 40))
        torch.testing.assert_close(loss(scores, targets[0], weights), whole)
        torch.testing.assert_close(loss(scores, targets[0]), loss(scores, targets[0].expand(4, 40)))


def test_weights_are_passed_on() -> None:
    scores, targets = random_sets(4, 40)
    loss, weights = SurrogateLoss("auc"), torch.rand(4, 40, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(scores, targets, weights), loss.surrogate(scores, targets, weights).mean())
    assert not torch.equal(loss(scores, targets, weights), loss(scores, targets))


def test_sets_of_one_class_do_not_count() -> None:
    scores, targets = random_sets(3, 40)
    loss, weights = SurrogateLoss("auc"), torch.ones(3, 40)
    mixed = targets.clone()
    mixed[1] = 1
    weights[2] = (mixed[2] == 0).float()  # its positives weigh nothing
    torch.testing.assert_close(loss(scores, mixed, weights), loss(scores[:1], targets[:1]))
    value = loss(scores, torch.zeros(3, 40))
    value.backward()
    assert float(value.detach()) == 0
    assert float(scores.grad.abs().max()) == 0


def test_the_surrogate_gathers_no_gradients_while_the_model_follows_it() -> None:
    scores, targets = random_sets(3, 40)
    loss = SurrogateLoss("auc")
    before = copy.deepcopy(loss.surrogate.state_dict())
    everything = torch.optim.SGD([scores, *loss.parameters()], lr=10.0)  # as a user does who joins model and loss
    loss(scores, targets).backward()
    everything.step()
    assert all(parameter.grad is None for parameter in loss.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in loss.surrogate.state_dict().items())


# ---- refine: what keeps it true --------------------------------------------------------------------------------------


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


def test_clip_bounds_the_step_of_the_surrogate() -> None:
    sets = digits(8, 50, seed=0)
    for clip, bounded in ((1e-12, True), (None, False)):
        loss = SurrogateLoss("auc", learning_rate=1e-3, clip=clip)
        before = [parameter.clone() for parameter in loss.surrogate.parameters()]
        loss.refine(*sets)
        moved = max(float((a - b).abs().max()) for a, b in zip(before, loss.surrogate.parameters(), strict=True))
        assert (moved < 5e-4) is bounded


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


# ---- mistakes --------------------------------------------------------------------------------------------------------


def test_a_model_called_without_gradients_is_noticed() -> None:
    scores, targets = random_sets(4, 40)
    loss = SurrogateLoss("auc")
    with pytest.raises(
        RuntimeError, match=r"scores: .* got one without a gradient; was the model called under torch.no"
    ):
        loss(scores.detach(), targets)
    with torch.no_grad():
        assert bool(loss(scores, targets).isfinite())
        with pytest.raises(
            RuntimeError, match=r"refine: expected gradients to be enabled, got a call under torch.no_gr"
        ):
            loss.refine(scores, targets)
    assert bool(loss.eval()(scores.detach(), targets).isfinite())
    with torch.no_grad():
        made = scores * 2
    loss.refine(made, targets)


@pytest.mark.parametrize("call", ["__call__", "refine", "fidelity"])
@pytest.mark.parametrize(
    ("scores", "targets", "weights", "message"),
    [
        ((4, 40, 2), (4, 40), None, r"targets: expected the shape of scores, \(4, 40, 2\), got \(4, 40\)"),
        ((40,), (4, 40), None, r"targets: expected the shape of scores, \(40,\), got \(4, 40\)"),
        ((40,), (), None, r"targets: expected the shape of scores, \(40,\), got \(\)"),
        ((4, 40), (4, 40), (4,), r"weights: expected the shape of scores, \(4, 40\), got \(4,\)"),
        ((4, 40), (4, 40), (4, 1), r"weights: expected the shape of scores, \(4, 40\), got \(4, 1\)"),
        ((), (), None, r"scores: expected real numbers, \(..., n\), got torch.float32 of shape \(\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(call: str, scores, targets, weights, message: str) -> None:
    loss = SurrogateLoss("auc")
    weighed = None if weights is None else torch.ones(weights)
    with pytest.raises(ValueError, match=message):
        getattr(loss, call)(torch.zeros(scores, requires_grad=True), torch.zeros(targets), weighed)


def test_what_are_no_scores_and_no_targets_is_named() -> None:
    loss = SurrogateLoss("auc", frozen=True)
    scores, targets = random_sets(4, 40)
    with pytest.raises(ValueError, match=r"scores: expected real numbers, \(..., n\), got torch.int64"):
        loss(torch.ones(4, 40, dtype=torch.int64), targets)
    with pytest.raises(ValueError, match=r"targets: expected 0 or 1, got -1.0"):
        loss(scores, 2 * targets - 1)
    loss(scores, targets.bool())
    with pytest.raises(ValueError, match="scores: expected finite numbers, got nan"):
        SurrogateLoss("auc").refine(scores + math.nan, targets)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"form": "any"}, ValueError, "form: expected 'best' or 'zero', got 'any'"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate: expected a positive number, got 0.0"),
        ({"metric": "gini"}, ValueError, "metric: unknown name 'gini'"),
        (
            {"metric": 3},
            TypeError,
            "metric: expected a name, .*, a scorer or a callable, got 3",
        ),
        (
            {"start": "scrach"},
            FileNotFoundError,
            "start: expected 'universal', 'scratch' or a surrogate file, got 'scr",
        ),
        ({"start": "scratch", "config": "wide"}, ValueError, "config: expected one of default, paper, attention, got"),
        ({"start": Surrogate(SurrogateConfig(view="labels"))}, ValueError, "config: expected a view of binary sets"),
        ({"metric": "recall"}, ValueError, "metric: 'best_recall' is constant"),
    ],
)
def test_arguments_that_make_no_loss_are_named(arguments: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        SurrogateLoss(**{"metric": "auc", **arguments})
    with pytest.raises(ValueError, match="steps: expected an integer of at least 1, got 0"):
        SurrogateLoss("auc").refine(*random_sets(4, 40), steps=0)


def test_a_file_of_another_kind_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "odd.safetensors").write_text("no surrogate")
    with pytest.raises(ValueError, match=r"odd.safetensors: expected a surrogate saved by metricgrad"):
        SurrogateLoss("auc", tmp_path / "odd.safetensors")


# ---- starts and forms ------------------------------------------------------------------------------------------------


def test_a_loss_starts_from_the_bundle_a_file_a_surrogate_or_nothing(tmp_path: Path) -> None:
    scores, targets = random_sets(4, 40)
    universal = SurrogateLoss("auc")
    save_surrogate(universal.surrogate, tmp_path / "it.safetensors")
    for start in (tmp_path / "it.safetensors", str(tmp_path / "it.safetensors"), load_universal("auc")):
        assert torch.equal(SurrogateLoss("auc", start)(scores, targets), universal(scores, targets))
    torch.manual_seed(0)
    scratch = SurrogateLoss("auc", "scratch")
    torch.manual_seed(0)
    assert torch.equal(SurrogateLoss("auc", "scratch")(scores, targets), scratch(scores, targets))
    assert not torch.equal(SurrogateLoss("auc", "scratch")(scores, targets), scratch(scores, targets))
    given = Surrogate()
    assert SurrogateLoss("auc", given).surrogate is given


def test_a_thresholded_metric_is_trained_at_its_best_threshold_or_at_zero() -> None:
    scores, targets = random_sets(4, 40)
    best, zero = SurrogateLoss("f1", "scratch"), SurrogateLoss("f1", "scratch", form="zero")
    assert (best.metric.name, zero.metric.name) == ("best_f1", "f1")
    assert best.surrogate.config.standardise == "shift"
    assert zero.surrogate.config.standardise == "scale"
    torch.testing.assert_close(best(scores, targets), best(scores + 3, targets))
    assert float((zero(scores, targets) - zero(scores + 3, targets)).abs().detach()) > 1e-5
    assert SurrogateLoss("f1", "scratch", form="zero", config="default").surrogate.config.standardise == "scale"
    assert SurrogateLoss("auc", form="zero").metric.name == "auc"


# ---- metrics of all kinds --------------------------------------------------------------------------------------------


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


def test_a_loss_is_set_to_training_unless_told_otherwise_and_its_surrogate_never_is() -> None:
    loss = SurrogateLoss("auc")
    for said, training in (((False,), False), ((), True), ((True,), True)):
        assert loss.train(*said) is loss
        assert loss.training is training
        assert not loss.surrogate.training


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


def test_a_bounded_metric_is_never_stretched() -> None:
    loss = SurrogateLoss("auc", "scratch")
    loss.refine(*digits(8, 50, seed=0))
    assert (float(loss.surrogate.low), float(loss.surrogate.high)) == (0, 1)


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


def test_a_torchmetrics_object_is_a_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(universal, "ON_DEMAND", Fitting(groups=2, steps=10, sizes=(50,)))
    scores, targets = random_sets(2, 40)
    loss = SurrogateLoss(tm.BinaryAUROC())
    assert len(list((tmp_path / "universal").iterdir())) == 2  # its emulator, and its surrogate
    assert math.isfinite(loss.refine(scores, targets))
    exact = get_metric("auc")(scores, targets)
    torch.testing.assert_close(1 + loss.judge(scores, targets), exact)
    torch.testing.assert_close(1 + loss.metric(scores, targets), exact, atol=0.05, rtol=0)
    loss(scores, targets).backward()


@pytest.mark.parametrize("metric", ["ndcg(5)", "spearman"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_grades_may_be_integers(metric: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, grades = torch.randn(6, 12, generator=generator), torch.randint(4, (6, 12), generator=generator)
    plain, whole = (SurrogateLoss(metric, new_surrogate(config_for(get_metric(metric)), 0)) for _ in range(2))
    assert whole.refine(scores, grades.to(dtype)) == plain.refine(scores, grades.float())
    scores.requires_grad_()
    assert torch.equal(whole(scores, grades.to(dtype)), plain(scores, grades.float()))


# ---- as a module of torch --------------------------------------------------------------------------------------------


def test_mixed_precision_gives_nearly_the_same_loss_in_full_precision() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(6, 1), torch.randn(4, 100, 6)
    targets = (x[..., 0] + 0.5 * torch.randn(4, 100) > 0.5).float()
    plain, mixed = SurrogateLoss("auc"), SurrogateLoss("auc")
    expected = plain(model(x)[..., 0], targets)
    gap = plain.refine(model(x)[..., 0], targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(x)[..., 0]
        value = mixed(scores, targets)
        value.backward()
        refined = mixed.refine(scores, targets)
        measured = mixed.fidelity(scores, targets)
    assert scores.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=0, atol=0.01)
    assert refined == pytest.approx(gap, abs=0.01)
    assert math.isfinite(measured["gap"])
    assert bool(model.weight.grad.isfinite().all())
    assert {parameter.dtype for parameter in mixed.parameters()} == {torch.float32}


def test_half_precision_scores_are_judged_in_full_precision() -> None:
    loss, (scores, targets) = SurrogateLoss("auc"), random_sets(4, 100)
    half = scores.detach().bfloat16()
    assert loss.refine(half, targets) == SurrogateLoss("auc").refine(half.float(), targets)


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("config", ["default", "paper"])
def test_compiled_it_is_the_same_loss_in_one_graph(config: str) -> None:
    loss = SurrogateLoss("auc", new_surrogate(config, 0))
    scores, targets = random_sets(4, 50)
    expected = loss(scores, targets)
    (gradient,) = torch.autograd.grad(expected, scores)
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    value = compiled(scores, targets)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(value, scores)[0], gradient)
    loss.refine(scores, targets)
    refined = loss(scores, targets)
    assert not torch.equal(refined, expected)
    torch.testing.assert_close(compiled(scores, targets), refined)


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


def continued(loss: SurrogateLoss) -> Tensor:
    scores, targets = random_sets(4, 40, seed=7)
    for _ in range(3):
        loss.refine(scores, targets)
    return torch.stack((loss(scores, targets).detach(), torch.tensor(loss.gap)))


@pytest.mark.parametrize("config", ["default", "paper"])
@pytest.mark.parametrize("through_a_file", [False, True])
def test_a_loaded_copy_continues_bit_for_bit(config: str, through_a_file: bool, tmp_path: Path) -> None:
    loss = SurrogateLoss("auc", new_surrogate(config, 0))
    with pytest.warns(UserWarning, match="left out 1 of 4"):
        loss.refine(random_sets(4, 40)[0], torch.cat((random_sets(3, 40)[1], torch.ones(1, 40))))
    state = loss.state_dict()
    if through_a_file:
        torch.save(state, tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True)
    other = SurrogateLoss("auc", new_surrogate(config, 1))
    other.load_state_dict(state)
    assert (other.skipped, other.gap) == (1, loss.gap)
    assert torch.equal(continued(loss), continued(other))
    assert not torch.equal(continued(SurrogateLoss("auc", new_surrogate(config, 0))), continued(other))


def test_a_loaded_copy_shares_nothing_with_where_it_came_from() -> None:
    loss, other, alone = (SurrogateLoss("auc", load_universal("auc")) for _ in range(3))
    for each in (loss, alone):
        each.refine(*random_sets(4, 40))
    other.load_state_dict(loss.state_dict())
    continued(other)
    assert torch.equal(continued(loss), continued(alone))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda loss: pickle.loads(pickle.dumps(loss))])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_copy_or_a_pickle_continues_bit_for_bit_on_its_own(duplicate, frozen: bool) -> None:
    loss = SurrogateLoss("f1", frozen=frozen)
    scores, targets = random_sets(4, 40)
    if frozen:
        assert torch.equal(duplicate(loss)(scores, targets), loss(scores, targets))
        return
    loss.refine(scores, targets)
    other, third = duplicate(loss), duplicate(loss)
    assert other.optimizer.parameters[0] is next(other.surrogate.parameters())
    first = continued(other)
    assert torch.equal(continued(loss), first)
    assert torch.equal(continued(third), first)


def test_a_frozen_loss_loads_what_a_refined_one_learned() -> None:
    loss, frozen = SurrogateLoss("auc"), SurrogateLoss("auc", frozen=True)
    scores, targets = random_sets(4, 40)
    loss.refine(scores, targets)
    frozen.load_state_dict(loss.state_dict())
    assert torch.equal(frozen(scores, targets), loss(scores, targets))


def test_fidelity_leaves_out_sets_of_one_class_without_counting_them() -> None:
    scores, targets, weights = digits(20, 60, seed=0)
    loss = SurrogateLoss("average_precision")
    expected = loss.fidelity(scores[:19], targets[:19], weights[:19])
    targets[19] = 0
    assert loss.fidelity(scores, targets, weights) == expected
    assert loss.fidelity(scores.view(4, 5, 60), targets.view(4, 5, 60), weights.view(4, 5, 60)) == expected
    assert loss.skipped == 0
    assert math.isnan(loss.fidelity(scores, torch.ones(20, 60))["spearman"])


# ---- what a stranger trips over ------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [True, False])
def test_scores_with_a_last_axis_of_one_are_refused(frozen: bool) -> None:
    loss, model = SurrogateLoss("f1", frozen=frozen), nn.Linear(3, 1)
    with pytest.raises(
        ValueError, match=r"scores: expected the rows of a set on the last axis.*\(20, 1\).*\[\.\.\., 0\]"
    ):
        loss(model(torch.randn(20, 3)), torch.ones(20, 1))


def test_negative_weights_and_arrays_are_named() -> None:
    loss = SurrogateLoss("f1")
    scores, targets = torch.randn(10, requires_grad=True), torch.arange(10) % 2
    with pytest.raises(ValueError, match=r"weights: expected numbers of at least 0, got -1\.0"):
        loss(scores, targets, -torch.ones(10))
    with pytest.raises(TypeError, match="scores, targets: expected tensors, got ndarray, Tensor"):
        loss(np.zeros(10), targets)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"learning_rate": "x"}, "learning_rate: expected a positive number, got 'x'"),
        ({"clip": -1}, "clip: expected a positive number, got -1"),
        ({"start": 3}, "start: expected 'universal', 'scratch', a path or a Surrogate, got 3"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        SurrogateLoss("f1", **wrong)


def test_clipping_is_exact_however_small_the_norm() -> None:
    module = nn.Linear(3, 1, bias=False)
    module.weight.grad = torch.tensor([[3e-5, 0.0, 4e-5]])
    clip_gradients(module, 1e-5)
    torch.testing.assert_close(module.weight.grad, torch.tensor([[0.6e-5, 0.0, 0.8e-5]]), rtol=1e-6, atol=0)
    clip_gradients(module, 1e-4)
    torch.testing.assert_close(module.weight.grad, torch.tensor([[0.6e-5, 0.0, 0.8e-5]]), rtol=1e-6, atol=0)


def test_the_config_may_be_passed_by_its_old_name_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="construction: renamed to config"):
        loss = SurrogateLoss("auc", "scratch", construction="paper")
    assert loss.surrogate.config == CONFIGS["paper"]
    with pytest.warns(DeprecationWarning, match="construction: renamed to config"):
        fitted = universal.fit_universal(get_metric("auc"), construction="paper", fitting=Fitting(steps=1, sizes=(50,)))
    assert fitted.config == CONFIGS["paper"]
