"""True losses of sets, `(..., n)`, in [0, 1]: exact, weighted, never NaN."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a metric or a function of the registry: `metricgrad.metrics.f1`."""
    from importlib import import_module

    if name.startswith("_"):
        raise AttributeError(f"module 'metricgrad.metrics' has no attribute {name!r}")
    return getattr(import_module("metricgrad.metrics.registry"), name)
