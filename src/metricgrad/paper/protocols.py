"""Protocols: how a run is scored, as in the paper's tables (`paper`) or without looking at test rows (`honest`).

A protocol defines how a model is scored, a recipe how it is trained. Protocols are never mixed in one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metricgrad.metrics.registry import Metric, checked_sets, error_rate, get_metric
from metricgrad.metrics.thresholds import best_threshold

PERCENTILES = tuple(range(100))
"""Where the authors' program searches a threshold: never above the 99th, so that 1 % is always predicted positive."""


class Scored(NamedTuple):
    """Scores and targets of some rows, each `(n,)`."""

    scores: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Protocol:
    """How a run is scored: `(metric, validation, test)` -> threshold, and metrics measured `instead` of those named.

    >>> validation = [0.1, 0.4, 0.8], [0, 1, 1]
    >>> test = [0.2, 0.3, 0.9], [0, 1, 1]
    >>> PROTOCOLS["honest"].score("f1", *validation, *test)
    0.0
    """

    name: str
    explanation: str
    threshold: Callable[[Metric, Scored, Scored], float] = field(repr=False)
    instead: Mapping[str, Metric] = field(default_factory=dict, repr=False, hash=False)

    def measured(self, metric: Any) -> Metric:
        """Return what is measured under the name of a metric, in training and in scoring."""
        metric = get_metric(metric)
        return self.instead.get(metric.name, metric)

    def score(
        self, metric: Any, validation_scores: Any, validation_targets: Any, test_scores: Any, test_targets: Any
    ) -> float:
        """Return the loss of the test rows at the threshold of the protocol; scores and targets are `(rows,)`."""
        measured = self.measured(metric)
        validation, test = _scored(validation_scores, validation_targets), _scored(test_scores, test_targets)
        threshold = self.threshold(measured, validation, test) if measured.thresholded else 0.0
        return float(measured(test.scores - threshold, test.targets))


def best_percentile(metric: Metric, validation: Scored, test: Scored) -> float:
    """Return the best of the percentiles 0 to 99 of the test scores, by the test labels."""
    thresholds = np.unique(np.percentile(test.scores.numpy(), PERCENTILES))
    rows = _binned(test, thresholds) if metric.takes_weights else (*test, None)
    return float(min(thresholds, key=lambda t: float(metric(rows[0] - t, *rows[1:]))))


def _binned(rows: Scored, thresholds: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Return a few weighted rows that lose as much as all rows at any threshold: one per class between two of them.

    Each row moves down to the threshold below it; no row is below the first, the lowest score.
    """
    place = np.searchsorted(thresholds, rows.scores.numpy(), side="right").clip(1) - 1
    counts = np.bincount(2 * place + rows.targets.numpy().astype(int), minlength=2 * len(thresholds))
    scores = torch.as_tensor(thresholds).repeat_interleave(2)
    return scores, torch.tensor([0.0, 1.0]).repeat(len(thresholds)), torch.as_tensor(counts, dtype=torch.float64)


def chosen_on_validation(metric: Metric, validation: Scored, test: Scored) -> float:
    """Return the exact best threshold of the validation rows; test rows are not used."""
    return best_threshold(metric, *validation)


def _scored(scores: Any, targets: Any) -> Scored:
    scores, targets, _ = checked_sets(scores, targets)
    if scores.ndim != 1 or not len(scores):
        raise ValueError(f"scores: expected at least one row, (n,), got the shape {tuple(scores.shape)}")
    return Scored(scores.detach().cpu().double(), targets.cpu())


PROTOCOLS = {
    "paper": Protocol(
        "paper",
        "As the authors' program scored: best of 100 percentiles of the test rows themselves, accuracy for Jaccard.",
        best_percentile,
        instead={"jaccard": error_rate},
    ),
    "honest": Protocol(
        "honest",
        "Threshold chosen exactly, on validation rows only; true Jaccard.",
        chosen_on_validation,
    ),
}


def get_protocol(spec: Protocol | str) -> Protocol:
    """Return a protocol by name or as given."""
    if isinstance(spec, Protocol):
        return spec
    if spec not in PROTOCOLS:
        raise ValueError(f"protocol: expected one of {', '.join(PROTOCOLS)} or a Protocol, got {spec!r}")
    return PROTOCOLS[spec]
