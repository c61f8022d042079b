"""What is stored of the directions of surrogates, as tables: medians, 10 % quantiles and noise ceilings by set size."""

from __future__ import annotations

from typing import Any

import pandas as pd

from studies.pages import markdown

MIN_CEILING = 0.8
"""Cosine of the two halves of the probes below which a set says nothing about a direction."""
MIN_SLOPE = 0.0005
"""Change of the loss along the steepest probed direction below which a set has no direction worth following."""
MIN_SETS = 5
"""Judged sets below which no quantile is shown."""
BAR = 0.8
"""The 10 % quantile of the cosine that a surrogate should reach."""


def judged_sets(stored: dict[str, Any]) -> pd.DataFrame:
    """Return a row for every set: where it is from, cosine, ceiling and slope, and whether it has a direction."""
    sets = pd.DataFrame(stored["cells"])
    sets = sets.explode(["cosines", "ceilings", "slopes"]).astype(
        {"cosines": float, "ceilings": float, "slopes": float}
    )
    return sets.assign(judged=(sets["ceilings"] >= MIN_CEILING) & (sets["slopes"] >= MIN_SLOPE))


def quantiles(sets: pd.DataFrame) -> pd.DataFrame:
    """Return median, 10 % quantile, median ceiling and number of the sets with a direction, by metric and size."""
    kept = sets[sets["judged"]].groupby(["metric", "rows"], sort=False)
    found = pd.DataFrame(
        {
            "median": kept["cosines"].median(),
            "low": kept["cosines"].quantile(0.1),
            "ceiling": kept["ceilings"].median(),
            "sets": kept["cosines"].count(),
        }
    )
    return found.reindex(sets.groupby(["metric", "rows"], sort=False).size().index)


def direction_table(found: pd.DataFrame) -> str:
    """Return the table of a page: median / 10 % quantile (noise ceiling), and the sets that have a direction."""
    sizes = sorted(found.index.get_level_values("rows").unique())
    metrics = dict.fromkeys(found.index.get_level_values("metric"))
    rows = [
        [f"`{metric}`", *(_cell(found.loc[metric, size]) for size in sizes), f"{found.loc[metric]['sets'].sum():.0f}"]
        for metric in metrics
    ]
    return markdown(["metric", *(f"{size:,} rows" for size in sizes), "sets"], rows)


def _cell(found: pd.Series) -> str:
    if not found["sets"] >= MIN_SETS:
        return "-"
    return f"{found['median']:.2f} / {found['low']:.2f} ({found['ceiling']:.2f})"


def over_all_sizes(sets: pd.DataFrame) -> pd.Series:
    """Return the 10 % quantile of the cosine over the sets of all sizes, by metric; NaN of too few."""
    kept = sets[sets["judged"]].groupby("metric", sort=False)["cosines"]
    return kept.quantile(0.1).where(kept.count() >= MIN_SETS).reindex(sets["metric"].unique())


def reaching(lows: pd.Series) -> list[str]:
    """Return the metrics whose quantile reaches the bar."""
    return [f"`{metric}`" for metric in lows.index if lows[metric] >= BAR]


def by_group(sets: pd.DataFrame, column: str) -> str:
    """Return the table of median and 10 % quantile over all metrics, by table or by model."""
    kept = sets[sets["judged"]].groupby(column, sort=False)["cosines"]
    rows = [[str(name), f"{each.median():.2f}", f"{each.quantile(0.1):.2f}", f"{len(each):,}"] for name, each in kept]
    return markdown([column, "median", "10 %", "sets"], rows)
