"""What every test run shares: one thread a process, how many examples Hypothesis tries, and a browser."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path

import pytest
import torch
from browsing import opened, started
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser, Page

torch.set_num_threads(1)

settings.register_profile("default", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("default"), max_examples=5)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1_000)
settings.load_profile("default")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker more than there are cores: some tests wait for processes of their own."""
    return (os.cpu_count() or 1) + 1


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name a case of bytes after its argument: compressed bytes hold the time, and every worker must name it alike."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with files that have slow tests, lest one worker end alone; spread METRICGRAD_FUZZ examples.

    A worker runs whole files (`--dist loadfile`), so that what a module's tests share is made once.
    """
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    items.sort(key=lambda item: not {"slow", "cluster"} & set(item.keywords))
    wanted = int(os.environ.get("METRICGRAD_FUZZ", "0"))
    properties = [item for item in items if hasattr(getattr(item, "obj", None), "hypothesis")]
    if not wanted or not properties:
        return
    for test in {item.obj for item in properties}:
        settings(max_examples=-(-wanted // len(properties)))(test)
        test.hypothesis.inner_test = counted(test.hypothesis.inner_test)


def counted(test: Callable[..., None]) -> Callable[..., None]:
    """Return a property that counts, in `held`, the examples for which it held."""

    @wraps(test)
    def counting(*values: object, **named: object) -> None:
        test(*values, **named)
        counting.held += 1

    counting.held = 0
    return counting


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Add to the report of a property how many examples it held for, where they are counted."""
    test = getattr(getattr(getattr(item, "obj", None), "hypothesis", None), "inner_test", None)
    before = getattr(test, "held", None)
    try:
        return (yield)
    finally:
        if before is not None:
            item.user_properties.append(("examples", test.held - before))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, for the tests of one module."""
    with started() as found:
        yield found


@pytest.fixture
def page(browser: Browser, file: Path, drawn: str) -> Iterator[Page]:
    """The `file` of the module in a browser, `drawn`; in the end nothing may have gone wrong or been asked for."""
    page, wrong = opened(browser, file, drawn)
    yield page
    page.context.close()
    assert wrong == []
