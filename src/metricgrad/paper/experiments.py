"""Experiments as data: a run is one trained model; runs that can share their work are one job."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.estimators.metric_estimator import METHODS, make_loss
from metricgrad.evaluation.trees import NAME as BOOSTED
from metricgrad.evaluation.trees import grow_trees
from metricgrad.losses.binary import BASELINES, TUNED, CostSensitive
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.paper.datasets import Dataset, digest, load
from metricgrad.paper.printed import LOSSES, MODES, TABLE3_METHODS
from metricgrad.paper.protocols import PROTOCOLS, get_protocol
from metricgrad.surrogate.pretrained import bundled_digest
from metricgrad.training.candidates import Trained
from metricgrad.training.checkpoint import Checkpoint
from metricgrad.training.data import Rows, centre_and_scale, scaled
from metricgrad.training.ensemble_trainer import Member, train_each
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe, get_recipe
from metricgrad.training.selection import Verdict, exact_scores
from metricgrad.training.splits import split
from metricgrad.training.trainer import Round

BUDGETS: Mapping[str, Mapping[str, Mapping[str, int | None]]] = {
    "quick": {
        "default": {"warmup": 600, "rounds": 200, "trust_cap": 300, "check_every": 25},
        "paper": {"rounds": 1_000, "check_every": 50, "baseline_steps": None},
    },
    "standard": {"default": {}, "paper": {"rounds": 20_000, "baseline_steps": None}},
    "paper": {"default": {"rounds": 300_000, "check_every": 1_000}, "paper": {}},
}
"""What a budget changes of each recipe: minutes, hours, or what the paper says.

That is 300,000 rounds and, for the recipe `paper`, 1,000,000 steps of the baselines; in shorter runs these get as many
steps as the model of a surrogate."""
PROXY = "cross-entropy"
"""The loss of the warm-up and of the control."""
REPLICATE = 1_000_003
"""How far the seeds of two replicates lie apart."""
DIGITS = 5
"""Significant digits of a number in a stored history."""


@dataclass(frozen=True)
class Run:
    """One model to train: on what, for what, how, and by which seeds.

    Parameters
    ----------
    dataset, metric, method : str
        Names of a dataset, of a metric, and of `sl-r`, `sl-s`, `sl-u` or a baseline.
    seed : int
        Of the split, the weights and the draws.
    model, recipe : str
        Names of a model and of a recipe.
    changes : tuple of (str, value)
        Fields of the recipe that are changed.
    replicate : int
        Another one has the same split, but weights and draws of its own.
    rows : int, optional
        Use no more rows than that, drawn by the seed, classes in proportion; by default all.
    """

    dataset: str
    metric: str
    method: str
    seed: int
    model: str = "mlp"
    recipe: str = "default"
    changes: tuple[tuple[str, Any], ...] = ()
    replicate: int = 0
    rows: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what identifies the run, as a store keeps it: every field, and the content of what they name.

        That is the content of the recipe, a digest of the dataset and that of a bundled surrogate. A run by another
        recipe of the same name, or on another file, is another run. The number of rows is there only if it is limited.
        """
        named = {name: value for name, value in asdict(self).items() if name not in ("changes", "rows")}
        more: dict[str, Any] = {"data": digest(self.dataset)}
        if self.method in ("sl-r", "sl-u"):
            more["surrogate"] = bundled_digest(get_metric(self.metric), self.how.construction, self.how.form)
        if self.rows is not None:
            more["rows"] = self.rows
        return {**named, "content": get_recipe(self.recipe, **dict(self.changes)).content, **more}

    @property
    def how(self) -> Recipe:
        """The recipe with its changes, as it applies to the method."""
        recipe = get_recipe(self.recipe, **dict(self.changes))
        return recipe if self.method in METHODS else recipe.for_baselines

    @property
    def shared(self) -> tuple[Any, ...]:
        """What runs have in common that share their data and their warm-up; without a warm-up, or for trees, a model.

        A hand-made loss is followed once, whatever the metrics its best models are chosen by.
        """
        how = self.how
        common = (self.dataset, self.rows, self.seed, self.replicate, self.model, how)
        if how.warmup and self.method != BOOSTED:
            return common
        return (*common, self.method, self.metric if self.method in METHODS else None)


Job = tuple[Run, ...]
"""Runs that share their data and their warm-up."""


# ---- what to run ---------------------------------------------------------------------------------------------------


TABLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "table2": tuple((loss, mode) for loss in LOSSES for mode in MODES),
    "table3": tuple((loss, method) for loss, methods in TABLE3_METHODS.items() for method in methods),
}
"""The cells of each table, a metric and a method: three modes for each loss; the refined surrogate and its rivals."""


