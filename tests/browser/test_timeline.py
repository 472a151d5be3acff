"""The timeline, and the load of seven days with its spreads."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.dashboard import Dashboard


def test_a_herd_is_spread_with_one_click(dashboard: Dashboard, page: Page) -> None:
    for number in range(20):
        dashboard.app.schedules.add(f"backup-{number}", "0 0 * * *", "backup")
    page.goto(dashboard.link("timeline", view="herd"))
    proposals = page.get_by_role("region", name="Spreads that lower a peak").first
    expect(proposals).to_contain_text("20 runs")
    proposals.get_by_role("button", name="Spread …").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No tick fires from this edit")
    expect(dialog.get_by_role("heading", name="Before")).to_be_visible()
    expect(dialog.get_by_role("heading", name="After")).to_be_visible()
    expect(dialog).to_contain_text("at most 20 runs")  # the scale of the chart before
    dialog.get_by_role("button", name="Spread", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("20 schedules got a spread")).to_be_visible()
    spreads = {schedule.spread for schedule in dashboard.app.schedules.list()}
    assert len(spreads) == 1
    assert next(iter(spreads)).total_seconds() > 0
    expect(proposals).to_contain_text("No spread would lower a peak")


def test_lanes_show_the_past_and_the_future(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task
    def work() -> None:
        return None

    dashboard.app.schedules.add("often", "every 10m", "work", run_now=True)
    dashboard.app.schedules.add("rarely", "every 1h", "work", start_at="30m")
    page.goto(dashboard.link("timeline"))
    lanes = page.get_by_role("region", name="Schedules over time").first
    lanes.get_by_text("as a table").click()
    table = lanes.get_by_role("table")
    expect(table.get_by_role("row", name="often").first).to_be_visible()
    expect(table.get_by_role("row", name="rarely").first).to_be_visible()
    page.get_by_role("searchbox", name="Search schedules").fill("rare")
    expect(table.get_by_role("row", name="often")).to_have_count(0)
    expect(page).to_have_url(dashboard.link("timeline", text="rare"))


def test_the_range_is_in_the_address(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("often", "every 10m", "work")
    page.goto(dashboard.link("timeline"))
    page.get_by_role("button", name="24 h", exact=True).click()
    expect(page).to_have_url(dashboard.link("timeline", since="12h", until="12h"))
    page.get_by_role("button", name="Zoom in").click()
    expect(page.get_by_role("button", name="24 h", exact=True)).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(page.get_by_role("button", name="24 h", exact=True)).to_have_attribute("aria-pressed", "false")
