"""An interval keeps its phase: a late run does not move the ticks that follow.

python examples/intervals.py
"""

from __future__ import annotations

from evenbeat import RunContext, every
from evenbeat.testing import virtual


def main() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as scheduler:

        @scheduler.task(schedule=every("10m", start="2026-03-01T12:05:00Z"))
        def poll(run: RunContext) -> str:
            return f"{run.tick:%H:%M} ran at {scheduler.now:%H:%M}"

        scheduler.travel("15m")
        scheduler.down_for("17m")  # no node runs from 12:15 to 12:32
        scheduler.travel("18m")
        results = [run.result for run in scheduler.finished]

    print("\n".join(results))
    assert results == [
        "12:05 ran at 12:05",
        "12:15 ran at 12:15",
        "12:25 ran at 12:32",  # late, and the next tick is still 12:35
        "12:35 ran at 12:35",
        "12:45 ran at 12:45",
    ]


if __name__ == "__main__":
    main()