def table_runs(
    tables: Iterable[str],
    protocols: Iterable[str],
    *,
    datasets: Sequence[str],
    seeds: Iterable[int],
    metrics: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    **how: Any,
) -> list[Run]:
    """Return the runs behind the cells of some tables, those of a protocol that measures another metric included.

    Metrics and methods, if given, choose among the cells; each must be in one of those chosen.
    """
    pairs = list(dict.fromkeys(pair for table in tables for pair in TABLES[table]))
    known = [get_metric(name).name for name in metrics] if metrics is not None else None
    asked = [(m, by) for m, by in pairs if (known is None or m in known) and (methods is None or by in methods)]
    for what, place, wanted in (("metrics", 0, known), ("methods", 1, methods)):
        there, chosen = (list(dict.fromkeys(pair[place] for pair in some)) for some in (pairs, asked))
        unused = [name for name in wanted or () if name not in chosen]
        if unused:
            raise ValueError(
                f"{what}: expected some of {', '.join(there)}, with the {'methods' if place == 0 else 'metrics'} asked "
                f"for, got {', '.join(map(repr, unused))}"
            )
    found: dict[Run, None] = {}
    for seed in seeds:
        for dataset in datasets:
            for protocol in protocols:
                for metric, method in asked:
                    found[run_of(protocol, dataset, metric, method, seed, **how)] = None
    return list(found)


def run_of(protocol: str, dataset: str, metric: str, method: str, seed: int, **how: Any) -> Run:
    """Return the run behind a cell of a table.

    Where a protocol measures another metric under a name (Jaccard is accuracy under `paper`), it is a replicate of
    that other metric: a run of its own, so that the two columns tell the noise, as they do in the paper.
    """
    measured = get_protocol(protocol).measured(metric).name
    return Run(dataset, measured, method, seed, replicate=int(measured != get_metric(metric).name), **how)


def jobs_of(runs: Iterable[Run]) -> list[Job]:
    """Group runs into jobs; how they are grouped does not change their results."""
    together: dict[tuple[Any, ...], list[Run]] = {}
    for run in sorted(runs, key=_by_seed_first):
        together.setdefault(run.shared, []).append(run)
    return [tuple(job) for job in together.values()]


def _by_seed_first(run: Run) -> tuple[Any, ...]:
    """Order runs so that the first seed is done first, with all that can be shared side by side."""
    return run.seed, run.replicate, run.dataset, run.model, run.recipe, str(run.changes)


# ---- how it is run -------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """The rows of a dataset, split and scaled."""

    train: Rows
    validation: Rows
    test: Rows
    data: Dataset


class _Scores(NamedTuple):
    """Scores of validation and test rows by one model."""

    validation: Tensor
    test: Tensor


class _Found(NamedTuple):
    """What a run ended with: the scores of the model kept, and what is known of its training.

    With the scores of the model that followed the loss, unless it is the one kept.
    """

    kept: _Scores
    history: list[Round]
    verdict: Verdict | None = None
    setting: float | None = None
    followed: _Scores | None = None


