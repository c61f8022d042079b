import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from metricgrad import SurrogateLoss
from metricgrad.metrics.tasks import two_classes
from metricgrad.surrogate.config import SurrogateConfig
from metricgrad.surrogate.network import Surrogate, meta_loss
from metricgrad.surrogate.pooling import GRID_ROWS
from metricgrad.surrogate.small_sets import (
    Seen,
    Sets,
    arrays,
    distance_gradient,
    is_small,
    judge,
    mean_loss,
    pool,
    read_sets,
)

CONFIGS = [
    SurrogateConfig(standardise, thresholds=thresholds, h=h, link=link)
    for standardise, thresholds, h, link in (
        ("shift", 64, (96, 96), "sigmoid"),
        ("scale", 5, (7,), "linear"),
        ("shift", 8, (6, 5, 4), "linear"),
    )
]
CONFIGS += [
    SurrogateConfig(thresholds=thresholds, h=h, link=link, attention=True)
    for thresholds, h, link in ((64, (32, 32), "sigmoid"), (5, (7,), "linear"))
]


def surrogate_of(config: SurrogateConfig, seed: int = 0) -> Surrogate:
    torch.manual_seed(seed)
    surrogate = Surrogate(config).double().eval().requires_grad_(False)
    surrogate.low.fill_(0.1)
    surrogate.high.fill_(0.7)
    return surrogate


def sets_of(seed: int, sets: int = 3, rows: int = 40, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(sets, rows, generator=generator, dtype=torch.float64)
    targets = (torch.rand(sets, rows, generator=generator) < 0.3).double()
    weights = torch.rand(sets, rows, generator=generator, dtype=torch.float64)
    weights[:, 0], scores[:, 0] = 0, 1e200  # padding, whose square is infinite
    return scores, targets, weights


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), rows=st.integers(2, 60), spread=st.sampled_from([1e-3, 1.0, 40.0]))
def test_losses_and_gradients_are_those_of_torch(config: SurrogateConfig, seed: int, rows: int, spread: float) -> None:
    surrogate, sets = surrogate_of(config, seed), sets_of(seed, rows=rows, spread=spread)
    scores, targets, weights = sets
    informative = torch.tensor([True, False, True])
    value, gradient, judged = mean_loss(surrogate, Sets(*arrays(surrogate, *sets), informative.numpy()))
    leaf = scores.clone().requires_grad_()
    expected = surrogate(leaf, targets, weights)[informative].mean()
    (slope,) = torch.autograd.grad(expected, leaf)
    torch.testing.assert_close(
        torch.from_numpy(judged.inputs[0]), surrogate.pool(scores, targets, weights), rtol=1e-9, atol=1e-9
    )
    torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, slope, rtol=1e-6, atol=1e-8 * float(slope.abs().max()) + 1e-14)


@pytest.mark.parametrize("relational", [0.0, 0.5])
@pytest.mark.parametrize("config", CONFIGS)
def test_gradients_of_the_weights_are_those_of_torch(config: SurrogateConfig, relational: float) -> None:
    surrogate, sets = surrogate_of(config), sets_of(1, sets=5)
    true = torch.rand(5, dtype=torch.float64)
    features = pool(surrogate, *arrays(surrogate, *sets)).features
    judged = judge(surrogate, features)
    losses, gradients = judged.losses, distance_gradient(surrogate, judged, true.numpy(), relational)
    surrogate.requires_grad_(True)
    span = surrogate.high - surrogate.low
    smooth = surrogate(*sets)
    distance = meta_loss(smooth / span, true / span, relational)
    np.testing.assert_allclose(losses, smooth.detach())
    for own, theirs in zip(gradients, torch.autograd.grad(distance, list(surrogate.parameters())), strict=True):
        torch.testing.assert_close(own, theirs)


def test_a_set_of_one_class_has_finite_features() -> None:
    surrogate, (scores, targets, weights) = surrogate_of(CONFIGS[0]), sets_of(0)
    targets[0], targets[1] = 0, 1
    features = pool(surrogate, *arrays(surrogate, scores, targets, weights)).features
    torch.testing.assert_close(
        torch.from_numpy(features), surrogate.pool(scores, targets, weights), rtol=1e-9, atol=1e-9
    )
    assert np.isfinite(judge(surrogate, features).losses).all()


def test_only_small_sets_of_the_usual_surrogate_are_written_out() -> None:
    usual = surrogate_of(CONFIGS[0])
    assert is_small(usual, torch.zeros(3, 400))
    assert not is_small(usual, torch.zeros(GRID_ROWS + 1))
    assert not is_small(usual, torch.zeros(1_000, 100))
    assert not is_small(usual, torch.zeros(0))
    assert not is_small(Surrogate("paper"), torch.zeros(400))
    assert not is_small(Surrogate(SurrogateConfig("top")), torch.zeros(400))


