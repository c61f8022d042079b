"""Ranking metrics against scikit-learn, and against their definitions averaged over every order of ties."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from metricgrad.metrics.confusion import Function
from metricgrad.metrics.ranking import err, err_loss, gains, map_loss, mrr_loss, ndcg, ndcg_loss
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import RANKING

LOSSES: dict[str, Function] = {
    "ndcg": ndcg_loss,
    "ndcg(1)": partial(ndcg_loss, k=1),
    "ndcg(3)": partial(ndcg_loss, k=3),
    "map": map_loss,
    "mrr": mrr_loss,
    "err": err_loss,
}
each = pytest.mark.parametrize("name", LOSSES)


# ---- the oracles: what one order of the documents is worth, given their grades from the first to the last -----------


def ndcg_of_order(grades: np.ndarray, k: int = 10**9) -> float:
    def worth(order: np.ndarray) -> float:
        return sum((2.0**g - 1) / np.log2(2 + i) for i, g in enumerate(order[:k]))

    return worth(grades) / worth(np.sort(grades)[::-1])


def average_precision(grades: np.ndarray) -> float:
    found = [rank for rank, g in enumerate(grades, 1) if g > 0]
    return float(np.mean([(i + 1) / rank for i, rank in enumerate(found)]))


def reciprocal_rank(grades: np.ndarray) -> float:
    return 1 / (1 + int(np.flatnonzero(grades > 0)[0]))


def expected_reciprocal_rank(grades: np.ndarray) -> float:
    """Algorithm 2 of Chapelle et al. (2009)."""
    looking, total = 1.0, 0.0
    for rank, g in enumerate(grades, 1):
        stops = (2.0**g - 1) / 2**4
        total += looking * stops / rank
        looking *= 1 - stops
    return total


ORACLES: dict[str, Callable[[np.ndarray], float]] = {
    "ndcg": ndcg_of_order,
    "ndcg(1)": partial(ndcg_of_order, k=1),
    "ndcg(3)": partial(ndcg_of_order, k=3),
    "map": average_precision,
    "mrr": reciprocal_rank,
    "err": expected_reciprocal_rank,
}


def over_orders(value: Callable[[np.ndarray], float], scores: np.ndarray, grades: np.ndarray) -> float:
    """Average over every order that puts no lower score above a higher one."""
    orders = permutations(range(len(scores)))
    kept = [list(o) for o in orders if all(scores[a] >= scores[b] for a, b in pairwise(o))]
    return float(np.mean([value(grades[o]) for o in kept]))


class Query(NamedTuple):
    scores: np.ndarray
    grades: np.ndarray

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(self.scores), torch.tensor(self.grades)


@st.composite
def queries(draw: st.DrawFn, max_size: int = 40, largest: int = 4) -> Query:
    """A query with at least one relevant document, with many ties, some or none."""
    size = draw(st.integers(1, max_size))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = {
        "ties": lambda: rng.integers(-1, 2, size) / 2.0,
        "some": lambda: rng.integers(0, size, size) * 1.0,
        "normal": lambda: rng.normal(size=size),
        "extreme": lambda: rng.choice([-1, 1], size) * 10.0 ** rng.choice([-300, -30, 0, 30, 300], size),
        "equal": lambda: np.full(size, -3.5),
    }[draw(st.sampled_from(["ties", "some", "normal", "extreme", "equal"]))]()
    grades = rng.integers(0, draw(st.integers(1, largest)) + 1, size).astype(np.float64)
    grades[rng.integers(size)] = draw(st.integers(1, largest))
    return Query(scores, grades)


# ---- against the oracles -------------------------------------------------------------------------------------------


@each
@given(query=queries(max_size=5))
def test_a_query_loses_the_average_over_all_orders_of_its_ties(name: str, query: Query) -> None:
    expected = 1 - over_orders(ORACLES[name], *query)
    assert float(LOSSES[name](*query.tensors(), None)) == pytest.approx(expected, abs=1e-12)


@given(query=queries(), k=st.integers(1, 60))
def test_ndcg_is_that_of_scikit_learn_with_ties_averaged(query: Query, k: int) -> None:
    if len(query.scores) < 2:  # scikit-learn wants two documents
        return
    expected = 1 - ndcg_score([2**query.grades - 1], [query.scores], k=k, ignore_ties=False)
    assert float(ndcg_loss(*query.tensors(), None, k=k)) == pytest.approx(expected, abs=1e-12)


@given(query=queries())
def test_map_without_ties_is_the_average_precision_of_scikit_learn(query: Query) -> None:
    distinct = np.argsort(np.argsort(query.scores)).astype(float)
    expected = 1 - average_precision_score(query.grades > 0, distinct)
    assert float(map_loss(torch.tensor(distinct), torch.tensor(query.grades), None)) == pytest.approx(expected)


@each
@given(query=queries(max_size=30), seed=st.integers(0, 2**32 - 1))
def test_padding_order_weights_and_neighbours_change_nothing(name: str, query: Query, seed: int) -> None:
    rng = np.random.default_rng(seed)
    alone = float(LOSSES[name](*query.tensors(), None))
    extra = int(rng.integers(1, 8))
    scores = np.append(query.scores, rng.choice([-1e308, 0.0, query.scores[0], 1e308], extra))
    grades = np.append(query.grades, rng.integers(0, 100, extra))
    weights = np.append(10.0 ** rng.integers(-300, 300, len(query.scores)), np.zeros(extra))
    order = rng.permutation(len(scores))
    beside = [np.stack((values[order], rng.permutation(values))) for values in (scores, grades, weights)]
    beside[1][1] = np.minimum(beside[1][1], 4)
    together = LOSSES[name](*(torch.tensor(values) for values in beside))
    assert together.shape == (2,)
    assert float(together[0]) == pytest.approx(alone, abs=1e-12)


@each
@given(query=queries())
def test_a_loss_lies_between_zero_and_one_and_the_best_order_has_the_least(name: str, query: Query) -> None:
    loss = LOSSES[name]
    now = float(loss(*query.tensors(), None))
    best = float(loss(torch.tensor(query.grades), torch.tensor(query.grades), None))
    assert 0 <= best <= now + 1e-12
    assert now <= 1
    assert name == "err" or best == pytest.approx(0, abs=1e-12)


@each
@given(query=queries())
def test_only_the_order_of_scores_counts(name: str, query: Query) -> None:
    _, places = np.unique(query.scores, return_inverse=True)
    loss = LOSSES[name]
    expected = float(loss(torch.tensor(places.astype(float)), torch.tensor(query.grades), None))
    assert float(loss(*query.tensors(), None)) == pytest.approx(expected, abs=1e-12)


# ---- corners -------------------------------------------------------------------------------------------------------


@each
def test_a_query_without_relevant_documents_loses_nothing(name: str) -> None:
    scores, weights = torch.randn(3, 5), torch.tensor([1.0, 1, 1, 0, 0])
    assert LOSSES[name](scores, torch.zeros(3, 5), None).tolist() == [0, 0, 0]
    assert LOSSES[name](scores, torch.tensor([0, 0, 0, 2, 1]).expand(3, 5), weights.expand(3, 5)).tolist() == [0, 0, 0]


@each
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_no_documents_and_no_queries_lose_nothing(name: str, shape: tuple[int, ...]) -> None:
    loss = LOSSES[name](torch.zeros(shape), torch.zeros(shape), torch.zeros(shape))
    assert loss.shape == shape[:-1]
    assert not loss.any()


@each
def test_one_relevant_document_is_where_it_has_to_be(name: str) -> None:
    expected = 15 / 16 if name == "err" else 0
    assert float(LOSSES[name](torch.zeros(1), torch.ones(1), None)) == expected


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_any_precision_of_scores_and_any_kind_of_grades_will_do(name: str, dtype: torch.dtype) -> None:
    scores, grades = torch.tensor([3, 1, 2, 0.5], dtype=dtype), torch.tensor([0, 1, 1, 0])
    expected = 1 - ORACLES[name](np.array([0, 1, 1, 0]))
    for kind in (torch.bool, torch.int64, torch.float32):
        assert float(LOSSES[name](scores, grades.to(kind), None)) == pytest.approx(expected)


def test_many_axes_come_before_the_documents() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, grades = torch.randn(2, 3, 7, generator=generator), torch.randint(5, (2, 3, 7), generator=generator)
    for loss in LOSSES.values():
        together = loss(scores, grades, None)
        alone = [[float(loss(scores[i, j], grades[i, j], None)) for j in range(3)] for i in range(2)]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_grades_of_any_size_have_gains() -> None:
    for grades in ([0, 1, 2, 30], [0, 900, 5000, 1e6], [0, 1e-30, 1e-20, 0.5]):
        scores = torch.tensor([4.0, 3, 2, 1])
        worst, best = ndcg_loss(torch.stack((scores, -scores)), torch.tensor(grades).double().expand(2, 4), None)
        assert 0 < worst < 1
        assert best == 0


def test_gains_are_the_published_ones_up_to_a_factor_of_the_query() -> None:
    gain = gains(torch.arange(5, dtype=torch.float64))
    np.testing.assert_array_equal(gain * 16, [0, 1, 3, 7, 15])


def test_err_takes_no_grade_above_the_largest_allowed() -> None:
    with pytest.raises(ValueError, match="targets: expected grades of at most 4, got 5"):
        err_loss(torch.zeros(2), torch.tensor([0, 5]), None)
    assert float(err_loss(torch.tensor([1.0, 0]), torch.tensor([5, 9]), torch.tensor([1.0, 0]), 5)) == 1 / 32


# ---- the metrics as records ------------------------------------------------------------------------------------------

FORMULAS = {"map": map_loss, "mrr": mrr_loss, "ndcg(10)": partial(ndcg_loss, k=10), "err(4)": err_loss}
SCORES = [[2.0, 1.0, 3.0], [0.5, 0.5, 9.0]]
GRADES = [[0, 1, 2], [1, 0, 4]]
WEIGHTS = [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_metric_of_rankings_judges_queries_by_its_formula(name: str) -> None:
    metric = get_metric(name)
    assert metric.name == name
    assert metric.task == RANKING
    expected = FORMULAS[name](*(torch.tensor(values).double() for values in (SCORES, GRADES, WEIGHTS)))
    np.testing.assert_allclose(metric(SCORES, GRADES, WEIGHTS), expected)
    assert metric.shown(0.25) == f"{metric.label} 0.7500"
    assert metric.best is metric


def test_builtin_metrics_are_those_of_a_task_or_all() -> None:
    assert [metric.name for metric in builtin_metrics(RANKING)] == list(FORMULAS)
    assert {metric.name for metric in builtin_metrics(None)} >= {"f1", *FORMULAS}
    assert not {metric.name for metric in builtin_metrics()} & set(FORMULAS)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NDCG", "ndcg(10)"),
        ("ndcg( 5 )", "ndcg(5)"),
        ("ndcg@3", "ndcg(3)"),
        ("err", "err(4)"),
        ("err(2)", "err(2)"),
        ("Mean-Average-Precision", "map"),
        ("mean_reciprocal_rank", "mrr"),
    ],
)
def test_names_are_read_as_people_write_them(name: str, found: str) -> None:
    assert get_metric(name).name == found


def test_the_first_ranks_are_what_counts() -> None:
    scores, grades = np.arange(5.0)[::-1].copy(), [0, 0, 1, 0, 0]
    assert float(ndcg(2)(scores, grades)) == 1
    assert float(ndcg(3)(scores, grades)) == pytest.approx(0.5)
    assert ndcg(3).label == "NDCG@3"


def test_a_largest_grade_says_what_the_others_are_worth() -> None:
    assert float(err(1)([0.0], [1])) == 0.5
    assert float(err(2)([0.0], [1])) == 0.75


@pytest.mark.parametrize("make", [ndcg, err])
@pytest.mark.parametrize("number", [0, -1, 1.5, "x", float("nan"), float("inf"), None, True])
def test_a_number_of_ranks_or_grades_is_a_positive_integer(make: type, number: object) -> None:
    with pytest.raises(ValueError, match=r"(k|max_grade): expected an integer from 1 to 1000000, got"):
        make(number)


def test_targets_are_grades() -> None:
    with pytest.raises(ValueError, match="targets: expected grades of at least 0, got -1 at index 1"):
        get_metric("map")([0.1, 0.2], [0, -1])
    with pytest.raises(ValueError, match="targets: expected grades of at most 4, got 5"):
        get_metric("err")([0.1, 0.2], [0, 5])
