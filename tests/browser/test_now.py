"""The first page: what needs somebody, the next hour, the live feed, the nodes."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.dashboard import Dashboard


def test_an_empty_store_shows_the_commands_to_begin_with(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("now"))
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("No node is alive")
    expect(page.get_by_role("region", name="Nodes").get_by_text("evenbeat run app.py")).to_be_visible()
    expect(page.get_by_role("region", name="At this moment")).to_contain_text("No run yet")
    expect(page.get_by_role("region", name="The next hour")).to_contain_text("No run starts")


def test_runs_appear_in_the_feed_while_they_happen(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task
    def work() -> str:
        return "done"

    dashboard.app.start()
    page.goto(dashboard.link("now"))
    feed = page.get_by_role("region", name="At this moment")
    expect(feed).to_contain_text("No run yet")
    dashboard.app.enqueue("work")
    expect(feed.get_by_role("link", name="work")).to_be_visible()
    expect(feed).to_contain_text("succeeded")
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("alive")


def test_the_feed_holds_still_under_the_pointer(dashboard: Dashboard, page: Page) -> None:
    for number in range(3):
        dashboard.app.enqueue(f"old-{number}")
    page.goto(dashboard.link("now"))
    feed = page.get_by_role("region", name="At this moment")
    expect(feed.get_by_role("listitem")).to_have_count(3)
    feed.get_by_role("listitem").first.hover()
    for number in range(2):
        dashboard.app.enqueue(f"new-{number}")
    expect(feed.get_by_role("button", name="2 new")).to_be_visible()
    expect(feed.get_by_role("link", name="new-0")).to_have_count(0)
    feed.get_by_role("button", name="2 new").click()
    expect(feed.get_by_role("link", name="new-0")).to_be_visible()


def test_the_feed_keeps_its_rows_under_the_pointer_however_many_runs_are_new(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.app.task(name="work")(lambda: None)
    dashboard.app.schedules.add("first", "every 10h", "work")
    dashboard.app.schedules.add("second", "every 10h", "work", overlap="allow")
    dashboard.app.schedules.run_now("first")
    page.goto(dashboard.link("now"))
    feed = page.locator(".feed")
    row = feed.get_by_role("link", name="first", exact=True)
    row.hover()
    for _ in range(20):
        dashboard.app.schedules.run_now("second")
    expect(page.get_by_role("button", name="15 new")).to_be_visible()
    expect(row).to_be_visible()


def test_a_failing_schedule_is_listed_and_its_run_can_be_retried(dashboard: Dashboard, page: Page) -> None:
    is_broken = [True]

    @dashboard.app.task
    def export() -> str:
        if is_broken[0]:
            raise PermissionError("the bank refused the key")
        return "sent"

    dashboard.app.schedules.add("invoice-export", "every 1d", "export", run_now=True)
    dashboard.app.start()
    page.goto(dashboard.link("now"))
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention).to_contain_text("invoice-export")
    expect(attention).to_contain_text("the bank refused the key")
    is_broken[0] = False
    attention.get_by_role("button", name="Retry").click()
    expect(attention).to_contain_text("No schedule is late or failing")


def test_peaks_of_the_next_hour_are_named(dashboard: Dashboard, page: Page) -> None:
    for number in range(8):
        dashboard.app.schedules.add(f"herd-{number}", "every 30m", "work", start_at="20m")
    page.goto(dashboard.link("now"))
    hour = page.get_by_role("region", name="The next hour")
    expect(hour.get_by_role("list", name="Peaks")).to_contain_text("8 runs start in one minute")
    expect(hour.get_by_role("link", name="herd-0")).to_be_visible()
    expect(hour.get_by_role("list", name="Peaks")).to_contain_text("Berlin")
