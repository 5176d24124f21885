"""A real browser for tests of pages: Chromium, as distributions ship it, driven by its own protocol."""

from __future__ import annotations

import importlib.util
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest
from chromium import NAMES, program

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Generator[Browser, None, None]:
    """One for each process that runs tests. With CI=true its absence is a failure, as of every part."""
    found = program()
    why = None
    if found is None:
        why = f"no Chromium ({', '.join(NAMES)}, or $CHROMIUM)"
    elif importlib.util.find_spec("playwright") is None:
        why = "no playwright (scripts/setup full-test)"
    if why is not None:
        pytest.skip(f"NOT RUN: pages in a real browser (marker browser): {why}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        # Its sandbox wants a user of its own; what is opened here was made here, and there is no network to begin with.
        running = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"], timeout=120_000)
        yield running
        running.close()
