"""Pause a schedule, run it by hand, move its next run, change its trigger.

python examples/pausing.py
"""

from __future__ import annotations

from datetime import timedelta

from evenbeat import acting_as, every
from evenbeat.testing import virtual


def main() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as scheduler:

        @scheduler.task(schedule=every("1h"))
        def sync(full: bool = False) -> str:
            return "full" if full else "quick"

        schedules = scheduler.schedules
        with acting_as("ann"):
            paused = schedules.pause("sync", note="the provider is down", until="2026-03-01T15:30:00Z")
        print(f"{paused.state} by {paused.paused_by}: {paused.pause_note}")
        assert scheduler.travel("2h") == []

        schedules.run_now("sync", {"full": True})  # by hand, also while it is paused
        (by_hand,) = scheduler.run_pending()
        assert (by_hand.result, by_hand.cause) == ("full", "run_now")

        (first,) = scheduler.travel("2h")  # the pause ended at 15:30 by itself
        assert first.scheduled_at.hour == 16
        (row,) = schedules.skipped("sync")
        assert (row.count, row.reason) == (3, "paused")  # 13:00, 14:00 and 15:00

        schedules.reschedule("sync", "10m")  # moves the run of 17:00 to 16:10; later ones stay
        moved = scheduler.travel("2h")
        assert [f"{run.scheduled_at:%H:%M}" for run in moved] == ["16:10", "18:00"]

        schedules.update("sync", trigger=every("30m"), timeout="5m")
        assert schedules.get("sync").timeout == timedelta(minutes=5)
        assert len(scheduler.travel("2h")) == 4
        print(schedules.stats("sync"))


if __name__ == "__main__":
    main()
