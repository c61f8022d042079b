from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchmetrics.classification as tm
from score_sets import digits, random_sets
from torch import Tensor, nn

from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate import pretraining as universal
from metricgrad.surrogate.config import CONFIGS, SurrogateConfig, config_for
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Surrogate, new_surrogate
from metricgrad.surrogate.pretrained import load_universal
from metricgrad.surrogate.pretraining import Fitting

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


# ---- forms -----------------------------------------------------------------------------------------------------------


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


def test_the_config_may_be_passed_by_its_old_name_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="construction: renamed to config"):
        loss = SurrogateLoss("auc", "scratch", construction="paper")
    assert loss.surrogate.config == CONFIGS["paper"]
    with pytest.warns(DeprecationWarning, match="construction: renamed to config"):
        fitted = universal.fit_universal(get_metric("auc"), construction="paper", fitting=Fitting(steps=1, sizes=(50,)))
    assert fitted.config == CONFIGS["paper"]
