"""The paper's experiments as data: a run is one trained model; runs that can share their work are one job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from metricgrad.evaluation.runs import Scores, TrainedMethod, split_table, train_methods
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.datasets import Dataset, dataset_digest, load_dataset
from metricgrad.paper.printed import LOSSES, MODES, TABLE3_METHODS
from metricgrad.paper.protocols import PROTOCOLS, get_protocol
from metricgrad.surrogate.pretrained import bundled_digest
from metricgrad.training.data import Parts
from metricgrad.training.jobs import Checkpoint
from metricgrad.training.methods import METHODS
from metricgrad.training.networks import TREES
from metricgrad.training.recipe import Recipe, get_recipe
from metricgrad.training.splits import split

BUDGETS: Mapping[str, Mapping[str, Mapping[str, int | None]]] = {
    "quick": {
        "default": {"warmup": 600, "rounds": 200, "trust_cap": 300, "check_every": 25},
        "paper": {"rounds": 1_000, "check_every": 50, "baseline_steps": None},
    },
    "standard": {"default": {}, "paper": {"rounds": 20_000, "baseline_steps": None}},
    "paper": {"default": {"rounds": 300_000, "check_every": 1_000}, "paper": {}},
}
"""What a budget changes in each recipe: minutes, hours, or what the paper states.

That is 300,000 rounds and, for the recipe `paper`, 1,000,000 steps of the baselines; in shorter runs baselines get as
many steps as the model of a surrogate."""
TABLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "table2": tuple((loss, mode) for loss in LOSSES for mode in MODES),
    "table3": tuple((loss, method) for loss, methods in TABLE3_METHODS.items() for method in methods),
}
"""The cells of each table, a metric and a method: three modes of the surrogate; the refined one and baselines."""
SEED_STRIDE = 1_000_003
"""Distance between the seeds of two replicates."""
HISTORY = ("steps", "validation", "control", "loss", "gap", "trust", "cosine")
"""Columns of a stored history."""
HISTORY_DIGITS = 5
"""Significant digits of a number in a stored history."""


@dataclass(frozen=True)
class Run:
    """One model to train.

    `dataset`, `metric`, `method` (`sl-r`, `sl-s`, `sl-u` or a baseline), `model` and `recipe` are names, `changes` the
    fields of the recipe that are changed. The seed is that of the split, the weights and the drawn sets; another
    `replicate` has the same split, but its own weights and sets. With `rows`, at most so many are used, drawn by the
    seed.
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
        """Return what identifies the run in a store: every field, and the content of what they name.

        That is the content of the recipe, a digest of the dataset and that of a bundled surrogate: a run by another
        recipe of the same name, or on another file, is another run. `rows` is there only if it is limited.
        """
        named = {name: value for name, value in asdict(self).items() if name not in ("changes", "rows")}
        more: dict[str, Any] = {"data": dataset_digest(self.dataset)}
        if self.method in ("sl-r", "sl-u"):
            more["surrogate"] = bundled_digest(get_metric(self.metric), self.how.surrogate_config, self.how.form)
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
        """What the runs of a job have in common: data and warm-up; without a warm-up, or for trees, the loss too."""
        how = self.how
        common = (self.dataset, self.rows, self.seed, self.replicate, self.model, how)
        if how.warmup and self.method != TREES:
            return common
        return (*common, self.method, self.metric if self.method in METHODS else None)


Job = tuple[Run, ...]
"""Runs that share their data and their warm-up."""


# ---- what to run ---------------------------------------------------------------------------------------------------


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
    """Return the runs behind the cells of some tables.

    Metrics and methods, if given, choose among the cells; each of them must be in at least one chosen cell.
    """
    cells = list(dict.fromkeys(cell for table in tables for cell in TABLES[table]))
    wanted = (None if metrics is None else [get_metric(name).name for name in metrics], methods)
    chosen = [c for c in cells if all(names is None or name in names for name, names in zip(c, wanted, strict=True))]
    for place, (what, other) in enumerate((("metrics", "methods"), ("methods", "metrics"))):
        unused = [name for name in wanted[place] or () if name not in {cell[place] for cell in chosen}]
        if unused:
            known, got = ", ".join(dict.fromkeys(cell[place] for cell in cells)), ", ".join(map(repr, unused))
            raise ValueError(f"{what}: expected some of {known}, with the {other} asked for, got {got}")
    runs = (
        run_of(protocol, dataset, metric, method, seed, **how)
        for seed in seeds
        for dataset in datasets
        for protocol in protocols
        for metric, method in chosen
    )
    return list(dict.fromkeys(runs))


