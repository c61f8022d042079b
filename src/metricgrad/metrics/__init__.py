"""True losses of sets, `(..., n)`, in [0, 1]: exact, weighted, never NaN."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a metric or a function of the registry, `metricgrad.metrics.f1`, or one with columns."""
    from importlib import import_module

    if name.startswith("_"):
        raise AttributeError(f"module 'metricgrad.metrics' has no attribute {name!r}")
    registry = import_module("metricgrad.metrics.registry")
    if hasattr(registry, name):
        return getattr(registry, name)
    return getattr(import_module("metricgrad.metrics.columns"), name)
