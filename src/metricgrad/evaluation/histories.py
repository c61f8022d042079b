"""Histories for a page: thinned to what a screen can show and a page can carry, steps that are alike kept once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metricgrad.evaluation.records import Record, Setting

NUMBERS = 250_000
"""How many numbers of histories a page may carry in all, about 2 MB."""
MOST, LEAST = 120, 12
"""Points of one history at most, and at least."""
SERIES = {"v": "validation", "l": "loss", "q": "gap"}
"""Series by their names in the page."""


def thin_histories(records: Sequence[Record], settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the histories of first runs: `runs`, and `grids`, the steps they are given at."""
    kept = [record for record in records if record.replicate == 0 and (record.kept.get("history") or {}).get("steps")]
    most = min(MOST, max(LEAST, NUMBERS // max(1, len(kept) * len(SERIES))))
    grids: dict[tuple[float, ...], int] = {}
    runs = []
    for record in kept:
        history = record.kept["history"]
        rows = _chosen(history, most)
        grid = grids.setdefault(tuple(history["steps"][i] for i in rows), len(grids))
        series = {short: [_brief(_at(history, name, i)) for i in rows] for short, name in SERIES.items()}
        named = {"s": settings.index(record.setting), "d": record.dataset, "m": record.metric, "k": record.method}
        runs.append({**named, "seed": record.seed, "g": grid, "b": _best(history), **series})
    return {"grids": [list(grid) for grid in grids], "runs": runs}


def _at(history: Mapping[str, Any], name: str, row: int) -> float | None:
    values = history.get(name) or ()
    value = values[row] if row < len(values) else None
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _chosen(history: Mapping[str, Any], most: int) -> list[int]:
    """Choose rows evenly, among those whose validation loss is known if any is."""
    every = range(len(history["steps"]))
    rows = [i for i in every if _at(history, "validation", i) is not None] or list(every)
    return [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))]


def _best(history: Mapping[str, Any]) -> list[float] | None:
    """Return step and loss of the least validation loss."""
    losses = [_at(history, "validation", i) for i in range(len(history["steps"]))]
    known = [(loss, step) for loss, step in zip(losses, history["steps"], strict=True) if loss is not None]
    if not known:
        return None
    loss, step = min(known)
    return [step, float(f"{loss:.5g}")]


def _brief(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
