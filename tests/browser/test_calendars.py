"""The page of calendars, and what a calendar does to a schedule."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.dashboard import Complaints, Dashboard, assert_accessible


def test_create_change_and_delete_a_calendar(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    app = dashboard.app
    complaints.allow("422")
    page.goto(dashboard.link("calendars"))
    expect(page.get_by_role("row").filter(has_text="business-days")).to_contain_text("Monday to Friday")
    page.get_by_role("button", name="New calendar …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("company-days")
    expect(dialog.get_by_role("button", name="Create")).to_be_disabled()
    dialog.get_by_label("Days").fill("someday")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is not a day")
    assert_accessible(page)
    dialog.get_by_label("Days").fill("12-24..12-26\n2026-12-31")
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("row").filter(has_text="company-days")).to_contain_text("12-24..12-26")
    assert app.calendars.get("company-days").days == ("12-24..12-26", "2026-12-31")

    page.get_by_role("link", name="company-days").click()
    expect(page.get_by_role("table", name="Days of company-days")).to_contain_text(re.compile(r"\d{4}-12-24"))
    expect(page.get_by_text("No schedule uses it.")).to_be_visible()
    expect(page.get_by_text("Its days and windows are those of each schedule's zone.")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Change …").click()
    dialog.get_by_label("Weekly windows").fill("sun 10:00-12:00")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("table", name="Days of company-days")).to_contain_text("10:00-12:00")
    page.get_by_role("button", name="Delete …").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row").filter(has_text="business-days")).to_be_visible()
    assert [each.name for each in app.calendars.list()] == ["business-days", "weekends"]


def test_a_calendar_in_use_names_its_schedules_and_stays(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("409")
    app = dashboard.app
    app.task(name="work")(lambda: None)
    app.calendars.set("off", days=["12-25"])
    app.schedules.add("report", "0 9 * * * skip=off", "work")
    page.goto(dashboard.link("calendars", "off"))
    expect(page.get_by_role("link", name="report")).to_be_visible()
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("used by report")
    assert app.calendars.get("off").schedules == ("report",)


def test_the_form_of_a_schedule_shows_what_a_calendar_does(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.calendars.set("always", weekly=["mon-fri"])
    page.goto(dashboard.link("schedules", "new"))
    page.get_by_label("Trigger").fill("0 9 * * wed skip=always move=next")
    ticks = page.get_by_role("region", name="The next ten ticks")
    expect(ticks).to_contain_text("not in always, moved to the next free day instead")
    expect(ticks).to_contain_text(re.compile("moved from [0-9-]+: always"))


def test_the_form_of_a_calendar_shows_what_would_change(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    app.task(name="work")(lambda: None)
    app.calendars.set("off", days=["12-25"])
    app.schedules.add("report", "0 9 * * * skip=off", "work")
    app.templates.set("nightly", trigger="0 3 * * * skip=off")
    page.goto(dashboard.link("calendars"))
    expect(page.get_by_role("row").filter(has_text="12-25")).to_contain_text("report; 1 template")
    page.goto(dashboard.link("calendars", "off"))
    expect(page.get_by_text("Templates that name it: nightly")).to_be_visible()
    page.get_by_role("button", name="Change …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Weekly windows").fill("mon-sun")
    dialog.get_by_role("button", name="What would change").click()
    expect(dialog.get_by_role("status")).to_contain_text("1 schedule would be planned anew:")
    expect(dialog.get_by_role("status")).to_contain_text(re.compile("report: next .* → none"))
    expect(dialog.get_by_role("status")).to_contain_text("report would have no tick any more")
    assert_accessible(page)
    assert app.calendars.get("off").weekly == ()
    dialog.get_by_label("Weekly windows").fill("sun")
    expect(dialog.get_by_role("status")).to_have_count(0)
    dialog.get_by_label("Weekly windows").fill("mon-sun")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("report has no tick any more")).to_be_visible()


def test_the_page_of_a_schedule_names_its_calendars_and_what_they_remove(
    dashboard: Dashboard, page: Page
) -> None:
    app = dashboard.app
    app.task(name="work")(lambda: None)
    app.schedules.add("report", "0 9 * * * skip=weekends move=next", "work")
    app.schedules.add("both", "0 9 * * * skip=weekends only=business-days", "work")
    app.schedules.add("bare", "0 9 * * *", "work")
    page.goto(dashboard.link("schedules", "default", "report"))
    section = page.get_by_role("region", name="Calendars")
    expect(section.get_by_role("link", name="weekends")).to_be_visible()
    removed = section.get_by_role("list", name="Removed next").get_by_role("listitem")
    expect(removed.nth(1)).to_contain_text(re.compile("2 ticks from Sat .* move to .*(weekends)"))
    assert_accessible(page)
    page.goto(dashboard.link("schedules", "default", "both"))
    expect(section).to_contain_text("Skips weekends; only in business-days")
    page.goto(dashboard.link("schedules", "default", "bare"))
    expect(page.get_by_role("region", name="Policies")).to_be_visible()
    expect(page.get_by_role("region", name="Calendars")).to_have_count(0)


def test_the_parts_of_a_cell_stay_together_on_a_phone(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    app.task(name="work")(lambda: None)
    app.calendars.set("off", days=["12-25"])
    for name in ("bank", "nightly"):
        app.schedules.add(name, "0 9 * * * skip=off", "work")
    app.schedules.backfill("bank", "2026-03-01T00:00Z", "2026-03-03T00:00Z")
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(dashboard.link("calendars"))
    first, second = (page.get_by_role("link", name=name, exact=True) for name in ("bank", "nightly"))
    assert 0 < _gap(first, second) < 12
    page.goto(dashboard.link("backfills"))
    made = page.locator("td").filter(has_text="by ")
    assert 0 < _gap(made.locator(".relative"), made.locator(".muted")) < 12


def _gap(left: Locator, right: Locator) -> float:
    """Return the pixels between two parts of one line."""
    expect(left).to_be_visible()
    before, after = left.bounding_box(), right.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) < 12
    return after["x"] - before["x"] - before["width"]
