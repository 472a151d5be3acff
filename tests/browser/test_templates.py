"""Templates, bulk changes and resumes that catch up, on the dashboard."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Locator, Page, expect

from evenbeat.core.tokens import Role
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened


def _row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


def _notice(page: Page, text: str) -> Locator:
    return page.locator(".notices").get_by_text(text)


def test_a_template_is_set_changed_and_deleted(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    app = dashboard.app
    page.goto(dashboard.link("templates"))
    expect(_row(page, "workdays")).to_contain_text("built in")
    page.get_by_role("button", name="New template …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Review")).to_be_disabled()
    dialog.get_by_label("Name").fill("nightly")
    dialog.get_by_label("Value of trigger").fill("0 3 * * *")
    dialog.get_by_role("button", name="Add an option").click()
    dialog.get_by_label("Value of retries").fill("many")
    expect(dialog.get_by_role("alert")).to_contain_text("Give a whole number")
    dialog.get_by_label("Value of retries").fill("3")
    assert_accessible(page)
    dialog.get_by_role("button", name="Review").click()
    expect(dialog).to_contain_text("0 schedules inherit from it, 0 will change.")
    dialog.get_by_role("button", name="Set").click()
    expect(_row(page, "nightly")).to_contain_text("Retries: 3")
    assert app.templates.get("nightly").options == {"trigger": "0 3 * * *", "retries": 3}

    app.schedules.add("sales", task="work", template="nightly")
    page.get_by_role("button", name="Change nightly").click()
    dialog.get_by_label("Value of retries").fill("5")
    dialog.get_by_role("button", name="Review").click()
    expect(dialog).to_contain_text("1 schedule inherits from it, 1 will change.")
    expect(dialog.get_by_label("What changes")).to_contain_text("sales Retries: 3 → 5")
    assert app.schedules.get("sales").retries == 3
    assert_accessible(page)
    dialog.get_by_role("button", name="Set").click()
    expect(_notice(page, "Set the template nightly; 1 schedule changed.")).to_be_visible()
    assert app.schedules.get("sales").retries == 5

    complaints.allow("409")
    page.get_by_role("button", name="Delete nightly").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is used by sales")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="nightly").click()
    users = page.get_by_role("region", name="Schedules that inherit from it")
    expect(users.get_by_role("row").filter(has_text="sales")).to_contain_text("trigger, retries")
    assert_accessible(page)
    users.get_by_role("link", name="sales").click()
    overview = page.get_by_role("region", name="Overview")
    expect(overview).to_contain_text("nightly, inherits trigger, retries")
    page.goto(dashboard.link("templates"))
    expect(_row(page, "nightly")).to_be_visible()
    app.schedules.delete("sales")
    page.get_by_role("button", name="Delete nightly").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(_notice(page, "Deleted the template nightly.")).to_be_visible()
    expect(_row(page, "nightly")).to_have_count(0)


def test_what_the_server_refuses_about_a_template_is_shown_at_its_field(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("422")
    page.goto(dashboard.link("templates"))
    page.get_by_role("button", name="New template …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("workdays")
    dialog.get_by_label("Value of trigger").fill("nonsense")
    dialog.get_by_role("button", name="Review").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is that of a built-in template")
    dialog.get_by_label("Name").fill("mine")
    dialog.get_by_role("button", name="Review").click()
    expect(dialog.get_by_label("Value of trigger")).to_have_attribute("aria-invalid", "true")


def test_viewers_and_operators_read_templates_and_change_none(
    browser: Browser, guarded: Dashboard, complaints: Complaints
) -> None:
    guarded.app.templates.set("nightly", retries=3)
    roles: tuple[tuple[Role, int], ...] = (("viewer", 0), ("operator", 0), ("admin", 1))
    for role, buttons in roles:
        with opened(browser, guarded, complaints) as context:
            context.set_extra_http_headers({"Authorization": f"Bearer {guarded.token(role)}"})
            page = context.new_page()
            page.goto(guarded.link("templates"))
            expect(_row(page, "nightly")).to_be_visible()
            expect(page.get_by_role("button", name="New template …")).to_have_count(buttons)
            expect(page.get_by_role("button", name="Change nightly")).to_have_count(buttons)


def test_a_new_schedule_takes_its_trigger_from_a_template(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.templates.set("nightly", trigger="0 3 * * *", retries=3)
    page.goto(dashboard.link("schedules", "new"))
    page.get_by_label("Name").fill("sales")
    page.get_by_label("Task", exact=True).fill("work")
    page.get_by_label("Template").select_option("nightly")
    expect(page.get_by_text("Gives trigger 0 3 * * *, retries 3")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Create schedule").click()
    expect(page.get_by_role("region", name="Overview")).to_contain_text("inherits trigger, retries")
    made = dashboard.app.schedules.get("sales")
    assert (made.trigger, made.template) == ("0 3 * * *", "nightly")
    page.goto(dashboard.link("schedules", "default", "sales", "edit"))
    note = page.get_by_role("note", name="Template")
    expect(note).to_contain_text("It inherits trigger, retries from the template nightly.")
    assert_accessible(page)


def test_all_that_match_a_pattern_are_changed(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    for name in ("report-eu", "report-us", "other"):
        app.schedules.add(name, "every 1h", "work")
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_role("link", name="other")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("report-*")
    expect(page.get_by_role("link", name="other")).to_have_count(0)
    page.get_by_role("checkbox", name=re.compile("all", re.IGNORECASE)).first.check()
    page.get_by_role("button", name="Change …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 schedules will be changed.")
    expect(dialog.get_by_role("button", name="Change")).to_be_disabled()
    dialog.get_by_label("Value of retries").fill("4")
    dialog.get_by_role("button", name="Add an option").click()
    dialog.get_by_label("Value of queue").fill("batch")
    assert_accessible(page)
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_contain_text("2 changed.")
    dialog.get_by_role("button", name="Close").last.click()
    found = {each.name: (each.retries, each.queue) for each in app.schedules.list()}
    assert found == {"report-eu": (4, "batch"), "report-us": (4, "batch"), "other": (0, "default")}


def test_a_resume_offers_to_catch_up(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    app.schedules.add("beat", "every 1s", "work", paused=True)
    page.goto(dashboard.link("schedules", "default", "beat"))
    page.get_by_role("button", name="Resume").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"ticks? of the pause (is|are) skipped"))
    dialog.get_by_role("button", name="Catch up on them").click()
    expect(dialog).to_contain_text(re.compile(r"1 run starts at once for \d+ ticks? of the pause"))
    assert app.schedules.get("beat").state == "paused"
    assert_accessible(page)
    dialog.get_by_role("button", name="Resume").click()
    expect(_notice(page, "Resumed beat.")).to_be_visible()
    assert len(app.runs.list()) == 1
