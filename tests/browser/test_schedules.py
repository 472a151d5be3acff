"""Stories of the page Schedules: find, create, edit, and change many at once."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.stores.base import Write
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
BERLIN = ZoneInfo("Europe/Berlin")
BIG = 12345678901234567890
PAYLOAD = {"big": BIG, "whole": 1.0}


def rows(page: Page) -> list[str]:
    """Return the names in the list."""
    return page.locator("tbody .schedule-name > a").all_inner_texts()


def expect_rows(page: Page, *names: str) -> None:
    expect(page.locator("tbody .schedule-name > a")).to_have_text(list(names))


def row(page: Page, name: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def field(page: Page, label: str) -> Any:
    return page.get_by_label(label, exact=True)


def add_many(dashboard: Dashboard, count: int) -> None:
    """Write many schedules to the store: faster than adding one after another."""
    store = dashboard.app.store
    now = store.now()
    made = (
        ScheduleRecord(name=f"job-{number:06}", task="work", trigger="0 9 * * *") for number in range(count)
    )
    while batch := [Write(changes.create(record, now), None) for record in islice(made, 5_000)]:
        assert all(each.accepted for each in store.put_schedules(batch))


@contextmanager
def held(page: Page, is_wanted: Any) -> Iterator[list[Route]]:
    """Keep requests for which ``is_wanted`` is true from the server, until the test continues them."""
    kept: list[Route] = []

    def on_route(route: Route) -> None:
        if is_wanted(route.request):
            kept.append(route)
        else:
            route.continue_()

    page.route("**/api/v1/**", on_route)
    yield kept
    page.unroute("**/api/v1/**", on_route)


def test_a_new_schedule_fires_while_the_page_is_open(dashboard: Dashboard, page: Page) -> None:
    seen: list[dict[str, Any]] = []

    @dashboard.app.task(name="mail.send")
    def send(**payload: Any) -> None:
        seen.append(payload)

    dashboard.app.start()
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("There are no schedules yet.")).to_be_visible()
    page.get_by_role("link", name="+ New schedule").click()
    field(page, "Name").fill("digest")
    field(page, "Task").fill("mail.send")
    field(page, "Trigger").fill("every 1s")
    field(page, "Payload").fill(f'{{"big": {BIG}, "html": "{HOSTILE}"}}')
    field(page, "Description").fill(HOSTILE)
    field(page, "Tags").fill("mail, team:ops")
    expect(page.locator(".preview .words")).to_contain_text("every second")
    expect(page.get_by_label("The next ten ticks").get_by_role("listitem")).to_have_count(10)
    assert_accessible(page)
    page.get_by_role("button", name="Create schedule").click()
    expect(page).to_have_url(re.compile("#/schedules/default/digest$"))
    page.goto(dashboard.link("schedules"))
    # Nobody loads the page again: the stream says that a run ended.
    expect(row(page, "digest").get_by_role("link", name="succeeded")).to_be_visible()
    expect(row(page, "digest")).to_contain_text(HOSTILE)
    assert seen[0] == {"big": BIG, "html": HOSTILE}
    made = dashboard.app.schedules.get("digest")
    assert made.tags == ("mail", "team:ops")


def test_a_form_leads_to_the_first_wrong_field(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("schedules", "new"))
    page.get_by_role("button", name="Create schedule").click()
    expect(page.get_by_text("3 fields need another value: name, task, trigger.")).to_have_count(1)
    expect(field(page, "Name")).to_be_focused()
    expect(field(page, "Name")).to_be_in_viewport()
    field(page, "Name").fill("mail")
    field(page, "Task").fill("work")
    field(page, "Trigger").fill("every 1h")
    field(page, "Retries").fill("many")
    page.get_by_role("button", name="Create schedule").focus()
    expect(page.get_by_text("1 field needs another value: retries.")).to_be_visible()
    page.get_by_role("button", name="Show it").click()
    expect(field(page, "Retries")).to_be_focused()
    assert dashboard.app.schedules.list() == []


def test_a_double_click_creates_one_schedule(dashboard: Dashboard, page: Page) -> None:
    page.goto(dashboard.link("schedules", "new"))
    field(page, "Name").fill("once")
    field(page, "Task").fill("work")
    field(page, "Trigger").fill("@daily")
    page.get_by_role("button", name="Create schedule").dblclick()
    expect(page).to_have_url(re.compile("#/schedules/default/once$"))
    assert [each.name for each in dashboard.app.schedules.list()] == ["once"]


def test_a_name_that_exists_is_refused_at_its_field(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("409 (Conflict)")
    dashboard.app.schedules.add("taken", "@daily", "work")
    page.goto(dashboard.link("schedules", "new"))
    field(page, "Name").fill("taken")
    field(page, "Task").fill("work")
    field(page, "Trigger").fill("@daily")
    page.get_by_role("button", name="Create schedule").click()
    expect(field(page, "Name")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert").filter(has_text="exists already")).to_be_visible()
    field(page, "Name").fill("free")
    expect(field(page, "Name")).to_have_attribute("aria-invalid", "false")


def test_a_trigger_is_checked_and_explained_while_it_is_typed(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("422 (Unprocessable")
    page.goto(dashboard.link("schedules", "new", tz="schedule"))
    field(page, "Trigger").fill("30 2 * *")
    expect(page.get_by_role("alert")).to_contain_text("cron has 5 or 6")
    expect(field(page, "Trigger")).to_have_attribute("aria-invalid", "true")
    field(page, "Trigger").fill("30 2 * * * tz=America/New_York")
    expect(field(page, "Trigger")).to_have_attribute("aria-invalid", "false")
    expect(page.locator(".preview .words")).to_contain_text("at 02:30 every day")
    # The zone of the schedule was chosen in the URL.
    first = page.get_by_label("The next ten ticks").get_by_role("listitem").first
    expect(first).to_contain_text("02:30:00")
    expect(first).to_contain_text("America/New_York")
    expect(page.locator(".clock-changes")).to_contain_text("02:30 does not exist")
    field(page, "Payload").fill("{oops}")
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    field(page, "Retries").fill("many")
    expect(page.get_by_text("Give a whole number, 0 to 1,000.")).to_be_visible()
    page.get_by_role("button", name="Create schedule").click()
    expect(field(page, "Name")).to_have_attribute("aria-invalid", "true")
    assert list(dashboard.app.schedules.list()) == []


def test_search_and_filters_are_in_the_address(dashboard: Dashboard, page: Page) -> None:
    add = dashboard.app.schedules.add
    add("mail-digest", "@daily", "mail.send", tags=["mail"])
    add("mail-purge", "@daily", "mail.purge", tags=["mail", "purge"], queue="slow")
    add("report", "@daily", "report.send", description="goes by mail")
    dashboard.app.schedules.pause("report")
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("3 match")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("mail-")
    expect_rows(page, "mail-digest", "mail-purge")
    expect(page).to_have_url(re.compile("text=mail-"))
    page.get_by_role("link", name="purge", exact=True).click()
    expect_rows(page, "mail-purge")
    expect(page).to_have_url(re.compile("(?=.*text=mail-)(?=.*tag=purge)"))
    page.reload()
    expect_rows(page, "mail-purge")
    expect(page.get_by_role("searchbox")).to_have_value("mail-")
    page.get_by_role("searchbox").fill("nothing like it")
    expect(page.get_by_text("No schedule matches.")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").last.click()
    expect_rows(page, "mail-digest", "mail-purge", "report")
    page.get_by_role("combobox", name="State").select_option("paused")
    expect_rows(page, "report")
    expect(page).to_have_url(re.compile("state=paused"))
    page.get_by_role("combobox", name="State").select_option("")
    page.get_by_role("button", name="Name").click()
    expect_rows(page, "report", "mail-purge", "mail-digest")
    expect(page).to_have_url(re.compile("sort=-name"))
    assert_accessible(page)


def test_pages_follow_one_another(dashboard: Dashboard, page: Page) -> None:
    add_many(dashboard, 120)
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("120 match")).to_be_visible()
    assert rows(page) == [f"job-{number:06}" for number in range(50)]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("link", name="job-000050")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("link", name="job-000119")).to_be_visible()
    expect(page.get_by_role("button", name="Next")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("link", name="job-000119")).to_be_visible()
    expect(page.get_by_role("button", name="First page")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("link", name="job-000050")).to_be_visible()
    page.get_by_role("button", name="First page").click()
    expect(page.get_by_role("link", name="job-000000")).to_be_visible()


def test_an_older_answer_never_replaces_a_newer_one(dashboard: Dashboard, page: Page) -> None:
    add_many(dashboard, 30)
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("30 match")).to_be_visible()
    with held(page, lambda request: "text=00001&" in request.url) as kept:
        page.get_by_role("searchbox").fill("00001")
        expect(page.locator(".schedules.old")).to_be_visible()
        # The rows of the answer before stay meanwhile.
        assert len(rows(page)) == 30
        page.get_by_role("searchbox").fill("000012")
        expect_rows(page, "job-000012")
        assert len(kept) == 1
        kept[0].abort()
    expect_rows(page, "job-000012")


def test_rows_do_not_move_when_the_list_changes(dashboard: Dashboard, page: Page) -> None:
    for name in ("a", "b", "c"):
        dashboard.app.schedules.add(name, "@daily", "work")
    page.goto(dashboard.link("schedules", sort="-updated_at"))
    expect_rows(page, "c", "b", "a")
    dashboard.app.schedules.update("a", description="changed by somebody")
    dashboard.app.schedules.add("d", "@daily", "work")
    expect(row(page, "a")).to_contain_text("changed by somebody")
    expect(page.get_by_role("button", name=re.compile("in the list: show"))).to_be_visible()
    assert rows(page) == ["c", "b", "a"]
    page.get_by_role("button", name=re.compile("in the list: show")).click()
    expect_rows(page, "d", "a", "c", "b")


@pytest.mark.long
def test_100_000_schedules_are_searched(dashboard: Dashboard, page: Page) -> None:
    add_many(dashboard, 100_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(dashboard.link("schedules"))
    expect(page.get_by_text("more than 1,000 match")).to_be_visible()
    assert len(rows(page)) == 50
    page.get_by_role("searchbox").fill("job-09876")
    expect_rows(page, *[f"job-09876{number}" for number in range(10)])
    expect(page.get_by_text("10 match")).to_be_visible()
    lists = [url for url in asked if "/api/v1/schedules?" in url]
    assert lists
    assert all("limit=50" in url for url in lists)


def test_a_bulk_pause_shows_count_and_sample_first(dashboard: Dashboard, page: Page) -> None:
    add_many(dashboard, 250)
    dashboard.app.schedules.pause("job-000007", "before")
    page.goto(dashboard.link("schedules"))
    page.get_by_label("Select all of this page").check()
    expect(page.get_by_text("50 selected")).to_be_visible()
    page.get_by_role("button", name="Select all 250 that match").click()
    page.get_by_role("button", name="Pause …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("249 schedules will be paused.")
    expect(dialog.get_by_label("Sample")).to_contain_text("job-000000")
    expect(dialog.get_by_label("Sample")).to_contain_text("and 244 more")
    assert dashboard.app.schedules.get("job-000000").state == "active"
    dialog.get_by_label("Note").fill(f"the disk is full {HOSTILE}")
    expect(dialog).to_contain_text("nothing makes up for them")
    dialog.get_by_label("Until").select_option("a time")
    dialog.get_by_label("Time", exact=True).fill("2020-01-01T00:00")
    expect(dialog.get_by_role("alert")).to_contain_text("This time is over.")
    expect(dialog.get_by_role("button", name="Pause", exact=True)).to_be_disabled()
    dialog.get_by_label("Until").select_option("tomorrow 09:00")
    assert_accessible(page)
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(dialog).to_contain_text("249 paused.")
    expect(dialog.get_by_role("table").get_by_role("row")).to_have_count(250)
    dialog.get_by_role("button", name="Close").last.click()
    paused = dashboard.app.schedules.get("job-000249")
    assert (paused.state, paused.pause_note) == ("paused", f"the disk is full {HOSTILE}")
    assert paused.paused_until is not None
    until = paused.paused_until.astimezone(BERLIN)
    assert (until.hour, until.minute) == (9, 0)
    assert until.date() == datetime.now(BERLIN).date() + timedelta(days=1)
    assert dashboard.app.schedules.get("job-000007").pause_note == "before"
    expect(row(page, "job-000000")).to_contain_text("the disk is full")


def test_a_bulk_action_reaches_schedules_of_several_tenants(dashboard: Dashboard, page: Page) -> None:
    for tenant in ("acme", "default", "zeta"):
        dashboard.app.schedules.add("nightly", "@daily", "work", tenant=tenant)
    page.goto(dashboard.link("schedules"))
    for tenant in ("acme", "zeta"):
        of_tenant = page.get_by_role("row").filter(has_text=f"tenant {tenant}")
        of_tenant.get_by_role("checkbox").check()
    page.get_by_role("button", name="Pause …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 schedules will be paused.")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(dialog).to_contain_text("2 paused.")
    for tenant, state in (("acme", "paused"), ("default", "active"), ("zeta", "paused")):
        assert dashboard.app.schedules.get("nightly", tenant=tenant).state == state


def test_late_and_damaged_schedules_have_badges(dashboard: Dashboard, page: Page, tmp_path: Path) -> None:
    store = dashboard.app.store
    past = store.now() - 3 * 3_600_000
    for name in ("late", "broken"):
        made = changes.create(ScheduleRecord(name=name, task="work", trigger="0 * * * *"), past)
        assert store.put_schedules([Write(made, None)])[0].accepted
    dashboard.app.schedules.add("sound", "@daily", "work")
    with closing(sqlite3.connect(tmp_path / "dashboard.db")) as connection:
        connection.execute("UPDATE evenbeat_schedules SET execution = '{' WHERE name = 'broken'")
        connection.commit()
    page.goto(dashboard.link("schedules"))
    expect(row(page, "late").locator(".badges")).to_have_text("late")
    expect(row(page, "broken").get_by_text("damaged")).to_be_visible()
    expect(row(page, "sound").locator(".badges")).to_have_text("")
    page.get_by_label("late", exact=True).check()
    expect(page).to_have_url(re.compile("late=true"))
    expect(page.get_by_role("link", name="sound")).to_have_count(0)
    assert "late" in rows(page)


def test_bulk_work_can_be_stopped_between_batches(dashboard: Dashboard, page: Page) -> None:
    add_many(dashboard, 250)
    sent: list[str] = []

    def is_second_batch(request: Any) -> bool:
        if "bulk" not in request.url or '"dry_run":false' not in (request.post_data or ""):
            return False
        sent.append(request.post_data)
        return len(sent) == 2

    page.goto(dashboard.link("schedules"))
    page.get_by_label("Select all of this page").check()
    page.get_by_role("button", name="Select all 250 that match").click()
    page.get_by_role("button", name="Delete …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("250 schedules will be deleted.")
    with held(page, is_second_batch) as kept:
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(dialog).to_contain_text("100 of 250")
        expect(dialog.get_by_role("progressbar")).to_have_attribute("value", "100")
        dialog.get_by_role("button", name="Stop after this batch").click()
        kept[0].continue_()
        expect(dialog).to_contain_text("200 deleted, 50 not done.")
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.get_by_text("50 match")).to_be_visible()
    assert len(sent) == 2


def test_a_bulk_run_names_the_schedules_that_refused(dashboard: Dashboard, page: Page) -> None:
    for name in ("free", "busy", "asleep"):
        dashboard.app.schedules.add(name, "@daily", "work", overlap="skip")
    dashboard.app.schedules.run_now("busy")
    dashboard.app.schedules.pause("asleep")
    page.goto(dashboard.link("schedules"))
    page.get_by_label("Select all of this page").check()
    page.get_by_role("button", name="Run now …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 schedule will be run.")
    expect(dialog.get_by_label("Would be refused")).to_contain_text("busy schedule busy has 1 active run")
    expect(dialog).to_contain_text("1 of the selected stay as they are")
    dialog.get_by_role("button", name="Run now", exact=True).click()
    expect(dialog).to_contain_text("1 run, 1 refused, 1 left as it was.")
    refused = dialog.get_by_role("row").filter(has_text="busy")
    expect(refused).to_contain_text("refused")
    expect(refused).to_contain_text("active")
    expect(dialog.get_by_role("row").filter(has_text="asleep")).to_contain_text("it is not active")
    assert len(dashboard.app.runs.list(schedule="free")) == 1
    assert len(dashboard.app.runs.list(schedule="busy")) == 1


def test_an_edit_shows_what_changes_before_it_is_saved(dashboard: Dashboard, page: Page) -> None:
    made = dashboard.app.schedules.add("report", "0 9 * * *", "work", PAYLOAD, description=HOSTILE)
    page.goto(dashboard.link("schedules", "default", "report", "edit", tz="utc"))
    expect(field(page, "Payload")).to_have_value(f'{{\n  "big": {BIG},\n  "whole": 1.0\n}}')
    expect(field(page, "Description")).to_have_value(HOSTILE)
    expect(page.get_by_role("button", name="Review and save")).to_be_disabled()
    field(page, "Trigger").fill("0 9,21 * * *")
    field(page, "Payload").fill(f'{{"big": {BIG + 1}}}')
    field(page, "Retries").fill("3")
    page.get_by_role("button", name="Review and save").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("row").filter(has_text="Retries")).to_have_text(re.compile("Retries\\s*0\\s*3"))
    ticks = dialog.get_by_label("The next ticks before and after").get_by_role("listitem")
    # Ten ticks of the old trigger are kept; of the new trigger, every second one is added.
    expect(ticks.filter(has_text="kept")).to_have_count(10)
    expect(ticks.filter(has_text="added")).to_have_count(5)
    expect(ticks.filter(has_text="removed")).to_have_count(0)
    expect(dialog).to_contain_text("No tick fires from this edit.")
    assert_accessible(page)
    assert dashboard.app.schedules.get("report") == made
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(page).to_have_url(re.compile("#/schedules/default/report\\?"))
    saved = dashboard.app.schedules.get("report")
    assert (saved.trigger, saved.payload, saved.retries) == ("0 9,21 * * *", {"big": BIG + 1}, 3)
    assert dashboard.app.runs.list() == []


def test_an_edit_of_a_schedule_that_changed_meanwhile_keeps_the_entries(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("412 (Precondition Failed)")
    dashboard.app.schedules.add("report", "@daily", "work")
    page.goto(dashboard.link("schedules", "default", "report", "edit"))
    field(page, "Retries").fill("3")
    dashboard.app.schedules.update("report", description="theirs")
    page.get_by_role("button", name="Review and save").click()
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("has changed meanwhile")
    page.get_by_role("button", name="Load again").click()
    expect(field(page, "Description")).to_have_value("theirs")
    expect(field(page, "Retries")).to_have_value("3")
    page.get_by_role("button", name="Review and save").click()
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    expect(page).to_have_url(re.compile("#/schedules/default/report$"))
    saved = dashboard.app.schedules.get("report")
    assert (saved.retries, saved.description) == (3, "theirs")


def test_an_edited_schedule_goes_back_to_the_code(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.declare("nightly", "0 2 * * *", "work")
    dashboard.app.schedules.update("nightly", trigger="0 3 * * *", timeout="5m")
    page.goto(dashboard.link("schedules"))
    expect(row(page, "nightly").get_by_text("edited by hand")).to_be_visible()
    page.goto(dashboard.link("schedules", "default", "nightly", "edit"))
    expect(page.get_by_text("Code declares this schedule.")).to_be_visible()
    page.get_by_role("button", name="Back to code …").click()
    dialog = page.get_by_role("dialog")
    changed = dialog.get_by_role("row").filter(has_text="trigger")
    expect(changed).to_have_text(re.compile("0 3 \\* \\* \\*.*0 2 \\* \\* \\*"))
    expect(dialog.get_by_role("row").filter(has_text="timeout")).to_contain_text("5m")
    expect(dialog.get_by_role("listitem").filter(has_text="removed")).to_have_count(10)
    expect(dialog.get_by_role("listitem").filter(has_text="added")).to_have_count(10)
    dialog.get_by_role("button", name="Back to code", exact=True).click()
    expect(field(page, "Trigger")).to_have_value("0 2 * * *")
    assert dashboard.app.schedules.get("nightly").edited == {}


def test_a_viewer_finds_no_buttons_that_change_schedules(
    browser: Browser, guarded: Dashboard, complaints: Complaints
) -> None:
    guarded.app.schedules.add("report", "@daily", "work")
    for role, actions, creates in (
        ("viewer", [], False),
        ("operator", ["Pause …", "Resume …", "Run now …"], False),
        ("admin", ["Pause …", "Resume …", "Run now …", "Change …", "Delete …"], True),
    ):
        with opened(browser, guarded, complaints) as context:
            context.set_extra_http_headers({"Authorization": f"Bearer {guarded.token(role)}"})  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(guarded.link("schedules"))
            expect_rows(page, "report")
            assert page.locator(".bulk button").all_inner_texts() == actions
            expect(page.get_by_role("link", name="+ New schedule")).to_have_count(int(creates))
            page.goto(guarded.link("schedules", "new"))
            expect(page.get_by_role("button", name="Create schedule")).to_have_count(int(creates))


def test_the_list_fits_a_phone(browser: Browser, dashboard: Dashboard, complaints: Complaints) -> None:
    dashboard.app.schedules.add("a" * 128, "@daily", "work", description="long " * 100, tags=["t" * 60])
    with opened(browser, dashboard, complaints, dark=True, width=375) as context:
        page = context.new_page()
        for path in (["schedules"], ["schedules", "new"], ["schedules", "default", "a" * 128, "edit"]):
            page.goto(dashboard.link(*path))
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator("main .card").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") == 375
            assert_accessible(page)
