"""Direct search: the weights of a model that is linear in fixed columns, moved by CMA-ES on the true metric."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.metrics.metric import Metric

if TYPE_CHECKING:
    from metricgrad.training.data import Rows
    from metricgrad.training.solver import Problem

EVALUATIONS = 3_000
"""Candidates that a search judges."""
EVALUATIONS_OF_COLUMNS = 1_000
"""The same by a metric with columns, which takes several times as long."""
CALLS_SHARE = 0.5
"""Share of the calls of a costly metric that a search may take; the others are for validation rows and thresholds."""
STEP = 0.3
"""First step, in units of the spread of the scores at the start."""
SHRINKAGE = 1e-3
"""Least ridge penalty of the coordinates that are searched: where rows hardly differ, weights hardly move."""
MAX_FULL = 150
"""Columns up to which the search learns how its coordinates depend on each other."""
MAX_SEARCHED = 1_000
"""Columns up to which a search is worth trying."""
REPORTS = 10
"""How often a search reports, evenly over its evaluations."""
MAX_ROWS = 30_000
"""Rows that candidates are judged on; of more, a part, in which weights make up for rows that are left out."""
MAX_SCORES = 4_000_000
"""Scores of candidates that are judged at a time."""


class DirectSearch(nn.Module):
    """The true metric as what a model is to lower by search; it has no gradient.

    Parameters
    ----------
    metric : Metric
        The metric.
    form : {"best", "zero"}
        As of `SurrogateLoss`: candidates are judged at their best threshold, or at zero.
    evaluations : int, optional
        Candidates to judge; fewer if the metric is costly and its calls are limited.

    Attributes
    ----------
    judged_sets : int
        Sets, one for each candidate, whose true loss was computed so far.
    """

    def __init__(self, metric: Metric, form: str = "best", evaluations: int | None = None) -> None:
        super().__init__()
        self.metric, self.judged = metric, metric.trained(form)
        self.judged_sets = 0
        self.evaluations = evaluations or (EVALUATIONS_OF_COLUMNS if metric.columns else EVALUATIONS)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the true loss: `(..., n)` -> `(...)`."""
        loss: Tensor = self.judged(scores, targets, weights)
        self.judged_sets += loss.numel()
        return loss


class Found(NamedTuple):
    """Where a search stands: candidates judged so far, and the least loss among the last of them."""

    evaluations: int
    loss: float


def search(problem: Problem, loss: DirectSearch, seed: int = 0) -> Iterator[Found]:
    """Move the weights of a problem where its rows lose less by the true metric; yield some times on the way.

    The search is CMA-ES (Hansen 2016) from the weights as they are, in coordinates in which the scores of the rows
    change about as much in every direction. The weights of the problem are then its mean, not its best candidate, which
    owes more to chance. The bias stays: the threshold is chosen afterwards.
    """
    import cma

    origin, bias = problem.weights
    basis = problem.search_basis(SHRINKAGE)
    rows = _judged_rows(problem, loss.metric, seed)
    start, moves = problem.scores()[rows.x], problem.columns[rows.x] @ basis.float()
    count = moves.shape[1]
    unit = float(start.std(correction=0) / moves.std(0, correction=0).mean().clamp(min=1e-12)) / count**0.5
    options = {
        "seed": np.nan,  # any other would set numpy's global one
        "randn": np.random.RandomState(seed).randn,
        "verbose": -9,
        "CMA_diagonal": count > MAX_FULL,
        "maxfevals": loss.evaluations,
        **dict.fromkeys(("tolfun", "tolfunhist", "tolfunrel"), 0),  # true losses come in steps: many are equal
        **dict.fromkeys(("tolflatfitness", "tolstagnation"), loss.evaluations),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strategy = cma.CMAEvolutionStrategy(np.zeros(count), STEP, options)
    reported, calls = 0, loss.metric.calls
    while not strategy.stop() and not _out_of_calls(loss.metric, calls):
        points = np.array(strategy.ask())
        losses = _judged(loss, rows, start, unit * torch.from_numpy(points).float(), moves)
        strategy.tell(list(points), losses)
        if strategy.countevals >= (reported + 1) * loss.evaluations / REPORTS or strategy.stop():
            reported = int(strategy.countevals * REPORTS / loss.evaluations)
            moved = unit * basis @ torch.from_numpy(np.asarray(strategy.mean))
            problem.weights = problem.bounded(origin + moved.unsqueeze(0).to(origin.dtype)), bias
            yield Found(int(strategy.countevals), min(losses))


def _judged_rows(problem: Problem, metric: Metric, seed: int) -> Rows:
    """Return the rows that candidates are judged on, with their places among those of the problem as features."""
    from metricgrad.training.solver import part_of

    rows = problem.rows._replace(x=torch.arange(len(problem.rows.y)))
    return part_of(rows, MAX_ROWS, metric.task.strata(rows.y) if metric.takes_weights else None, seed)


def _judged(loss: DirectSearch, rows: Rows, start: Tensor, points: Tensor, moves: Tensor) -> list[float]:
    """Return the true losses of candidates, `(candidates, coordinates)`, some at a time."""
    y, w = rows.y, rows.w
    losses: list[float] = []
    for some in points.split(max(MAX_SCORES // len(start), 1)):
        sets = (rows.expand(len(some), *rows.shape) for rows in (y, w) if rows is not None)
        losses += loss(start + some @ moves.mT, *sets).tolist()
    return losses


def _out_of_calls(metric: Metric, before: int) -> bool:
    return metric.budget is not None and metric.calls - before >= CALLS_SHARE * metric.budget.max_calls
