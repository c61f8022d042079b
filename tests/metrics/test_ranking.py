"""Metrics of rankings as records: found by name, checked, judged by the formulas."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from metricgrad.metrics.ranking import err, ndcg
from metricgrad.metrics.ranking_formulas import err_loss, map_loss, mrr_loss, ndcg_loss
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import RANKING

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
def test_a_number_of_ranks_or_grades_is_whole_and_positive(make: type, number: object) -> None:
    with pytest.raises(ValueError, match=r"(k|max_grade): expected a whole number from 1 to 1000000, got"):
        make(number)


def test_targets_are_grades() -> None:
    with pytest.raises(ValueError, match="targets: expected grades of at least 0, got -1 at index 1"):
        get_metric("map")([0.1, 0.2], [0, -1])
    with pytest.raises(ValueError, match="targets: expected grades of at most 4, got 5"):
        get_metric("err")([0.1, 0.2], [0, 5])
