"""``schedules cells``: the heat map in characters."""

from __future__ import annotations

import pytest

from evenbeat import Scheduler
from tests.unit import cli_store
from tests.unit.cli_store import HOUR, MINUTE, Clock, answered, claim, fail, failed, fire, printed, succeed

# Fixtures: a store in this folder, and a clock that stands still on a Monday at 08:00 UTC.
app, clock = cli_store.app, cli_store.clock


def work(app: Scheduler, clock: Clock, *outcomes: str) -> None:
    """Fire the schedule once each half hour, and end its runs so."""
    for outcome in outcomes:
        clock.pass_(30 * MINUTE)
        fire(app)
        for run in claim(app):
            if outcome == "succeed":
                succeed(app, run)
            elif outcome == "fail":
                fail(app, run, "no")


def test_a_line_for_each_day_has_a_character_for_each_hour(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "every 30m", "t", overlap="allow")
    # 08:30 to 13:00
    work(app, clock, *["succeed"] * 4, "fail", "succeed", "hold", "succeed", "succeed", "succeed")
    app.schedules.pause("a")
    clock.pass_(2 * HOUR)
    app.schedules.resume("a")
    assert printed("schedules", "cells", "a", "--from", "1d", "--to", "4h") == (
        "a, by the hour (UTC)\n"
        "now is Mon 03-02 15:00\n"
        "\n"
        "           00    03    06    09    12    15    18    21\n"
        "Sun 03-01\n"
        "Mon 03-02                  ▒ █ x > █ ▒ s s · · ·\n"
        "\n"
        "░▒▓█ 1 to 2 runs, x failed, > not ended, s skipped, · planned\n"
        "10 ticks fired, 8 succeeded, 1 failed, 4 skipped, 0 coalesced, 7 planned\n"
    )


def test_hours_that_the_clock_repeats_share_a_column(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "every 1h", "t")
    document = answered("schedules", "cells", "a", "--tz", "Europe/Berlin", "--to", "2026-03-30T00:00:00Z")
    assert document["zone"] == "Europe/Berlin"
    lines = printed("schedules", "cells", "a", "--tz", "Europe/Berlin", "--to", "2026-03-30T00:00:00Z")
    # The clock skips the hour from 02:00 on.
    night = next(line for line in lines.splitlines() if line.startswith("Sun 03-29"))
    assert night.removeprefix("Sun 03-29  ") == "· ·   " + "· " * 20 + "·"


def test_days_are_shown_by_week(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("a", "0 12 * * mon-fri", "t")
    lines = printed("schedules", "cells", "a", "--by", "day", "--to", "14d").splitlines()
    assert "           M T W T F S S" in lines
    assert "Mon 03-02  · · · · ·" in lines
    assert "· planned" in lines


def test_a_schedule_without_ticks_says_so(app: Scheduler) -> None:
    app.schedules.add("a", "0 0 1 1 *", "t")
    assert "no ticks" in printed("schedules", "cells", "a")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "60d"), '--from "60d" is more than 40d ago'),
        (("--tz", "Mars"), '--tz "Mars" is not an IANA time zone'),
    ],
)
def test_a_wrong_option_is_named(app: Scheduler, words: tuple[str, ...], problem: str) -> None:
    app.schedules.add("a", "every 30m", "t")
    assert problem in failed("schedules", "cells", "a", *words, code=2)


def test_a_timeline_has_a_line_for_each_schedule(app: Scheduler, clock: Clock) -> None:
    app.schedules.add("half", "every 30m", "t", overlap="allow")
    app.schedules.add("hourly", "0 * * * *", "t", overlap="allow")
    work(app, clock, "succeed", "fail")
    text = printed("timeline")
    assert text.splitlines()[:4] == [
        " " * 8 + (" " * 15).join(("08:00", "08:20", "08:40", "09:00", "09:20", "09:40")),
        " " * (8 + 60) + "v",
        "half  " + "  " + " " * 30 + "|" + " " * 29 + "x" + " " * 29 + ".",
        "hourly" + "  " + " " * 60 + "x",
    ]
    assert "| fired, x failed, > not ended, s skipped, p paused, . planned, v now (UTC)" in text
    document = answered("timeline", "--text", "half", "--to", "2h")
    assert [lane["schedule"] for lane in document["lanes"]] == ["half"]
    assert printed("timeline", "--tag", "none") == "no such schedules\n"


def test_a_timeline_without_schedules_says_how_to_add_one(app: Scheduler) -> None:
    assert printed("timeline") == "no schedules yet: evenbeat schedules add --help\n"
