"""A short demonstration that tests look at: every twelfth day, two splits, few rounds."""

from __future__ import annotations

from functools import cache

import numpy as np

from metricgrad import Recipe
from metricgrad.demo.bikes import Bikes, load_bikes
from metricgrad.demo.trial import DemoResult, run_demo

SHORT = Recipe(warmup=60, rounds=3, set_size=100, refine_sets=2, trust=-1.0, trust_cap=20, check_every=2)
REPORTS: list[tuple[str, int, int]] = []
"""What the demonstration has said of its progress."""


def few_days() -> Bikes:
    """Return the hours of every twelfth day."""
    X, y, day = load_bikes()
    some = np.flatnonzero(day % 12 == 0)
    return Bikes(X.iloc[some].reset_index(drop=True), y[some], day[some])


@cache
def short_demo() -> DemoResult:
    """Run it, once in a process."""
    return run_demo(3, few_days(), splits=2, recipe=SHORT, report=lambda *given: REPORTS.append(given))
