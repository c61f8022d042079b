"""Every strategy, and every way to choose among them: METRICGRAD_DATA=... python -m studies.strategies.run

One fit of `MetricClassifier(method="auto", folds=5)` trains every strategy on the same five folds. From its models this
study judges each strategy alone, and several rules of choice, on test rows: all from the same training. Every run is
stored as it ends; run again to continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from metricgrad import MetricClassifier, __version__, get_metric
from metricgrad.estimators import competition
from metricgrad.estimators.candidates import Candidate, scale_of
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.metric_estimator import scores_in_double
from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.paper.datasets import load_dataset
from metricgrad.training.data import Scaler
from metricgrad.training.selection import error_of_gain
from metricgrad.training.splits import split
from studies import pages
from studies.strategies import cells, page
from studies.tables import table as one_of_thirty
from studies.tables import thirty_tables
from studies.warm_ups import WarmUps, shared_warm_ups

MAX_ROWS = 6_000
"""Rows of a table, a fifth of them for the test."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the best strategy, where its scores are mixed with those of the usual loss."""
SURROGATE = "sl-r"


class Kept(MetricClassifier):
    """A classifier that keeps all models of its competition."""

    competition_: Competition

    def _compete(self, *args: Any) -> Competition:
        if not hasattr(self, "competition_"):
            self.competition_ = super()._compete(*args)
        return self.competition_

    def mixing(self) -> Kept:
        """Return the classifier, to be fitted again without training, that may mix the models of several strategies."""
        mixed = Kept(**self.get_params(deep=False))
        mixed.competition_ = self.competition_.among(self.competition_.candidates)
        mixed.competition_.mixes = True
        return mixed


class Scores(NamedTuple):
    """What one strategy says of held-out and of test rows, fold by fold, standardised by the held-out rows."""

    held_out: list[Tensor]
    test: list[Tensor]

    @classmethod
    def of(cls, candidate: Candidate, test: Tensor) -> Scores:
        """Return the scores of the models of a candidate."""
        found = cls([], [])
        for fold in candidate.folds:
            centre, scale = scale_of(fold.scores, classes=False)
            found.held_out.append((fold.scores - centre) / scale)
            found.test.append((scores_in_double(fold.trained.network, test) - centre) / scale)
        return found


