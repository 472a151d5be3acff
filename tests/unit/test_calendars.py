"""Calendars of a store: their sources, the schedules that use them, and the ticks that they remove."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import (
    Calendar,
    CalendarInUse,
    CalendarNotFound,
    InvalidTrigger,
    InvalidValue,
    Scheduler,
    SkippedTicks,
    cron,
    every,
)
from evenbeat.core.instants import to_ms
from evenbeat.core.records import ScheduleRecord
from evenbeat.doctor.schedules import calendar_findings
from evenbeat.node.calendar_copies import CHECK_EVERY, CalendarCheck
from evenbeat.rules import changes
from evenbeat.rules.calendar_records import KIND
from evenbeat.testing import VirtualScheduler

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)  # a Sunday
DAY = timedelta(days=1)

ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//tests//EN
BEGIN:VEVENT
UID:1
SUMMARY:closed
DTSTART;VALUE=DATE:20260303
DTEND;VALUE=DATE:20260305
END:VEVENT
BEGIN:VEVENT
UID:2
SUMMARY:every Friday
DTSTART;VALUE=DATE:20260306
RRULE:FREQ=WEEKLY;COUNT=3
EXDATE;VALUE=DATE:20260313
END:VEVENT
BEGIN:VEVENT
UID:3
SUMMARY:maintenance
DTSTART:20260309T080000Z
DTEND:20260309T100000Z
END:VEVENT
END:VCALENDAR
"""


def nothing() -> None: ...


@pytest.fixture
def app(scheduler: VirtualScheduler) -> VirtualScheduler:
    scheduler.task(name="work")(nothing)
    return scheduler


def row(app: VirtualScheduler, name: str = "beat") -> ScheduleRecord:
    found = app.schedules._session.row("default", name)
    assert found is not None
    return found


def days(app: VirtualScheduler, name: str, count: int = 30) -> list[str]:
    return [day.day + " ".join(("", *day.times)) for day in app.calendars.preview(name, count=count)]


def ran(app: VirtualScheduler) -> list[str]:
    runs = [run for run in app.runs.list(limit=100) if run.tick is not None]
    return sorted(run.tick.strftime("%a %d %H:%M") for run in runs if run.tick is not None)


def removed(app: VirtualScheduler) -> list[SkippedTicks]:
    return [each for each in app.schedules.skipped("beat") if each.reason == "calendar"]


# -- sources -----------------------------------------------------------------------------------------------


def test_a_calendar_has_days_windows_and_days_taken_out(app: VirtualScheduler) -> None:
    made = app.calendars.set(
        "closed",
        days=["2026-03-03..2026-03-05", date(2026, 3, 20), "03-08"],
        weekly=["sat 22:00-02:00"],
        without=["2026-03-04"],
        tz="Europe/Berlin",
    )
    assert (made.tz, made.covers_until, made.built_in, made.replanned) == ("Europe/Berlin", None, False, 0)
    assert made.days == ("2026-03-03..2026-03-05", "2026-03-20", "03-08")
    assert (
        made.words
        == "sat 22:00-02:00; 2026-03-03..2026-03-05, 2026-03-20, 03-08, without 1 day (Europe/Berlin)"
    )
    assert days(app, "closed", 9) == [
        "2026-03-01 00:00-02:00",
        "2026-03-03",
        "2026-03-05",
        "2026-03-07 22:00-24:00",
        "2026-03-08",
    ]
    assert app.calendars.get("closed") == made
    assert [each.name for each in app.calendars.list()] == ["business-days", "weekends", "closed"]


def test_a_country_has_its_holidays_for_ten_years(app: VirtualScheduler) -> None:
    made = app.calendars.set("us", country="US", subdivision="CA", without=["2026-07-03"])
    assert (made.words, made.covers_until) == ("holidays of US-CA, without 1 day", "2036-12-31")
    found = [day.day for day in app.calendars.preview("us", count=366)]
    assert "2026-12-25" in found
    assert "2026-07-03" not in found
    assert app.calendars.preview("us", since="2036-12-01", count=31)
    assert not app.calendars.preview("us", since="2037-12-01", count=31)


def test_an_ics_file_gives_days_and_spans(app: VirtualScheduler) -> None:
    made = app.calendars.set("office", ics=ICS)
    assert made.words == "5 days or times of events"
    wanted = ["2026-03-03", "2026-03-04", "2026-03-06", "2026-03-09 08:00-10:00", "2026-03-20"]
    assert days(app, "office") == wanted
    assert app.calendars.set("office", ics=ICS.encode()).events == 5