@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]), weighted=st.booleans())
def test_sets_are_read_as_the_task_checks_them(seed: int, share: float, weighted: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores, targets = torch.randn(4, 30, generator=generator), (torch.rand(4, 30, generator=generator) < share).int()
    weights = torch.randint(0, 2, (4, 30), generator=generator) if weighted else None
    found = read_sets(surrogate_of(CONFIGS[0]), scores, targets, weights)
    assert found is not None
    present = torch.ones(4, 30) if weights is None else weights
    np.testing.assert_array_equal(found.informative, two_classes(targets, present))
    for own, theirs in zip(found, (scores, targets, weights), strict=False):
        np.testing.assert_array_equal(own, theirs)


def test_sets_that_were_judged_are_known_again_unless_a_row_or_weight_has_changed() -> None:
    surrogate = surrogate_of(CONFIGS[0])
    sets = scores, targets, weights = sets_of(3, sets=2, rows=20)
    scores[:, 0] = 0.0
    for rows in (sets, (scores, targets, None)):
        read = read_sets(surrogate, *rows)
        assert read is not None
        seen = Seen.of(surrogate, read, judge(surrogate, pool(surrogate, *read[:3]).features))
        assert read_sets(surrogate, *rows, seen) is seen.sets
        others = (scores + 1, *rows[1:]), (scores, 1 - targets, rows[2]), (scores, targets, weights + 1)
        assert all(read_sets(surrogate, *other, seen) is not seen.sets for other in others)
        assert read_sets(surrogate, scores, targets, weights if rows[2] is None else None, seen) is not seen.sets
        read.scores[0, 0] += 1  # the memory of the user's tensor
        assert read_sets(surrogate, *rows, seen) is not seen.sets


def test_sets_without_weights_are_pooled_as_those_of_equal_weights() -> None:
    surrogate = surrogate_of(CONFIGS[0])
    scores, targets, weights = (rows.numpy() for rows in sets_of(5, sets=3, rows=40))
    scores[:, 0] = 0.0
    plain, equal = (pool(surrogate, scores, targets, w).features for w in (None, np.full_like(weights, 7.0)))
    np.testing.assert_allclose(plain, equal, rtol=1e-9)


@pytest.mark.parametrize(
    ("targets", "weights"),
    [
        (torch.full((5,), 2.0), None),
        (torch.full((5,), torch.nan), None),
        (torch.ones(4), None),
        (torch.ones(5), torch.full((5,), -1.0)),
        (torch.ones(5), torch.full((5,), torch.inf)),
        (torch.ones(5, requires_grad=True), None),
    ],
)
def test_what_has_to_be_refused_or_differentiated_is_left_to_torch(targets: Tensor, weights: Tensor | None) -> None:
    assert read_sets(surrogate_of(CONFIGS[0]), torch.randn(5), targets, weights) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_refining_small_sets_does_what_torch_does(weighted: bool) -> None:
    scores, targets, weights = sets_of(3, sets=6, rows=50)
    scores[:, 0] = 0.0
    quick, slow = SurrogateLoss("f1", clip=0.5).double(), SurrogateLoss("f1", clip=0.5).double()
    slow._small = lambda *sets: None  # type: ignore[method-assign, assignment]
    for loss in (quick, slow):
        for _ in range(3):
            loss(scores.clone().requires_grad_(), targets, weights if weighted else None).backward()
            loss.refine(scores, targets, weights if weighted else None, steps=2)
    assert quick.gap == pytest.approx(slow.gap, rel=1e-9)
    for own, theirs in zip(quick.surrogate.parameters(), slow.surrogate.parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-9)


def plain(loss: SurrogateLoss, scores: Tensor, targets: Tensor) -> Tensor:
    return loss._plain_loss(scores, targets, None)


def test_a_second_derivative_is_that_of_torch() -> None:
    loss, targets = SurrogateLoss("f1").double(), (torch.rand(30) < 0.4).double()
    scores = torch.randn(30, dtype=torch.float64, requires_grad=True)
    second = torch.autograd.functional.hessian(lambda moved: loss(moved, targets), scores)
    expected = torch.autograd.functional.hessian(lambda moved: plain(loss, moved, targets), scores)
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(second, expected)


def test_a_second_derivative_after_refining_is_refused() -> None:
    loss, targets = SurrogateLoss("f1"), (torch.arange(30) < 9).float()
    scores = torch.randn(30, requires_grad=True)
    value = loss(scores, targets)
    loss.refine(scores, targets)
    with pytest.raises(RuntimeError, match="expected no refine"):
        torch.autograd.grad(value, scores, create_graph=True)


def test_transforms_of_torch_func_get_the_same_gradient() -> None:
    loss, targets = SurrogateLoss("auc").eval(), (torch.arange(50) < 20).float()
    scores = torch.randn(50, requires_grad=True)
    (expected,) = torch.autograd.grad(loss(scores, targets), scores)
    found = torch.func.grad(lambda moved: loss(moved, targets))(scores.detach())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_refining_on_the_sets_of_the_last_forward_is_refining_on_any() -> None:
    targets = (torch.arange(60) % 3 == 0).float()
    scores = torch.randn(60, requires_grad=True)
    first, second = SurrogateLoss("f1"), SurrogateLoss("f1")
    first(scores, targets)
    assert first.refine(scores, targets) == second.refine(scores, targets)
    assert first.refine(scores, targets) == second.refine(scores, targets)  # the surrogate is no longer that of forward
    with torch.no_grad():
        scores.mul_(2).add_(torch.linspace(0, 1, 60))  # the pooled sets are no longer those of the scores
    assert first.refine(scores, targets) == second.refine(scores, targets)
    for one, other in zip(first.surrogate.parameters(), second.surrogate.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -3e38])
def test_scores_that_are_not_finite_reach_the_loss_as_in_torch(score: float) -> None:
    loss, targets = SurrogateLoss("f1"), (torch.arange(40) % 4 == 0).float()
    scores = torch.linspace(-1, 1, 40)
    scores[7] = score
    scores.requires_grad_()
    torch.testing.assert_close(loss(scores, targets), plain(loss, scores, targets), equal_nan=True)


def test_a_gradient_of_the_weights_is_that_of_torch() -> None:
    loss, targets = SurrogateLoss("f1"), (torch.arange(40) % 4 == 0).float()
    scores, weights = torch.linspace(-1, 1, 40, requires_grad=True), torch.ones(40, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(scores, targets, weights), weights)
    assert float(gradient.abs().max()) > 0
