"""The result of a comparison: a method against baselines over repeated splits of a table, with a verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.evaluation import plots
from metricgrad.evaluation.choices import choices_frame, costs_frame
from metricgrad.evaluation.diagnostics import Diagnosis
from metricgrad.evaluation.statistics import Interval, corrected_interval, sentence, signed
from metricgrad.metrics.registry import Metric
from metricgrad.reporting.html import card
from metricgrad.reporting.plots import Picture, plot_convergence
from metricgrad.training.history import Round, Verdict
from metricgrad.training.networks import TREES

Array = NDArray[Any]
METHOD_LABELS = {
    "sl-r": "metricgrad",
    "auto": "metricgrad",
    "balanced": "class weights",
    "focal": "focal loss",
    "mse": "squared error",
    "usual": "usual losses",
    TREES: "LightGBM",
}
"""Labels of methods; other methods have their name."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One method on one split, which `split` names by its seed.

    The threshold was chosen on validation rows; the diagnosis is of test rows. Losses trained together share the
    `seconds` of training evenly. `followed`: whether the chosen model was trained along the loss; if not, cross-entropy
    was as good on validation rows. Trees have no history. Where there are not two classes, there is no diagnosis but
    `test_loss`, and the threshold is NaN. For a surrogate, `fidelity` has true and surrogate losses of
    fresh sets, `(2, sets)`. Where strategies competed, `verdict` is which was kept, and why.
    """

    split: int
    method: str
    threshold: float
    seconds: float
    diagnosis: Diagnosis | None
    followed: bool = True
    history: tuple[Round, ...] = field(default=(), repr=False)
    fidelity: Array | None = field(default=None, repr=False)
    test_loss: float = float("nan")
    verdict: Verdict | None = field(default=None, repr=False)

    @property
    def loss(self) -> float:
        """The true loss of the test rows."""
        return self.test_loss if self.diagnosis is None else self.diagnosis.loss


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    """What a comparison found; a notebook shows the verdict and the table.

    Parameters
    ----------
    metric : Metric
        What was compared.
    methods : tuple of str
        The method, then its baselines; the first baseline is the one to beat.
    trials : tuple of Trial
        Every method on every split.
    classes : tuple
        The labels; of two, the second is the positive one. None of numbers.
    rows, features, positives : int
        Counts of the table.
    test, validation : float
        Share of test rows, and of validation rows among the others.
    model, recipe : str
        What was trained, and how.
    name : str
        Name of the data.
    remarks : tuple of str
        What was inferred about the columns, and what was left out.
    """

    metric: Metric
    methods: tuple[str, ...]
    trials: tuple[Trial, ...] = field(repr=False)
    classes: tuple[Any, ...]
    rows: int
    features: int
    positives: int
    test: float
    validation: float
    model: str
    recipe: str
    name: str
    remarks: tuple[str, ...] = ()

    # ---- numbers ---------------------------------------------------------------------------------------------------

    @property
    def splits(self) -> tuple[int, ...]:
        """The seeds of the splits."""
        return tuple(dict.fromkeys(trial.split for trial in self.trials))

    @staticmethod
    def label(method: str) -> str:
        """Return the label of a method, as tables and charts show it.

        Parameters
        ----------
        method : str
            Its name: `"sl-r"`.

        Returns
        -------
        str
        """
        return METHOD_LABELS.get(method, method)

    def of(self, method: str) -> list[Trial]:
        """Return the trials of a method, split by split.

        Parameters
        ----------
        method : str
            One of `methods`.

        Returns
        -------
        list of Trial
        """
        return [trial for trial in self.trials if trial.method == method]

    def values(self, method: str) -> Array:
        """Return the metric on the test rows of every split, in its usual form (F1 0.69).

        Parameters
        ----------
        method : str
            One of `methods`.

        Returns
        -------
        ndarray of shape (splits,)
        """
        return np.array([float(self.metric.value(trial.loss)) for trial in self.of(method)])

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """How much better the method is than each baseline, in units of the metric, over the splits."""
        sign = 1 if self.metric.higher_is_better else -1
        ours = self.values(self.methods[0])
        ratio = self.test / (1 - self.test)
        return {m: corrected_interval(sign * (ours - self.values(m)), ratio) for m in self.methods[1:]}

    @property
    def verdict(self) -> str:
        """Whether the method is better than the baselines, in one sentence."""
        named = {self.label(method): interval for method, interval in self.intervals.items()}
        return sentence(self.metric, self.label(self.methods[0]), named)

    def table(self) -> pd.DataFrame:
        """Return every trial as a row.

        Returns
        -------
        DataFrame
            Columns: split, method, the metric by its name, threshold, seconds.
        """
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

    def choices(self) -> pd.DataFrame:
        """Return what was kept on each split where strategies competed, by method `"auto"`, and on what evidence.

        Returns
        -------
        DataFrame
            Columns: split, method, kept, compared_with (the usual loss, or the best other where that was kept), gain
            (of what was kept, in units of the metric, on held-out rows), standard_error, rows (held out), positives
            (those of the rarer class), note.
        """
        return choices_frame(self.trials)

    def costs(self) -> pd.DataFrame:
        """Return what was tried on each split where strategies competed, and what each cost.

        Returns
        -------
        DataFrame
            Columns: split, method, name, seconds, calls (of the metric; NaN where they are not counted).
        """
        return costs_frame(self.trials)

    def summary(self) -> pd.DataFrame:
        """Return every method as a row.

        Returns
        -------
        DataFrame
            Columns: mean and standard deviation of the metric over splits, how far the first method is ahead, from and
            to of its 95 % interval, mean seconds.
        """
        rows = {}
        for method in self.methods:
            values, gain = self.values(method), self.intervals.get(method)
            lead = signed(self.metric, gain) if gain else ("", "", "")
            seconds = float(np.mean([trial.seconds for trial in self.of(method)]))
            rows[self.label(method)] = (values.mean(), values.std(ddof=1), *lead, seconds)
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

    def write_page(self, path: str | Path, command: str = "") -> None:
        """Write one HTML page about the comparison, which needs no network and no other file.

        Parameters
        ----------
        path : str or Path
            The file; its folder is created.
        command : str
            The command that made the comparison, to be shown on the page.
        """
        from metricgrad.evaluation.report import write_comparison

        write_comparison(self, path, command)

    # ---- figures ---------------------------------------------------------------------------------------------------

    def plot_metric(self) -> Picture:
        """Draw the metric of every method on every split.

        Returns
        -------
        Picture
        """
        return plots.plot_metric({self.label(m): self.values(m) for m in self.methods}, self.metric)

    def plot_roc(self) -> Picture:
        """Draw the ROC curves of the test rows.

        Returns
        -------
        Picture
        """
        return plots.plot_roc(self.diagnoses())

    def plot_precision_recall(self) -> Picture:
        """Draw the precision-recall curves of the test rows.

        Returns
        -------
        Picture
        """
        return plots.plot_precision_recall(self.diagnoses())

    def plot_threshold(self) -> Picture:
        """Draw the metric at every threshold, and the thresholds chosen.

        Returns
        -------
        Picture
        """
        return plots.plot_threshold(self.diagnoses(), self.metric)

    def plot_calibration(self) -> Picture:
        """Draw scores, taken as log-odds, against observed shares of positives.

        Returns
        -------
        Picture
        """
        return plots.plot_calibration(self.diagnoses())

    def plot_convergence(self, split: int | None = None) -> Picture:
        """Draw the metric on validation rows while training.

        Parameters
        ----------
        split : int, optional
            The seed of a split; by default the first.

        Returns
        -------
        Picture
            A matplotlib figure that a notebook shows.
        """
        wanted = self.splits[0] if split is None else split
        histories = {self.label(t.method): t.history for t in self.trials if t.split == wanted and t.history}
        if not histories:
            raise ValueError(f"split: expected one of {', '.join(map(str, self.splits))}, got {split!r}")
        return plot_convergence(histories, self.metric)

    @property
    def has_diagnoses(self) -> bool:
        """Whether there are two classes, whose scores have curves."""
        return all(trial.diagnosis is not None for trial in self.trials)

    def diagnoses(self) -> dict[str, list[Diagnosis]]:
        """Return the curves and counts of every method, split by split, by its label; only two classes have them.

        Returns
        -------
        dict of str to list of Diagnosis
        """
        if not self.has_diagnoses:
            raise ValueError(f"metric: expected one of two classes for curves, got {self.metric.name!r}")
        return {
            self.label(method): [trial.diagnosis for trial in self.of(method) if trial.diagnosis is not None]
            for method in self.methods
        }
