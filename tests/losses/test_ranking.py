"""Hand-made losses of queries against their definitions, one pair or one document at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score
from torch import Tensor

from metricgrad.losses.ranking import QUERY_LOSSES, LambdaRank, ListNet, RankNet
from metricgrad.metrics.ranking import ndcg_loss

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(6, 9, generator=GENERATOR, dtype=torch.float64)
GRADES = torch.randint(4, (6, 9), generator=GENERATOR)
each = pytest.mark.parametrize("name", QUERY_LOSSES)


def pairs_of(grades: np.ndarray) -> list[tuple[int, int]]:
    return [(i, j) for i, j in product(range(len(grades)), repeat=2) if grades[i] > grades[j]]


def ranknet(scores: np.ndarray, grades: np.ndarray) -> float:
    return float(np.mean([math.log1p(math.exp(scores[j] - scores[i])) for i, j in pairs_of(grades)]))


def listnet(scores: np.ndarray, grades: np.ndarray) -> float:
    total, norm = sum(2.0**g - 1 for g in grades), sum(math.exp(s) for s in scores)
    return -sum((2.0**g - 1) / total * math.log(math.exp(s) / norm) for s, g in zip(scores, grades, strict=True))


def lambdarank(scores: np.ndarray, grades: np.ndarray, k: int | None = None) -> float:
    """Have scikit-learn say what changing the places of two documents does to NDCG."""
    total = 0.0
    for i, j in pairs_of(grades):
        swapped = scores.copy()
        swapped[[i, j]] = scores[[j, i]]
        values = [ndcg_score([2.0**grades - 1], [order], k=k) for order in (scores, swapped)]
        total += abs(values[0] - values[1]) * math.log1p(math.exp(scores[j] - scores[i]))
    return total


ORACLES: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "ranknet": ranknet,
    "listnet": listnet,
    "lambdarank": lambdarank,
}


def descended(name: str, scores: Tensor, grades: Tensor, weights: Tensor | None = None) -> Tensor:
    scores = scores.clone().requires_grad_()
    QUERY_LOSSES[name]()(scores, grades, weights).backward()
    return -scores.grad


@each
def test_a_loss_is_the_mean_of_its_definition_over_queries(name: str) -> None:
    expected = np.mean([ORACLES[name](s, g) for s, g in zip(SCORES.numpy(), GRADES.numpy(), strict=True)])
    assert float(QUERY_LOSSES[name]()(SCORES, GRADES)) == pytest.approx(expected, rel=1e-7)


def test_lambdarank_may_look_at_the_first_ranks_only() -> None:
    expected = np.mean([lambdarank(s, g, 3) for s, g in zip(SCORES.numpy(), GRADES.numpy(), strict=True)])
    assert float(LambdaRank(3)(SCORES, GRADES)) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_lambdarank_takes_a_whole_number_of_ranks(k: object) -> None:
    with pytest.raises(ValueError, match="k: expected an integer of at least 1 or None, got"):
        LambdaRank(k)  # type: ignore[arg-type]


@each
def test_the_best_document_is_sent_up_and_the_worst_down(name: str) -> None:
    for scores in (torch.zeros(4), torch.tensor([-1.0, 0.5, 1, 2])):
        moves = descended(name, scores, torch.tensor([3, 1, 1, 0]))
        assert moves[0] > 0 > moves[3]
        assert float(moves.sum()) == pytest.approx(0, abs=1e-6)


@each
def test_following_the_loss_finds_the_best_order(name: str) -> None:
    scores = torch.randn(5, 8, generator=torch.Generator().manual_seed(1), requires_grad=True)
    grades = torch.randint(3, (5, 8), generator=torch.Generator().manual_seed(2))
    optimizer = torch.optim.Adam([scores], 0.1)
    for _ in range(300):
        optimizer.zero_grad()
        QUERY_LOSSES[name]()(scores, grades).backward()
        optimizer.step()
    assert float(ndcg_loss(scores.detach(), grades, None).max()) < 1e-6


@each
def test_padding_is_ignored_and_gets_no_gradient(name: str) -> None:
    padded = torch.cat((SCORES, torch.full((6, 3), 1e30)), -1)
    grades, weights = torch.cat((GRADES, torch.full((6, 3), 7)), -1), torch.ones(6, 12)
    weights[:, 9:] = 0
    assert torch.isclose(QUERY_LOSSES[name]()(padded, grades, weights), QUERY_LOSSES[name]()(SCORES, GRADES))
    moves = descended(name, padded, grades, weights)
    torch.testing.assert_close(moves[:, :9], descended(name, SCORES, GRADES))
    assert not moves[:, 9:].any()


@each
def test_a_weight_says_only_that_a_document_is_there(name: str) -> None:
    weights = torch.rand(6, 9) + 0.1
    assert torch.equal(QUERY_LOSSES[name]()(SCORES, GRADES, weights), QUERY_LOSSES[name]()(SCORES, GRADES))


@each
def test_queries_that_tell_nothing_are_left_out_of_the_mean(name: str) -> None:
    loss, nothing = QUERY_LOSSES[name](), torch.zeros(1, 9)
    scores = torch.cat((SCORES, torch.randn(3, 9).double()))
    grades = torch.cat((GRADES, nothing, nothing + 2, nothing + 1))
    weights = torch.ones(9, 9)
    weights[-1] = 0
    assert torch.isclose(loss(scores, grades, weights), loss(SCORES, GRADES))
    assert not descended(name, scores, grades, weights)[6:].any()


@each
def test_nothing_that_tells_anything_loses_nothing_and_sends_no_gradient(name: str) -> None:
    scores = torch.randn(2, 4, requires_grad=True)
    loss = QUERY_LOSSES[name]()(scores, torch.zeros(2, 4), torch.tensor([[1.0, 1, 1, 1], [0, 0, 0, 0]]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert not scores.grad.any()


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_scores_of_the_right_order_give_finite_losses_and_gradients(name: str, dtype: torch.dtype) -> None:
    huge = torch.finfo(dtype).max * torch.tensor([1, 0.5, -1, -1], dtype=dtype)
    scores = huge.requires_grad_()
    loss = QUERY_LOSSES[name]()(scores, torch.tensor([2, 0, 0, 9]), torch.tensor([1, 1, 1, 0]))
    loss.backward()
    assert float(loss.detach()) == 0
    assert scores.grad.isfinite().all()


def test_each_loss_has_a_module_of_its_own() -> None:
    assert [type(make()) for make in QUERY_LOSSES.values()] == [RankNet, ListNet, LambdaRank]
