"""How many ticks are coming, and when, across a clock change. Needs no database, but the extra `timeline`.

python examples/forecast.py
"""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from evenbeat import Trigger, at, cron, every, parse_trigger
from evenbeat.timeline import Plan

SCHEDULES: dict[str, Trigger] = {
    "digest": cron("0 9 * * mon-fri", tz="Europe/Berlin"),
    "backup": cron("30 2 * * *", tz="America/New_York"),
    "report": cron("0 6 L * *"),
    "payroll": cron("0 8 15W * *", tz="Africa/Casablanca"),
    "cleanup": every("10m", start="2026-03-01T00:00:00Z"),
    "poll": parse_trigger("*/20 * 8-17 * * * tz=Europe/Berlin"),
    "launch": at("2026-03-08 09:30", tz="America/New_York"),
}
# The day on which New York's clocks go forward: 02:30 does not exist there.
MORNING = datetime(2026, 3, 8, 5, tzinfo=UTC)
HOUR = 3_600_000


def main() -> None:
    console = Console()
    table = Table(title=f"The next tick after {MORNING:%Y-%m-%d %H:%M} UTC", title_justify="left")
    for column in ("schedule", "in words", "next tick, in its own zone"):
        table.add_column(column)
    for name, trigger in SCHEDULES.items():
        following = trigger.next(MORNING)
        table.add_row(name, trigger.explain().split(";")[0], f"{following:%a %Y-%m-%d %H:%M:%S %z}")
    console.print(table)

    start = int(MORNING.timestamp()) * 1000
    plan = Plan(SCHEDULES.items())
    ticks = plan.unroll(start, start + 4 * HOUR)
    console.print(
        f"\n{len(ticks):,} ticks in the next 4 hours. Around 07:00 UTC, where the backup of 02:30 runs:"
    )
    for tick, name in ticks.query(start + 2 * HOUR - 20_000, start + 2 * HOUR + 20_000):
        console.print(f"  {datetime.fromtimestamp(tick / 1000, UTC):%H:%M:%S} UTC  {name}")

    console.print("\nTicks per hour of the day:")
    _, _, counts = plan.histogram(start, start + 24 * HOUR, minutes=60)
    for hour, count in enumerate(counts.tolist()):
        console.print(f"  {(5 + hour) % 24:02}:00  {'▇' * (count // 5)} {count}")


if __name__ == "__main__":
    main()
