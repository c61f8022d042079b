from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from metricgrad.surrogate import soft_curve
from metricgrad.surrogate.config import CONFIGS, SurrogateConfig
from metricgrad.surrogate.network import Surrogate, meta_loss
from metricgrad.surrogate.soft_curve import SoftCurve, placed_thresholds
from metricgrad.surrogate.standardising import TOP_POSITION, class_weights, standardised

CENTRED, SCALED, PAPER = SurrogateConfig(), SurrogateConfig(standardise="scale"), CONFIGS["paper"]
TOP = SurrogateConfig(standardise="top")
ATTENTION = SurrogateConfig(h=(32, 32), attention=True)


def built(config: SurrogateConfig, seed: int = 0) -> Surrogate:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Surrogate(config).double().eval()


SURROGATES = {config: built(config).requires_grad_(False) for config in (CENTRED, SCALED, PAPER, TOP, ATTENTION)}


def random_sets(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64)
    targets = (torch.rand(shape, generator=generator) < 0.4).double()
    return scores, targets, torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1


def _rows(codes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Read scores, targets and weights out of one number a row, which is quicker than drawing each."""
    code = torch.tensor(codes)
    weights = torch.tensor([0.0, 0.25, 1.0, 3.0], dtype=torch.float64)[code % 4]
    return (code // 8 - 24).double() / 8, (code // 4 % 2).double(), weights


def _spread(rows: tuple[Tensor, Tensor, Tensor]) -> bool:
    return len(rows[0][rows[2] > 0].unique()) > 1


ONE_SET = st.lists(st.integers(0, 49 * 8 - 1), min_size=2, max_size=25).map(_rows).filter(_spread)
"""Sets with ties, any mix of classes and some rows of weight zero; the scores that weigh are not all the same."""


def assert_same(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=0, atol=1e-9)


# ---- a set, not a sequence -------------------------------------------------------------------------------------------


@given(rows=ONE_SET, seed=st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(rows, seed: int) -> None:
    order = torch.randperm(len(rows[0]), generator=torch.Generator().manual_seed(seed))
    for surrogate in SURROGATES.values():
        assert_same(surrogate(*(column[order] for column in rows)), surrogate(*rows))


@given(rows=ONE_SET, times=st.integers(2, 4))
def test_every_row_twice_is_the_same_set(rows, times: int) -> None:
    for surrogate in SURROGATES.values():
        assert_same(surrogate(*(column.repeat(times) for column in rows)), surrogate(*rows))


@given(rows=ONE_SET, padding=ONE_SET)
def test_a_row_of_weight_zero_is_as_good_as_absent(rows, padding) -> None:
    scores, targets, weights = (torch.cat(columns) for columns in zip(rows, padding, strict=True))
    weights[len(rows[0]) :] = 0
    for surrogate in SURROGATES.values():
        assert_same(surrogate(scores, targets, weights), surrogate(*rows))


@given(rows=ONE_SET, factor=st.floats(1e-3, 1e3))
def test_only_the_ratio_of_weights_matters(rows, factor: float) -> None:
    scores, targets, weights = rows
    for surrogate in SURROGATES.values():
        assert_same(surrogate(scores, targets, weights * factor), surrogate(scores, targets, weights))


@given(rows=ONE_SET)
def test_a_row_that_weighs_three_is_three_rows(rows) -> None:
    scores, targets, _ = rows
    weights = torch.ones_like(scores)
    weights[0] = 3
    thrice = [torch.cat((column[:1].repeat(2), column)) for column in (scores, targets)]
    for surrogate in (SURROGATES[CENTRED], SURROGATES[ATTENTION]):
        assert_same(surrogate(scores, targets, weights), surrogate(*thrice))


def test_no_weights_are_equal_weights() -> None:
    scores, targets, _ = random_sets(3, 20)
    for surrogate in SURROGATES.values():
        assert torch.equal(surrogate(scores, targets), surrogate(scores, targets, torch.ones_like(scores)))


def test_a_change_of_score_target_or_weight_is_seen() -> None:
    scores, targets, weights = random_sets(20)
    for surrogate in SURROGATES.values():
        loss = surrogate(scores, targets, weights)
        for i in range(3):
            other = [column.clone() for column in (scores, targets, weights)]
            other[i][0] = 1 - targets[0] if i == 1 else other[i][0] + 0.5
            assert float((surrogate(*other) - loss).abs()) > 1e-7


# ---- shapes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", SURROGATES, ids=["shift", "scale", "paper", "top", "attention"])
@pytest.mark.parametrize("axes", [(), (1,), (5,), (2, 3), (0,)])
@pytest.mark.parametrize("size", [2, 7, 300])
def test_sets_in_leading_axes_are_judged_one_by_one(config, axes: tuple[int, ...], size: int) -> None:
    surrogate, sets = SURROGATES[config], random_sets(*axes, size)
    losses = surrogate(*sets)
    assert losses.shape == axes
    one_by_one = [surrogate(*rows) for rows in zip(*(column.view(-1, size) for column in sets), strict=True)]
    assert_same(losses, torch.stack(one_by_one).view(axes) if one_by_one else torch.zeros(axes, dtype=torch.float64))


@pytest.mark.parametrize("targets_dtype", [torch.bool, torch.int64, torch.float32])
def test_targets_may_be_of_any_dtype_and_the_loss_has_that_of_the_surrogate(targets_dtype: torch.dtype) -> None:
    scores, targets, weights = random_sets(3, 20)
    surrogate = SURROGATES[CENTRED]
    assert torch.equal(surrogate(scores, targets.to(targets_dtype), weights), surrogate(scores, targets, weights))
    assert Surrogate()(scores, targets, weights).dtype == torch.float32


@pytest.mark.parametrize("base", [CENTRED, PAPER], ids=["default", "paper"])
def test_the_order_of_outputs_does_not_matter(base: SurrogateConfig) -> None:
    surrogate = built(SurrogateConfig.from_dict({**base.as_dict(), "view": "labels"})).requires_grad_(False)
    scores, targets, _ = random_sets(4, 30, 5)
    weights = random_sets(4, 30)[2]
    losses = surrogate(scores, targets, weights)
    assert losses.shape == (4,)
    order = torch.tensor([3, 0, 4, 2, 1])
    assert_same(surrogate(scores[..., order], targets[..., order], weights), losses)
    rows = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    assert_same(surrogate(scores[:, rows], targets[:, rows], weights[:, rows]), losses)
    assert_same(torch.stack([surrogate(*one) for one in zip(scores, targets, weights, strict=True)]), losses)
    assert float((surrogate(scores, targets[..., order], weights) - losses).abs().min()) > 1e-8


def test_outputs_that_are_all_the_same_are_judged_as_one() -> None:
    surrogate = built(SurrogateConfig(view="labels"))
    scores, targets, weights = random_sets(4, 30)
    one, three = ([column.unsqueeze(-1).expand(4, 30, count) for column in (scores, targets)] for count in (1, 3))
    assert_same(surrogate(*three, weights), surrogate(*one, weights))


# ---- what standardising hides ----------------------------------------------------------------------------------------


@given(rows=ONE_SET, shift=st.floats(-10, 10), scale=st.floats(1, 100))
def test_centred_scores_hide_shift_and_scale(rows, shift: float, scale: float) -> None:
    scores, targets, weights = 8 * rows[0], rows[1], rows[2]
    for surrogate in (SURROGATES[CENTRED], SURROGATES[TOP]):
        assert_same(surrogate(scores * scale + shift, targets, weights), surrogate(scores, targets, weights))


@given(rows=ONE_SET)
def test_scores_measured_from_the_top_keep_their_order_and_put_the_highest_row_in_one_place(rows) -> None:
    scores, targets, weights = rows
    placed = standardised(scores, class_weights(targets, weights), weights, "top")
    present = weights > 0
    ordered = placed[present][scores[present].argsort(stable=True)]
    assert bool((ordered.diff() > -1e-12).all())  # equal scores may end a last bit apart, by where they are in memory
    highest = placed[present].max()
    assert_same((1.5 * highest).asinh(), torch.tensor(TOP_POSITION, dtype=torch.float64))
    assert torch.equal(placed[present] > highest - 1e-12, scores[present] == scores[present].max())


def test_scores_measured_from_the_top_tell_the_first_two_rows_apart_however_close() -> None:
    scores = torch.cat((torch.linspace(-2, 2, 100), torch.tensor([2.02]))).double()
    first, second, every = torch.zeros(101).double(), torch.zeros(101).double(), torch.ones(101).double()
    first[100], second[99] = 1, 1
    placed = (1.5 * standardised(scores, class_weights(first, every), every, "top")).asinh()
    assert float(placed[100] - placed[99]) > 3 * 0.073  # the distance between two thresholds of the soft ROC
    shifted = (1.5 * standardised(scores, class_weights(second, every), every, "shift")).asinh()
    assert float(shifted[100] - shifted[99]) < 0.073


@given(rows=ONE_SET, scale=st.floats(1, 100))
def test_scaled_scores_hide_scale_alone(rows, scale: float) -> None:
    scores, targets, weights = 8 * rows[0], rows[1], rows[2]
    surrogate = SURROGATES[SCALED]
    assert_same(surrogate(scores * scale, targets, weights), surrogate(scores, targets, weights))


def test_scaled_scores_keep_zero_in_sight() -> None:
    scores, targets, weights = random_sets(6, 50)
    surrogate = SURROGATES[SCALED]
    assert float((surrogate(scores + 1, targets, weights) - surrogate(scores, targets, weights)).abs().min()) > 1e-5
    assert torch.equal(standardised(scores, class_weights(targets, weights), weights, "scale") >= 0, scores >= 0)


def test_the_paper_looks_at_scores_as_they_are() -> None:
    scores, targets, weights = random_sets(6, 50)
    surrogate = SURROGATES[PAPER]
    for other in (scores + 1, scores * 2):
        assert float((surrogate(other, targets, weights) - surrogate(scores, targets, weights)).abs().min()) > 1e-5


def test_both_classes_count_the_same_in_centre_and_scale() -> None:
    scores, targets = torch.tensor([4.0, 0, 0, 0, 0, 0]), torch.tensor([1.0, 0, 0, 0, 0, 0])
    positive, negative = classes = class_weights(targets, torch.full((6,), 1 / 6))
    torch.testing.assert_close(
        standardised(scores, classes, torch.ones(6), "shift"), torch.tensor([1.0, -1, -1, -1, -1, -1])
    )
    torch.testing.assert_close(positive, targets)
    torch.testing.assert_close(negative, (1 - targets) / 5)


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [CENTRED, SCALED, PAPER, TOP], ids=["shift", "scale", "paper", "top"])
@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_scores_and_weights_are_those_of_finite_differences(config, training: bool) -> None:
    surrogate = built(config).train(training)
    scores, targets, weights = random_sets(2, 6)
    targets[:, 0], targets[:, 1] = 1, 0
    inputs = (scores.requires_grad_(), targets, weights.requires_grad_())
    assert torch.autograd.gradcheck(surrogate, inputs)


def test_the_gradient_of_attention_is_that_at_thresholds_that_stay_where_they_are(monkeypatch) -> None:
    surrogate = built(ATTENTION)
    scores, targets, weights = random_sets(2, 6)
    targets[:, 0], targets[:, 1] = 1, 0
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(leaf, targets, weights).sum(), leaf)
    shares = weights / weights.sum(-1, keepdim=True)
    classes = class_weights(targets, shares)
    position = (standardised(scores, classes, shares, "shift") * SoftCurve.stretch).asinh()
    centres = placed_thresholds(position, classes, surrogate.g.levels)
    monkeypatch.setattr(soft_curve, "placed_thresholds", lambda *_: centres)
    inputs = (scores.requires_grad_(), targets, weights.requires_grad_())
    assert torch.autograd.gradcheck(surrogate, inputs)
    assert_same(torch.autograd.grad(surrogate(*inputs).sum(), scores)[0], gradient)


@pytest.mark.parametrize("config", [CENTRED, PAPER], ids=["default", "paper"])
def test_gradients_of_parameters_are_those_of_finite_differences(config: SurrogateConfig) -> None:
    surrogate = built(SurrogateConfig.from_dict({**config.as_dict(), "thresholds": 4, "h": (3,)}))
    sets = random_sets(2, 6)
    names, values = zip(*surrogate.named_parameters(), strict=True)

    def loss(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(surrogate, dict(zip(names, parameters, strict=True)), sets)

    assert torch.autograd.gradcheck(loss, tuple(value.detach().requires_grad_() for value in values))


def test_several_outputs_have_the_gradients_of_finite_differences() -> None:
    (scores, targets, _), weights = random_sets(2, 5, 3), random_sets(2, 5)[2]
    surrogate = built(SurrogateConfig(view="labels"))
    assert torch.autograd.gradcheck(lambda s: surrogate(s, targets, weights), (scores.requires_grad_(),))


DEGENERATE = {
    "constant scores": (torch.full((6,), 3.3), torch.tensor([1.0, 0, 0, 1, 0, 0])),
    "zero scores": (torch.zeros(6), torch.tensor([1.0, 0, 0, 1, 0, 0])),
    "one positive row": (torch.tensor([0.7]), torch.tensor([1.0])),
    "one negative row": (torch.tensor([0.7]), torch.tensor([0.0])),
    "positives only": (torch.linspace(-1, 1, 6), torch.ones(6)),
    "negatives only": (torch.linspace(-1, 1, 6), torch.zeros(6)),
    "no rows": (torch.zeros(0), torch.zeros(0)),
    "tiny scores": (torch.linspace(-1e-30, 1e-30, 6), torch.tensor([1.0, 0, 0, 1, 0, 0])),
    "huge scores": (torch.linspace(-1e30, 1e30, 6), torch.tensor([1.0, 0, 0, 1, 0, 0])),
    "one outlier": (torch.tensor([1e15, 1, 2, 3, 4, 5]), torch.tensor([1.0, 0, 0, 1, 0, 0])),
}


@pytest.mark.parametrize("config", SURROGATES, ids=["shift", "scale", "paper", "top", "attention"])
@pytest.mark.parametrize("case", DEGENERATE)
@pytest.mark.parametrize("weigh", [1.0, 0.0])
def test_degenerate_sets_have_finite_losses_and_gradients(config, case: str, weigh: float) -> None:
    surrogate = built(config).float()
    scores, targets = DEGENERATE[case]
    scores = scores.clone().requires_grad_()
    loss = surrogate(scores, targets, torch.full_like(targets, weigh))
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(scores.grad.isfinite().all())
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in surrogate.parameters())


@pytest.mark.parametrize("standardise", ["shift", "scale", "top"])
@pytest.mark.parametrize("size", [1e-4, 1e6, 1e15])
def test_small_and_huge_scores_are_told_apart_as_any_others(standardise: str, size: float) -> None:
    surrogate = built(SurrogateConfig(standardise=standardise)).float()
    scores, targets, weights = (column.float() for column in random_sets(5, 100))
    torch.testing.assert_close(surrogate(scores * size, targets, weights), surrogate(scores, targets, weights))


@pytest.mark.parametrize("padding", [1e30, -torch.finfo(torch.float64).max, float("inf"), float("nan")])
def test_no_score_that_pads_a_set_comes_through(padding: float) -> None:
    scores, targets, weights = random_sets(8)
    for surrogate in SURROGATES.values():
        padded = torch.cat((scores, torch.tensor([padding]))).requires_grad_()
        loss = surrogate(padded, torch.cat((targets, torch.ones(1))), torch.cat((weights, torch.zeros(1))))
        assert_same(loss, surrogate(scores, targets, weights))
        loss.backward()
        assert bool(padded.grad.isfinite().all())
        assert float(padded.grad[-1]) == 0


def test_a_set_whose_weights_are_all_zero_is_an_empty_set() -> None:
    scores, targets, weights = random_sets(8)
    nothing = torch.zeros(0, dtype=torch.float64)
    for surrogate in SURROGATES.values():
        assert_same(surrogate(scores, targets, 0 * weights), surrogate(nothing, nothing))


# ---- constructions ---------------------------------------------------------------------------------------------------


def test_the_paper_is_built_as_its_authors_built_it() -> None:
    surrogate = Surrogate("paper")
    layers = [m for m in surrogate.modules() if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in layers] == [(2, 30), (30, 30), (30, 10), (10, 10), (10, 1)]
    assert [m.num_features for m in surrogate.modules() if isinstance(m, nn.BatchNorm1d)] == [30]
    assert isinstance(surrogate.g.activation, nn.Tanh)
    assert [type(m) for m in surrogate.h] == [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh]
    assert not surrogate.fixed_pool


def test_batch_norm_of_the_paper_follows_the_first_layer_of_g() -> None:
    surrogate = built(PAPER).requires_grad_(False)
    scores, targets, weights = random_sets(3, 10)
    first, second = surrogate.g.layers
    norm = surrogate.g.norm(torch.tanh(first(torch.stack((targets, scores), -1))).flatten(0, 1)).view(3, 10, 30)
    pooled = (torch.tanh(second(norm)) * (weights / weights.sum(-1, keepdim=True)).unsqueeze(-1)).sum(-2)
    assert_same(surrogate.pool(scores, targets, weights), pooled)
    for bias in (-1.0, 1.0):
        surrogate.last.bias.fill_(bias)
        raw = surrogate.last(surrogate.h(pooled))[:, 0]
        assert bool((raw.sign() == bias).all())
        assert_same(surrogate.judge(pooled), torch.where(raw > 0, raw, 0.2 * raw))


@pytest.mark.parametrize(("bias", "expected"), [(-1000.0, -3.0), (1000.0, 5.0)])
def test_the_default_gives_no_loss_below_low_or_above_high(bias: float, expected: float) -> None:
    surrogate = built(CENTRED).requires_grad_(False)
    surrogate.last.bias.fill_(bias)
    sets = random_sets(20, 20)
    assert_same(surrogate(*sets), torch.full((20,), float(bias > 0), dtype=torch.float64))
    surrogate.low.fill_(-3)
    surrogate.high.fill_(5)
    assert_same(surrogate(*sets), torch.full((20,), expected, dtype=torch.float64))


def test_the_default_g_sees_a_smoothed_roc_curve() -> None:
    scores, targets, weights = random_sets(400)
    shares = weights / weights.sum()
    known = SURROGATES[CENTRED].g(scores, targets, shares, class_weights(targets, shares))
    found, alarmed = ((known[1 + 64 * i : 65 + 64 * i] * 4).exp() - 1e-4 for i in range(2))
    warped, centres = (1.5 * scores).asinh(), SURROGATES[CENTRED].g.centres
    for i in range(0, 64, 2):  # the sharp thresholds
        above = (warped > centres[i]).double() * weights
        assert float(found[i]) == pytest.approx(float((above * targets).sum() / (weights * targets).sum()), abs=0.05)
        share = float((above * (1 - targets)).sum() / (weights * (1 - targets)).sum())
        assert float(alarmed[i]) == pytest.approx(share, abs=0.05)


def test_an_unknown_config_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="config: expected one of default, paper, attention, got 'wide'"):
        Surrogate("wide")


def test_a_state_dict_gives_the_same_surrogate() -> None:
    sets = random_sets(3, 20)
    for config, surrogate in SURROGATES.items():
        other = built(config, seed=1)
        assert not torch.equal(other(*sets), surrogate(*sets))
        other.load_state_dict(surrogate.state_dict())
        assert torch.equal(other(*sets), surrogate(*sets))


# ---- the meta-loss ---------------------------------------------------------------------------------------------------


def test_the_meta_loss_is_the_mean_distance() -> None:
    smooth, true = torch.tensor([[0.1, 0.4], [0.3, 0.9]]), torch.tensor([[0.2, 0.2], [0.3, 0.8]])
    torch.testing.assert_close(meta_loss(smooth, true), torch.tensor(0.1))


def test_the_relational_part_forgives_a_common_error_and_no_other() -> None:
    true = torch.tensor([[0.2, 0.3, 0.7], [0.3, 0.8, 0.4]])
    shifted, mixed = true + 0.1, true + torch.tensor([0.1, -0.1, 0.1])
    torch.testing.assert_close(meta_loss(shifted, true, 1.0), meta_loss(shifted, true))
    assert meta_loss(mixed, true, 1.0) > meta_loss(mixed, true) + 0.1
    assert torch.equal(meta_loss(shifted[:, :1], true[:, :1], 1.0), meta_loss(shifted[:, :1], true[:, :1]))
