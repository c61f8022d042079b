"""A contest: a method against its rivals over repeated splits of a table, and what came of it, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.evaluation import plots
from metricgrad.evaluation.diagnostics import Diagnosis
from metricgrad.evaluation.intervals import Interval, corrected_interval, sentence, signed
from metricgrad.evaluation.runs import Trial
from metricgrad.evaluation.trees import NAME as TREES
from metricgrad.metrics.registry import Metric
from metricgrad.reporting.html import card
from metricgrad.reporting.plots import Picture, plot_convergence

Array = NDArray[Any]
LABELS = {"sl-r": "metricgrad", "balanced": "class weights", "focal": "focal loss", TREES: "LightGBM"}
"""How people call methods; others as they are called."""


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    """What came of a comparison; a notebook shows the verdict and the table.

    Parameters
    ----------
    metric : Metric
        What was compared.
    methods : tuple of str
        The method, then its rivals; the first rival is the one to beat.
    trials : tuple of Trial
        Every method on every split.
    classes : tuple
        The labels; the second is the positive one.
    rows, features, positives : int
        Of the table.
    test, validation : float
        Share of test rows, and of validation rows among the others.
    model, recipe : str
        What was trained, and how.
    name : str
        How the data are called.
    remarks : tuple of str
        What to know besides: what the columns were taken for, what was left out.
    """

    metric: Metric
    methods: tuple[str, ...]
    trials: tuple[Trial, ...] = field(repr=False)
    classes: tuple[Any, Any]
    rows: int
    features: int
    positives: int
    test: float
    validation: float
    model: str
    recipe: str
    name: str
    remarks: tuple[str, ...] = ()

    # ---- what it says ----------------------------------------------------------------------------------------------

    @property
    def splits(self) -> tuple[int, ...]:
        """The seeds of the splits."""
        return tuple(dict.fromkeys(trial.split for trial in self.trials))

    @staticmethod
    def label(method: str) -> str:
        """Return how people call a method."""
        return LABELS.get(method, method)

    def of(self, method: str) -> list[Trial]:
        """Return the trials of a method, split by split."""
        return [trial for trial in self.trials if trial.method == method]

    def values(self, method: str) -> Array:
        """Return the metric as people know it on the test rows of every split."""
        return np.array([float(self.metric.value(trial.loss)) for trial in self.of(method)])

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """How much better the method is than each rival, in units of the metric, over the splits."""
        sign = 1 if self.metric.higher_is_better else -1
        ours = self.values(self.methods[0])
        ratio = self.test / (1 - self.test)
        return {m: corrected_interval(sign * (ours - self.values(m)), ratio) for m in self.methods[1:]}

    @property
    def verdict(self) -> str:
        """Whether it was worth it, in one sentence."""
        named = {self.label(method): interval for method, interval in self.intervals.items()}
        return sentence(self.metric, self.label(self.methods[0]), named)

    def table(self) -> pd.DataFrame:
        """Return every trial as a row: split, method, metric, threshold, seconds."""
        rows = [
            {
                "split": trial.split,
                "method": trial.method,
                self.metric.name: float(self.metric.value(trial.loss)),
                "threshold": trial.threshold,
                "seconds": trial.seconds,
            }
            for trial in self.trials
        ]
        found: pd.DataFrame = pd.DataFrame(rows)
        return found

    def summary(self) -> pd.DataFrame:
        """Return every method as a row: mean and spread of the metric, how far the first is ahead, an interval."""
        rows = {}
        for method in self.methods:
            values, gain = self.values(method), self.intervals.get(method)
            shown = signed(self.metric, gain) if gain else ("", "", "")
            seconds = float(np.mean([trial.seconds for trial in self.of(method)]))
            rows[self.label(method)] = (values.mean(), values.std(ddof=1), *shown, seconds)
        head = (self.metric.label, "spread", f"{self.label(self.methods[0])} is ahead by", "from", "to", "seconds")
        found: pd.DataFrame = pd.DataFrame(list(rows.values()), index=list(rows), columns=list(head))
        return found

    def _repr_html_(self) -> str:
        known = self.summary()
        rows = [
            (str(name), f"{row.iloc[0]:.4f}", f"{row.iloc[1]:.4f}", *map(str, row.iloc[2:5]), f"{row.iloc[5]:.0f}")
            for name, row in known.iterrows()
        ]
        facts = {"data": self.name, "rows": f"{self.rows:,}", "splits": str(len(self.splits)), "model": self.model}
        return card(self.verdict, facts, head=["", *map(str, known.columns)], rows=rows)

    # ---- pictures --------------------------------------------------------------------------------------------------

    def plot_metric(self) -> Picture:
        """Draw the metric of every method on every split."""
        return plots.plot_metric({self.label(m): self.values(m) for m in self.methods}, self.metric)

    def plot_roc(self) -> Picture:
        """Draw the ROC curves of the test rows."""
        return plots.plot_roc(self._shown())

    def plot_precision_recall(self) -> Picture:
        """Draw the precision-recall curves of the test rows."""
        return plots.plot_precision_recall(self._shown())

    def plot_threshold(self) -> Picture:
        """Draw the metric at every threshold, and the ones chosen."""
        return plots.plot_threshold(self._shown(), self.metric)

    def plot_calibration(self) -> Picture:
        """Draw what scores say as log-odds against what happened."""
        return plots.plot_calibration(self._shown())

    def plot_convergence(self, split: int | None = None) -> Picture:
        """Draw the metric on validation rows while training, on the first or a given split."""
        wanted = self.splits[0] if split is None else split
        histories = {self.label(t.method): t.history for t in self.trials if t.split == wanted and t.history}
        if not histories:
            raise ValueError(f"split: expected one of {', '.join(map(str, self.splits))}, got {split!r}")
        return plot_convergence(histories, self.metric)

    def _shown(self) -> dict[str, list[Diagnosis]]:
        return {self.label(method): [trial.shown for trial in self.of(method)] for method in self.methods}
