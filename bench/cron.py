"""Cron: the next tick and the parse, for twenty common expressions, against four peers.

Every library takes and returns aware datetimes, each computed from the one before. A cronsim object is an
iterator; celery returns a remaining time, which is added as its scheduler would add it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from bench.measure import Row, interleaved, median
from evenbeat import cron

EXPRESSIONS = (
    "* * * * *",
    "*/5 * * * *",
    "*/10 * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "30 * * * *",
    "0 */2 * * *",
    "0 */6 * * *",
    "0 0 * * *",
    "30 2 * * *",
    "15 3 * * *",
    "0 9 * * mon-fri",
    "*/30 9-17 * * mon-fri",
    "0 22 * * mon-fri",
    "0 0 * * sun",
    "5 4 * * sun",
    "0 0 1 * *",
    "0 0 1,15 * *",
    "0 0 1 1 *",
    "0 12 1 */3 *",
)
ZONES = {"UTC": "UTC", "New York": "America/New_York"}
START = datetime(2026, 3, 1, 0, 0, 30)
CHAIN = 100
PARSES = 50


def run() -> list[Row]:
    rows = []
    for label, key in ZONES.items():
        zone: tzinfo = UTC if key == "UTC" else ZoneInfo(key)
        ratios = []
        for text in EXPRESSIONS:
            taken = interleaved(_chains(text, key, zone), rounds=7)
            row = _row(f"next, {label}", text, taken, CHAIN, least=2.0)
            ratios.append(min(row.peers.values()) / row.ours)
            rows.append(row)
        rows.append(
            Row(
                "cron",
                f"next, {label}: median over the expressions, times the fastest peer",
                "x",
                median(ratios),
                goal="≥ 5x",
                met=median(ratios) >= 5,
            )
        )
        ours, fastest = [], []
        for text in EXPRESSIONS:
            taken = interleaved(_parses(text, key, zone), rounds=7)
            row = _row(f"parse, {label}", text, taken, PARSES, least=1.0)
            ours.append(row.ours)
            fastest.append(min(row.peers.values()))
            rows.append(row)
        rows.append(
            Row(
                "cron",
                f"parse, {label}: median over the expressions, times the fastest peer",
                "x",
                median([f / o for f, o in zip(fastest, ours, strict=True)]),
            )
        )
    return rows


def _row(kind: str, text: str, taken: dict[str, list[float]], calls: int, least: float) -> Row:
    micro = {name: median(times) / calls * 1e6 for name, times in taken.items()}
    ours = micro.pop("evenbeat")
    met = min(micro.values()) / ours >= least
    return Row("cron", f"{kind}: {text}", "us", ours, micro, goal=f"≥ {least:g}x", met=met)


def _chains(text: str, key: str, zone: tzinfo) -> dict[str, Callable[[], object]]:
    from apscheduler.triggers.cron import CronTrigger
    from croniter import croniter
    from cronsim import CronSim

    start = START.replace(tzinfo=zone)
    ours = cron(text, tz=key)
    aps = CronTrigger.from_crontab(text, timezone=zone)
    iterator = croniter(text, start, ret_type=datetime)
    celery, set_now = _celery(text, key)

    def evenbeat() -> None:
        at: datetime | None = start
        for _ in range(CHAIN):
            assert at is not None
            at = ours.next(at)

    def cronsim() -> None:
        ticks = CronSim(text, start)
        for _ in range(CHAIN):
            next(ticks)

    def with_croniter() -> None:
        iterator.set_current(start, force=True)
        for _ in range(CHAIN):
            iterator.get_next(datetime)

    def apscheduler() -> None:
        at = start
        for _ in range(CHAIN):
            at = aps.get_next_fire_time(at, at)

    def with_celery() -> None:
        at = start
        for _ in range(CHAIN):
            set_now(at)
            # A remaining time is real time, so it is added in UTC.
            at = (at.astimezone(UTC) + celery.remaining_estimate(at)).astimezone(zone)

    return {
        "evenbeat": evenbeat,
        "cronsim": cronsim,
        "croniter": with_croniter,
        "APScheduler 3": apscheduler,
        "celery": with_celery,
    }


def _parses(text: str, key: str, zone: tzinfo) -> dict[str, Callable[[], object]]:
    from apscheduler.triggers.cron import CronTrigger
    from croniter import croniter
    from cronsim import CronSim

    start = START.replace(tzinfo=zone)
    return {
        "evenbeat": lambda: [cron(text, tz=key) for _ in range(PARSES)],
        "cronsim": lambda: [CronSim(text, start) for _ in range(PARSES)],
        "croniter": lambda: [croniter(text, start) for _ in range(PARSES)],
        "APScheduler 3": lambda: [CronTrigger.from_crontab(text, timezone=zone) for _ in range(PARSES)],
        "celery": lambda: [_celery(text, key) for _ in range(PARSES)],
    }


_apps: dict[str, Any] = {}


def _celery(text: str, key: str) -> tuple[Any, Callable[[datetime], None]]:
    from celery import Celery
    from celery.schedules import crontab

    if key not in _apps:
        app = Celery("bench", set_as_current=True)
        app.conf.timezone = key
        _apps[key] = app
    now = [START]
    minute, hour, day, month, weekday = text.split()
    schedule = crontab(
        minute=minute,
        hour=hour,
        day_of_month=day,
        month_of_year=month,
        day_of_week=weekday,
        app=_apps[key],
        nowfun=lambda: now[0],
    )
    return schedule, lambda at: now.__setitem__(0, at)
