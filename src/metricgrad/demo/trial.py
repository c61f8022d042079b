"""What the demonstration does: three models of every split, from the same rows, judged once on days they never saw."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold
from threadpoolctl import threadpool_limits

from metricgrad.demo.bikes import SEPARATOR, Bikes, load_bikes
from metricgrad.estimators.explain import Explanation
from metricgrad.estimators.number_competition import BY_HAND, CHOSEN, USUAL
from metricgrad.estimators.regressor import MetricRegressor, fit_beside_usual
from metricgrad.evaluation.statistics import Interval, corrected_interval
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import get_metric
from metricgrad.provenance import provenance
from metricgrad.training.history import Round
from metricgrad.training.recipe import Recipe

Array = NDArray[Any]
METRIC = "step_cost(5,1,10)"
"""5 a bike short, 1 a bike over, 10 if any is short."""
OURS = "metricgrad"
SQUARED, BEST_USUAL = "squared error", "best usual loss"
METHODS = {OURS: CHOSEN, SQUARED: USUAL, BEST_USUAL: BY_HAND}
"""What is compared, the one that is judged first, and what `fit_beside_usual` calls it."""
SPLITS = 5
LOSSES = 6
"""Losses of a split that take time: five usual ones beside squared error, and the surrogate of the cost."""
SHIFTS = np.arange(-25, 41, 1.0)
"""Bikes that are added to all predictions, for the cost curve."""
Report = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Trial:
    """Three models on one split: the hours that were judged, predictions of them, and the models.

    Attributes
    ----------
    hours : ndarray of shape (judged,)
        Rows of the table.
    predictions : dict of str to ndarray of shape (judged,)
        Bikes that each method would have provided.
    models : dict of str to MetricRegressor
        The fitted models.
    """

    hours: Array
    predictions: dict[str, Array]
    models: dict[str, MetricRegressor]


@dataclass(frozen=True, eq=False)
class DemoResult:
    """What all splits came to; every hour was judged once, by models that had not seen its day.

    Attributes
    ----------
    metric : Metric
        The cost.
    bikes : Bikes
        The table.
    trials : list of Trial
        Split by split.
    seed : int
        Of the splits and of training.
    cpu_seconds : float
        That training and judging took.
    """

    metric: Metric
    bikes: Bikes
    trials: list[Trial]
    seed: int
    cpu_seconds: float

    def costs(self, method: str) -> Array:
        """Return the mean cost of an hour, split by split."""
        return np.array([self.cost(trial.predictions[method], trial.hours) for trial in self.trials])

    def cost(self, predictions: Array, hours: Array) -> float:
        """Return the mean cost of some hours."""
        return float(self.metric.value(self.metric(predictions, self.bikes.y[hours])))

    def saved(self, over: str) -> Interval:
        """Return the share of the cost of a method that ours saves, with its 95 % interval over splits."""
        before = self.costs(over)
        return corrected_interval((before - self.costs(OURS)) / before, 1 / (len(self.trials) - 1))

    @property
    def hours(self) -> Array:
        """All hours that were judged, in the order of the splits."""
        return np.concatenate([trial.hours for trial in self.trials])

    def predictions(self, method: str) -> Array:
        """Return predictions of all hours, in that order."""
        return np.concatenate([trial.predictions[method] for trial in self.trials])

    def errors(self, method: str) -> Array:
        """Return bikes over (above 0) or short (below 0) in every hour."""
        return np.asarray(self.predictions(method) - self.bikes.y[self.hours])

    def curves(self) -> dict[str, list[float]]:
        """Return the mean cost of every method if so many bikes, `shift`, were added to all predictions."""
        found = {"shift": SHIFTS.tolist()}
        for method in METHODS:
            predictions = self.predictions(method)
            found[method] = [round(self.cost(predictions + shift, self.hours), 4) for shift in SHIFTS]
        return found

    def explained(self, method: str) -> list[Explanation]:
        """Return what every model of a method says of every column."""
        return [trial.models[method].explain(separator=SEPARATOR) for trial in self.trials]

    def followed(self, method: str) -> list[str]:
        """Return which loss each model of a method has followed, and what is done to its predictions."""
        models = [trial.models[method] for trial in self.trials]
        return [f"{model.results_[0]['methods']} ({model.correction_})" for model in models]

    @property
    def verdict(self) -> str:
        """What came of it, in one sentence."""
        usual, hand = self.saved(SQUARED), self.saved(BEST_USUAL)
        ends = f"95 % interval {percent(usual.low)} to {percent(usual.high)} %"
        if not usual.better:
            return f"No reliable difference to squared error with its best constant: {percent(usual.mean)} %, {ends}."
        ahead = f"ahead in {int((self.costs(OURS) < self.costs(BEST_USUAL)).sum())} of {len(self.trials)} splits"
        return (
            f"Trained for the cost itself, the same model costs {percent(usual.mean)} % less than by squared error "
            f"with its best constant ({ends}); over the best of six usual losses it saves {percent(hand.mean)} % "
            f"({percent(hand.low)} to {percent(hand.high)} %), {ahead}{'' if hand.reliable else ' but not reliably'}."
        )

    def predicted(self) -> pd.DataFrame:
        """Return bikes and predictions of every hour, in the order of the table."""
        columns = {method: self.predictions(method).round(2) for method in METHODS}
        found: pd.DataFrame = pd.DataFrame({"hour": self.hours, "bikes": self.bikes.y[self.hours], **columns})
        ordered: pd.DataFrame = found.sort_values("hour", ignore_index=True)
        return ordered

    def record(self, command: str) -> dict[str, Any]:
        """Return all numbers as plain data, with how they were made."""
        return {
            "command": command,
            "metric": METRIC,
            "seed": self.seed,
            "hours": len(self.hours),
            "days": len(np.unique(self.bikes.day[self.hours])),
            "verdict": self.verdict,
            "costs": {method: self.costs(method).round(4).tolist() for method in METHODS},
            "saved": {
                over: [round(float(end), 5) for end in _ends(self.saved(over))] for over in (SQUARED, BEST_USUAL)
            },
            "short": {method: round(float((self.errors(method) < 0).mean()), 5) for method in METHODS},
            "over": {method: round(float(self.errors(method).clip(0).mean()), 3) for method in METHODS},
            "followed": {method: self.followed(method) for method in METHODS},
            "curves": self.curves(),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "made_by": provenance(),
        }


def run_demo(
    seed: int = 0,
    bikes: Bikes | None = None,
    splits: int = SPLITS,
    recipe: Recipe | str = "default",
    report: Report | None = None,
) -> DemoResult:
    """Train and judge the three models of every split.

    Parameters
    ----------
    seed : int
        Of the splits and of training.
    bikes : Bikes, optional
        Hours; all of 2011 if not given.
    splits : int
        Parts of the days, each of which is judged once.
    recipe : Recipe or str
        How to train.
    report : callable, optional
        Called with what is done, how much of it and out of how much.
    """
    begun, bikes = time.process_time(), load_bikes() if bikes is None else bikes
    parts = list(GroupKFold(splits, shuffle=True, random_state=seed).split(bikes.X, groups=bikes.day))
    # Threads that wait for each other take several times as long for small matrices where other work is going on.
    with threadpool_limits(1):
        trials = list(_trials(bikes, parts, seed, recipe, report or (lambda *_: None)))
    return DemoResult(get_metric(METRIC), bikes, trials, seed, time.process_time() - begun)


def _trials(
    bikes: Bikes, parts: Sequence[tuple[Array, Array]], seed: int, recipe: Recipe | str, report: Report
) -> Iterator[Trial]:
    for number, (known, judged) in enumerate(parts):
        counted = _Counted(number, len(parts), report)
        model = MetricRegressor(
            METRIC, method="surrogate", model="additive", recipe=recipe, random_state=seed, callback=counted, folds=1
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "fit: stopped by the user")
            fitted = fit_beside_usual(model, bikes.X.iloc[known], bikes.y[known], groups=bikes.day[known])
        models = {method: fitted[name] for method, name in METHODS.items()}
        if models[OURS].interrupted_:  # without a limit of time only Ctrl-C does that
            raise KeyboardInterrupt
        rows = bikes.X.iloc[judged]
        yield Trial(judged, {method: own.predict(rows) for method, own in models.items()}, models)
        report("models", (number + 1) * LOSSES, len(parts) * LOSSES)


class _Counted:
    """A callback that counts the losses that were followed in all splits: with each, rounds begin again."""

    def __init__(self, split: int, splits: int, report: Report) -> None:
        self.first, self.all, self.report = split * LOSSES, splits * LOSSES, report
        self.begun, self.last = -1, 0
        report("models", self.first, self.all)

    def __call__(self, done: Round) -> None:
        """Count one more if this round is not a later one of the same loss."""
        if done.phase != "rounds":
            return
        if done.number <= self.last or self.begun < 0:
            self.begun += 1
            self.report("models", self.first + min(self.begun, LOSSES - 1), self.all)
        self.last = done.number


def percent(share: float) -> str:
    """Write a share in percent, without a sign behind it."""
    return f"{100 * share:.1f}".replace("-", "\N{MINUS SIGN}")


def _ends(interval: Interval) -> list[float]:
    return [round(float(end), 5) for end in (interval.mean, interval.low, interval.high)]
