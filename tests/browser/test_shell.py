"""What all pages have in common: keyboard, themes, widths, zones, accessibility."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened

# The stories of schedules, runs and alerts check their own pages.
_MAIN = ("now", "flows", "timeline", "nodes", "queues", "backfills", "templates", "plan")
PAGES = (*_MAIN, "limits", "tenants", "order", "audit", "tokens")


def test_ctrl_k_finds_a_page_and_a_schedule(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("mail-digest", "every 1h", "work")
    page.goto(dashboard.link("now"))
    expect(page.get_by_role("heading", name="Now")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("digest")
    expect(page.get_by_role("option", name="mail-digest")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="mail-digest")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("queu")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Queues", exact=True)).to_be_visible()


def test_esc_closes_the_palette_and_slash_searches(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("searchbox").first).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.locator("main input[type=search]").first).to_be_focused()


def test_the_zone_is_in_the_address_and_stays_with_links(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("report", "0 9 * * * tz=Asia/Tokyo", "work")
    page.goto(dashboard.link("schedules"))
    page.get_by_label("Time zone").select_option("utc")
    expect(page).to_have_url(dashboard.link("schedules", tz="utc"))
    page.get_by_role("link", name="report", exact=True).click()
    expect(page).to_have_url(dashboard.link("schedules", "default", "report", tz="utc"))


def test_more_lists_the_other_pages_until_one_is_opened(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("now"))
    pages = page.get_by_role("navigation", name="Pages")
    more, audit = pages.get_by_role("button", name="More"), pages.get_by_role("link", name="Audit")
    expect(audit).to_be_hidden()
    more.press("Enter")
    expect(more).to_have_attribute("aria-expanded", "true")
    expect(audit).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("Escape")
    expect(audit).to_be_hidden()
    expect(more).to_be_focused()
    more.click()
    page.get_by_role("heading", name="Now").click()
    expect(audit).to_be_hidden()
    more.click()
    page.get_by_role("link", name="Tokens").focus()
    expect(audit).to_be_visible()
    pages.get_by_role("link", name="Alerts").focus()
    expect(audit).to_be_hidden()
    more.click()
    audit.click()
    expect(page.get_by_role("heading", name="Audit", level=1)).to_be_visible()
    expect(audit).to_be_hidden()
    expect(more).to_have_class("current")


def test_a_phone_has_all_pages_in_one_row(dashboard: Dashboard, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(dashboard.link("now"))
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link")).to_have_count(17)
    # The tools beside the row have their final width then; before, a click may miss what has just moved.
    expect(page.locator(".stream.live")).to_be_visible()
    expect(pages.get_by_role("button", name="More")).to_be_hidden()
    tops = pages.get_by_role("link").evaluate_all("links => links.map((link) => link.offsetTop)")
    assert len(set(tops)) == 1
    pages.get_by_role("link", name="Tokens").click()
    expect(page.get_by_role("heading", name="Tokens", level=1)).to_be_visible()


def test_a_page_that_does_not_exist_says_so(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("nowhere"))
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard with the demo's week of history behind it."""
    from evenbeat.demo.history import write_history

    made = Dashboard(Path(tmp_path_factory.mktemp("busy")))
    write_history(made.app.store)
    made.serve()
    yield made
    made.close()


@pytest.fixture(scope="module")
def watched(browser: Browser, busy: Dashboard) -> Iterator[tuple[BrowserContext, Complaints]]:
    complaints = Complaints()
    with opened(browser, busy, complaints) as context:
        yield context, complaints


def _settled(page: Page) -> None:
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(
    busy: Dashboard, watched: tuple[BrowserContext, Complaints], name: str
) -> None:
    context, complaints = watched
    page = context.new_page()
    page.goto(busy.link(name))
    _settled(page)
    assert_accessible(page)
    page.close()
    assert complaints.unexpected == []


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_a_phone_in_the_dark(browser: Browser, busy: Dashboard, name: str) -> None:
    complaints = Complaints()
    with opened(browser, busy, complaints, dark=True, width=375) as context:
        page = context.new_page()
        page.goto(busy.link(name))
        _settled(page)
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        overflow = page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert overflow <= 0
        assert_accessible(page)
    assert complaints.unexpected == []
