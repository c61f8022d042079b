"""Tests of how a surrogate looks at sets of other tasks than binary ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from metricgrad.surrogate.config import SurrogateConfig
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.views import GRADE_LEVELS, VIEWS, grades, log_odds, margins, ordered, residuals, weightings

OUTPUTS = [name for name, view in VIEWS.items() if view.outputs]
UNORDERED = [name for name in OUTPUTS if name != "ordered"]


def class_sets(seed: int, sets: int = 2, n: int = 9, c: int = 4) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(sets, n, c, generator=generator, dtype=torch.float64)
    targets = one_hot(torch.randint(c, (sets, n), generator=generator), c).double()
    return scores, targets, torch.rand(sets, n, generator=generator, dtype=torch.float64)


def built(name: str, parts: int = 1) -> Surrogate:
    torch.manual_seed(0)
    return Surrogate(SurrogateConfig(thresholds=8, h=(6,), view=name, parts=parts)).double().requires_grad_(False)


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-6, 1.0, 1e6]))
def test_a_class_has_a_margin_of_at_least_zero_where_it_is_the_largest(seed: int, scale: float) -> None:
    scores, targets, weights = class_sets(seed)
    seen = margins(scores * scale, targets, weights)[0].mT
    assert torch.equal(seen >= 0, one_hot(scores.argmax(-1), 4).bool())


def test_equal_classes_have_a_margin_of_zero() -> None:
    seen = margins(torch.tensor([[2.0, 1.0, 2.0]]), torch.zeros(1, 3), torch.ones(1))[0]
    assert seen[:, 0].tolist() == [0, -1, 0]


@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.1, 1.0, 50.0]))
def test_log_odds_are_those_of_the_softmax(seed: int, scale: float) -> None:
    scores, targets, weights = class_sets(seed)
    seen = log_odds(scores * scale, targets, weights)[0].mT
    chances = (scores * scale).softmax(-1)
    others = chances.sum(-1, keepdim=True) - chances
    sure = others > 1e-9
    torch.testing.assert_close(seen[sure], (chances / others).log()[sure], rtol=1e-5, atol=1e-5)
    assert bool(seen.isfinite().all())


def test_ordered_classes_are_seen_by_where_they_are_parted() -> None:
    scores, targets, weights = class_sets(0)
    seen, above, _ = ordered(scores, targets, weights)
    chances, number = scores.softmax(-1), targets.argmax(-1)
    for place in range(1, 4):
        over = chances[..., place:].sum(-1)
        torch.testing.assert_close(seen[:, place - 1], (over / (1 - over)).log())
        assert torch.equal(above[:, place - 1], (number >= place).double())


def test_rows_weigh_by_every_column_in_turn() -> None:
    targets = torch.tensor([[1.0, 5.0], [0.0, 2.0]])
    scores, labels, weights = weightings(torch.tensor([0.3, 0.7]), targets, torch.tensor([1.0, 2.0]))
    assert labels.tolist() == [[1, 0], [1, 0]]
    assert weights.tolist() == [[1, 2], [5, 4]]
    assert scores.shape == (2, 2)


def test_grades_are_seen_from_each_level_up() -> None:
    _, positive, _ = grades(torch.zeros(4), torch.tensor([0.0, 1, 3, 9]), torch.ones(4))
    assert positive.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert len(positive) == GRADE_LEVELS


def test_residuals_do_not_depend_on_the_unit_of_the_targets() -> None:
    scores, targets = torch.tensor([1.0, 2.5, 2.0]).double(), torch.tensor([1.0, 2.0, 4.0]).double()
    seen = residuals(scores, targets, torch.ones(3))
    for one, other in zip(seen, residuals(1e6 * scores, 1e6 * targets, torch.ones(3)), strict=True):
        torch.testing.assert_close(one, other)
    assert float(seen[0][0]) == 0
    assert abs(float(seen[1].mean())) < 1e-6


@pytest.mark.parametrize("name", UNORDERED)
@given(seed=st.integers(0, 1_000), order=st.permutations(range(4)))
def test_renaming_the_classes_renames_the_result(name: str, seed: int, order: list[int]) -> None:
    surrogate, (scores, targets, weights) = built(name), class_sets(seed)
    leaf = scores.clone().requires_grad_()
    losses = surrogate(leaf, targets, weights)
    (slopes,) = torch.autograd.grad(losses.sum(), leaf)
    renamed = scores[..., order].clone().requires_grad_()
    again = surrogate(renamed, targets[..., order], weights)
    (moved,) = torch.autograd.grad(again.sum(), renamed)
    torch.testing.assert_close(again, losses)
    torch.testing.assert_close(moved, slopes[..., order])


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_surrogate_is_as_large_for_many_classes_as_for_few(name: str) -> None:
    surrogate = built(name)
    for classes in (3, 40):
        assert surrogate(*class_sets(0, c=classes)).shape == (2,)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_order_of_rows_and_rows_without_weight_do_not_matter(name: str) -> None:
    surrogate, (scores, targets, weights) = built(name), class_sets(3)
    losses = surrogate(scores, targets, weights)
    order = torch.tensor([4, 2, 0, 8, 1, 7, 3, 6, 5])
    torch.testing.assert_close(surrogate(scores[:, order], targets[:, order], weights[:, order]), losses)
    padded = torch.cat((scores, torch.full((2, 3, 4), torch.inf)), 1)
    more = torch.cat((targets, torch.zeros(2, 3, 4)), 1), torch.cat((weights, torch.zeros(2, 3)), 1)
    torch.testing.assert_close(surrogate(padded, *more), losses)


@pytest.mark.parametrize(("name", "parts"), [("weightings", 2), ("grades", GRADE_LEVELS)])
def test_sets_told_apart_are_judged_in_their_order(name: str, parts: int) -> None:
    surrogate, generator = built(name, parts), torch.Generator().manual_seed(0)
    scores = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    targets = torch.randint(3, (3, 12), generator=generator).double()
    if name == "weightings":
        targets = torch.stack(((targets > 0).double(), targets), -1)
    losses = surrogate(scores, targets, torch.ones(3, 12))
    padded = torch.nn.functional.pad(scores, (0, 4), value=7.0)
    more = torch.cat((targets, targets[:, :4]), 1), torch.nn.functional.pad(torch.ones(3, 12), (0, 4))
    torch.testing.assert_close(surrogate(padded, *more), losses)
    other = targets.flip(-1) if name == "grades" else targets * torch.tensor([1.0, 3.0])
    same = torch.allclose(surrogate(scores, other, torch.ones(3, 12)), losses)
    assert same == (name == "weightings")  # only ratios of a column matter


def test_a_query_of_more_documents_is_another_one() -> None:
    surrogate = built("grades", GRADE_LEVELS)
    scores, targets = torch.tensor([[0.1, 0.5, -1.0]]).double(), torch.tensor([[0.0, 2.0, 1.0]]).double()
    twice = surrogate(scores.repeat(1, 2), targets.repeat(1, 2))
    assert abs(float(twice - surrogate(scores, targets))) > 1e-6