def test_a_text_that_is_the_path_of_a_file_is_not_read(app: VirtualScheduler, tmp_path: Path) -> None:
    for content in (ICS, "a secret"):
        path = tmp_path / "x.ics"
        path.write_text(content)
        with pytest.raises(InvalidValue, match="is not an iCalendar file") as refusal:
            app.calendars.set("office", ics=str(path))
        assert content not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({}, "days", "give no day"),
        ({"days": ["tomorrow"]}, "days", "is not a day"),
        ({"without": [7]}, "without", "is not a day"),
        ({"weekly": ["mon 9-5"]}, "weekly", "has no times"),
        ({"days": ["12-25"], "tz": "Mars"}, "tz", "is not an IANA time zone"),
        ({"country": "Atlantis"}, "country", "is not known"),
        ({"country": "US", "subdivision": "ZZ"}, "subdivision", "is not a part of US"),
        ({"days": ["12-25"], "subdivision": "CA"}, "subdivision", "without a country"),
        ({"ics": "hello"}, "ics", "^ics is not an iCalendar file; such a file begins"),
        (
            {"ics": "\ufeffBEGIN:VCALENDAR\nhello\nEND:VCALENDAR\n"},
            "ics",
            "can't be read as an iCalendar file",
        ),
        (
            {"ics": "BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:x\nEND:VCALENDAR\n"},
            "ics",
            "has no event from 2025-01-01 to 2036-12-31",
        ),
        ({"days": "2026-12-25"}, "days", r'is not a list; write days=\["2026-12-25"\]'),
        ({"weekly": 7}, "weekly", r'is not a list; write weekly=\["mon-fri 09:00-17:00"\]'),
        ({"weekly": ["mon-friday"]}, "weekly", 'is not a weekly window: "friday" is not a weekday'),
        ({"weekly": ["monday"]}, "weekly", '"monday" is not a weekday'),
        ({"ics": 7}, "ics", "is not a text"),
        ({"ics": "B" * 100_000_000}, "ics", "100,000,000 characters, more than 1,000,000"),
    ],
)
def test_wrong_sources_are_refused_by_name(
    app: VirtualScheduler, given: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InvalidValue, match=words) as refused:
        app.calendars.set("bad", **given)
    assert refused.value.field == field
    with pytest.raises(CalendarNotFound):
        app.calendars.get("bad")


def test_names_are_checked_and_built_in_ones_are_kept(app: VirtualScheduler) -> None:
    with pytest.raises(InvalidValue, match="is built in"):
        app.calendars.set("weekends", days=["12-25"])
    with pytest.raises(InvalidValue, match="is built in"):
        app.calendars.delete("weekends")
    with pytest.raises(InvalidValue, match="is not 1 to 128"):
        app.calendars.set("a b", days=["12-25"])
    app.calendars.set("holidays", days=["12-25"])
    with pytest.raises(CalendarNotFound, match="did you mean holidays"):
        app.calendars.get("holiday")
    for count in (0, -1, 1 << 63):
        with pytest.raises(InvalidValue):
            app.calendars.preview("holidays", count=count)
    with pytest.raises(InvalidValue, match="is not a date"):
        app.calendars.preview("holidays", since="soon")


def test_calls_can_be_awaited(app: VirtualScheduler) -> None:
    async def calls() -> list[Calendar]:
        await app.calendars.aset("off", days=["12-25"])
        await app.calendars.aget("off")
        await app.calendars.apreview("off")
        found = await app.calendars.alist()
        await app.calendars.adelete("off")
        return found

    assert asyncio.run(calls())[-1].name == "off"


def test_each_tenant_has_its_own(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["12-25"], tenant="acme")
    with pytest.raises(CalendarNotFound):
        app.calendars.get("off")
    with pytest.raises(InvalidTrigger, match="there is no calendar"):
        app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work", tenant="acme")


def test_the_purge_of_a_tenant_deletes_its_calendars() -> None:
    app = Scheduler("memory://")
    app.calendars.set("off", days=["12-25"], tenant="acme")
    app.calendars.set("off", days=["12-25"])
    app.enqueue("work", tenant="acme")
    app.tenants.purge("acme", dry_run=False)
    assert [each.name for each in app.calendars.list(tenant="acme")] == ["business-days", "weekends"]
    assert len(app.calendars.list()) == 3


