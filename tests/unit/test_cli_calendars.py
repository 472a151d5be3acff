"""``evenbeat calendars``, and what other commands say about calendars."""

from __future__ import annotations

import re
from pathlib import Path

from evenbeat import Scheduler
from tests.unit import cli_store
from tests.unit.cli_store import Clock, answered, failed, printed

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock

ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//tests//EN
BEGIN:VEVENT
UID:1
DTSTART:20260309T080000Z
DTEND:20260309T100000Z
END:VEVENT
END:VCALENDAR
"""


def test_calendars_are_set_listed_shown_and_deleted(app: Scheduler) -> None:
    made = printed(
        "calendars", "set", "off", "--day", "2026-12-24..2026-12-25", "--weekly", "sun 10:00-12:00"
    )
    assert made == "set off: sun 10:00-12:00; 2026-12-24..2026-12-25\n"
    assert "business-days" in printed("calendars", "list")
    shown = printed("calendars", "show", "off", "--from", "2026-12-24", "--days", "4")
    assert shown.splitlines()[-3:] == [
        "2026-12-24 Thursday",
        "2026-12-25 Friday",
        "2026-12-27 Sunday 10:00-12:00",
    ]
    assert answered("calendars", "list")["calendars"][-1]["name"] == "off"
    assert printed("calendars", "delete", "off") == "deleted off\n"
    assert 'there is no calendar "off"' in failed("calendars", "delete", "off")
    assert failed("calendars", "set", "off", code=2) == (
        "error: --day, --weekly, --country and --ics give no day; give --day 2026-12-25, "
        "--weekly 'mon-fri 09:00-17:00', --country US or an iCalendar file (ics)\n"
    )


def test_a_calendar_in_use_stays_and_names_its_schedules(app: Scheduler) -> None:
    printed("calendars", "set", "off", "--day", "12-25")
    printed("schedules", "add", "beat", "0 9 * * * skip=off", "charge")
    assert 'calendar "off" is used by beat' in failed("calendars", "delete", "off")
    assert "1 schedule planned anew" in printed("calendars", "set", "off", "--day", "12-26")
    assert "schedules  beat" in printed("calendars", "show", "off")


def test_next_and_explain_read_the_calendars_of_the_store(app: Scheduler) -> None:
    app.calendars.set("off", weekly=["mon-sat"])
    assert "Sun" in printed("next", "0 9 * * * skip=off", "-n", "1")
    assert "not in off" in printed("explain", "0 9 * * * skip=off")
    assert "there is no calendar" in failed("next", "0 9 * * * skip=of", code=2)
    assert "only in business-days" in printed("next", "0 9 * * * only=business-days", "-n", "1")


def test_a_large_file_is_refused_by_its_size(app: Scheduler, tmp_path: Path) -> None:
    path = tmp_path / "large.ics"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    assert "100,000,000 bytes" in failed("calendars", "set", "off", "--ics", str(path))


def test_a_dry_run_says_what_would_change(app: Scheduler) -> None:
    printed("calendars", "set", "off", "--day", "12-25")
    printed("schedules", "add", "beat", "0 9 * * * skip=off", "charge")
    tick = app.schedules.next_run("beat")
    assert tick is not None
    shown = printed("calendars", "set", "off", "--day", f"{tick:%Y-%m-%d}", "--dry-run")
    assert shown.startswith(f"would set off: {tick:%Y-%m-%d}\nused by 1: beat\n1 schedule would be planned")
    assert f"  beat: next {tick:%a %Y-%m-%d} 09:00" in shown
    assert app.calendars.get("off").days == ("12-25",)
    assert "1: beat" in printed("calendars", "list")
    app.templates.set("nightly", trigger="0 3 * * * skip=off")
    assert "templates  nightly" in printed("calendars", "show", "off")
    app.schedules.delete("beat")
    assert "is used by the template nightly" in failed("calendars", "delete", "off")


def test_a_schedule_shows_its_calendars_and_what_they_remove_next(app: Scheduler) -> None:
    app.calendars.set("off", weekly=["sat,sun"])
    app.schedules.add("beat", "0 9 * * * skip=off", "charge")
    shown = printed("schedules", "show", "beat")
    assert "calendars  skip off" in shown
    assert "2 ticks from Sat" in shown
    assert answered("schedules", "show", "beat")["calendars"]["skip"] == ["off"]


def test_a_change_that_stops_a_schedule_is_a_warning(app: Scheduler) -> None:
    app.calendars.set("hours", weekly=["mon-fri"])
    app.schedules.add("beat", "every 10m only=hours", "charge")
    words = ("calendars", "set", "hours", "--day", "2020-01-01")
    assert "warning: beat would have no tick any more" in printed(*words, "--dry-run")
    assert "warning: beat has no tick any more: the calendar hours leaves none; change" in printed(*words)


def test_times_are_shown_with_their_zone(app: Scheduler, clock: Clock, tmp_path: Path) -> None:
    app.calendars.set("off", days=["2026-03-03"])
    app.schedules.add("bank", "0 9 * * * tz=Europe/Berlin skip=off", "charge")
    assert re.search("# +Europe/Berlin +UTC", printed("schedules", "show", "bank"))
    app.schedules.pause("bank")
    clock.pass_(1_000)
    why = printed("why", "bank", "--at", "2026-03-03T09:00")
    assert "+00:00" not in why
    assert re.search(r"Mon 2026-03-02 09:00 \+01:00 +pause", why)
    app.schedules.resume("bank")
    why = printed("why", "bank", "--at", "2026-03-03T09:00")
    assert re.search(r"Tue 2026-03-03 09:00 \+01:00 +the bare trigger has this tick", why)
    assert "Tue 2026-03-03 09:00 +01:00, " in printed(
        "calendars", "set", "off", "--day", "12-24", "--dry-run"
    )
    assert "zone       that of each schedule\n" in printed("calendars", "show", "off")
    path = tmp_path / "off.ics"
    path.write_text(ICS)
    printed("calendars", "set", "off", "--ics", str(path))
    shown = printed("calendars", "show", "off", "--tz", "Asia/Tokyo")
    assert "that of each schedule; times of events are shown in Asia/Tokyo\n" in shown
    assert "2026-03-09 Monday 17:00-19:00" in shown
    assert "events are shown in UTC" in printed("calendars", "show", "off")
    printed("calendars", "set", "off", "--ics", str(path), "--tz", "Europe/Berlin")
    assert "zone        Europe/Berlin\n" in printed("calendars", "show", "off")
    app.schedules.delete("bank")
    why = printed("why", "bank")
    assert re.search(r"Mon 2026-03-02 09:00:01 \+01:00 +deleted by ", why)
