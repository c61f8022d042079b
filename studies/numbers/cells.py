"""What is stored of the study of numbers, cell by cell: values on test rows, seed by seed, and gains."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from studies.numbers.run import CELLS, FINES, FOLDS, RESULTS

TITLES = {
    ("bikes", "step_cost(5,1,10)"): "bikes, cost",
    ("bikes", FINES): "bikes, fines",
    ("king_county", "within(0.1)"): "houses, within 10 %",
    ("diamonds", "within(0.05)"): "diamonds, within 5 %",
    ("diamonds", "within(0.1)"): "diamonds, within 10 %",
    ("flights", "within_units(5)"): "flights, within 5 minutes",
    ("flights", "within_units(15)"): "flights, within 15 minutes",
}
OURS = {"linear": "Linear model", "mlp": "Network"}
USUAL, BY_HAND, CHOSEN = "squared error", "best loss by hand", "chosen"
LONGER, WITHOUT = "best loss by hand, longer", "without the surrogate"
SURROGATE, MIXED = "surrogate", "surrogate, averaged with by hand"
ONE_SPLIT = " (one split)"
COSTS = [cell for cell in CELLS if cell[0] == "bikes"]
"""Where less is better."""


def outcomes(path: Path = RESULTS, folded: bool = True) -> pd.DataFrame:
    """Return a row for every kind of strategy of every stored run on folds, or of the older ones on one split."""
    rows = [
        {**record["run"], "kind": kind, **value, "learned": record["validation"], "cpu": record.get("cpu_seconds")}
        for record in Store(path)
        for kind, value in record["values"].items()
        if (record["run"].get("folds") == FOLDS) == folded
    ]
    return pd.DataFrame(rows)


def latest(path: Path = RESULTS) -> pd.DataFrame:
    """Return the rows of the runs on folds, and of the older ones where a cell has no others by that model."""
    now, before = outcomes(path), outcomes(path, folded=False)
    if now.empty or before.empty:
        return before if now.empty else now
    names = ["dataset", "metric", "model"]
    known = set(now[names].itertuples(index=False, name=None))
    left = [each not in known for each in before[names].itertuples(index=False, name=None)]
    return pd.concat([now, before[left]], ignore_index=True)


def measured(found: pd.DataFrame, model: str) -> dict[tuple[str, str], str]:
    """Return the titles of the cells that a model was trained on, with a mark where that was on one split."""
    titles = {}
    for cell, title in TITLES.items():
        if len(of(found, cell, model, CHOSEN)):
            folds = of(found, cell, model, CHOSEN, "folds") if "folds" in found else pd.Series([float("nan")])
            titles[cell] = title if folds.eq(FOLDS).all() else f"{title}{ONE_SPLIT}"
    return titles


def of(found: pd.DataFrame, cell: tuple[str, str], model: str, kind: str, column: str = "test") -> pd.Series:
    """Return the values of a cell, seed by seed."""
    same = (found["dataset"] == cell[0]) & (found["metric"] == cell[1])
    chosen = found[same & (found["model"] == model) & (found["kind"] == kind)]
    return chosen.set_index("seed")[column].sort_index()


def gain(found: pd.DataFrame, cell: tuple[str, str], model: str, over: str, kind: str = CHOSEN) -> pd.Series:
    """Return by how much a kind is better than another on test rows, seed by seed, in units of the metric."""
    sign = 1 if get_metric(cell[1]).higher_is_better else -1
    return (sign * (of(found, cell, model, kind) - of(found, cell, model, over))).dropna()


def written(values: pd.Series, cell: tuple[str, str], signed: bool = False) -> str:
    """Write mean and standard error: shares in percent, costs as they are."""
    if not len(values):
        return "-"
    scale, digits = (1, 2) if cell in COSTS else (100, 1)
    mean = f"{scale * values.mean():{'+' if signed else ''}.{digits}f}"
    return f"{mean} ± {scale * values.sem():.{digits}f}" if len(values) > 1 else mean