# -- schedules ---------------------------------------------------------------------------------------------


def test_a_schedule_skips_the_days_and_the_ledger_has_them(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-03", "2026-03-04"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.travel("5d")
    assert ran(app) == ["Fri 06 09:00", "Mon 02 09:00", "Thu 05 09:00"]
    (gone,) = removed(app)
    assert (gone.count, gone.run) == (2, None)
    assert (gone.first, gone.last) == (NOON + 1.875 * DAY, NOON + 2.875 * DAY)
    found = app.schedules.account("beat")
    assert found.adds_up
    assert (found.expected, found.ran, found.skipped) == (5, 3, {"calendar": 2})
    why = app.schedules.why("beat", "2026-03-03T09:00Z")
    assert why.verdict == "calendar"
    assert "the calendar off removes it" in why.sentence
    assert why.after == NOON + 3.875 * DAY


def test_a_tick_that_moves_names_the_run_that_stands_for_it(app: VirtualScheduler) -> None:
    app.schedules.add("beat", cron("0 9 * * *", skip="weekends", move="next"), "work")
    app.travel("9d")
    assert "Mon 09 09:00" in ran(app)
    assert not any(tick.startswith(("Sat", "Sun")) for tick in ran(app))
    (gone,) = removed(app)
    assert gone.count == 2
    assert gone.run == f"default/beat/1/{to_ms(NOON + 7.875 * DAY)}"
    why = app.schedules.why("beat", "2026-03-07T09:00Z")
    assert "the calendar weekends removes it, and it moves to" in why.sentence


def test_an_outage_over_removed_ticks_leaves_each_in_one_row(app: VirtualScheduler) -> None:
    app.schedules.add("beat", every("6h", skip="weekends"), "work", catch_up="all")
    app.schedules.pause("beat")
    app.travel("14d")
    app.schedules.resume("beat")
    app.travel("1d")
    found = app.schedules.account("beat")
    assert found.adds_up, found
    # Sunday 1 from 18:00, Saturday 7 to Sunday 8, Saturday 14 to Sunday 15.
    assert found.skipped["calendar"] == 17
    assert sum(each.count for each in removed(app)) == 17


def test_a_changed_calendar_plans_its_schedules_anew(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-02"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.schedules.add("other", cron("0 9 * * *"), "work")
    assert app.schedules.next_run("beat") == NOON + 1.875 * DAY
    made = app.calendars.set("off", days=["2026-03-03"])
    assert made.replanned == 1
    assert app.schedules.next_run("beat") == NOON + 0.875 * DAY
    assert app.runs.list() == []
    assert app.calendars.set("off", days=["2026-03-03"]).replanned == 0
    assert app.calendars.get("off").schedules == ("beat",)


def test_an_interval_keeps_its_phase_when_its_calendar_changes(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("beat", every("7h", skip="off"), "work")
    app.travel("10h")
    assert app.schedules.next_run("beat") == NOON + timedelta(hours=14)
    app.calendars.set("off", days=["2026-03-02"])
    # 02:00, 09:00 and so on are removed; the phase stays.
    assert app.schedules.next_run("beat") == NOON + timedelta(hours=42)
    app.travel("3d")
    assert app.schedules.account("beat").adds_up


def test_the_same_next_tick_stays(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    before = row(app)
    app.calendars.set("off", days=["2026-03-21"])
    after = row(app)
    assert (after.next_tick, after.generation) == (before.next_tick, before.generation)
    assert after.calendars != before.calendars


def test_a_moved_next_run_stays_when_the_calendar_changes(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.schedules.reschedule("beat", NOON + timedelta(hours=1))
    app.calendars.set("off", days=["2026-03-02"])
    assert app.schedules.next_run("beat") == NOON + timedelta(hours=1)
    app.travel("3d")
    assert ran(app) == ["Sun 01 13:00", "Tue 03 09:00", "Wed 04 09:00"]


def test_a_paused_schedule_stays_paused_when_its_calendar_changes(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.schedules.pause("beat")
    app.travel("2d")
    app.calendars.set("off", days=["2026-03-04"])
    assert app.schedules.get("beat").state == "paused"
    app.schedules.resume("beat")
    assert app.schedules.next_run("beat") == NOON + 3.875 * DAY
    assert app.runs.list() == []


def test_nodes_find_a_schedule_that_a_crash_left_with_an_old_copy(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.calendars.set("new", days=["2026-03-02"])
    # As if the process died between the write of the calendar and that of the schedule.
    record = app.store.get_record(KIND, "default", "off")
    changed = app.store.get_record(KIND, "default", "new")
    assert record is not None
    assert changed is not None
    assert app.store.put_record(replace(record, body=changed.body, version=7), record.version)
    assert app.schedules.next_run("beat") == NOON + 0.875 * DAY
    duty = CalendarCheck(app.store)
    now = app.store.now()
    duty.step(now)
    assert app.schedules.next_run("beat") == NOON + 1.875 * DAY
    app.store.put_record(replace(record, version=8), 7)
    duty.step(now + CHECK_EVERY - 1)
    assert app.schedules.next_run("beat") == NOON + 1.875 * DAY
    duty.step(now + CHECK_EVERY)
    assert app.schedules.next_run("beat") == NOON + 0.875 * DAY


def test_a_calendar_in_use_is_not_deleted(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["12-25"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    with pytest.raises(CalendarInUse, match="used by beat") as refused:
        app.calendars.delete("off")
    assert refused.value.schedules == ("beat",)
    app.schedules.update("beat", trigger="0 9 * * *")
    assert row(app).calendars == ""
    app.calendars.delete("off")
    with pytest.raises(CalendarNotFound):
        app.calendars.delete("off")


def test_declared_and_updated_schedules_get_copies(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-02"])
    app.schedules.declare("beat", cron("0 9 * * *", skip="off"), "work")
    assert app.schedules.next_run("beat") == NOON + 1.875 * DAY
    app.schedules.update("beat", trigger="0 9 * * * skip=weekends")
    assert app.schedules.next_run("beat") == NOON + 0.875 * DAY
    app.schedules.reset("beat")
    assert app.schedules.next_run("beat") == NOON + 1.875 * DAY
    with pytest.raises(InvalidTrigger, match="did you mean off"):
        app.schedules.update("beat", trigger="0 9 * * * skip=offf")


def test_a_trigger_whose_ticks_are_all_removed_is_refused(app: VirtualScheduler) -> None:
    app.calendars.set("always", weekly=["mon-sun"])
    for trigger in ("0 9 * * * skip=always", "every 1h skip=always", "0 9 * * sat,sun only=business-days"):
        with pytest.raises(InvalidTrigger, match=r"has no tick: the calendars \(.+\) leave none"):
            app.schedules.add("beat", trigger, "work")
    app.schedules.add("beat", "0 9 * * *", "work")
    with pytest.raises(InvalidTrigger, match="has no tick"):
        app.schedules.update("beat", trigger="0 9 * * * skip=always")


def test_a_calendar_that_removes_all_ticks_finishes_its_schedules_until_it_changes(
    app: VirtualScheduler,
) -> None:
    app.calendars.set("off", days=["12-25"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.calendars.set("off", weekly=["mon-sun"])
    assert app.schedules.get("beat").state == "finished"
    app.calendars.set("off", days=["12-25"])
    assert (app.schedules.get("beat").state, app.schedules.next_run("beat")) == ("active", NOON + 0.875 * DAY)


def test_previews_and_explanations_read_the_calendars(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-02", "2026-03-03"])
    ticks = app.schedules.preview("0 9 * * * skip=off", 2)
    assert ticks == [NOON + 2.875 * DAY, NOON + 3.875 * DAY]
    assert app.schedules.preview(cron("0 9 * * *", skip="off"), 1) == ticks[:1]
    found = app.explain("0 9 * * * skip=off move=next", 1)
    assert found.ticks[0].note == "moved from 2026-03-02: off" or found.ticks[0].at == ticks[0]
    assert found.words == "at 09:00 every day (UTC), not in off, moved to the next free day instead"
    with pytest.raises(InvalidTrigger, match="there is no calendar"):
        app.explain("0 9 * * * skip=of")


def test_the_forecast_counts_only_what_calendars_leave(app: VirtualScheduler) -> None:
    app.schedules.add("beat", cron("0 * * * *", skip="weekends"), "work")
    app.schedules.add("late", cron("30 * * * *", skip="weekends"), "work", spread="10m")
    found = app.forecast(24)
    # It is Sunday noon: only Monday's hours are left.
    assert found.total == 24


def test_the_doctor_warns_before_a_calendar_ends(app: VirtualScheduler) -> None:
    app.calendars.set("us", country="US")
    app.calendars.set("off", days=["12-25"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")

    def warnings(now: datetime) -> list[str]:
        store = app.store
        return [each.message for each in calendar_findings(store, [row(app)], to_ms(now))]

    assert warnings(datetime(2036, 10, 1, tzinfo=UTC)) == []
    assert warnings(datetime(2036, 10, 3, tzinfo=UTC)) == [
        "calendar us of tenant default has holidays and events until 2036-12-31 only"
    ]
    record = app.store.get_record(KIND, "default", "off")
    assert record is not None
    app.store.delete_record(KIND, "default", "off", record.version)
    assert warnings(NOON) == ["calendar off is gone: schedule beat goes on with its copy"]


def test_a_calendar_that_leaves_schedules_no_tick_is_named_wherever_one_looks(app: VirtualScheduler) -> None:
    app.calendars.set("hours", weekly=["mon-fri"])
    app.schedules.add("beat", every("10m", only="hours"), "work")
    app.schedules.add("other", cron("0 9 * * *", only="hours"), "work")
    app.schedules.add("ends", every("10m", until=NOON + DAY, only="hours"), "work")
    assert app.calendars.set("hours", weekly=["mon-sun"]).warnings == ()
    tried = app.calendars.set("hours", days=["2020-01-01"], dry_run=True)
    app.travel(2 * DAY)
    made = app.calendars.set("hours", days=["2020-01-01"])
    (would,), (warning,) = tried.warnings, made.warnings
    assert would.problem == "beat, ends, other would have no tick any more: the calendar hours leaves none"
    assert warning.problem == "beat, other have no tick any more: the calendar hours leaves none"
    assert warning.hint == (
        "change what hours contains, or the trigger: evenbeat schedules update beat --trigger …"
    )
    # The same content again changes nothing, and they still have no tick.
    for again in (
        app.calendars.set("hours", days=["2020-01-01"]),
        app.calendars.set("hours", days=["2020-01-01"], dry_run=True),
    ):
        assert again.replanned == 0
        assert again.warnings[0].problem.startswith("beat, other ")
    why = app.schedules.why("beat")
    assert why.verdict == "finished"
    assert why.sentence.endswith("has no tick to come: the calendar hours leaves none")
    assert why.remedy is not None
    assert why.remedy.endswith("gives it a tick: evenbeat calendars show hours")
    assert "leaves none" not in app.schedules.why("ends").sentence
    rows = [row(app), row(app, "ends"), row(app, "other")]
    (finding,) = calendar_findings(app.store, rows, app.store.now())
    assert (finding.level, finding.message) == (
        "warn",
        "2 schedules have no tick to come: calendars leave none",
    )
    assert finding.details == ("beat: hours", "other: hours")
    app.calendars.set("hours", weekly=["mon-fri"])
    assert row(app).state == "active"
    assert list(calendar_findings(app.store, [row(app)], app.store.now())) == []


def test_calendars_cost_a_schedule_without_them_nothing() -> None:
    planned = changes.create(ScheduleRecord(name="a", task="t", trigger="0 9 * * *"), to_ms(NOON))
    assert planned.schedule.calendars == ""
    built_in = changes.create(
        ScheduleRecord(name="a", task="t", trigger="0 9 * * * only=business-days"), to_ms(NOON)
    )
    assert built_in.schedule.calendars == '{"business-days":{"weekly":[[0,432000]]}}'
    with pytest.raises(InvalidTrigger, match="whose days are not known"):
        changes.create(ScheduleRecord(name="a", task="t", trigger="0 9 * * * only=mine"), to_ms(NOON))


# -- the past of a changed calendar ------------------------------------------------------------------------


def test_why_and_account_know_ticks_that_a_calendar_removed_before_it_changed(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-03", "2026-03-04"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.travel("5d")
    app.calendars.set("off", days=["2026-03-02", "2026-03-08"])
    app.travel("4d")
    assert ran(app) == [
        "Fri 06 09:00",
        "Mon 02 09:00",
        "Mon 09 09:00",
        "Sat 07 09:00",
        "Thu 05 09:00",
        "Tue 10 09:00",
    ]
    found = app.schedules.account("beat")
    assert found.adds_up, found
    assert found.counted_from_reason == "created"
    assert (found.expected, found.ran, found.skipped, found.missing) == (9, 6, {"calendar": 3}, 0)
    verdicts = [app.schedules.why("beat", f"2026-03-0{day}T09:00Z").verdict for day in range(2, 10)]
    assert verdicts == [
        "succeeded",
        "calendar",
        "calendar",
        "succeeded",
        "succeeded",
        "succeeded",
        "calendar",
        "succeeded",
    ]
    why = app.schedules.why("beat", "2026-03-04T09:00Z")
    assert "the calendar off removed it, as it was then" in why.sentence
    assert app.schedules.why("beat", "2026-03-04T10:00Z").verdict == "no_tick"


@pytest.mark.parametrize("move", ["next", "previous"])
def test_the_account_adds_up_while_a_moving_calendar_changes(app: VirtualScheduler, move: str) -> None:
    app.calendars.set("off", days=["2026-03-03", "2026-03-06"])
    app.schedules.add("beat", f"0 9 * * tue,fri skip=off move={move}", "work")
    for day in range(1, 15):
        app.travel("1d")
        found = app.schedules.account("beat")
        assert (found.adds_up, found.missing, found.doubled) == (True, 0, 0), (day, found)
        app.calendars.set("off", days=[f"2026-03-{(day * 5) % 14 + 2:02}", f"2026-03-{day + 3:02}"])
        found = app.schedules.account("beat")
        assert (found.adds_up, found.missing, found.doubled) == (True, 0, 0), (day, found)


def test_the_account_knows_a_tick_that_was_moved_by_hand_before_the_calendar_changed(
    app: VirtualScheduler,
) -> None:
    app.calendars.set("off", days=["2026-03-03"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.travel("30h")
    app.schedules.reschedule("beat", NOON + 2.2 * DAY)
    app.travel("3d")
    app.calendars.set("off", days=["2026-03-06"])
    app.travel("3d")
    found = app.schedules.account("beat")
    assert (found.adds_up, found.moved, found.missing, found.skipped) == (True, 1, 0, {"calendar": 2}), found
    assert app.schedules.why("beat", "2026-03-04T09:00Z").verdict == "rescheduled"


def test_an_interval_is_accounted_for_over_changes(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-02"])
    app.schedules.add("beat", every("7h", skip="off"), "work")
    app.travel("2d")
    app.calendars.set("off", days=["2026-03-04"])
    app.travel("2d")
    app.calendars.set("off", days=["2026-03-05"])
    app.travel("2d")
    found = app.schedules.account("beat")
    assert (found.adds_up, found.missing) == (True, 0)
    assert found.expected == 6 * 24 // 7
    assert found.skipped["calendar"] + found.ran == found.expected


def test_a_waiting_tick_stays_when_the_calendar_changes(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("load", cron("30 9 * * *"), "work")
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work", after="load within 1h, wait 2h")
    app.travel(timedelta(hours=21, minutes=5))
    assert app.schedules.why("beat").verdict == "waits_for_success"
    app.calendars.set("off", days=["2026-03-02"])
    app.travel("1h")
    assert [run.schedule for run in app.finished] == ["load", "beat"]
    assert app.schedules.skipped("beat") == []


# -- who uses a calendar, and what a change would do -------------------------------------------------------


def test_lists_and_results_say_who_uses_a_calendar(app: VirtualScheduler) -> None:
    made = app.calendars.set("off", days=["2026-03-20"])
    assert (made.schedules, made.schedule_count, made.templates) == ((), 0, ())
    for number in range(7):
        app.schedules.add(f"beat-{number}", cron("0 9 * * *", skip="off"), "work")
    app.schedules.add("daily", cron("0 9 * * *", only="business-days"), "work")
    app.templates.set("nightly", trigger="0 3 * * * skip=off")
    found = {each.name: each for each in app.calendars.list()}
    first = tuple(f"beat-{number}" for number in range(5))
    assert (found["off"].schedule_count, found["off"].schedules) == (7, first)
    assert found["off"].templates == ("nightly",)
    assert found["business-days"].schedules == ("daily",)
    assert (found["weekends"].schedules, found["weekends"].schedule_count) == ((), 0)
    made = app.calendars.set("off", days=["2026-03-21"])
    assert (made.schedule_count, made.schedules, made.replanned, made.effects) == (7, first, 7, ())
    assert len(app.calendars.get("off").schedules) == 7


def test_a_dry_run_shows_the_next_ticks_before_and_after_and_writes_nothing(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-20"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off"), "work")
    app.schedules.add("moved", cron("0 9 * * *", skip="off"), "work")
    app.schedules.reschedule("moved", NOON + timedelta(hours=1))
    before = (app.calendars.get("off"), row(app), row(app, "moved"))
    shown = app.calendars.set("off", days=["2026-03-02", "2026-03-04"], dry_run=True)
    assert (app.calendars.get("off"), row(app), row(app, "moved")) == before
    assert (shown.replanned, shown.schedules, shown.days) == (
        2,
        ("beat", "moved"),
        ("2026-03-02", "2026-03-04"),
    )
    days = [
        (each.schedule, [f"{tick:%d %H}" for tick in each.before], [f"{tick:%d %H}" for tick in each.after])
        for each in shown.effects
    ]
    assert days == [
        ("beat", ["02 09", "03 09", "04 09"], ["03 09", "05 09", "06 09"]),
        ("moved", ["01 13", "03 09", "04 09"], ["01 13", "03 09", "05 09"]),
    ]
    done = app.calendars.set("off", days=["2026-03-02", "2026-03-04"])
    assert done.replanned == 2
    for effect in shown.effects:
        assert tuple(app.schedules.preview(effect.schedule, 3)) == effect.after
    assert app.calendars.set("new", days=["12-25"], dry_run=True).replanned == 0
    with pytest.raises(CalendarNotFound):
        app.calendars.get("new")


def test_a_calendar_that_a_template_names_is_not_deleted(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["12-25"])
    app.templates.set("nightly", trigger="0 3 * * * skip=off")
    with pytest.raises(CalendarInUse, match="is used by the template nightly; give it another") as refused:
        app.calendars.delete("off")
    assert (refused.value.schedules, refused.value.templates) == ((), ("nightly",))
    app.templates.set("nightly", trigger="0 3 * * *")
    app.calendars.delete("off")


@pytest.mark.parametrize(
    ("country", "given", "words"),
    [
        ("US", "California", "did you mean CA?"),
        ("US", "ca", "did you mean CA?"),
        ("US", "QQ", "WY"),
        ("DE", "Bavaria", "BY"),
        ("SG", "1", "leave it out"),
    ],
)
def test_an_unknown_subdivision_is_refused_with_all_that_exist(
    app: VirtualScheduler, country: str, given: str, words: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        app.calendars.set("bad", country=country, subdivision=given)
    assert words in (refused.value.hint or "")


def test_a_schedule_says_what_its_calendars_remove_next(app: VirtualScheduler) -> None:
    app.calendars.set("off", days=["2026-03-04"])
    app.schedules.add("beat", cron("0 9 * * *", skip="off", only="business-days"), "work")
    app.schedules.add("moving", "0 9 * * mon,wed skip=off move=next", "work")
    app.schedules.add("bare", cron("0 9 * * *"), "work")
    found = app.schedules.calendars("beat")
    assert (found.skip, found.only, found.move) == (("off",), ("business-days",), "skip")
    first = [
        (f"{each.first:%d}", f"{each.last:%d}", each.count, each.calendars) for each in found.removed[:2]
    ]
    assert first == [("04", "04", 1, ("off",)), ("07", "08", 2, ("business-days",))]
    assert len(found.removed) == 5
    (moved,) = app.schedules.calendars("moving").removed
    assert (moved.first, moved.moved_to) == (NOON + 2.875 * DAY, NOON + 3.875 * DAY)
    assert (app.schedules.calendars("bare").skip, app.schedules.calendars("bare").removed) == ((), ())


def test_ticks_that_different_calendars_remove_are_named_apart(app: VirtualScheduler) -> None:
    app.calendars.set("plant", days=["2026-11-25", "2026-12-28..2027-02-28"])
    app.calendars.set("us", days=["2026-11-26..2026-11-27", "2026-12-29"])
    app.schedules.add("beat", "0 9 * * * skip=plant,us", "work")
    found = app.schedules.calendars("beat").removed
    assert [(f"{each.first:%m-%d}", f"{each.last:%m-%d}", each.count, each.calendars) for each in found] == [
        ("11-25", "11-25", 1, ("plant",)),
        ("11-26", "11-27", 2, ("us",)),
        ("12-28", "12-28", 1, ("plant",)),
        ("12-29", "12-29", 1, ("plant", "us")),
        ("12-30", "02-28", 61, ("plant",)),
    ]
