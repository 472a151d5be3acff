"""Planning: an hour of 10,000 schedules in order, and a day of them as a histogram."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from bench.cron import EXPRESSIONS
from bench.measure import Row, interleaved, median
from evenbeat import Trigger, cron
from evenbeat.timeline import Plan

COUNT = 10_000
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
START = int(NOON.timestamp()) * 1000
HOUR, DAY = 3_600_000, 86_400_000
# cronsim needs seconds for all of them, so it is measured on a part, and scaled.
PEER_COUNT = 200


def run() -> list[Row]:
    return [
        *_case("every minute, one trigger", lambda _: cron("* * * * *"), "* * * * *"),
        *_case("every minute, no two triggers alike", _unlike, "* * * * *"),
        *_case("the twenty common expressions", lambda at: cron(EXPRESSIONS[at % 20]), None),
    ]


def _unlike(at: int) -> Trigger:
    """Return 10,000 different expressions that all tick every minute of the measured hour."""
    others = [hour for hour in range(24) if hour not in (12, 13)]
    hours = [12, *(hour for bit, hour in enumerate(others) if at >> bit & 1)]
    return cron(f"* {','.join(map(str, sorted(hours)))} * * *")


def _case(name: str, trigger: Callable[[int], Trigger], text: str | None) -> list[Row]:
    schedules = [(f"schedule-{at:05}", trigger(at)) for at in range(COUNT)]
    plan = Plan(schedules)
    ticks = len(plan.unroll(START, START + HOUR))
    title = f"{COUNT:,} schedules, {name}"
    contestants: dict[str, Callable[[], object]] = {
        "first": lambda: Plan(schedules).unroll(START, START + HOUR),
        "again": lambda: plan.unroll(START, START + HOUR),
        "day": lambda: plan.histogram(START, START + DAY),
    }
    if text is not None:
        contestants["cronsim"] = lambda: _with_cronsim(text)
    milli = {which: median(times) * 1e3 for which, times in interleaved(contestants).items()}
    peers = {"cronsim": milli["cronsim"] * COUNT / PEER_COUNT} if text is not None else {}
    return [
        Row(
            "planning",
            f"{title}: 1 h planned in order ({ticks:,} ticks)",
            "ms",
            milli["again"],
            peers,
            "< 10 ms",
            milli["again"] < 10,
        ),
        Row("planning", f"{title}: the same, compiling the triggers first", "ms", milli["first"], peers),
        Row(
            "planning",
            f"{title}: 24 h as a histogram by minute",
            "ms",
            milli["day"],
            {},
            "< 150 ms",
            milli["day"] < 150,
        ),
    ]


def _with_cronsim(text: str) -> None:
    from cronsim import CronSim

    end = NOON + timedelta(hours=1)
    for _ in range(PEER_COUNT):
        for tick in CronSim(text, NOON - timedelta(seconds=1)):
            if tick >= end:
                break
