"""Trials: every method trained on one split of a table, chosen on validation rows, judged once on test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.evaluation.diagnostics import Diagnosis, diagnose
from metricgrad.evaluation.trees import NAME as TREES
from metricgrad.evaluation.trees import Scores, grow_trees
from metricgrad.losses.binary import TUNED
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.tabular.encoding import Preparation
from metricgrad.tabular.schema import Schema
from metricgrad.training.data import Rows, centre_and_scale, scaled
from metricgrad.training.loader import SetLoader
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import exact_scores
from metricgrad.training.splits import group_part, split
from metricgrad.training.trainer import Round, train_each

Array = NDArray[Any]
FRESH = 48
"""Fresh sets of validation rows on which a surrogate is held against its metric in the end."""


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be learned, and how: the same in every split.

    Parameters
    ----------
    X : DataFrame, array or sparse matrix
        A frame has its columns prepared as `schema` says, anew on the training rows of every split.
    targets : array of shape (rows,)
        0 or 1.
    groups : array of shape (rows,), optional
        Numbers of groups that stay together.
    schema : Schema, optional
        What the columns of a frame are.
    metric, recipe, model : Metric, Recipe, any
        What models are judged by, how they are trained, and what they are.
    methods : tuple of str
        Modes of surrogates, baselines, or `lightgbm`.
    test, validation : float
        Share of test rows, and of validation rows among the others.
    """

    X: Any
    targets: Array
    groups: Array | None
    schema: Schema | None
    metric: Metric
    recipe: Recipe
    model: Any
    methods: tuple[str, ...]
    test: float
    validation: float


@dataclass(frozen=True, eq=False)
class Trial:
    """One method on one split.

    Parameters
    ----------
    split, method : int, str
        The seed of the split, and the method.
    threshold : float
        Where scores are cut, chosen on validation rows.
    seconds : float
        Of training; methods trained at once share it evenly.
    shown : Diagnosis
        What the test rows show.
    followed : bool
        Whether the model kept is the one that followed the loss; else cross-entropy was as good on validation rows.
    history : tuple of Round
        What the rounds did; empty for trees.
    fidelity : array of shape (2, sets), optional
        True and surrogate losses of fresh sets, for a surrogate.
    """

    split: int
    method: str
    threshold: float
    seconds: float
    shown: Diagnosis
    followed: bool = True
    history: tuple[Round, ...] = field(default=(), repr=False)
    fidelity: Array | None = field(default=None, repr=False)

    @property
    def loss(self) -> float:
        """The true loss of the test rows."""
        return self.shown.loss


class Parts(NamedTuple):
    """The rows of a split, ready for a network."""

    train: Rows
    validation: Rows
    test: Rows


def run_split(problem: Problem, seed: int) -> list[Trial]:
    """Train every method on one split and judge each on its test rows."""
    parts = _parts(problem, seed)
    networks = [method for method in problem.methods if method != TREES]
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.filterwarnings("ignore", ".*is not faithful yet")  # the history says how far each can be trusted
        found = {trial.method: trial for trial in _networks(problem, parts, networks, seed)}
    if TREES in problem.methods:
        begun = time.perf_counter()
        scores = grow_trees(parts.train, parts.validation, parts.test.x, seed)
        found[TREES] = _judged(problem, parts, TREES, seed, scores, time.perf_counter() - begun)
    return [found[method] for method in problem.methods]


def _parts(problem: Problem, seed: int) -> Parts:
    """Split the rows; whatever is learned of the columns is learned from the training rows."""
    X, where = problem.X, _places(problem, seed)
    if problem.schema is not None:
        frames: list[pd.DataFrame] = [X.iloc[rows] for rows in where]
        preparation = Preparation(problem.schema).fit(frames[0])
        features = [preparation.transform(frame) for frame in frames]
    else:
        features = [X[rows] for rows in where]
    width = features[0].shape[1]
    centre, scale = np.zeros(width), np.ones(width)
    if problem.recipe.standardise:
        centre, scale = centre_and_scale(features[0], None)
    return Parts(
        *(
            Rows(
                torch.from_numpy(scaled(x, centre, scale)), torch.as_tensor(problem.targets[rows], dtype=torch.float32)
            )
            for x, rows in zip(features, where, strict=True)
        )
    )


def _places(problem: Problem, seed: int) -> tuple[Array, Array, Array]:
    """Return the numbers of training, validation and test rows."""
    targets, groups = problem.targets, problem.groups
    if groups is None:
        places = split(targets, seed, test=problem.test, validation=problem.validation)
        return places.train, places.validation, places.test
    test = group_part(groups, targets, seed, problem.test)
    known = np.setdiff1d(np.arange(len(targets)), test)
    held_out = known[group_part(groups[known], targets[known], seed, problem.validation)]
    return np.setdiff1d(known, held_out), held_out, test


def _networks(problem: Problem, parts: Parts, methods: Sequence[str], seed: int) -> list[Trial]:
    """Train a network along the loss of each method, one after the other."""
    metric, recipe = problem.metric, problem.recipe
    made = [(method, loss) for method in methods for loss in _losses(method, metric, recipe, seed)]
    model = build_model(problem.model, parts.train.x.shape[1], seed)
    begun = time.perf_counter()
    runs = [(loss, (metric,)) for _, loss in made]
    found = train_each(model, runs, parts.train, recipe, validation=parts.validation, seed=seed)
    trained = [best for (best,) in found]
    seconds = (time.perf_counter() - begun) / max(len(made), 1)
    trials = []
    for method in methods:
        own = [(loss, one) for (name, loss), one in zip(made, trained, strict=True) if name == method]
        loss, one = min(own, key=lambda pair: pair[1].least)
        scores = Scores(exact_scores(one.model, parts.validation.x), exact_scores(one.model, parts.test.x))
        trial = _judged(problem, parts, method, seed, scores, seconds * len(own))
        measured = _fidelity(loss, one.model, problem, parts, seed) if isinstance(loss, SurrogateLoss) else None
        trials.append(replace(trial, followed=one.verdict.followed, history=tuple(one.history), fidelity=measured))
    return trials


def _losses(method: str, metric: Metric, recipe: Recipe, seed: int) -> list[nn.Module]:
    """Return the loss of a method; of one with a setting, a loss for each."""
    torch.manual_seed(seed)
    return [make() for make in TUNED[method]] if method in TUNED else [make_loss(method, metric, recipe)]


def _judged(problem: Problem, parts: Parts, method: str, seed: int, scores: Scores, seconds: float) -> Trial:
    """Choose the threshold on the validation rows, and look at the test rows."""
    metric, threshold = problem.metric, 0.0
    if metric.thresholded and problem.recipe.form != "zero":
        threshold = best_threshold(metric, scores.validation, parts.validation.y)
    return Trial(seed, method, threshold, seconds, diagnose(metric, scores.test, parts.test.y, threshold))


def _fidelity(loss: SurrogateLoss, model: nn.Module, problem: Problem, parts: Parts, seed: int) -> Array:
    """Hold the surrogate against the metric on fresh sets of validation rows: `(2, sets)`, true and learned losses."""
    sets = SetLoader(parts.validation, problem.recipe, seed, problem.metric.takes_weights)
    scores, y, w = sets.scored(lambda x: exact_scores(model, x).float(), FRESH, problem.recipe.noise, "trust")
    with torch.no_grad():
        w = torch.ones_like(y) if w is None else w
        return torch.stack((loss.true(scores, y, w), loss.surrogate(scores, y, w))).double().numpy()
