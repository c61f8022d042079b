"""The charts on the page of a contest, as data for its script: curves of every split behind their mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricgrad.evaluation.comparison_result import ComparisonResult
from metricgrad.evaluation.diagnostics import RECALLS, SHARES, Diagnosis
from metricgrad.evaluation.records import Record, Setting
from metricgrad.evaluation.training_panel import training_data

Array = NDArray[Any]
DIGITS = 4


def chart_data(contest: ComparisonResult) -> dict[str, Any]:
    """Return all that the scripts of the page draw from."""
    metric, setting = contest.metric, Setting(contest.model, contest.recipe)
    records = [_record(contest, trial, setting) for trial in contest.trials]
    data = training_data(records, [setting])
    for run in data["runs"]:  # people are shown the metric they know
        run["v"] = [None if loss is None else _brief(metric.value(loss)) for loss in run["v"]]
        run["b"] = run["b"] and [run["b"][0], _brief(metric.value(run["b"][1]))]
    data["labels"]["method"] = {method: contest.label(method) for method in contest.methods}
    data["labels"]["metric"][metric.name] = metric.label
    titles = {"validation": f"{metric.label} on validation rows", "kept": f"best {metric.label} on validation rows"}
    return {**data, "titles": titles, "methods": list(contest.methods), "charts": charts(contest)}


def _record(contest: ComparisonResult, trial: Any, setting: Setting) -> Record:
    names = ("steps", "validation", "loss", "gap")
    history = {name: [getattr(done, name) for done in trial.history] for name in names}
    kept = {"history": history}
    return Record(contest.name, contest.metric.name, trial.method, setting, trial.split, 0, kept)


def charts(contest: ComparisonResult) -> dict[str, Any]:
    """Return every chart by name; those that this contest has nothing for are left out."""
    found = {
        "metric": _metric(contest),
        "ahead": _ahead(contest),
        "roc": _roc(contest),
        "precision": _precision(contest),
        "threshold": _threshold(contest) if contest.metric.thresholded else None,
        "calibration": _calibration(contest),
        "fidelity": _fidelity(contest),
    }
    return {name: chart for name, chart in found.items() if chart}


# ---- rows ----------------------------------------------------------------------------------------------------------


def _metric(contest: ComparisonResult) -> dict[str, Any]:
    values = {method: contest.values(method) for method in contest.methods}
    every = np.concatenate(list(values.values()))
    means = ", ".join(f"{contest.label(m)} {own.mean():.3f}" for m, own in values.items())
    return {
        "rows": True,
        "x": contest.metric.label,
        "y": "Test rows: a dot a split, a bar at the mean",
        "xs": _wide(every.min(), every.max()),
        "digits": 3,
        "said": f"{contest.metric.label} by method: {means}",
        "of": [{"k": m, "values": _list(own), "mean": _brief(own.mean())} for m, own in values.items()],
    }


def _ahead(contest: ComparisonResult) -> dict[str, Any]:
    """Return the differences as people know the metric, so that a gain in an error rate is on the left."""
    sign = 1 if contest.metric.higher_is_better else -1
    spans = {
        method: sorted((sign * gain.low, sign * gain.mean, sign * gain.high))
        for method, gain in contest.intervals.items()
    }
    ends = [end for span in spans.values() for end in span]
    ours = contest.label(contest.methods[0])
    return {
        "rows": True,
        "zero": True,
        "x": f"{contest.metric.label} of {ours} minus that of the rival",
        "y": "Mean difference and its 95 % interval",
        "xs": _wide(min(0.0, *ends), max(0.0, *ends)),
        "digits": 3,
        "said": f"How far {ours} is ahead of each rival in {contest.metric.label}",
        "of": [{"k": m, "low": low, "mean": mean, "high": high} for m, (low, mean, high) in spans.items()],
    }


# ---- curves --------------------------------------------------------------------------------------------------------


def _roc(contest: ComparisonResult) -> dict[str, Any]:
    return {
        **_on_grid(contest, SHARES, lambda one: one.roc),
        "x": "false-alarm rate",
        "y": "Recall",
        "diagonal": True,
        "said": "ROC curves of the test rows",
    }


def _precision(contest: ComparisonResult) -> dict[str, Any]:
    return {
        **_on_grid(contest, RECALLS, lambda one: one.precision),
        "x": "recall",
        "y": "Precision",
        "said": "Precision-recall curves of the test rows",
    }


def _threshold(contest: ComparisonResult) -> dict[str, Any]:
    metric = contest.metric
    most = max(trial.diagnosis.called for trial in contest.trials)
    dots = [{"k": t.method, "x": _brief(t.diagnosis.called), "y": _brief(metric.value(t.loss))} for t in contest.trials]
    chart = _on_grid(contest, SHARES, lambda one: metric.value(one.losses))
    seen = [y for entry in chart["of"] for line in entry["lines"] for y in line["y"]]
    return {
        **chart,
        "x": "share of rows called positive",
        "y": metric.label,
        "xs": [0, min(1.0, 3 * most) or 1.0],
        "ys": _wide(min(seen), max(seen)),
        "dots": dots,
        "said": f"{metric.label} at every threshold; dots are the thresholds chosen on validation rows",
    }


def _calibration(contest: ComparisonResult) -> dict[str, Any]:
    def points(predicted: Array, observed: Array) -> dict[str, Any]:
        there = np.isfinite(predicted)
        return {"x": _list(predicted[there]), "y": _list(observed[there])}

    entries = []
    for method in contest.methods:
        own = [trial.diagnosis for trial in contest.of(method)]
        predicted, observed = (np.array([getattr(one, side) for one in own]) for side in ("predicted", "observed"))
        full = np.isfinite(predicted).all(0)
        mean = points(predicted[:, full].mean(0), observed[:, full].mean(0))
        lines = [points(*pair) for pair in zip(predicted, observed, strict=True)]
        entries.append({"k": method, "lines": lines, "mean": mean})
    return {
        "xs": [0, 1],
        "ys": [0, 1],
        "x": "score taken as a probability",
        "y": "Share of positives",
        "diagonal": True,
        "of": entries,
        "said": "Calibration: what scores would say as log-odds, and what happened",
    }


def _fidelity(contest: ComparisonResult) -> dict[str, Any] | None:
    """Return fresh sets as points: what the metric says of them, and what the surrogate does."""
    pairs = [
        (trial.method, *both) for trial in contest.trials if trial.fidelity is not None for both in trial.fidelity.T
    ]
    if not pairs:
        return None
    dots = [{"k": method, "x": _brief(true), "y": _brief(learned)} for method, true, learned in pairs]
    seen = [float(loss) for _, *both in pairs for loss in both]
    return {
        "xs": _wide(min(seen), max(seen)),
        "ys": _wide(min(seen), max(seen)),
        "x": f"true {contest.metric.label} loss of a set",
        "y": "Loss the surrogate says",
        "diagonal": True,
        "small": True,
        "of": [],
        "dots": dots,
        "said": "Fresh sets of validation rows: the true loss, and what the surrogate says",
    }


def _on_grid(contest: ComparisonResult, grid: Array, of: Callable[[Diagnosis], Array]) -> dict[str, Any]:
    entries = []
    for method in contest.methods:
        lines = np.array([of(trial.diagnosis) for trial in contest.of(method)])
        mean = {"y": _list(lines.mean(0))}
        entries.append({"k": method, "lines": [{"y": _list(line)} for line in lines], "mean": mean})
    return {"grid": _list(grid), "xs": [0, 1], "ys": [0, 1], "of": entries}


def _wide(low: float, high: float) -> list[float]:
    """Return a range with some room at both ends."""
    room = 0.06 * ((high - low) or abs(high) or 1.0)
    return [_brief(low - room, 6), _brief(high + room, 6)]


def _list(values: Sequence[float] | Array) -> list[float]:
    return [_brief(value) for value in values]


def _brief(value: float, digits: int = DIGITS) -> float:
    number = float(value)
    return round(number, digits) if math.isfinite(number) else 0.0