def table(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets of some rows of a table."""
    if name in cells.PAPER:
        data = load_dataset(name)
        X, y = data.X, np.asarray(data.y).astype(int)
    else:
        X, y = one_of_thirty(name)
    drawn = np.random.default_rng(seed).permutation(len(y))[:MAX_ROWS]
    return np.asarray(X[drawn].toarray() if hasattr(X, "toarray") else X[drawn], float), y[drawn].astype(int)


def mixed(first: Sequence[Tensor], second: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return scores between those of two strategies."""
    return [(1 - share) * one + share * other for one, other in zip(first, second, strict=True)]


class Rules:
    """Losses on held-out and on test rows of strategies and of ways to choose among them."""

    def __init__(self, metric: Metric, known: Mapping[str, Scores], y: Sequence[Tensor], test_y: Tensor) -> None:
        self.metric, self.known, self.y, self.test_y = metric, known, y, test_y
        self.pooled = torch.cat(list(y))

    def held_out_loss(self, scores: Sequence[Tensor]) -> float:
        """Return the loss at the best threshold of the pooled held-out rows."""
        return float(self.metric.best(torch.cat(list(scores)), self.pooled))

    def test_loss(self, held_out: Sequence[Tensor], test: Sequence[Tensor]) -> float:
        """Return the loss of the average of the folds, cut where the pooled held-out rows say."""
        cut = best_threshold(self.metric, torch.cat(list(held_out)), self.pooled) if self.metric.decides else 0.0
        return float(self.metric(torch.stack(list(test)).mean(0) - cut, self.test_y))

    def alone(self, name: str) -> float:
        """Return the loss of one strategy."""
        return self.test_loss(self.known[name].held_out, self.known[name].test)

    def single(self) -> float:
        """Return the mean loss of single models by the usual loss, each with the threshold of its own fold."""
        usual, losses = self.known["proper"], []
        for held_out, test, y in zip(usual.held_out, usual.test, self.y, strict=True):
            cut = best_threshold(self.metric, held_out, y) if self.metric.decides else 0.0
            losses.append(float(self.metric(test - cut, self.test_y)))
        return float(np.mean(losses))

    def pooled_choice(self, names: Sequence[str], margin: float) -> str:
        """Return the best strategy, the usual loss unless another is better by some standard errors."""
        best, errors = self.best_of(names)
        return best if best == "proper" or errors > margin else "proper"

    def best_of(self, names: Sequence[str]) -> tuple[str, float]:
        """Return the best strategy on held-out rows, and by how many standard errors it is ahead of the usual loss."""
        losses = {name: self.held_out_loss(self.known[name].held_out) for name in names}
        best = min(names, key=lambda name: losses[name])
        if best == "proper":
            return best, 0.0
        own, usual = (torch.cat(self.known[name].held_out) for name in (best, "proper"))
        error = error_of_gain(self.metric.best, self.metric, usual, own, self.pooled, None)
        gain = losses["proper"] - losses[best]
        return best, gain / error if error else float("inf")

    def interpolated(self, names: Sequence[str]) -> float:
        """Return the loss of a mixture of the usual loss and the best strategy, by the share that is best."""
        usual, best = self.known["proper"], self.known[self.pooled_choice(names, 0.0)]
        share = min(
            SHARES, key=lambda share: self.held_out_loss(in_spreads(mixed(usual.held_out, best.held_out, share)))
        )
        held_out, test = (mixed(a, b, share) for a, b in ((usual.held_out, best.held_out), (usual.test, best.test)))
        return self.test_loss(in_spreads(held_out), in_spreads(test, held_out))

    def bag(self, names: Sequence[str]) -> float:
        """Return the loss of the average of each fold's own choice."""
        chosen = [
            min(names, key=lambda name: float(self.metric.best(self.known[name].held_out[fold], y)))
            for fold, y in enumerate(self.y)
        ]
        held_out, test = (
            [getattr(self.known[name], part)[fold] for fold, name in enumerate(chosen)] for part in ("held_out", "test")
        )
        return self.test_loss(held_out, test)

    def averaged(self, names: Sequence[str]) -> float:
        """Return the loss of the mean of the scores of all strategies."""
        held_out = [
            torch.stack(list(own)).mean(0) for own in zip(*(self.known[n].held_out for n in names), strict=True)
        ]
        test = [torch.stack(list(own)).mean(0) for own in zip(*(self.known[n].test for n in names), strict=True)]
        return self.test_loss(in_spreads(held_out), in_spreads(test, held_out))

    @classmethod
    def load(cls, metric: Metric, path: Path) -> Rules:
        """Return what `save` kept."""
        with np.load(path) as kept:
            parts = {name: torch.from_numpy(kept[name]) for name in kept.files}
        sizes = parts["sizes"].tolist()
        names = [name.split("/")[1] for name in parts if name.startswith("test/")]
        known = {
            name: Scores(
                list(parts[f"held_out/{name}"].double().split(sizes)), list(parts[f"test/{name}"].double().unbind())
            )
            for name in names
        }
        return cls(metric, known, parts["y"].split(sizes), parts["test_y"])

    def save(self, path: Path) -> None:
        """Keep the scores of all strategies, so that other rules can be tried without training."""
        parts = {"y": self.pooled.numpy(), "test_y": self.test_y.numpy(), "sizes": np.array([len(y) for y in self.y])}
        for name, own in self.known.items():
            parts[f"held_out/{name}"] = torch.cat(own.held_out).float().numpy()
            parts[f"test/{name}"] = torch.stack(own.test).float().numpy()
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **parts)

    def all(self) -> dict[str, Any]:
        """Return the losses of every rule."""
        names = list(self.known)
        others = [name for name in names if name != SURROGATE]
        choices = {f"{margin:g} SE": self.pooled_choice(names, margin) for margin in cells.MARGINS}
        without = {f"{margin:g} SE": self.pooled_choice(others, margin) for margin in cells.MARGINS}
        return {
            "single": self.single(),
            "alone": {name: self.alone(name) for name in names},
            "held_out": {name: self.held_out_loss(self.known[name].held_out) for name in names},
            "choice": choices,
            "choice_without_surrogate": without,
            "interpolated": self.interpolated(names),
            "bag": self.bag(names),
            "averaged": self.averaged(names),
        }


