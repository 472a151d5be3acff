"""The demo as a customer opens it: ``evenbeat demo``, each of its pages, and a console without errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect

from evenbeat.web.app import WebApp
from evenbeat.web.settings import read_settings
from tests.browser.dashboard import Complaints, Dashboard, opened

TABS = ("open", "rules", "channels", "windows", "log", "past")
# So many of the schedules that dump a table are opened: they differ in their names.
MOST_SNAPSHOTS = 1


class Demo(Dashboard):
    """The web server of a demo in another process."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    def read(self, path: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=60) as answer:  # noqa: S310  # on this host
            items: list[dict[str, Any]] = json.loads(answer.read())["items"]
        return items


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    process = subprocess.Popen(
        [sys.executable, "-m", "evenbeat", "demo", "--port", "0", "--for", "1h"],
        cwd=tmp_path_factory.mktemp("demo"),
        env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    # A pipe that nobody reads would stop the demo once it is full.
    rest = threading.Thread(target=process.stdout.read, name="demo-output")
    try:
        line = next(line for line in process.stdout if line.startswith("Dashboard: "))
        rest.start()
        yield Demo(line.removeprefix("Dashboard: ").strip().rstrip("/"))
    finally:
        process.kill()
        process.wait(10)
        if rest.ident is not None:
            rest.join()
        process.stdout.close()


@pytest.fixture
def refused() -> list[str]:
    """The addresses that the server refused, or failed to answer."""
    return []


@pytest.fixture
def context(
    browser: Browser, demo: Demo, complaints: Complaints, refused: list[str]
) -> Iterator[BrowserContext]:
    """A browser that was never here before."""

    def on_response(response: Response) -> None:
        if response.status >= 400:
            refused.append(f"{response.status} {response.url}")

    with opened(browser, demo, complaints) as made:
        made.on("response", on_response)
        yield made
    assert refused == []


def open_all(page: Page, links: list[str]) -> None:
    for link in links:
        page.goto(link)
        expect(page.locator("main h1").first, link).to_be_visible()
        expect(page.locator(".loading"), link).to_have_count(0)


def test_every_entry_of_the_bar_opens_without_an_error(demo: Demo, page: Page) -> None:
    page.goto(demo.url)
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention).to_contain_text("invoice-export is failing")
    expect(attention.locator(".attention > li")).to_have_count(1)
    entries = page.get_by_role("navigation", name="Pages").get_by_role("link", include_hidden=True)
    addresses = entries.evaluate_all("links => links.map((link) => link.href)")
    assert len(addresses) == 17
    open_all(page, [*addresses, *(demo.link("alerts", tab=tab) for tab in TABS)])
    open_all(page, [demo.link("runs", "failures"), demo.link("timeline", view="herd")])


def test_every_schedule_opens_without_an_error_also_a_deleted_one(demo: Demo, page: Page) -> None:
    schedules = [(each["tenant"], each["name"]) for each in demo.read("schedules?all_tenants=true&limit=200")]
    snapshots = [key for key in schedules if key[1].startswith("snapshot-")]
    shown = [key for key in schedules if key not in snapshots[MOST_SNAPSHOTS:]]
    open_all(page, [demo.link("schedules", *key) for key in shown])
    page.goto(demo.link("audit", subject="old-import"))
    page.get_by_role("link", name="old-import", exact=True).first.click()
    expect(page.get_by_role("heading", name="This schedule was deleted")).to_be_visible()


def test_a_run_of_each_kind_opens_without_an_error(demo: Demo, page: Page) -> None:
    runs: dict[tuple[Any, ...], str] = {}
    for state in ("succeeded", "failed", "cancelled"):
        for run in demo.read(f"runs?all_tenants=true&limit=500&state={state}"):
            kind = (run["task"], state, run["attempt"] > 1)
            runs.setdefault(kind, demo.link("runs", run["tenant"], run["id"]))
    assert len(runs) > 10
    open_all(page, list(runs.values()))


def test_a_flow_and_its_run_open_without_an_error(demo: Demo, page: Page) -> None:
    page.goto(demo.link("flows"))
    page.get_by_role("link", name="price_list", exact=True).click()
    page.get_by_role("button", name="Start price_list …").click()
    page.get_by_role("dialog").get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name="Run of price_list")).to_be_visible()
    expect(page.locator("main")).to_contain_text("prices of winter")  # its result


def test_the_page_before_the_dashboard_is_built_logs_no_error(
    browser: Browser, tmp_path: Path, complaints: Complaints
) -> None:
    class NotBuilt(Dashboard):
        def web(self) -> WebApp:
            return WebApp(self.app, read_settings(needs_token=False), tmp_path / "nothing")

    dashboard = NotBuilt(tmp_path)
    dashboard.serve()
    with opened(browser, dashboard, complaints) as context:
        page = context.new_page()
        page.goto(dashboard.url)
        expect(page.get_by_role("heading", name="The dashboard is not built yet")).to_be_visible()
        # It loads itself again; by then the browser has asked for the icon.
        with page.expect_navigation():
            pass
        expect(page.get_by_role("heading", name="The dashboard is not built yet")).to_be_visible()
    dashboard.close()
