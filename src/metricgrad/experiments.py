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

from metricgrad.baselines import BASELINES, TUNED, CostSensitive
from metricgrad.datasets import Dataset, load
from metricgrad.fleet import Member, train_each
from metricgrad.guard import Rows, Verdict, exact_scores
from metricgrad.keeper import Trained
from metricgrad.logbook import Logbook
from metricgrad.metric_estimator import METHODS, make_loss
from metricgrad.metrics import Metric, get_metric
from metricgrad.model import build_model
from metricgrad.paper import LOSSES, MODES, RIVALS
from metricgrad.protocols import PROTOCOLS, get_protocol
from metricgrad.recipe import Recipe, get_recipe
from metricgrad.splits import split
from metricgrad.table import centre_and_scale, scaled
from metricgrad.trainer import Round
from metricgrad.trees import NAME as BOOSTED
from metricgrad.trees import grow_trees

BUDGETS: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "quick": {
        "default": {"warmup": 600, "rounds": 200, "trust_cap": 300, "check_every": 25},
        "paper": {"rounds": 1_000, "check_every": 50},
    },
    "standard": {"default": {}, "paper": {"rounds": 20_000}},
    "paper": {"default": {"rounds": 300_000, "check_every": 1_000}, "paper": {}},
}
"""What a budget changes of each recipe: minutes, hours, or the 300,000 rounds of the paper."""
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
        """Return plain data, as a store keeps it; the number of rows only if it is limited."""
        data = {**asdict(self), "changes": dict(self.changes)}
        return {name: value for name, value in data.items() if name != "rows" or value is not None}

    @property
    def how(self) -> Recipe:
        """The recipe, with its changes."""
        return get_recipe(self.recipe, **dict(self.changes))

    @property
    def shared(self) -> tuple[Any, ...]:
        """What runs must have in common to be trained together."""
        return self.dataset, self.rows, self.seed, self.replicate, self.model, self.recipe, self.changes


Job = tuple[Run, ...]
"""Runs that have everything in common but metric and method."""


# ---- what to run ---------------------------------------------------------------------------------------------------


def table2_runs(protocols: Iterable[str], **grid: Any) -> list[Run]:
    """Return the runs of Table 2: the three modes for each loss."""
    return _runs(((loss, mode) for loss in LOSSES for mode in MODES), protocols, **grid)


def table3_runs(protocols: Iterable[str], **grid: Any) -> list[Run]:
    """Return the runs of Table 3: the refined surrogate and its rivals."""
    return _runs(((loss, method) for loss, methods in RIVALS.items() for method in methods), protocols, **grid)


def _runs(
    pairs: Iterable[tuple[str, str]],
    protocols: Iterable[str],
    *,
    datasets: Sequence[str],
    seeds: Iterable[int],
    metrics: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    **how: Any,
) -> list[Run]:
    """Return the runs behind the cells of a table, those of a protocol that measures another metric included."""
    known = [get_metric(name).name for name in metrics] if metrics is not None else None
    for method in methods or ():
        if method not in (*METHODS, *BASELINES):
            raise ValueError(f"methods: expected some of {', '.join((*METHODS, *BASELINES))}, got {method!r}")
    asked = [(m, by) for m, by in pairs if (known is None or m in known) and (methods is None or by in methods)]
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
    """Group runs into jobs: those that can sail together as a fleet."""
    together: dict[tuple[Any, ...], list[Run]] = {}
    for run in sorted(runs, key=_by_seed_first):
        apart = run.how.refine_mode != "eval" and run.method in ("sl-r", "sl-s")
        together.setdefault((run.shared, apart, run.method == BOOSTED), []).append(run)
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


class _Found(NamedTuple):
    """What a run ended with: scores of validation and test rows, the history, the verdict, the setting, if any."""

    validation: Tensor
    test: Tensor
    history: list[Round]
    verdict: Verdict | None = None
    setting: float | None = None


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
    log = Logbook(unfinished / f"{_name_of(job)}.pt") if unfinished else None
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not faithful yet")  # the history says how far each can be trusted
        found = _boosted(job, parts) if first.method == BOOSTED else _followed(job, parts, log)
    seconds = (time.perf_counter() - begun + (log.spent if log else 0.0)) / len(job)
    for run, end in zip(job, found, strict=True):
        yield run.as_dict(), {**_outcome(run, end, parts, protocols, brief), "seconds": seconds}
    if log:
        log.close()


def _name_of(job: Job) -> str:
    """Return a name for a job that no other has."""
    return hashlib.sha256(json.dumps([run.as_dict() for run in job], sort_keys=True).encode()).hexdigest()[:16]


def _followed(job: Job, parts: Parts, log: Logbook | None) -> list[_Found]:
    """Train a model along every loss of a job, together if they can sail."""
    first = job[0]
    recipe, seed = first.how, first.seed + REPLICATE * first.replicate
    model = build_model(first.model, parts.train.x.shape[1], seed)
    members = _members(job, recipe, seed)
    fleet = [Member(member.loss, member.metrics) for member in members]
    trained = train_each(model, fleet, parts.train, recipe, validation=parts.validation, seed=seed, log=log)
    found: dict[tuple[str, str], list[tuple[Trained, float | None]]] = {}
    for member, models in zip(members, trained, strict=True):
        for metric, one in zip(member.metrics, models, strict=True):
            found.setdefault((member.method, metric.name), []).append((one, member.setting))
    best = [min(found[run.method, run.metric], key=lambda one: one[0].least) for run in job]
    return [
        _Found(
            exact_scores(one.model, parts.validation.x),
            exact_scores(one.model, parts.test.x),
            one.history,
            one.verdict,
            setting,
        )
        for one, setting in best
    ]


def _boosted(job: Job, parts: Parts) -> list[_Found]:
    """Grow trees once for all runs: the reference of another family of models."""
    scores = grow_trees(parts.train, parts.validation, parts.test.x, job[0].seed)
    return [_Found(scores.validation, scores.test, []) for _ in job]


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
    """Score a model under some protocols, and write down what happened on the way."""
    scored = found.validation, parts.validation.y, found.test, parts.test.y
    metric = get_metric(run.metric)
    names = (metric.name,) if brief else tuple(dict.fromkeys((metric.name, *LOSSES)))
    history = {
        name: [_short(getattr(done, name)) for done in found.history]
        for name in ("steps", "validation", "companion", "loss", "gap", "trust", "cosine")
    }
    return {
        "test": {name: {m: PROTOCOLS[name].score(m, *scored) for m in names} for name in protocols},
        "validation_loss": float((metric if run.how.form == "zero" else metric.best)(*scored[:2])),
        "rows": {name: len(getattr(parts, name).y) for name in ("train", "validation", "test")},
        "positive_share": parts.data.positive_share,
        "subset": parts.data.subset,
        "setting": found.setting,
        "verdict": asdict(found.verdict) if found.verdict else None,
        "faith": {name: getattr(found.history[-1], name) for name in ("trust", "cosine")} if found.history else None,
    } | ({} if brief else {"history": history})


def _short(number: float) -> float | int:
    return number if isinstance(number, int) or number != number else float(f"{number:.{DIGITS}g}")
