"""The demo: one metric, one embedded dataset, cross-entropy and the learned surrogate side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.metrics.registry import PAPER, get_metric
from metricgrad.paper.datasets import Dataset, load
from metricgrad.paper.figure_plots import plot_figure2
from metricgrad.paper.figures import figure2
from metricgrad.paper.report import write_demo_page
from metricgrad.reporting.plots import plot_convergence
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import split

METHODS = {"cross-entropy": "cross-entropy", "sl-r": "metricgrad"}
RECIPE = Recipe(name="demo", warmup=900, rounds=300)


@dataclass(frozen=True)
class DemoRun:
    """One method on the demo data: its test losses by metric, on how many positives, how long, the fitted model."""

    method: str
    losses: dict[str, float]
    positives: int
    seconds: float
    model: MetricClassifier


def demo_runs(data: Dataset, metric: str, seed: int, recipe: Recipe, verbose: bool) -> Iterator[DemoRun]:
    """Train each method on the same split for the same number of steps, and judge it once on the test rows."""
    parts = split(data.y, seed)
    known = np.concatenate((parts.train, parts.validation))
    for method in METHODS:
        begun = time.perf_counter()
        model = MetricClassifier(metric, method=method, recipe=recipe, random_state=seed, verbose=verbose)
        model.fit(data.X[known], data.y[known])
        scores, targets = model.decision_function(data.X[parts.test]), data.y[parts.test]
        names = dict.fromkeys((get_metric(metric).name, *PAPER))
        losses = {name: float(get_metric(name)(scores, targets)) for name in names}
        yield DemoRun(method, losses, int(targets.sum()), time.perf_counter() - begun, model)


def said(run: DemoRun) -> str:
    """Say which model metricgrad kept, in a sentence: where it is cross-entropy's, both columns are alike."""
    return f"metricgrad {run.model.verdict_}."


def run_demo(
    out: Path, metric: str = "f1", seed: int = 0, recipe: Recipe = RECIPE, verbose: bool = True
) -> list[DemoRun]:
    """Run the demo and write the models, the pictures and a page about them into a folder."""
    SurrogateLoss(metric)  # a metric that cannot be learned is refused before any work
    out.mkdir(parents=True, exist_ok=True)
    data = load("digits8")
    runs = list(demo_runs(data, metric, seed, recipe, verbose))
    histories = {METHODS[run.method]: run.model.history_ for run in runs}
    plot_convergence(histories, get_metric(metric)).savefig(out / "convergence.png", dpi=120)
    plot_figure2(figure2(seed=seed)).savefig(out / "figure2.png", dpi=120)
    joblib.dump(runs[-1].model, out / "model.joblib")
    write_demo_page(
        out / "index.html",
        f"Digit eight against the rest: {get_metric(metric).label}, learned",
        said(runs[-1]),
        {METHODS[run.method]: run.losses for run in runs},
        {
            "Training: the metric on validation rows, and how far the surrogate is from it": out / "convergence.png",
            "The paper's Figure 2: alpha walks down a surrogate that is true where it stands": out / "figure2.png",
        },
    )
    return runs
