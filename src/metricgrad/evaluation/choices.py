"""What was chosen on each split where strategies competed, on what evidence, and what everything tried there cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from metricgrad.reporting.tables import ResultTable, Shown, number, result_frame
from metricgrad.training.history import Verdict, in_words

if TYPE_CHECKING:
    from metricgrad.evaluation.comparison_result import ComparisonResult, Trial

CHOICE = ["split", "method", "kept", "compared_with", "gain", "standard_error", "rows", "positives", "note"]
COST = ["split", "method", "name", "seconds", "calls"]


def choices_frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """Return what was kept on each split, a row for each trial that was chosen among several."""
    rows = [_choice(trial, trial.verdict) for trial in trials if trial.verdict is not None]
    found: pd.DataFrame = pd.DataFrame(rows, columns=CHOICE)
    return found


def _choice(trial: Trial, verdict: Verdict) -> list[object]:
    other, proxy = in_words(verdict.strategy), verdict.proxy
    kept, compared = (other, proxy) if verdict.followed else (proxy, other)
    gain = verdict.unit * verdict.gain * (1 if verdict.followed else -1)
    note = verdict.note or verdict.detail
    known = verdict.rows or math.nan, verdict.positives or math.nan
    return [trial.split, trial.method, kept, compared, gain, verdict.unit * verdict.error, *known, note]


def costs_frame(trials: Sequence[Trial]) -> pd.DataFrame:
    """Return what was tried on each split and what each cost; calls are NaN where they are not counted."""
    rows = [
        [trial.split, trial.method, each.name, each.seconds, math.nan if each.calls is None else each.calls]
        for trial in trials
        if trial.verdict is not None
        for each in trial.verdict.tried
    ]
    found: pd.DataFrame = pd.DataFrame(rows, columns=COST)
    found["calls"] = found["calls"].astype(float)
    return found


def choices_table(result: ComparisonResult) -> ResultTable | None:
    """Return what was chosen as a table for pages; None where nothing competed."""
    verdicts = [trial.verdict for trial in result.trials if trial.verdict is not None]
    if not verdicts:
        return None
    columns = [
        ("split", "seed"),
        ("kept", ""),
        ("compared with", "the usual loss, or the best other"),
        ("gain", f"in {result.metric.label}"),
        ("standard error", "of that"),
        ("rows", "held out"),
        ("positives", "of them, or of the rarer class"),
        ("tried", "seconds and calls of the metric"),
    ]
    lines = choices_frame(result.trials).to_dict("records")
    rows = [
        [
            number(line["split"], "d"),
            Shown(line["kept"], small=line["note"]),
            Shown(line["compared_with"] or "-"),
            number(line["gain"], "+.4f"),
            number(line["standard_error"], ".4f"),
            number(line["rows"], ",.0f"),
            number(line["positives"], ",.0f"),
            Shown(", ".join(map(str, verdict.tried)) or "-"),
        ]
        for line, verdict in zip(lines, verdicts, strict=True)
    ]
    attributes: list[dict[str, str]] = [{} for _ in columns]
    attributes[-1] = {"style": "text-align: left; min-width: 22rem"}  # the only column of sentences
    frame = result_frame(rows, columns)
    return ResultTable("What was chosen on held-out rows", frame, column_attributes=attributes)
