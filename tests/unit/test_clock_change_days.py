"""The days on which clocks change, with calendars: a backfill of them has the ticks that fired."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest

from evenbeat import RunContext, Scheduler, cron
from evenbeat.errors import InvalidTrigger
from evenbeat.testing import virtual
from tests.lengths import LONG

# The Sunday of each change; Lord Howe's clock moves by half an hour.
CHANGES = (
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Africa/Cairo", date(2026, 4, 24)),  # the hour after midnight is left out: no 00:00 on that day
)
EXPRESSIONS = ("30 2 * * *", "15 0,1,2,3 * * *", "@daily", "0 * * * *", "*/20 1-3 * * 0,1,5")
CALENDARS: tuple[dict[str, str], ...] = (
    {"skip": "off"},
    {"only": "on"},
    {"skip": "off", "move": "next"},
    {"skip": "off", "move": "previous"},
    {"only": "hours"},
)
RULES: tuple[dict[str, str], ...] = (
    {},
    {"gap": "skip", "repeat": "both"},
    {"gap": "shift", "repeat": "last"},
)


@pytest.mark.parametrize(
    ("zone", "day"),
    [pytest.param(*each, marks=() if each in CHANGES[:2] else LONG) for each in CHANGES],
    ids=lambda value: str(value).replace("/", "-"),
)
def test_a_backfill_of_a_day_on_which_the_clock_changes_has_the_ticks_that_fired(
    zone: str, day: date
) -> None:
    tried = 0
    for at, (expression, calendar) in enumerate(product(EXPRESSIONS, CALENDARS)):
        rule = RULES[(at + day.day) % len(RULES)]
        try:
            trigger = cron(expression, tz=zone, **calendar, **rule)  # type: ignore[arg-type]  # all are texts
        except InvalidTrigger:
            continue  # ticks that come more often than 24 times a day can't move
        fired, filled, missing = played(zone, day, trigger)
        assert filled == fired, (expression, calendar, rule)
        assert missing == 0, (expression, calendar, rule)
        tried += bool(fired)
    assert tried > len(EXPRESSIONS)


def played(zone: str, day: date, trigger: object) -> tuple[list[datetime], list[datetime], int]:
    """Fire for nine days around the change, then fill the five in their middle once more.

    Returns the ticks of the five days that fired, those that the backfill ran, and how many it would have
    added as missing.
    """
    app = Scheduler("memory://")
    seen: list[tuple[str, datetime]] = []

    @app.task
    def work(run: RunContext) -> None:
        assert run.tick is not None
        seen.append((run.cause, run.tick))

    midnight = datetime.combine(day, datetime.min.time(), ZoneInfo(zone))
    start, end = midnight - timedelta(days=2), midnight + timedelta(days=3)
    with virtual(app, now=midnight - timedelta(days=4)) as here:
        here.calendars.set("off", days=[day.isoformat()], tz=zone)
        here.calendars.set(
            "on", days=[(day + timedelta(days=late)).isoformat() for late in (-1, 0, 1)], tz=zone
        )
        here.calendars.set("hours", weekly=["fri-mon 00:00-02:45"], tz=zone)
        here.schedules.add("s", trigger, "work", catch_up="all")  # type: ignore[arg-type]  # a trigger
        here.travel("9d")
        fired = sorted(tick for cause, tick in seen if cause != "backfill" and start <= tick < end)
        missing = here.schedules.backfill("s", start, end, missing_only=True, dry_run=True).total
        here.schedules.backfill("s", start, end)
        here.run_pending()
        return fired, sorted(tick for cause, tick in seen if cause == "backfill"), missing
