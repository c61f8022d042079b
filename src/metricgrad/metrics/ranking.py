"""Metrics of rankings: a set is a query, targets are grades of at least 0, and only the order of the scores counts.

What ties, queries without relevant documents and weights do is said in `ranking_formulas.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from metricgrad.metrics import ranking_formulas as query_formulas
from metricgrad.metrics.binary_formulas import Function
from metricgrad.metrics.metric import Metric, whole_number
from metricgrad.metrics.tasks import RANKING


def _of_queries(name: str, function: Function, label: str, explanation: str) -> Metric:
    return Metric(name, function, label, explanation, takes_weights=False, task=RANKING)


mean_average_precision = _of_queries(
    "map", query_formulas.map_loss, "MAP", "Mean precision at each relevant document, of a query."
)
mrr = _of_queries("mrr", query_formulas.mrr_loss, "MRR", "One over the rank of the first relevant document.")


def ndcg(k: int = 10) -> Metric:
    """Discounted gain of the first k documents over that of the best order, with gains of 2^grade - 1."""
    k = whole_number("k", k)
    explanation = f"Gain of the first {k} documents, discounted by rank, over that of the best order."
    return _of_queries(f"ndcg({k})", partial(query_formulas.ndcg_loss, k=k), f"NDCG@{k}", explanation)


def err(max_grade: int = 4) -> Metric:
    """Reciprocal rank at which a user is expected to stop, in grades up to a largest one."""
    max_grade = whole_number("max_grade", max_grade)
    explanation = f"Reciprocal rank at which a user is expected to stop, by grades from 0 to {max_grade}."
    return _of_queries(f"err({max_grade})", partial(query_formulas.err_loss, max_grade=max_grade), "ERR", explanation)


QUERY_METRICS = (mean_average_precision, mrr)
QUERY_FAMILIES: tuple[Callable[..., Metric], ...] = (ndcg, err)
QUERY_ALIASES = {"mean_average_precision": "map", "mean_reciprocal_rank": "mrr", "expected_reciprocal_rank": "err(4)"}
