"""A real browser for tests of pages: which one, how long to wait for it, and a page of which all is written down."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium")
PATIENCE = 180_000
"""Milliseconds to wait on a machine that is busy with other tests."""
in_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on the PATH, and `make browser` found no apt-get that may install it"
)


@contextmanager
def started() -> Iterator[Browser]:
    """Start the browser, and close it in the end."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"], timeout=PATIENCE
        )
        yield found
        found.close()


def opened(browser: Browser, file: Path, drawn: str, **options: Any) -> tuple[Page, list[str]]:
    """Open a page and wait for what its script draws; whatever goes wrong, is asked for or pops up is written down."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("request", lambda request: wrong.append(request.url))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.goto(file.as_uri())
    page.wait_for_selector(drawn)
    wrong.remove(file.as_uri())
    return page, wrong
