"""Tables of the page about readable models: one model against another, by metric."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from studies.pages import count_range, markdown, titled
from studies.readable.cells import MODELS, ahead, at, cells, label


def mean_error(values: pd.Series) -> str:
    """Write a mean and its standard error in percent."""
    return f"{100 * values.mean():+.1f} ± {100 * values.sem():.1f}"


def comparison(found: pd.DataFrame, own: str, other: str, metrics: Iterable[str]) -> str:
    """Write a table: by metric, how much of the loss a model saves against another, and where it is ahead."""
    both, rows = cells(found, own, other), []
    metrics = list(metrics)
    for metric in (*metrics, "all"):
        some = both[both.index.get_level_values("metric").isin(metrics)] if metric == "all" else at(both, metric)
        if len(some) < 2 or (metric == "all" and len(rows) < 2):
            continue
        per_table = some["saved"].groupby(level="table").mean()  # metrics of a table are not independent
        wins, defeats = (some["own"] < some["other"]).sum(), (some["own"] > some["other"]).sum()
        name = "**all**" if metric == "all" else label(metric)
        rows.append([name, mean_error(per_table), f"{wins} : {defeats}", f"{100 * ahead(some):.0f} %"])
    head = ["metric", "loss saved, % (mean ± SE over tables)", "ahead : behind", "ahead in"]
    seeds = count_range(both["seeds"]) if rows else ""
    title = f"{MODELS[own]} against {MODELS[other]}; seeds of a cell: {seeds}"
    return titled(title, markdown(head, rows)) if rows else ""
