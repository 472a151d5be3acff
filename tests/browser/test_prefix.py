"""The dashboard under a prefix: mounted, or behind a proxy that strips it. An open page after an upgrade."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from evenbeat.web import WebApp
from evenbeat.web.settings import read_settings
from tests.browser.dashboard import Complaints, Dashboard, opened

PREFIX = "/deep/prefix"
MORE = ("Backfills", "Templates", "Plan", "Limits", "Tenants", "Retention and repair", "Audit", "Tokens")
PAGES = ("Now", "Schedules", "Runs", "Timeline", "Nodes", "Queues", "Alerts", *MORE)


class Mounted(WebApp):
    """The web app inside of another ASGI app, which tells it its prefix."""

    cookie_path = f"{PREFIX}/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Starlette(routes=[Mount(PREFIX, app=super().__call__)])(scope, receive, send)


class Stripped(WebApp):
    """The web app behind a proxy that strips the prefix and does not tell it."""

    cookie_path = "/"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(f"{PREFIX}/"):
            await PlainTextResponse("not here", 404)(scope, receive, send)
            return
        cut = len(PREFIX)
        await super().__call__(
            {**scope, "path": scope["path"][cut:], "raw_path": scope["raw_path"][cut:]}, receive, send
        )


class Prefixed(Dashboard):
    """A dashboard under a prefix. A request to any other path of its server counts as one to another host."""

    def __init__(self, folder: Path, kind: type[Mounted | Stripped]) -> None:
        super().__init__(folder)
        self.kind = kind

    @property
    def url(self) -> str:
        return f"{super().url}{PREFIX}"

    def web(self) -> WebApp:
        return self.kind(self.app, read_settings())


@pytest.fixture(params=[Mounted, Stripped])
def prefixed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Prefixed]:
    made = Prefixed(tmp_path, request.param)
    made.serve()
    yield made
    made.close()


def test_everything_works_under_a_prefix(
    browser: Browser, prefixed: Prefixed, complaints: Complaints
) -> None:
    complaints.allow("401")
    with opened(browser, prefixed, complaints) as context:
        page = context.new_page()
        page.goto(f"{prefixed.url}/")
        page.get_by_label("Token").fill(prefixed.token("admin"))
        page.get_by_role("button", name="Log in").click()
        expect(page.locator(".stream.live")).to_be_visible()
        assert [(each["name"], each["path"]) for each in context.cookies()] == [
            ("evenbeat_session", prefixed.kind.cookie_path)
        ]
        for title in PAGES:
            pages = page.get_by_role("navigation", name="Pages")
            if title in MORE:
                pages.get_by_role("button", name="More").click()
            pages.get_by_role("link", name=title).click()
            expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
            expect(page.locator(".loading")).to_have_count(0)
        page.goto(prefixed.link("schedules", "new"))
        page.get_by_label("Name", exact=True).fill("report")
        page.get_by_role("combobox", name="Task").fill("work")
        page.get_by_label("Trigger").fill("every 1h")
        page.get_by_role("button", name="Create schedule").click()
        expect(page.get_by_role("heading", name="report", exact=True)).to_be_visible()
        page.goto(prefixed.link("timeline", view="herd"))
        expect(page.locator(".chart canvas").first).to_be_visible()
        page.goto(prefixed.link("schedules"))
        expect(page.get_by_role("link", name="report", exact=True)).to_be_visible()
        prefixed.app.schedules.add("live", "every 1h", "work")
        page.get_by_role("button", name="1 change in the list: show").click()
        expect(page.get_by_role("link", name="live", exact=True)).to_be_visible()
        page.reload()
        expect(page.get_by_role("link", name="report", exact=True)).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        assert context.cookies() == []


# A server that was upgraded has chunks of other names; one that asks for tokens answers 401 to unknown paths.
@pytest.mark.parametrize("status", [404, 401])
@pytest.mark.parametrize("path", [("queues",), ("schedules", "new"), ("schedules", "default", "report")])
def test_a_page_whose_code_is_gone_offers_to_load_again(
    dashboard: Dashboard, page: Page, complaints: Complaints, status: int, path: tuple[str, ...]
) -> None:
    complaints.allow(str(status))
    dashboard.app.schedules.add("report", "every 1h", "work")
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("link", name="report", exact=True)).to_be_visible()
    page.route("**/assets/*.js", lambda route: route.fulfill(status=status))
    page.goto(dashboard.link(*path))
    expect(page.get_by_role("alert")).to_contain_text("This page could not be loaded.")
    page.unroute("**/assets/*.js")
    page.get_by_role("button", name="Load the dashboard again").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page).to_have_url(dashboard.link(*path))


def test_a_chart_whose_code_is_gone_leaves_its_table(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("404")
    dashboard.app.schedules.add("report", "every 1h", "work")
    page.goto(dashboard.link("timeline"))
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    page.route("**/assets/*.js", lambda route: route.fulfill(status=404))
    page.get_by_role("button", name="Load by the minute").click()
    chart = page.get_by_role("figure", name="Runs that start in each minute")
    expect(chart).to_contain_text("The chart could not be loaded; the table has its values.")
    chart.get_by_text("as a table").click()
    expect(chart.get_by_role("table")).to_be_visible()