def execute(
    job: Job, protocols: Iterable[str] = tuple(PROTOCOLS), brief: bool = False, unfinished: Path | None = None
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Train the models of a job, and yield each run with what came of it: what `Store.add` takes.

    Parameters
    ----------
    job : sequence of Run
        What to train.
    protocols : iterable of str
        How to score.
    brief : bool
        Score by the metric of the run alone, and leave out the history: where there are thousands of runs.
    unfinished : Path, optional
        A folder to write down how far a long job has come, and to go on from after a stop.
    """
    first = job[0]
    parts = prepared(first.dataset, first.seed, first.how.standardise, first.rows)
    log = Checkpoint(unfinished / f"{_name_of(job)}.pt") if unfinished else None
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not faithful yet")  # the history says how far each can be trusted
        found = _boosted(job, parts) if first.method == BOOSTED else _followed(job, parts, log)
    spent = sum(part.spent for part in log.parts) if log else 0.0
    seconds = (time.perf_counter() - begun + spent) / len(job)
    for run, end in zip(job, found, strict=True):
        yield run.as_dict(), {**_outcome(run, end, parts, protocols, brief), "seconds": seconds}
    if log:
        log.close()


def _name_of(job: Job) -> str:
    """Return a name for a job that no other has."""
    return hashlib.sha256(json.dumps([run.as_dict() for run in job], sort_keys=True).encode()).hexdigest()[:16]


def _followed(job: Job, parts: Parts, log: Checkpoint | None) -> list[_Found]:
    """Train a model along every loss of a job."""
    first = job[0]
    recipe, seed = first.how, first.seed + REPLICATE * first.replicate
    model = build_model(first.model, parts.train.x.shape[1], seed)
    members = _members(job, recipe, seed)
    losses = [Member(member.loss, member.metrics) for member in members]
    trained = train_each(model, losses, parts.train, recipe, validation=parts.validation, seed=seed, log=log)
    found: dict[tuple[str, str], list[tuple[Trained, float | None]]] = {}
    for member, models in zip(members, trained, strict=True):
        for metric, one in zip(member.metrics, models, strict=True):
            found.setdefault((member.method, metric.name), []).append((one, member.setting))
    best = [min(found[run.method, run.metric], key=lambda one: one[0].least) for run in job]
    ends = []
    for run, (one, setting) in zip(job, best, strict=True):
        same = one.verdict.followed or run.method == PROXY  # cross-entropy follows itself, in the warm-up as after it
        followed = None if same else _scored(one.followed, parts)
        ends.append(_Found(_scored(one.model, parts), one.history, one.verdict, setting, followed))
    return ends


def _scored(model: nn.Module, parts: Parts) -> _Scores:
    return _Scores(exact_scores(model, parts.validation.x), exact_scores(model, parts.test.x))


def _boosted(job: Job, parts: Parts) -> list[_Found]:
    """Grow trees once for all runs: the reference of another family of models."""
    scores = grow_trees(parts.train, parts.validation, parts.test.x, job[0].seed)
    return [_Found(_Scores(scores.validation, scores.test), []) for _ in job]


def prepared(dataset: str, seed: int, standardise: bool, rows: int | None = None) -> Parts:
    """Load a dataset or some of its rows, split it by a seed, and scale its features on the training rows."""
    data = _loaded(dataset)
    if rows is not None and rows < len(data.y):
        some = split(data.y, seed + REPLICATE, test=rows / len(data.y), validation=0.0).test
        part = f"{len(some):,} rows drawn from {data.subset or 'all'}"
        data = replace(data, X=data.X[some], y=data.y[some], subset=part)
    places = split(data.y, seed)
    width = data.X.shape[1]
    centre, scale = centre_and_scale(data.X[places.train], None) if standardise else (np.zeros(width), np.ones(width))
    train, validation, test = (_rows(data, p, centre, scale) for p in (places.train, places.validation, places.test))
    return Parts(train, validation, test, data)


@lru_cache(maxsize=1)
def _loaded(dataset: str) -> Dataset:
    return load(dataset)


def _rows(data: Dataset, part: Any, centre: Any, scale: Any) -> Rows:
    x = torch.from_numpy(scaled(data.X[part], centre, scale))
    return Rows(x, torch.as_tensor(data.y[part], dtype=torch.float32))


class _Member(NamedTuple):
    """A loss to follow: by which method, with which setting, for which metrics."""

    method: str
    setting: float | None
    loss: nn.Module
    metrics: tuple[Metric, ...]


def _members(job: Job, recipe: Recipe, seed: int) -> list[_Member]:
    """Return the losses of a job: one for each metric of a surrogate; one for all of them of a loss made by hand."""
    members = []
    wanted: dict[str, list[Metric]] = {}
    for run in job:
        wanted.setdefault(run.method, []).append(get_metric(run.metric))
    for method, metrics in wanted.items():
        if method in BASELINES:
            for make in TUNED.get(method, (BASELINES[method],)):
                loss = make()
                setting = loss.weight if isinstance(loss, CostSensitive) else None
                members.append(_Member(method, setting, loss, tuple(metrics)))
        else:
            for metric in metrics:
                torch.manual_seed(seed)
                members.append(_Member(method, None, make_loss(method, metric, recipe), (metric,)))
    return members


def _outcome(run: Run, found: _Found, parts: Parts, protocols: Iterable[str], brief: bool) -> dict[str, Any]:
    """Score a model under some protocols, and write down what happened on the way.

    `test` and `validation_loss` are of the model kept; `followed` has those of the model that followed the loss, if
    another one was kept, and is None if it is the same.
    """
    metric = get_metric(run.metric)
    names = (metric.name,) if brief else tuple(dict.fromkeys((metric.name, *LOSSES)))

    def losses(scores: _Scores) -> dict[str, Any]:
        judged = scores.validation, parts.validation.y, scores.test, parts.test.y
        return {
            "test": {name: {m: PROTOCOLS[name].score(m, *judged) for m in names} for name in protocols},
            "validation_loss": float((metric if run.how.form == "zero" else metric.best)(*judged[:2])),
        }

    history = {
        name: [_short(getattr(done, name)) for done in found.history]
        for name in ("steps", "validation", "companion", "loss", "gap", "trust", "cosine")
    }
    return {
        **losses(found.kept),
        "followed": losses(found.followed) if found.followed else None,
        "rows": {name: len(getattr(parts, name).y) for name in ("train", "validation", "test")},
        "positive_share": parts.data.positive_share,
        "subset": parts.data.subset,
        "setting": found.setting,
        "verdict": asdict(found.verdict) if found.verdict else None,
        "faith": {name: getattr(found.history[-1], name) for name in ("trust", "cosine")} if found.history else None,
    } | ({} if brief else {"history": history})


def _short(number: float) -> float | int:
    return number if isinstance(number, int) or number != number else float(f"{number:.{DIGITS}g}")