def in_spreads(scores: Sequence[Tensor], by: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Return scores in units of their spread, or of that of other scores."""
    spreads = [own.std(correction=0).clamp(min=1e-12) for own in (by or scores)]
    return [own / spread for own, spread in zip(scores, spreads, strict=True)]


@cache
def metric_of(spec: str) -> Metric:
    """Return the metric of a spec, the same object each time: warm-ups know their metrics by it."""
    return get_metric(spec)


@lru_cache(maxsize=1)
def warm_ups_of(dataset: str, model: str, seed: int) -> WarmUps:
    """Return the warm-ups of a table, which the runs of its metrics fill and share."""
    return {}


def path_of(run: Mapping[str, Any], scores: Path) -> Path:
    """Return the file of the scores of a run."""
    return scores / f"{run['model']}-{run['metric']}-{run['dataset']}-{run['seed']}.npz"


def outcome(run: dict[str, Any], scores: Path | None = None) -> dict[str, Any]:
    """Fit once and judge every strategy and rule on the test rows; keep all scores in a folder, if there is one."""
    X, y = table(run["dataset"], run["seed"])
    test = np.isin(np.arange(len(y)), split(y, run["seed"]).test)
    metric = metric_of(run["metric"])
    begun = time.process_time()
    model = Kept(metric, "auto", run["model"], folds=5, random_state=run["seed"])
    sharing: AbstractContextManager[None] = nullcontext()
    if run["model"] in cells.NETWORKS:
        known = warm_ups_of(run["dataset"], run["model"], run["seed"])
        sharing = shared_warm_ups([metric_of(each) for each in cells.METRICS], known)
    with warnings.catch_warnings(), patch.object(competition, "BEHIND", np.inf), sharing:
        warnings.simplefilter("ignore")
        model.fit(X[~test], y[~test])
        cpu = time.process_time() - begun
        mixture = model.mixing().fit(X[~test], y[~test])
    scaled = torch.from_numpy(Scaler(model.centre_, model.scale_).transform(X[test]))
    first, *_ = every = model.competition_.candidates
    found = {one.strategy.name: Scores.of(one, scaled) for one in every if not one.left_out}
    rules = Rules(metric, found, [fold.rows.y for fold in first.folds], torch.from_numpy(y[test]))
    if scores is not None:
        rules.save(path_of(run, scores))
    seconds = {one.strategy.name: one.seconds for one in every}
    default = float(metric(model._decision(X[test]), y[test]))
    mixed = float(metric(mixture._decision(X[test]), y[test]))
    parts = mixture.competition_.best.methods if mixture.competition_.best.mixed else ""
    known = {"default": default, "mixture": mixed, "parts": parts, "positives": int(y[~test].sum())}
    return {**rules.all(), **known, "cpu": cpu, "each": seconds}


def main() -> None:
    parser = pages.parser_of(__doc__, cells.RESULTS)
    parser.add_argument("--models", default="linear,additive,small,mlp")
    parser.add_argument("--metrics", default=";".join(cells.METRICS), help="separated by semicolons")
    parser.add_argument("--tables", help="names, separated by commas; by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scores", type=Path, help="folder in which the scores of every strategy are kept")
    asked = parser.parse_args()
    tables = asked.tables.split(",") if asked.tables else [*thirty_tables(), *cells.PAPER]
    runs = [
        {"dataset": name, "metric": metric, "model": model, "seed": seed, "version": __version__}
        for seed in range(asked.seeds)
        for model in asked.models.split(",")
        for name in tables
        for metric in asked.metrics.split(";")
    ]
    if not asked.report:
        pages.run_missing(Store(asked.results), runs, partial(outcome, scores=asked.scores))
    if asked.results == cells.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
