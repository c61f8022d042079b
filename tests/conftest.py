"""What every test run shares: one thread a process, and how many examples Hypothesis tries."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)

settings.register_profile("default", max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name a case of bytes after its argument: compressed bytes hold the time, and every worker must name it alike."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread METRICGRAD_FUZZ examples in all over the properties that were collected."""
    wanted = int(os.environ.get("METRICGRAD_FUZZ", "0"))
    properties = [item for item in items if hasattr(getattr(item, "obj", None), "hypothesis")]
    if not wanted or not properties:
        return
    for test in {item.obj for item in properties}:
        settings(max_examples=-(-wanted // len(properties)))(test)
