"""The forecast: 24 hours of 10,000 schedules, with peaks, quiet windows and proposed spreads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from bench.cron import EXPRESSIONS
from bench.measure import Row, interleaved, median
from evenbeat.app.forecasting import forecast_of
from evenbeat.core.records import ScheduleRecord
from evenbeat.triggers import parse_trigger

COUNT = 10_000
NOW = int(datetime(2026, 3, 2, 11, 59, 30, tzinfo=UTC).timestamp()) * 1000
GOAL = 200
PERIODS = ("1m", "5m", "10m", "15m", "30m", "1h", "6h", "1d")

# Each makes the trigger of schedule n.
CASES: dict[str, Callable[[int], str]] = {
    "the twenty common expressions": lambda n: EXPRESSIONS[n % 20],
    "no two crons alike": lambda n: f"{n % 60} {n // 60 % 24},{n // 1440 * 3} * * *",
    "eight periods": lambda n: f"every {PERIODS[n % 8]}",
    "every hour, at a minute of their own (H)": lambda _: "H * * * *",
    "every hour, all at :00": lambda _: "0 * * * *",
    "every millisecond": lambda _: "every 1ms",
}


def run() -> list[Row]:
    rows = {name: [_schedule(n, trigger(n)) for n in range(COUNT)] for name, trigger in CASES.items()}
    calls = {name: partial(forecast_of, found, NOW, 24) for name, found in rows.items()}
    taken = interleaved(calls)
    return [
        Row(
            "forecast",
            f"{COUNT:,} schedules x 24 h, {name}",
            "ms",
            milli := median(times) * 1e3,
            {},
            f"< {GOAL} ms",
            milli < GOAL,
        )
        for name, times in taken.items()
    ]


def _schedule(number: int, text: str) -> ScheduleRecord:
    name, created = f"schedule-{number:05}", NOW - number * 1009
    tick = parse_trigger(text).bind(name, created).next_ms(NOW)
    return ScheduleRecord(name=name, task="work", trigger=text, anchor=created, next_tick=tick)
