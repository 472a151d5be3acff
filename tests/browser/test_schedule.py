"""Stories of the page of one schedule: understand it, pause it, resume it, run it."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from evenbeat.core.records import ScheduleRecord
from evenbeat.rules import changes
from evenbeat.stores.base import Write
from tests.browser.dashboard import Complaints, Dashboard, assert_accessible, opened

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
TASK = "<img/src=x/onerror=alert(1)>"
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = 3_600_000


def open_schedule(dashboard: Dashboard, page: Page, name: str, **query: str) -> None:
    page.goto(dashboard.link("schedules", "default", name, **query))
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(page.locator(".stream.live")).to_be_visible()


def section(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


def action(page: Page, name: str) -> Locator:
    return page.locator(".page-head").get_by_role("button", name=name, exact=True)


def why(page: Page) -> Locator:
    return page.get_by_role("complementary", name="Why")


def cell(page: Page, words: str) -> Locator:
    return page.locator(".heat").get_by_role("button", name=re.compile(words))


def day(moment: datetime) -> str:
    """Return a day as the page writes it: Tue 17 Nov."""
    return f"{moment:%a} {moment.day} {moment:%b}"


def test_a_pause_with_a_note_is_seen_by_everybody(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("mail", "every 1h", "work")
    open_schedule(dashboard, page, "mail")
    action(page, "Pause").click()
    page.get_by_label("Note").fill("the provider is down")
    page.get_by_label("Until").select_option("1d")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    banner = page.get_by_role("note", name="Pause")
    expect(banner).to_contain_text("the provider is down")
    expect(banner).to_contain_text("Paused by a user without a login")
    expect(banner).to_contain_text("until")
    expect(action(page, "Resume")).to_be_visible()
    expect(action(page, "Pause")).to_be_hidden()
    paused = dashboard.app.schedules.get("mail")
    assert (paused.state, paused.pause_note) == ("paused", "the provider is down")
    assert paused.paused_until is not None
    assert paused.paused_at is not None
    assert paused.paused_until - paused.paused_at == timedelta(days=1)
    expect(section(page, "Changes")).to_contain_text("pause note: before: none → after: the provider is down")


def test_a_pause_until_a_time_is_read_by_the_clock_that_the_page_shows(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.app.schedules.add("mail", "every 1h", "work")
    open_schedule(dashboard, page, "mail")
    until = (datetime.now(BERLIN) + timedelta(days=3)).replace(hour=9, minute=30, second=0, microsecond=0)
    action(page, "Pause").click()
    page.get_by_label("Until").select_option("at")
    field = page.get_by_label("Time", exact=True)
    submit = page.get_by_role("dialog").get_by_role("button", name="Pause")
    field.fill("2020-01-01T00:00")
    expect(page.get_by_text("This time is over.")).to_be_visible()
    expect(submit).to_be_disabled()
    field.fill(f"{until:%Y-%m-%dT%H:%M}")
    submit.click()
    expect(page.get_by_role("note", name="Pause")).to_contain_text(f"until {day(until)}, 09:30 Berlin")
    assert dashboard.app.schedules.get("mail").paused_until == until


def test_a_paused_schedule_says_so_in_each_part(dashboard: Dashboard, page: Page) -> None:
    store = dashboard.app.store
    past = store.now() - 7 * HOUR // 2
    row = changes.create(ScheduleRecord(name="mail", task="work", trigger="every 1h"), past)
    paused = changes.pause(row.schedule, past, until=store.now() + 24 * HOUR)
    assert store.put_schedules([Write(paused, None)])[0].accepted
    open_schedule(dashboard, page, "mail")
    expect(section(page, "Account")).to_contain_text("3 expected = 0 ran + 3 in the present pause")
    expect(section(page, "Past and planned runs").get_by_label("Legend")).to_contain_text("paused")
    expect(cell(page, "[1-3] paused").first).to_contain_text("‖")
    ledger = section(page, "Ledger")
    expect(ledger).to_contain_text("Each tick before the present pause became a run of its own.")
    expect(ledger).to_contain_text("The ticks of the present pause are recorded here when it ends.")
    expect(section(page, "Coming ticks")).to_contain_text("these fire after the end of the pause")
    next_run = dashboard.app.schedules.get("mail").next_run
    assert next_run is not None
    local = next_run.astimezone(BERLIN)
    expect(section(page, "Overview")).to_contain_text(f"{day(local)}, {local:%H:%M} Berlin, after the pause")
    dashboard.app.schedules.resume("mail")
    expect(ledger).to_contain_text("The schedule was paused.")
    expect(section(page, "Account")).to_contain_text("3 expected = 0 ran + 3 skipped")


def test_a_run_that_no_node_can_do_is_a_warning(dashboard: Dashboard, page: Page, tmp_path: Path) -> None:
    store = dashboard.app.store
    past = store.now() - 5 * HOUR // 2
    row = changes.create(ScheduleRecord(name="old", task="legacy", trigger="every 1h"), past)
    assert store.put_schedules([Write(row, None)])[0].accepted
    dashboard.app.start()
    open_schedule(dashboard, page, "old")
    expect(section(page, "Last runs").locator("tbody tr")).to_have_count(1)
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("no live node has the task legacy")
    expect(banner).to_contain_text("Start a node that has the task legacy.")
    account = section(page, "Account")
    expect(account).to_contain_text("2 expected = 0 ran + 1 waits to run + 1 coalesced; 0 missing, 0 twice")
    expect(account.locator(".account.good")).to_be_visible()
    with closing(sqlite3.connect(tmp_path / "dashboard.db")) as connection, connection:
        connection.execute("UPDATE evenbeat_runs SET created_at = created_at - 600000")
    page.reload()
    expect(account.locator(".account.warn")).to_be_visible()
    expect(account).to_contain_text("a run has waited since")
    expect(account).to_contain_text("no live node has the task legacy")
    account.get_by_role("link", name="Runs that wait").click()
    expect(page).to_have_url(re.compile("#/runs\\?.*schedule=old.*state=queued"))


def test_a_resume_shows_first_what_becomes_of_missed_ticks(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("beat", "every 1s", "work")
    dashboard.app.schedules.pause("beat", note="maintenance")
    open_schedule(dashboard, page, "beat")
    expect(section(page, "Coming ticks")).to_contain_text("No tick fires until somebody resumes")
    action(page, "Resume").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(re.compile(r"ticks? of the pause (is|are) skipped"))
    expect(dialog).to_contain_text(re.compile(r"Skipped[1-9]"))
    assert dashboard.app.schedules.get("beat").state == "paused"
    dialog.get_by_role("button", name="Resume").click()
    expect(action(page, "Pause")).to_be_visible()
    expect(page.get_by_role("note", name="Pause")).to_be_hidden()
    assert dashboard.app.schedules.get("beat").state == "active"
    expect(section(page, "Coming ticks").get_by_role("listitem")).to_have_count(10)
    expect(section(page, "Ledger")).to_contain_text("The schedule was paused.")


def test_a_dialog_stays_after_a_double_click_and_a_selection_and_closes_by_a_click_beside_it(
    dashboard: Dashboard, page: Page
) -> None:
    dashboard.app.schedules.add("mail", "every 1h", "work")
    page.goto(dashboard.link("schedules", "default", "mail"))
    page.get_by_role("button", name="Pause").first.dblclick()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_role("textbox").first
    field.fill("the provider is down")
    place = field.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + 40, place["y"] + place["height"] / 2)
    page.mouse.down()
    page.mouse.move(5, 5)
    page.mouse.up()
    expect(field).to_have_value("the provider is down")
    # Another place: at the same one it would be a double click.
    page.mouse.click(5, 800)
    expect(dialog).to_have_count(0)


def test_a_resume_names_times_of_the_chosen_zone(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("nightly", "30 12 * * * tz=Asia/Kolkata", "work")
    next_run = dashboard.app.schedules.get("nightly").next_run
    assert next_run is not None
    dashboard.app.schedules.pause("nightly")
    for choice, zone in {"utc": "UTC", "schedule": "Asia/Kolkata"}.items():
        open_schedule(dashboard, page, "nightly", tz=choice)
        action(page, "Resume").click()
        local = next_run.astimezone(ZoneInfo(zone))
        expect(page.get_by_role("dialog")).to_contain_text(f"it fires next at {local:%a %Y-%m-%d %H:%M}")
        page.keyboard.press("Escape")


def test_a_run_by_hand_appears_while_the_page_is_open(dashboard: Dashboard, page: Page) -> None:
    seen: list[int] = []

    @dashboard.app.task(name="work")
    def work(number: int) -> None:
        seen.append(number)

    dashboard.app.schedules.add("report", "0 0 1 1 *", "work", payload={"number": 1})
    dashboard.app.start()
    open_schedule(dashboard, page, "report")
    expect(section(page, "Last runs")).to_contain_text("No run yet.")
    action(page, "Run now").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The next tick stays at")
    dialog.get_by_label("Payload of this run").fill("[1]")
    expect(dialog.get_by_role("button", name="Run now")).to_be_disabled()
    dialog.get_by_label("Payload of this run").fill('{"number": 12345678901234567890}')
    dialog.get_by_role("button", name="Run now").dblclick()
    runs = section(page, "Last runs").locator("tbody tr")
    expect(runs).to_have_count(1)
    expect(runs).to_contain_text("succeeded")
    expect(runs).to_contain_text("by hand")
    assert seen == [12345678901234567890]


def test_few_runs_are_drawn_as_they_are(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task(name="work")
    def work() -> None:
        pass

    dashboard.app.schedules.add("report", "0 0 1 1 *", "work", run_now=True)
    dashboard.app.start()
    open_schedule(dashboard, page, "report")
    expect(section(page, "Last runs")).to_contain_text("succeeded")
    run = dashboard.app.runs.list(schedule="report")[0]
    page.reload()
    charts = section(page, "Duration and lateness")
    expect(charts).to_contain_text("Each run is a point, at its planned start.")
    charts.get_by_text("Duration: as a table").click()
    table = charts.get_by_role("table", name="Duration")
    expect(table.get_by_role("columnheader")).to_have_text([re.compile("time"), "succeeded"])
    moment = run.scheduled_at.astimezone(BERLIN)
    expect(table.get_by_role("rowheader")).to_have_text(re.compile(f"{moment:%Y-%m-%d %H:%M:%S}"))
    # The legend has values only while the pointer is over the chart.
    time_of_point = charts.locator(".u-legend .u-series").first
    expect(time_of_point).to_be_hidden()
    charts.locator(".u-over").first.hover()
    expect(time_of_point).to_be_visible()


def test_rows_stay_in_their_places_under_the_pointer(dashboard: Dashboard, page: Page) -> None:
    app = dashboard.app
    app.schedules.add("report", "0 0 1 1 *", "work")
    first = app.schedules.run_now("report")
    open_schedule(dashboard, page, "report")
    runs = section(page, "Last runs")
    expect(runs.locator("tbody tr")).to_have_count(1)
    runs.locator("tbody tr").hover()
    place = runs.locator("tbody tr").bounding_box()
    app.schedules.run_now("report")
    new = runs.get_by_role("button", name="1 new")
    expect(new).to_be_visible()
    assert runs.locator("tbody tr").bounding_box() == place
    app.runs.cancel(first.id)
    expect(runs.locator("tbody tr")).to_have_count(1)
    expect(runs.locator("tbody tr")).to_contain_text("cancelled")
    new.click()
    expect(runs.locator("tbody tr")).to_have_count(2)


def test_a_run_whose_reply_was_lost_is_not_added_twice(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("ERR_FAILED")
    dashboard.app.schedules.add("report", "0 0 1 1 *", "work")
    open_schedule(dashboard, page, "report")
    lost: list[str] = []

    def lose_first(route: Route) -> None:
        if lost:
            route.continue_()
        else:
            lost.append(route.request.url)
            route.fetch()
            route.abort()

    page.route("**/run?*", lose_first)
    action(page, "Run now").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Run now").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The server does not answer.")
    dialog.get_by_role("button", name="Run now").click()
    expect(dialog).to_be_hidden()
    expect(section(page, "Last runs").locator("tbody tr")).to_have_count(1)
    assert len(dashboard.app.runs.list(schedule="report")) == 1


def test_a_change_by_somebody_else_is_not_overwritten(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("412")
    dashboard.app.schedules.add("mail", "every 1h", "work")
    open_schedule(dashboard, page, "mail")
    action(page, "Pause").click()
    page.get_by_label("Note").fill("mine")
    dashboard.app.schedules.update("mail", description="changed meanwhile")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The schedule changed meanwhile.")
    expect(page.locator(".schedule-description")).to_have_text("changed meanwhile")
    assert dashboard.app.schedules.get("mail").state == "active"


def test_the_next_tick_is_moved(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("report", "0 0 1 1 *", "work")
    open_schedule(dashboard, page, "report")
    to = (datetime.now(BERLIN) + timedelta(days=2)).replace(hour=7, minute=15, second=0, microsecond=0)
    action(page, "Move next tick").click()
    page.get_by_label("New time").fill(f"{to:%Y-%m-%dT%H:%M}")
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(section(page, "Coming ticks").locator("li").first).to_contain_text(f"{to:%Y-%m-%d %H:%M}:00")
    assert dashboard.app.schedules.get("report").next_run == to


def test_an_empty_cell_says_why_nothing_ran(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("nightly", "0 3 * * *", "work")
    open_schedule(dashboard, page, "nightly", tz="utc", by="hour")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    yesterday = datetime.now(UTC) - timedelta(days=1)
    cell(page, f"{day(tomorrow)}, 12:00–13:00 UTC: no tick").click()
    expect(why(page)).to_contain_text("nightly has no tick at")
    expect(why(page)).to_contain_text("it runs at 03:00 every day")
    cell(page, f"{day(yesterday)}, 12:00–13:00 UTC: not created yet").click()
    expect(why(page)).to_contain_text("nightly was created later")
    cell(page, f"{day(tomorrow)}, 03:00–04:00 UTC: 1 planned").click()
    expect(why(page)).to_contain_text("nightly starts at")
    # The answer is a link.
    page.reload()
    expect(why(page)).to_contain_text("nightly starts at")
    why(page).get_by_role("button", name="Close the answer").click()
    expect(why(page)).to_contain_text("Choose a cell")


def test_a_failed_cell_leads_to_its_run(dashboard: Dashboard, page: Page) -> None:
    @dashboard.app.task(name="work")
    def work() -> None:
        raise ValueError(HOSTILE)

    dashboard.app.schedules.add("beat", "every 1s", "work")
    dashboard.app.start()
    open_schedule(dashboard, page, "beat")
    failed = page.locator(".heat").get_by_role("button", name=re.compile("failed")).first
    expect(failed).to_contain_text("×")
    dashboard.app.schedules.pause("beat")
    failed.click()
    expect(why(page)).to_contain_text(f"ValueError: {HOSTILE}")
    link = why(page).get_by_role("link", name="Open the run")
    expect(link).to_have_attribute("href", re.compile("#/runs/default/"))
    expect(why(page).get_by_role("list", name="Runs").get_by_text("failed").first).to_be_visible()


def test_arrow_keys_walk_through_the_heat_map(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("nightly", "0 3 * * *", "work")
    open_schedule(dashboard, page, "nightly", tz="utc", by="hour")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    cell(page, f"{day(tomorrow)}, 12:00–13:00 UTC").focus()
    expect(page.locator(".heat button[tabindex='0']")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(cell(page, f"{day(tomorrow)}, 13:00–14:00 UTC")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(cell(page, f"{day(tomorrow - timedelta(days=1))}, 13:00–14:00 UTC")).to_be_focused()
    page.keyboard.press("Home")
    expect(cell(page, f"{day(tomorrow - timedelta(days=1))}, 00:00–01:00 UTC")).to_be_focused()
    page.keyboard.press("Enter")
    expect(why(page)).to_contain_text(f"{day(tomorrow - timedelta(days=1))}, 00:00–01:00 UTC")


def test_the_zone_switch_changes_the_heat_map_and_its_answers(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("nightly", "30 12 * * * tz=Asia/Kolkata", "work")
    open_schedule(dashboard, page, "nightly", by="hour")
    tick = dashboard.app.schedules.get("nightly").next_run
    assert tick is not None
    choice = page.get_by_label("Time zone")
    zones = {"mine": "Europe/Berlin", "utc": "UTC", "schedule": "Asia/Kolkata"}
    for value, zone in zones.items():
        choice.select_option(value)
        expect(page.locator(".heat-zone")).to_contain_text(f"Hours of {zone}")
        local = tick.astimezone(ZoneInfo(zone))
        hours = f"{local.hour:02}:00–{(local.hour + 1) % 24:02}:00 {zone.rsplit('/')[-1]}: 1 planned"
        cell(page, f"{day(local)}, {hours}").click()
        expect(page.locator(".why-sentence")).to_contain_text(f"nightly starts at {local:%a %Y-%m-%d %H:%M}")


def test_the_heat_map_goes_back_in_time(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("mail", "every 1h", "work")
    open_schedule(dashboard, page, "mail", tz="utc")
    expect(page.locator(".heat .present")).to_be_visible()
    past = datetime.now(UTC) - timedelta(days=10)
    page.get_by_role("button", name="← Earlier").click()
    cell(page, f"{day(past)}, 12:00–13:00 UTC: not created yet").click()
    expect(why(page)).to_contain_text("mail was created later")
    page.reload()
    expect(cell(page, f"{day(past)}, 12:00–13:00 UTC: not created yet")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.get_by_role("button", name="Later →").click()
    expect(page.locator(".heat .present")).to_be_visible()


def test_a_rare_schedule_is_drawn_by_the_day(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("weekly", "0 9 * * mon tz=Europe/Berlin", "work")
    open_schedule(dashboard, page, "weekly")
    tick = dashboard.app.schedules.get("weekly").next_run
    assert tick is not None
    expect(cell(page, f"{day(tick.astimezone(BERLIN))} Berlin: 1 planned")).to_be_visible()
    page.get_by_role("button", name="by hour").click()
    expect(page.locator(".heat-zone")).to_contain_text("Hours of Europe/Berlin")
    expect(page).to_have_url(re.compile("by=hour"))


def test_the_account_adds_up(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("report", "0 0 1 1 *", "work")
    open_schedule(dashboard, page, "report")
    account = section(page, "Account")
    expect(account).to_contain_text("It adds up: 0 expected = 0 ran; 0 missing, 0 twice")
    account.get_by_role("button", name="all").click()
    expect(account).to_contain_text("when the schedule was created")
    expect(page).to_have_url(re.compile("account=all"))


def test_an_edited_schedule_goes_back_to_the_code(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.declare("sync", "every 1h", "work", description="by the code")
    dashboard.app.schedules.update("sync", description="by hand")
    open_schedule(dashboard, page, "sync")
    expect(page.locator(".schedule-banner")).to_contain_text("it differs from the code: description")
    action(page, "Back to code").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("description: before: by hand → after: by the code")
    dialog.get_by_role("button", name="Back to code").click()
    expect(page.locator(".schedule-description")).to_have_text("by the code")
    expect(action(page, "Back to code")).to_be_hidden()


def test_an_edited_schedule_of_a_file_goes_back_to_the_file(
    dashboard: Dashboard, page: Page, tmp_path: Path
) -> None:
    file = tmp_path / "schedules.toml"
    file.write_text('[schedules.sync]\ntrigger = "every 1h"\ntask = "work"\n')
    dashboard.app.apply(file=file)
    dashboard.app.schedules.update("sync", description="by hand")
    open_schedule(dashboard, page, "sync")
    expect(page.locator(".schedule-banner")).to_contain_text("it differs from the file: description")
    action(page, "Back to file").click()
    page.get_by_role("dialog").get_by_role("button", name="Back to file").click()
    expect(page.locator(".notices").get_by_text("sync is what the file declares.")).to_be_visible()


def test_a_link_to_a_deleted_schedule_opens_without_an_error(dashboard: Dashboard, page: Page) -> None:
    dashboard.app.schedules.add("mail", "every 1h", "work")
    dashboard.app.schedules.delete("mail")
    page.goto(dashboard.link("schedules", "default", "mail"))
    expect(page.get_by_role("heading", name="This schedule was deleted")).to_be_visible()
    expect(section(page, "Changes")).to_contain_text("delete")


def test_a_schedule_is_deleted_on_its_page_and_a_wrong_name_leads_to_a_similar_one(
    dashboard: Dashboard, page: Page, complaints: Complaints
) -> None:
    complaints.allow("404")  # sections of the page may ask once more for what is being deleted
    dashboard.app.schedules.add("mail", "every 1h", "work")
    open_schedule(dashboard, page, "mail")
    action(page, "Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This goes: the schedule mail of tenant default (every hour)")
    dialog.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(re.compile("#/schedules$"))
    page.goto(dashboard.link("schedules", "default", "mail"))
    expect(page.get_by_role("heading", name="This schedule was deleted")).to_be_visible()
    expect(section(page, "Changes")).to_contain_text("delete")
    dashboard.app.schedules.add("report", "every 1h", "work")
    page.goto(dashboard.link("schedules", "default", "reprot"))
    expect(page.get_by_role("heading", name="There is no such schedule")).to_be_visible()
    page.get_by_role("link", name="report", exact=True).click()
    expect(section(page, "Account")).to_be_visible()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("trigger", "every now and then", "is not a duration"),
        ("catch_up", "{", "catch_up"),
        ("payload", "{", "payload"),
    ],
)
def test_a_damaged_schedule_says_what_is_wrong(
    dashboard: Dashboard, page: Page, tmp_path: Path, column: str, value: str, words: str
) -> None:
    dashboard.app.schedules.add("mail", "every 1h", "work")
    with closing(sqlite3.connect(tmp_path / "dashboard.db")) as connection, connection:
        connection.execute(f"UPDATE evenbeat_schedules SET {column} = ?", (value,))
    open_schedule(dashboard, page, "mail")
    alert = page.get_by_role("alert").filter(has_text="Nodes can't read this schedule")
    expect(alert).to_contain_text(words)
    expect(alert).to_contain_text("evenbeat why mail")
    expect(action(page, "Run now")).to_be_hidden()
    expect(action(page, "Delete")).to_be_visible()


def test_viewers_see_no_buttons(browser: Browser, guarded: Dashboard, complaints: Complaints) -> None:
    complaints.allow("401")
    guarded.app.schedules.add("mail", "every 1h", "work")
    secrets = {role: guarded.token(role) for role in ("viewer", "operator", "admin")}
    expected = {
        "viewer": [],
        "operator": ["Run now", "Pause", "Move next tick", "Backfill"],
        "admin": ["Run now", "Pause", "Move next tick", "Backfill", "Edit", "Delete"],
    }
    for role, names in expected.items():
        with opened(browser, guarded, complaints) as context:
            page = context.new_page()
            page.goto(guarded.link("schedules", "default", "mail"))
            page.get_by_label("Token").fill(secrets[role])
            page.get_by_role("button", name="Log in").click()
            expect(section(page, "Account")).to_contain_text("It adds up")
            assert page.locator(".page-head .button").all_inner_texts() == names


def test_hostile_texts_are_shown_as_texts(dashboard: Dashboard, page: Page) -> None:
    name = "mail:daily.1"
    dashboard.app.schedules.add(name, "every 1h", TASK, payload={"text": HOSTILE}, description=HOSTILE)
    open_schedule(dashboard, page, name)
    action(page, "Pause").click()
    page.get_by_label("Note").fill(HOSTILE)
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator(".pause-note")).to_have_text(HOSTILE)
    expect(section(page, "Changes")).to_contain_text(f"pause note: before: none → after: {HOSTILE}")
    expect(page.locator(".schedule-description")).to_have_text(HOSTILE)
    expect(page.get_by_role("link", name=TASK, exact=True)).to_be_visible()
    page.get_by_text("Payload", exact=True).click()
    expect(page.locator(".schedule-head pre")).to_contain_text(HOSTILE)
    assert page.locator("main img, main script").count() == 0


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 1280), (False, 375)])
def test_the_page_is_accessible_and_fits(
    browser: Browser, dashboard: Dashboard, complaints: Complaints, dark: bool, width: int
) -> None:
    @dashboard.app.task(name="work")
    def work() -> None:
        pass

    dashboard.app.schedules.add("mail", "0 0 1 1 *", "work", tags=["ops"], spread="5m", run_now=True)
    dashboard.app.start()
    with opened(browser, dashboard, complaints, dark=dark, width=width) as context:
        page = context.new_page()
        open_schedule(dashboard, page, "mail")
        expect(section(page, "Last runs")).to_contain_text("succeeded")
        dashboard.app.schedules.pause("mail", note="maintenance")
        expect(page.get_by_role("note", name="Pause")).to_be_visible()
        page.locator(".heat .present").click()
        expect(page.locator(".why-sentence")).to_be_visible()
        assert_accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        action(page, "Resume").click()
        expect(page.get_by_role("dialog")).to_contain_text("Missed ticks")
        assert_accessible(page)
