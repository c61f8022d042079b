"""Many fits in one process: memory, tensors, threads and open files are no more after the last than after the first."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metricgrad import MetricClassifier, Recipe, TableClassifier, load, save
from studies.reliability.tables import TARGET, small_table
from studies.reliability.verdicts import UNCLEAN, USED, Verdict
from studies.reliability.workers import as_record, memory

CASES, SECONDS, PEAK_MB = 1, 1_800.0, 1_024
"""One case of many fits, and the most seconds and memory it may take."""
FITS, WARM, EVERY = 300, 60, 5
"""How many fits there are, how many come before the first that counts, and after how many one looks what is held."""
SLOPE_KB = 50.0
"""The most memory a fit may leave behind, in KB, on average; one surrogate that is not let go is 80."""
METRICS = ("f1", "average_precision", "mcc")
METHODS = ("sl-r", "cross-entropy", "sl-s")
QUICK = Recipe(warmup=5, rounds=2)


def prepare(work: Path) -> None:
    """Nothing is needed."""


def attempt(work: Path, seed: int, case: int, fits: int = FITS) -> Mapping[str, Any]:
    """Fit over and over, and see what is left behind."""
    torch.set_num_threads(1)
    warm, every = min(WARM, fits // 3), min(EVERY, max(1, fits // 10))
    seen: list[dict[str, int]] = []
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="metricgrad-attack-") as folder:
        warnings.simplefilter("ignore")
        for number in range(fits):
            fit_once(seed + number, Path(folder))
            if number >= warm and number % every == 0:
                seen.append(held())
    return judged(seen, fits, every)


def judged(seen: list[dict[str, int]], fits: int, every: int = 1) -> Mapping[str, Any]:
    """Return what is kept of counts taken every few fits: the slope of the memory, and by how much the others grew."""
    slope = float(np.polyfit(every * np.arange(len(seen)), [one["kb"] for one in seen], 1)[0])
    grown = {what: max(one[what] for one in seen[-10:]) - max(one[what] for one in seen[:10]) for what in seen[0]}
    more = {what: count for what, count in grown.items() if what != "kb" and count > 0}
    wrong = [f"{count} more {what}" for what, count in more.items()]
    wrong += [f"{slope:.1f} KB a fit"] if slope > SLOPE_KB else []
    verdict = Verdict(UNCLEAN, ", ".join(wrong)) if wrong else Verdict(USED)
    figures = {"slope_kb": round(slope, 2), "mb_first": seen[0]["kb"] // 1024, "mb_last": seen[-1]["kb"] // 1024}
    return as_record("fits", verdict, fits=fits, **figures, more={what: grown[what] for what in grown if what != "kb"})


def fit_once(number: int, folder: Path) -> None:
    """Fit a model of one kind or another, and now and then save it, load it and predict."""
    rng = np.random.default_rng(number)
    metric, method = METRICS[number % len(METRICS)], METHODS[number // 3 % len(METHODS)]
    if number % 4:
        X = rng.normal(size=(150, 4))
        y = (X[:, 0] + rng.normal(size=150) > 0.5).astype(int)
        MetricClassifier(metric, method, "linear", QUICK).fit(X, y).decision_function(X)
        return
    frame = small_table(seed=number)
    model = TableClassifier(metric, method, "linear", QUICK).fit(frame, TARGET)
    load(save(model, folder / "model")).predict(frame)


def held() -> dict[str, int]:
    """Count what the process holds: KB of memory, tensors, threads and open files."""
    gc.collect()
    tensors = sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return {"kb": memory(), "tensors": tensors, "threads": threading.active_count(), "files": files}
