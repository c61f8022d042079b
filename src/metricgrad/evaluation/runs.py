"""The runner: rows are split and standardised, every method is trained, chosen on validation rows, judged on test rows.

`compare` and the paper's experiments share it; they differ in where rows come from and in how results are kept.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricgrad.losses.binary import TUNED, CostSensitive
from metricgrad.losses.default import LossOfLabels, of_labels
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.tabular.encoding import Preparation
from metricgrad.tabular.schema import Schema
from metricgrad.training.data import Parts, TrainingData
from metricgrad.training.history import Round, Verdict
from metricgrad.training.jobs import Checkpoint, train_each
from metricgrad.training.methods import METHODS, make_loss
from metricgrad.training.networks import TREES, Scorer, build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selected, exact_scores
from metricgrad.training.splits import split
from metricgrad.training.trees import grow_trees

Array = NDArray[Any]
CONTROL = "cross-entropy"
"""The loss of the warm-up and of the control."""


class Scores(NamedTuple):
    """Raw scores of validation and test rows by one model, `(rows,)` each."""

    validation: Tensor
    test: Tensor


# ---- split and standardise -----------------------------------------------------------------------------------------


def split_table(
    X: Any,
    targets: Array,
    seed: int,
    *,
    standardise: bool,
    test: float = 0.2,
    validation: float = 0.2,
    groups: Array | None = None,
    schema: Schema | None = None,
    columns: Array | None = None,
) -> Parts:
    """Split a table with targets 0 or 1, `(rows,)`; encoding and standardisation are learned from training rows alone.

    `X` is an array or sparse matrix, `(rows, features)`, or a data frame that is encoded as `schema` says; `columns`,
    `(rows, columns)`, are those that the metric needs. For the other arguments see `splits.split`.
    """
    places = split(targets, seed, test, validation, groups)
    if schema is not None:
        X = Preparation(schema).fit(X.iloc[places.train]).transform(X)
    return TrainingData(X, targets, columns=columns).split(places, standardise)


# ---- train and choose ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainedMethod:
    """One method trained for one metric: the model chosen on validation rows, and how it came about.

    `scores` are of the chosen model, `unchosen` of the model trained along the loss if the control was chosen instead.
    `seconds` of training are shared evenly by losses trained together; `setting` is that of a baseline that has one,
    chosen on validation rows. Trees have no verdict, history, loss or model.
    """

    method: str
    metric: Metric
    scores: Scores
    seconds: float
    setting: float | None = None
    unchosen: Scores | None = None
    verdict: Verdict | None = None
    history: tuple[Round, ...] = ()
    loss: nn.Module | None = None
    model: nn.Module | None = None


def train_methods(
    parts: Parts,
    wanted: Sequence[tuple[str, Metric]],
    recipe: Recipe,
    model: Any,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> list[TrainedMethod]:
    """Train every pair of method and metric; its result does not depend on the other pairs.

    A hand-made loss is followed once, whatever the number of metrics that choose among its models.
    """
    metrics: dict[str, list[Metric]] = {}
    for method, metric in wanted:
        metrics.setdefault(method, []).append(metric)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.filterwarnings("ignore", ".*is not faithful yet")  # the history holds how far each can be trusted
        networks = {method: each for method, each in metrics.items() if method != TREES}
        trained = _train_networks(parts, networks, recipe, model, seed, checkpoint) if networks else []
    trained += _train_trees(parts, metrics.get(TREES, ()), seed)
    found = {(one.method, one.metric.name): one for one in trained}
    return [found[method, metric.name] for method, metric in wanted]


class _Candidate(NamedTuple):
    """A loss to follow: of which method, for which metrics."""

    method: str
    loss: nn.Module
    metrics: tuple[Metric, ...]


def _candidates(metrics: dict[str, list[Metric]], recipe: Recipe, seed: int) -> Iterator[_Candidate]:
    """Yield the losses of some methods: one for each metric of a surrogate, one for each setting of a baseline."""
    for method, judges in metrics.items():
        for own in ((judge,) for judge in judges) if method in METHODS else (tuple(judges),):
            torch.manual_seed(seed)
            if method in TUNED:
                losses = [of_labels(make(), own[0].task) for make in TUNED[method]]
            else:
                losses = [make_loss(method, own[0], recipe)]
            yield from (_Candidate(method, loss, own) for loss in losses)


def _train_networks(
    parts: Parts,
    metrics: dict[str, list[Metric]],
    recipe: Recipe,
    model: Any,
    seed: int,
    checkpoint: Checkpoint | None,
) -> list[TrainedMethod]:
    """Train a copy of one network along every loss, and choose the best setting of each method by each metric."""
    candidates = list(_candidates(metrics, recipe, seed))
    task = candidates[0].metrics[0].task
    outputs = parts.train.y.shape[-1] if task.outputs else None
    network = build_model(model, parts.train.x.shape[1], seed, outputs)
    network.prepare(parts.train.x, parts.train.w, parts.train.y)
    runs = [(one.loss, one.metrics) for one in candidates]
    begun = time.perf_counter()
    trained = train_each(
        network, runs, parts.train, recipe, validation=parts.validation, seed=seed, checkpoint=checkpoint
    )
    seconds = time.perf_counter() - begun + (sum(part.spent for part in checkpoint.parts) if checkpoint else 0.0)
    every = list(zip(candidates, trained, strict=True))
    found = []
    for method, metric in ((method, metric) for method, judges in metrics.items() for metric in judges):
        own = [(each[c.metrics.index(metric)], c) for c, each in every if c.method == method and metric in c.metrics]
        found.append(_chosen(metric, own, parts, seconds / len(candidates)))
    return found


def _chosen(
    metric: Metric, settings: Sequence[tuple[Selected, _Candidate]], parts: Parts, seconds: float
) -> TrainedMethod:
    """Return the best setting of a method by a metric; a setting took some seconds to train."""
    best, (method, loss, metrics) = min(settings, key=lambda pair: pair[0].least)
    only = best.verdict.followed or method == CONTROL  # cross-entropy is its own control
    setting = loss.loss if isinstance(loss, LossOfLabels) else loss
    return TrainedMethod(
        method=method,
        metric=metric,
        scores=_scores(best.model, parts),
        seconds=seconds * len(settings) / len(metrics),
        setting=setting.weight if isinstance(setting, CostSensitive) else None,
        unchosen=None if only else _scores(best.followed, parts),
        verdict=best.verdict,
        history=tuple(best.history),
        loss=loss,
        model=best.model,
    )


def _scores(model: nn.Module, parts: Parts) -> Scores:
    return Scores(exact_scores(model, parts.validation.x), exact_scores(model, parts.test.x))


def _train_trees(parts: Parts, metrics: Sequence[Metric], seed: int) -> list[TrainedMethod]:
    """Grow trees once for all metrics."""
    if not metrics:
        return []
    begun = time.perf_counter()
    grown = Scorer(grow_trees(parts.train, parts.validation, seed), TREES, parts.train.x.shape[1])
    scores = _scores(grown, parts)
    seconds = (time.perf_counter() - begun) / len(metrics)
    return [TrainedMethod(TREES, metric, scores, seconds) for metric in metrics]


# ---- labels --------------------------------------------------------------------------------------------------------

LABELS = {"sl-u": "SL-U", "sl-r": "SL-R", "sl-s": "SL-S"}
"""Labels of methods as the paper prints them; other methods have their name."""


def method_label(method: str) -> str:
    """Return the label of a method."""
    return LABELS.get(method, method)


def metric_label(metric: str) -> str:
    """Return the label of a metric; the name itself if it is not a known one."""
    try:
        return get_metric(metric).label
    except ValueError:
        return metric