def run_of(protocol: str, dataset: str, metric: str, method: str, seed: int, **how: Any) -> Run:
    """Return the run behind a cell of a table.

    Where a protocol measures another metric under a name (Jaccard is accuracy under `paper`), it is a replicate of
    that other metric: a separate run, so that the two columns show the noise, as they do in the paper.
    """
    measured = get_protocol(protocol).measured(metric).name
    return Run(dataset, measured, method, seed, replicate=int(measured != get_metric(metric).name), **how)


def jobs_of(runs: Iterable[Run]) -> list[Job]:
    """Group runs into jobs, the first seed first; the grouping does not change their results."""
    jobs: dict[tuple[Any, ...], list[Run]] = {}
    for run in sorted(runs, key=lambda r: (r.seed, r.replicate, r.dataset, r.model, r.recipe, str(r.changes))):
        jobs.setdefault(run.shared, []).append(run)
    return [tuple(job) for job in jobs.values()]


# ---- where the data come from --------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _loaded(dataset: str) -> Dataset:
    return load_dataset(dataset)


def dataset_rows(dataset: str, seed: int, rows: int | None = None) -> Dataset:
    """Load a dataset, or some of its rows drawn by a seed, with the same share of each class."""
    data = _loaded(dataset)
    if rows is None or rows >= len(data.y):
        return data
    some = split(data.y, seed + SEED_STRIDE, test=rows / len(data.y), validation=0.0).test
    return replace(data, X=data.X[some], y=data.y[some], subset=f"{len(some):,} rows drawn from {data.subset or 'all'}")


def prepared(dataset: str, seed: int, standardise: bool, rows: int | None = None) -> Parts:
    """Load a dataset or some of its rows, split it by a seed, and standardise it on the training rows."""
    data = dataset_rows(dataset, seed, rows)
    return split_table(data.X, data.y, seed, standardise=standardise)


# ---- how results are kept ------------------------------------------------------------------------------------------


def execute(
    job: Job, protocols: Iterable[str] = tuple(PROTOCOLS), brief: bool = False, unfinished: Path | None = None
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Train the models of a job, and yield each run with its outcome under some protocols: what `Store.add` takes.

    A brief outcome has the metric of the run only and no history: for studies of thousands of runs. With a folder for
    `unfinished` jobs, checkpoints of long ones are kept there, and the same job resumes after a stop.
    """
    first = job[0]
    data = dataset_rows(first.dataset, first.seed, first.rows)
    parts = split_table(data.X, data.y, first.seed, standardise=first.how.standardise)
    checkpoint = Checkpoint(unfinished / f"{_job_digest(job)}.pt") if unfinished else None
    wanted = [(run.method, get_metric(run.metric)) for run in job]
    seed = first.seed + SEED_STRIDE * first.replicate
    for run, trained in zip(job, train_methods(parts, wanted, first.how, first.model, seed, checkpoint), strict=True):
        yield run.as_dict(), _run_outcome(run, trained, parts, data, protocols, brief)
    if checkpoint:
        checkpoint.close()


def _job_digest(job: Job) -> str:
    return hashlib.sha256(json.dumps([run.as_dict() for run in job], sort_keys=True).encode()).hexdigest()[:16]


def _run_outcome(
    run: Run, trained: TrainedMethod, parts: Parts, data: Dataset, protocols: Iterable[str], brief: bool
) -> dict[str, Any]:
    """Score a model under some protocols, and record how it was trained.

    `test` and `validation_loss` are of the model chosen; `followed` has those of the model trained along the loss, if
    the control was chosen instead, else None.
    """
    metric, history = trained.metric, trained.history
    names = (metric.name,) if brief else tuple(dict.fromkeys((metric.name, *LOSSES)))

    def losses(scores: Scores) -> dict[str, Any]:
        judged = scores.validation, parts.validation.y, scores.test, parts.test.y
        return {
            "test": {name: {m: PROTOCOLS[name].score(m, *judged) for m in names} for name in protocols},
            "validation_loss": float((metric if run.how.form == "zero" else metric.best)(*judged[:2])),
        }

    outcome = {
        **losses(trained.scores),
        "followed": losses(trained.unchosen) if trained.unchosen else None,
        "rows": {name: len(getattr(parts, name).y) for name in ("train", "validation", "test")},
        "positive_share": data.positive_share,
        "subset": data.subset,
        "setting": trained.setting,
        "verdict": asdict(trained.verdict) if trained.verdict else None,
        "faith": {name: getattr(history[-1], name) for name in ("trust", "cosine")} if history else None,
        "seconds": trained.seconds,
    }
    if not brief:
        outcome["history"] = {name: [_rounded(getattr(done, name)) for done in history] for name in HISTORY}
    return outcome


def _rounded(number: float) -> float | int:
    return number if isinstance(number, int) or number != number else float(f"{number:.{HISTORY_DIGITS}g}")
