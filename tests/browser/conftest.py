"""Fixtures of the tests in a real browser. A page that complains fails its test: errors in the console,
blocked content, dialogs, requests to other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser import chromium, lengths
from tests.browser.dashboard import PATIENCE, Complaints, Dashboard, opened
from tests.missing import skipped_without

expect.set_options(timeout=PATIENCE)

FOLDER = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as long what ``make test`` leaves out."""
    for item in items:
        if item.path.parent == FOLDER and not lengths.is_quick(item.path.stem, item.name):
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium.

    It ends with its module: while Playwright runs, its event loop runs in this thread, and tests of other
    modules could not start theirs.
    """
    with skipped_without("Chromium"):
        chromium.program()
    with chromium.running() as started:
        yield started


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Dashboard]:
    """A scheduler on SQLite and its web server, without tokens. ``dashboard.app.start()`` starts its node."""
    made = Dashboard(tmp_path)
    made.serve()
    yield made
    made.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Dashboard]:
    """As ``dashboard``, but the server asks for tokens."""
    made = Dashboard(tmp_path, needs_token=True)
    made.serve()
    yield made
    made.close()


@pytest.fixture
def complaints() -> Iterator[Complaints]:
    made = Complaints()
    yield made
    assert made.unexpected == []


@pytest.fixture
def context(browser: Browser, dashboard: Dashboard, complaints: Complaints) -> Iterator[BrowserContext]:
    """A context of the browser for the pages of ``dashboard``."""
    with opened(browser, dashboard, complaints) as made:
        yield made


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A page of the browser; ``page.goto(dashboard.link("schedules"))`` opens a view."""
    return context.new_page()
