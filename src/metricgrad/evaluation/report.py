"""The page of a comparison: the verdict, the metric by method, and the evidence behind it, in one file."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from markupsafe import Markup
from scipy.stats import spearmanr

from metricgrad._version import __version__
from metricgrad.evaluation import plots
from metricgrad.evaluation.choices import choices_table
from metricgrad.evaluation.statistics import signed
from metricgrad.files import write_whole
from metricgrad.reporting.html import render_page
from metricgrad.reporting.plots import PANELS, history_frame, inline_svg, plot_training
from metricgrad.reporting.tables import ResultTable, Shown, as_html, number, result_frame

if TYPE_CHECKING:
    from metricgrad.evaluation.comparison_result import ComparisonResult

MAX_POINTS = 60
"""Points of a training curve on a page."""
DASH_CLASSES = ("solid", "dashed", "dotted", "dashed")
"""How a style sheet calls the dashes of series."""


def write_comparison(result: ComparisonResult, path: str | Path, command: str = "") -> None:
    """Write one page about a comparison.

    Parameters
    ----------
    result : ComparisonResult
        What `compare` returned.
    path : path
        The page to write; its folder is created.
    command : str
        The command that makes it again, shown on the page.
    """
    title = f"{result.metric.label} on {result.name}: was it worth it?"
    text = render_page(
        "comparison.html",
        f"metricgrad: {title}",
        styles=("style.css", "report.css"),
        scripts=("page.js", "sort.js", "charts.js"),
        heading=title,
        result=result,
        facts=_comparison_facts(result),
        picks=picks(plots.method_numbers([result.label(method) for method in result.methods])),
        charts=charts(result),
        methods=as_html(methods_table(result), id="methods"),
        choices=None if (chosen := choices_table(result)) is None else as_html(chosen, id="chosen-table"),
        test_to_train=result.test / (1 - result.test),
        followed=sum(trial.followed for trial in result.of(result.methods[0])),
        confusions=[_confusion_cells(result, method) for method in result.methods] if result.has_diagnoses else [],
        fidelity=_fidelity_table(result),
        made=_made(result),
        command=command,
    )
    write_whole(path, text)


def picks(numbers: Mapping[str, int]) -> list[dict[str, str]]:
    """Return what a page needs to let readers choose series: name, number in the palette, dashes."""
    dashes = [DASH_CLASSES[i // 3 % len(DASH_CLASSES)] for i in numbers.values()]
    return [{"name": n, "colour": str(i), "dash": d} for (n, i), d in zip(numbers.items(), dashes, strict=True)]


def _comparison_facts(result: ComparisonResult) -> dict[str, str]:
    return {
        "rows": f"{result.rows:,}",
        **({"positive": f"{result.positives / result.rows:.1%}"} if result.has_diagnoses else {}),
        **({"classes": f"{len(result.classes):,}"} if len(result.classes) > 2 else {}),
        "columns": f"{result.features:,}",
        "splits": f"{len(result.splits)}",
        "minutes of training": f"{sum(trial.seconds for trial in result.trials) / 60:,.1f}",
    }


# ---- charts --------------------------------------------------------------------------------------------------------


def charts(result: ComparisonResult) -> dict[str, Markup]:
    """Return the charts of a page by name; those that a comparison has no data for are left out."""
    metric, label = result.metric, result.metric.label
    values = {result.label(method): result.values(method) for method in result.methods}
    gains = {result.label(method): gain for method, gain in result.intervals.items()}
    ours, numbers = result.label(result.methods[0]), plots.method_numbers([*values])
    means = ", ".join(f"{name} {own.mean():.3f}" for name, own in values.items())
    drawn = {
        "metric": (plots.plot_metric(values, metric), f"{label} by method: {means}"),
        "ahead": (plots.plot_ahead(gains, metric, ours, numbers), f"Lead of {ours} over each baseline in {label}"),
        "training": (_training(result, numbers), f"{label} on validation rows, loss and gap against model steps"),
    }
    if result.has_diagnoses:
        shown = result.diagnoses()
        drawn["roc"] = plots.plot_roc(shown), "ROC curves of the test rows"
        drawn["precision"] = plots.plot_precision_recall(shown), "Precision-recall curves of the test rows"
        calibration = "Calibration: scores taken as log-odds, and what happened"
        drawn["calibration"] = plots.plot_calibration(shown), calibration
        if metric.thresholded:
            drawn["threshold"] = plots.plot_threshold(shown, metric), f"{label} at every threshold, and those chosen"
    pairs = {result.label(method): found for method, found in _fidelity_by_method(result).items()}
    if pairs:
        drawn["fidelity"] = plots.plot_fidelity(pairs, metric, numbers), "True loss of fresh sets, and the surrogate's"
    return {name: inline_svg(figure, name, text) for name, (figure, text) in drawn.items()}


def _training(result: ComparisonResult, numbers: dict[str, int]) -> Any:
    metric, better = result.metric, result.metric.higher_is_better
    runs = {
        result.label(method): [history_frame(trial.history, metric) for trial in result.of(method) if trial.history]
        for method in result.methods
    }
    titles = PANELS | {"validation": f"{metric.label} on validation rows"}
    trained = {name: own for name, own in runs.items() if own}
    return plot_training(trained, titles, higher_is_better=better, numbers=numbers, points=MAX_POINTS)


def _fidelity_by_method(result: ComparisonResult) -> dict[str, np.ndarray]:
    """Return true losses and those of the surrogate on fresh sets, (2, sets) for every method that has them."""
    found = {m: [t.fidelity for t in result.of(m) if t.fidelity is not None] for m in result.methods}
    return {method: np.concatenate(pairs, axis=1) for method, pairs in found.items() if pairs}


# ---- tables --------------------------------------------------------------------------------------------------------


def methods_table(result: ComparisonResult) -> ResultTable:
    """Return every method as a row: mean and spread of the metric, the lead of the first, threshold, seconds."""
    metric, ours = result.metric, result.label(result.methods[0])
    better = "higher" if metric.higher_is_better else "lower"
    columns = [
        ("method", ""),
        (metric.label, f"mean, {better} is better"),
        ("spread", "over splits"),
        (f"{ours} minus it", "mean"),
        ("95 % interval", "of that"),
        *([("threshold", "mean")] if result.has_diagnoses else []),
        ("seconds", "per split"),
    ]
    means = {method: result.values(method).mean() for method in result.methods}
    best = (max if metric.higher_is_better else min)(means.values())
    rows = [_method_row(result, method, bool(means[method] == best)) for method in result.methods]
    title = f"{metric.label} on test rows, {len(result.splits)} splits"
    return ResultTable(title, result_frame(rows, columns))


def _method_row(result: ComparisonResult, method: str, best: bool) -> list[Shown]:
    values, gain, trials = result.values(method), result.intervals.get(method), result.of(method)
    lead = [Shown("", float("nan"))] * 2
    if gain:
        ahead, low, high = signed(result.metric, gain)
        tone = "" if not gain.reliable else "better" if gain.better else "worse"
        lead = [Shown(ahead, gain.mean, tone=tone), Shown(f"{low} to {high}", gain.low)]
    return [
        Shown(result.label(method)),
        number(values.mean(), ".4f", best=best),
        number(values.std(ddof=1), ".4f"),
        *lead,
        *([number(float(np.mean([t.threshold for t in trials])), ".3g")] if result.has_diagnoses else []),
        number(float(np.mean([trial.seconds for trial in trials])), ".1f"),
    ]


def _fidelity_table(result: ComparisonResult) -> Markup | None:
    rows = []
    for method, (true, learned) in _fidelity_by_method(result).items():
        agree = float(spearmanr(true, learned).statistic) if np.ptp(true) and np.ptp(learned) else None
        last = (_last_round(result, method, name) for name in ("trust", "cosine"))
        values = (float(np.abs(true - learned).mean()), agree, *last)
        rows.append([Shown(result.label(method)), *(number(value, ".4f") for value in values)])
    columns = [
        ("method", ""),
        ("gap", "mean |true - surrogate|"),
        ("Spearman", "of these sets"),
        ("trust", "at the end of training"),
        ("cosine", "of gradients, then"),
    ]
    return as_html(ResultTable("Surrogate against metric", result_frame(rows, columns)), classes="") if rows else None


def _last_round(result: ComparisonResult, method: str, name: str) -> float | None:
    """Return the mean over splits of a measurement of the last round; None if there is none."""
    last = [getattr(trial.history[-1], name) for trial in result.of(method) if trial.history]
    return float(np.nanmean(last)) if np.isfinite(last).any() else None


def _confusion_cells(result: ComparisonResult, method: str) -> dict[str, Any]:
    every = zip(*(one.confusion for one in result.diagnoses()[result.label(method)]), strict=True)
    tp, fp, fn, tn = (int(sum(counts)) for counts in every)
    rows = [
        (label, [(count, count / max(sum(counts), 1)) for count in counts])
        for label, counts in zip(result.classes, ((tn, fp), (fn, tp)), strict=True)
    ]
    return {
        "method": result.label(method),
        "recall": tp / max(tp + fn, 1),
        "precision": tp / max(tp + fp, 1),
        "rows": rows,
    }


def _made(result: ComparisonResult) -> dict[str, Any]:
    return {
        "Model": f"{result.model}, recipe {result.recipe}, the same for every network",
        "Splits": f"seeds {', '.join(map(str, result.splits))}; {result.test:.0%} of the rows are test rows, "
        f"{result.validation:.0%} of the others validation rows, the rest training rows",
        "Versions": f"metricgrad {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        "Table": list(result.remarks),
    }
