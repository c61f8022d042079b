"""What a competition found, as a table and in lines: which model, by which strategy, how far behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from metricgrad.metrics.registry import Metric
from metricgrad.training.history import in_words
from metricgrad.training.networks import MIXTURE

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import Candidate

NOT_TRIED = "not tried: training was stopped before"


def leaderboard(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the records of a competition as a table."""
    units = ["units"] if results and "units" in results[0] else []
    names = ["model", "methods", *units, "value", "behind", "standard_error", "folds", "seconds", "calls", "note"]
    table: pd.DataFrame = pd.DataFrame({name: [line[name] for line in results] for name in names})
    table["calls"] = table["calls"].astype(float)  # NaN where calls are not counted, though they may be so nowhere
    return table


def strategy_of(candidate: Candidate) -> str:
    """Return how a candidate was trained, in plain words; of a mixture, what it consists of."""
    if candidate.mixed:
        return f"a mixture ({candidate.methods})"
    counts = candidate.kept_methods
    if len(counts) < 2:
        return in_words(next(iter(counts), candidate.strategy.name))
    (first, most), *others = counts.most_common()
    return ", ".join([f"{in_words(first)} in {most} folds", *(f"{in_words(name)} in {n}" for name, n in others)])


def titles(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return what the candidates are called, `linear by direct search`; with units where there are several."""
    units = len({line.get("units") for line in results}) > 1
    return [_title(line) + (f" in {line['units']} units" if units else "") for line in results]


def _title(line: dict[str, Any]) -> str:
    return str(line["strategy"]) if line["model"] == MIXTURE else f"{line['model']} by {line['strategy']}"


def ranked(results: Sequence[dict[str, Any]], metric: Metric) -> list[str]:
    """Return what was chosen and how far the others are behind, a line each; one for all of a model not tried."""
    names = titles(results)
    lines = [f"{names[0]} was chosen: {metric.label} {results[0]['value']:.4f} on held-out rows"]
    for name, line in zip(names[1:], results[1:], strict=True):
        if line["note"] == NOT_TRIED:
            continue
        known = line["behind"] == line["behind"]
        gap = f"behind by {line['behind']:.4f} (standard error {line['standard_error']:.4f})" if known else ""
        lines.append(f"{name}: {', '.join(part for part in (gap, line['note']) if part)}")
    return lines + _not_tried(results)


def _not_tried(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each model that was not tried, or not by some strategies."""
    left = [line for line in results if line["note"] == NOT_TRIED]
    every, counts = (Counter(line["model"] for line in some) for some in (results, left))
    lines = []
    for model, count in counts.items():
        names = dict.fromkeys(line["strategy"] for line in left if line["model"] == model)
        lines.append(f"{model}{'' if count == every[model] else ' by ' + ', '.join(names)}: {NOT_TRIED}")
    return lines
