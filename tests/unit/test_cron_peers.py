"""``days="both"`` against the schedulers that always mean it: Celery, APScheduler and huey."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import islice
from typing import Any

import pytest

from evenbeat import InvalidTrigger, cron
from tests.lengths import some

START = datetime(2026, 1, 31, 12, 34, tzinfo=UTC)
TICKS = 1000
PAIRS = 12

Peer = Callable[[str], Iterator[datetime]]


def with_celery(text: str) -> Iterator[datetime]:
    celery = import_module("celery")
    schedules = import_module("celery.schedules")
    minute, hour, date, month, weekday = text.split()
    app = celery.Celery("peers", set_as_current=False)
    app.conf.timezone = "UTC"
    at = START
    schedule: Any = schedules.crontab(
        minute=minute,
        hour=hour,
        day_of_month=date,
        month_of_year=month,
        day_of_week=weekday,
        app=app,
        nowfun=lambda: at,
    )
    while True:
        at += schedule.remaining_estimate(at)
        yield at


def with_apscheduler(text: str) -> Iterator[datetime]:
    triggers = import_module("apscheduler.triggers.cron")
    minute, hour, date, month, weekday = text.split()
    # Its weeks begin with Monday, and so do its numbers: names mean the same to everybody.
    names = ",".join(
        ("sun", "mon", "tue", "wed", "thu", "fri", "sat")[int(day)] for day in weekday.split(",")
    )
    trigger = triggers.CronTrigger(
        minute=minute, hour=hour, day=date, month=month, day_of_week=names, timezone=UTC
    )
    at = trigger.get_next_fire_time(None, START)
    while True:
        yield at
        at = trigger.get_next_fire_time(at, at)


def with_huey(text: str) -> Iterator[datetime]:
    """huey asks every minute. It is asked at the only minute of each day that its fields name."""
    huey = import_module("huey")
    minute, hour, date, month, weekday = text.split()
    matches = huey.crontab(minute=minute, hour=hour, day=date, month=month, day_of_week=weekday, strict=True)
    at = START.replace(hour=int(hour), minute=int(minute))
    while True:
        if at > START and matches(at):
            yield at
        at += timedelta(days=1)


def random_pairs(seed: int) -> Iterator[str]:
    """Texts with a list or range in both day fields, at one time of day, that match at all."""
    chance = random.Random(seed)
    while True:
        first = chance.randint(1, 28)
        dates = chance.choice(
            [
                str(chance.randint(1, 31)),
                f"{first}-{chance.randint(first + 1, 31)}",
                ",".join(map(str, sorted(chance.sample(range(1, 32), chance.randint(2, 6))))),
            ]
        )
        weekdays = ",".join(map(str, sorted(chance.sample(range(7), chance.randint(1, 4)))))
        month = chance.choice(["*", "*", "*", str(chance.randint(1, 12)), "2", "3-9"])
        text = f"{chance.randint(0, 59)} {chance.randint(0, 23)} {dates} {month} {weekdays}"
        try:
            cron(text, days="both")
        except InvalidTrigger:
            continue
        # A peer looks a few years ahead. 29 February on one weekday comes every 28 years.
        if month != "2" or first < 28:
            yield text


TEXTS = ("0 0 13 * 5", *islice(random_pairs(13), PAIRS))


@pytest.mark.parametrize("peer", [with_celery, with_apscheduler, with_huey])
@pytest.mark.parametrize("text", some(TEXTS, *TEXTS[:2]))
def test_both_days_are_the_days_of_celery_apscheduler_and_huey(text: str, peer: Peer) -> None:
    trigger = cron(text, days="both")
    theirs = list(islice(peer(text), TICKS))
    assert len(theirs) == TICKS
    assert list(islice(trigger.between(START, datetime.max.replace(tzinfo=UTC)), TICKS)) == theirs
