"""Probabilities from a model folder: every number is checked before anything is built from it."""

from __future__ import annotations

from itertools import pairwise

from metricgrad.estimators.probabilities import Probabilities
from metricgrad.tabular.manifest import Field
from metricgrad.training.calibration import MAX_STEPS, Calibration


def read_probabilities(entry: Field, outputs: int = 1, labels: bool = False) -> Probabilities:
    """Return how scores become probabilities: one calibration of two classes, else one for each class or label."""
    count = 1 if outputs == 2 and not labels else outputs
    if entry["labels"].flag() != labels:
        entry["labels"].refuse("true for several labels, else false")
    stored = list(entry["calibrations"].items(count))
    if len(stored) != count:
        entry["calibrations"].refuse(f"{count}")
    calibrations = tuple(_calibration(each) for each in stored)
    scores = (entry[name].number() for name in ("brier", "base_brier"))
    return Probabilities(calibrations, labels, entry["rows"].count(), *scores)


def _calibration(entry: Field) -> Calibration:
    """Return a calibration by which a higher score never has a lower probability."""
    steps = {name: _rising(entry[name]) for name in ("points", "levels") if name in entry}
    lines = {name: entry[name].number() for name in ("slope", "intercept") if name in entry}
    if not lines.get("slope", 0.0) > 0:
        entry["slope"].refuse("a number above 0")
    try:
        return Calibration.from_dict({**lines, **steps})
    except ValueError as error:
        raise ValueError(f"{entry.place}.{error}") from error


def _rising(entry: Field) -> list[float]:
    numbers = [each.number() for each in entry.items(MAX_STEPS)]
    if any(later < earlier for earlier, later in pairwise(numbers)):
        entry.refuse("numbers that do not fall")
    return numbers
