"""Selection: which model is kept, by its true loss on validation rows.

Two kinds of models compete: those that followed cross-entropy (the warm-up and the control), and those that followed
the loss. A surrogate's model is kept only if its validation gain exceeds one standard error.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.losses.default import proxy_for, proxy_name
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_offsets
from metricgrad.training.data import ROWS_AT_ONCE, Rows
from metricgrad.training.history import Round, Verdict
from metricgrad.training.recipe import Recipe

MAX_DRAWS, MIN_DRAWS = 64, 16
"""Of resamples of the validation rows."""
MAX_TOTAL_ROWS = 5_000_000
"""Rows of all resamples together, which limits the draws if there are many rows, and then the rows of each."""
ROWS_PER_BATCH = 1_000_000
"""Rows of resamples evaluated at a time."""
MAX_ROWS_OF_COLUMNS = 30_000
"""Rows of a resample by a metric with columns; of more, some of the larger class stand for the others."""


def loss_of(metric: Metric, rows: Rows, scores: Tensor) -> float:
    """Return the true loss of rows, the mean over their sets; sets that are not informative do not count."""
    scores, targets, weights = rows.in_sets(scores)
    losses = metric(scores, targets, weights)
    if rows.members is None:
        return float(losses)
    assert weights is not None
    informative = metric.task.informative(targets, weights)
    return float(losses[informative].mean()) if bool(informative.any()) else 0.0


@dataclass
class Best:
    """The best checkpoint of a kind: its validation loss, weights and scores, and the loss it was chosen by."""

    least: float = float("inf")
    state: dict[str, Tensor] = field(default_factory=dict)
    scores: Tensor | None = None
    rank: float = float("inf")


class Selected(NamedTuple):
    """The model kept, its history, why it was kept, and the best model that followed the loss (maybe the same)."""

    model: nn.Module
    history: list[Round]
    verdict: Verdict
    followed: nn.Module

    @property
    def least(self) -> float:
        """The least validation loss of a model that followed the loss, or its start."""
        return min((done.validation for done in self.history), default=float("inf"))


class Selection:
    """Keeps the best checkpoints by a metric on validation rows, and chooses between them.

    Parameters
    ----------
    validation : Rows
        Where models are judged.
    metric : Metric
        By what; at the best threshold of the rows, unless the recipe trains at zero.
    recipe : Recipe
        By how many standard errors a surrogate's model must win.
    guarded : bool
        Whether the model that followed the loss must be better to be kept; otherwise it is kept whenever there is one.

    Attributes
    ----------
    control, followed : Best
        Of the models that followed cross-entropy, and of those that followed the loss.
    history : list of Round
        The rounds at which models were checked.
    verdict : Verdict or None
        Which of them was kept, once training is over.
    """

    def __init__(self, validation: Rows, metric: Metric, recipe: Recipe, *, guarded: bool = True) -> None:
        self.validation, self.guarded = validation, guarded
        self.metric, self.decided = (metric if recipe.form == "zero" else metric.best), metric
        self.margin = recipe.margin
        self.by_proxy = recipe.early_stopping and validation.members is None
        self.control, self.followed = Best(), Best()
        self.history: list[Round] = []
        self.verdict: Verdict | None = None

    def check(self, model: nn.Module, *, followed: bool, scores: Tensor | None = None) -> tuple[float, bool]:
        """Return the true loss of a model on the validation rows, and whether it is the least of all so far.

        Scores of the validation rows are computed unless they are given. A model whose scores are not finite has no
        loss and is never the best.
        """
        scores = scores_of(model, self.validation.x) if scores is None else scores
        if not bool(scores.isfinite().all()):
            return math.nan, False
        now = loss_of(self.metric, self.validation, scores)
        before = min(self.control.least, self.followed.least)
        best = self.followed if followed else self.control
        rank = self._rank(scores, now, followed)
        if rank < best.rank:
            best.least, best.state, best.scores, best.rank = now, deepcopy(model.state_dict()), scores, rank
        return now, now < before

    def _rank(self, scores: Tensor, loss: float, followed: bool) -> float:
        """Return what the best checkpoint of a kind has least of: the true loss, or with early stopping the proxy."""
        if followed or not self.by_proxy:
            return loss
        return float(proxy_for(self.metric.task)(scores, self.validation.y, self.validation.w))

    def choose(self, learned: bool) -> Verdict:
        """Decide which model to keep: the better one, but a learned loss must win by more than the noise."""
        gain, error = self.control.least - self.followed.least, math.nan
        proxy = proxy_name(self.metric.task)
        if self.followed.scores is None or self.control.scores is None:
            return Verdict(self.followed.scores is not None, math.nan, error, proxy)
        if not self.guarded:
            return Verdict(True, gain, error, proxy)
        if learned and self.margin and gain > 0:
            error = self._error(self.control.scores, self.followed.scores)
            return Verdict(gain > self.margin * error, gain, error, proxy)
        return Verdict(gain > 0, gain, error, proxy)

    def _error(self, control: Tensor, followed: Tensor) -> float:
        """Return the standard error of the gain."""
        first, y, w = self.validation.in_sets(control)
        second, *_ = self.validation.in_sets(followed)
        return error_of_gain(self.metric, self.decided, first, second, y, w)

    @property
    def best(self) -> Best:
        """The checkpoint that is kept, once training is over."""
        return self.followed if self.verdict is not None and self.verdict.followed else self.control

    def restore(self, model: nn.Module, learned: bool) -> None:
        """Give a model the weights to be kept, if any were checked."""
        self.verdict = self.choose(learned)
        if self.best.state:
            model.load_state_dict(self.best.state)

    def selected(self, model: nn.Module, learned: bool) -> Selected:
        """Return copies of a model with the weights to be kept, and with the best ones that followed the loss."""
        kept = deepcopy(model)
        self.restore(kept, learned)
        assert self.verdict is not None
        followed = kept
        if not self.verdict.followed and self.followed.state:
            followed = deepcopy(model)
            followed.load_state_dict(self.followed.state)
        return Selected(kept.eval(), self.history, self.verdict, followed.eval())


@torch.no_grad()
def scores_of(model: nn.Module, x: Tensor) -> Tensor:
    """Score rows in evaluation mode, some at a time where they are many."""
    model.eval()
    return torch.cat([model(part) for part in x.split(ROWS_AT_ONCE)]) if x.ndim == 2 else model(x)


@torch.no_grad()
def exact_scores(model: nn.Module, x: Tensor) -> Tensor:
    """Score rows in double, where a row scores the same whatever rows are beside it: `(..., features)` -> `(...)`."""
    model = deepcopy(model).double().eval()
    rows = x.reshape(-1, x.shape[-1])
    scores = torch.cat([model(part.double()) for part in rows.split(ROWS_AT_ONCE)])
    return scores.view(*x.shape[:-1], *scores.shape[1:])


# ---- the standard error of a difference between two models: the paired bootstrap -----------------------------------


def error_of_gain(
    judge: Metric, decided: Metric, first: Tensor, second: Tensor, targets: Tensor, weights: Tensor | None
) -> float:
    """Return the standard error of the difference between two losses by a judge: a metric, or its best-threshold form.

    Of several outputs, the offsets stay those that are best for the rows as they are: to search them for every
    resample takes long, and near the best they hardly matter.
    """
    if judge is decided or not judge.task.outputs:
        return standard_error(judge, first, second, targets, weights)
    first, second = (each.double() + best_offsets(decided, each, targets, weights) for each in (first, second))
    return standard_error(decided, first, second, targets, weights)


@torch.no_grad()
def standard_error(
    metric: Metric,
    first: Tensor,
    second: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    *,
    draws: int | None = None,
    seed: int = 0,
) -> float:
    """Return the standard error of the difference between two losses of the same rows, by resampling.

    Every resample is the same for both: random weights of mean one (the Bayesian bootstrap, which leaves no class out),
    or rows drawn with replacement where the metric takes no weights. Of very many rows, some at random are resampled:
    the error falls as the square root of their number rises.

    Parameters
    ----------
    metric : Metric
        The metric.
    first, second : tensor of shape (rows,)
        Scores of two models; with another axis for several outputs.
    targets, weights : tensor of shape (rows,)
        Of the rows; weights if any. Where there are several sets, `(sets, n)`, sets are resampled.
    draws : int, optional
        How many resamples; by default 64, fewer for many rows or a costly metric.
    seed : int
        Of the resamples.
    """
    metric = metric.stand_in or metric  # resamples take no calls where there is an emulator
    if first.ndim > metric.task.axes:
        return _error_of_sets(metric, first, second, targets, weights)
    rows, cells = len(targets), first.numel()
    most = MAX_TOTAL_ROWS // MIN_DRAWS * rows // max(cells, 1)
    if rows > most and metric.takes_weights and not metric.costly and not metric.columns:  # the size changes nothing
        some = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:most]
        few = first[some], second[some], targets[some], None if weights is None else weights[some]
        return math.sqrt(most / rows) * standard_error(metric, *few, draws=draws, seed=seed)
    stand_for = None
    if rows > MAX_ROWS_OF_COLUMNS and _may_be_thinned(metric):
        some, stand_for = _thinned(metric.task.label(targets) == 1, seed)
        first, second, targets = first[some], second[some], targets[some]
        weights = None if weights is None else weights[some]
        rows = cells = len(some)
    if draws is None:
        draws = MIN_DRAWS if metric.costly else max(min(MAX_DRAWS, MAX_TOTAL_ROWS // max(cells, 1)), MIN_DRAWS)
    generator = torch.Generator().manual_seed(seed)
    differences = []
    for part in torch.arange(draws).split(max(ROWS_PER_BATCH // max(cells, 1), 1)):
        shape = (len(part), rows)
        if metric.takes_weights:
            counts = _counts(shape, stand_for, generator)
            sets = (targets, counts if weights is None else counts * weights)
            losses = [metric(s.double().expand(len(part), *s.shape), *sets) for s in (first, second)]
        else:
            drawn = torch.randint(rows, shape, generator=generator)
            losses = [metric(scores.double()[drawn], targets[drawn]) for scores in (first, second)]
        differences.append(losses[0] - losses[1])
    return float(torch.cat(differences).std())


def _may_be_thinned(metric: Metric) -> bool:
    """Whether rows of two classes are resampled by weights; a group may have few rows of either class."""
    return bool(metric.columns) and metric.task.classes and metric.takes_weights and not metric.groups


def _thinned(positive: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return places of some rows, and how many each stands for; the rows of a small class are all among them."""
    sizes = [int((~positive).sum()), int(positive.sum())]
    least = min(min(sizes), MAX_ROWS_OF_COLUMNS // 2)
    kept = [least if size == min(sizes) else min(MAX_ROWS_OF_COLUMNS - least, size) for size in sizes]
    order = torch.randperm(len(positive), generator=torch.Generator().manual_seed(seed))
    parts = [order[positive[order] == kind][:count] for kind, count in enumerate(kept)]
    shares = [torch.full((count,), size / max(count, 1)) for size, count in zip(sizes, kept, strict=True)]
    return torch.cat(parts), torch.cat(shares).double()


def _counts(shape: tuple[int, int], stand_for: Tensor | None, generator: torch.Generator) -> Tensor:
    """Return how much each resample counts each row: exponential, or the sum of as many as the row stands for."""
    if stand_for is None:
        return torch.empty(shape, dtype=torch.float64).exponential_(generator=generator)
    seed = int(torch.randint(2**62, (), generator=generator))
    return torch.from_numpy(np.random.default_rng(seed).standard_gamma(stand_for.numpy(), shape))


def _error_of_sets(metric: Metric, first: Tensor, second: Tensor, targets: Tensor, weights: Tensor | None) -> float:
    """Return the standard error of the mean difference over informative sets."""
    ones = torch.ones_like(metric.task.rows(first)) if weights is None else weights
    kept = metric.task.informative(targets, ones)
    one, other = (metric(scores.double(), targets, weights)[kept] for scores in (first, second))
    return float((one - other).std() / max(len(one), 1) ** 0.5)
