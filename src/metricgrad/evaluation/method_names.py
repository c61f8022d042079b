"""How people write the names of methods and metrics."""

from __future__ import annotations

from metricgrad.metrics.registry import get_metric

NAMES = {
    "sl-u": "SL-U",
    "sl-r": "SL-R",
    "sl-s": "SL-S",
}
"""How methods are written; others as they are called."""


def method_label(method: str) -> str:
    """Return how people write a method."""
    return NAMES.get(method, method)


def metric_label(metric: str) -> str:
    """Return how people write a metric; the name itself if it is not one of ours."""
    try:
        return get_metric(metric).label
    except ValueError:
        return metric
