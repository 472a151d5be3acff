"""The browser of the tests: Chromium as it is installed on the machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.missing import Unavailable

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str:
    """Return the path of a Chromium. EVENBEAT_TEST_CHROMIUM overrides the search."""
    found = os.environ.get("EVENBEAT_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        raise Unavailable(
            "no Chromium: 'make browser' installs Debian's, or name one by EVENBEAT_TEST_CHROMIUM"
        )
    return found


@contextmanager
def running() -> Iterator[Browser]:
    """Start the browser, and end it with the block."""
    # Chromium's sandbox refuses to work for root; the tests open pages of this machine alone.
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program(), args=["--no-sandbox"] if is_root else [], timeout=60_000
        )
        try:
            yield browser
        finally:
            browser.close()
