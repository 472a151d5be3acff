"""Change, pause and resume all schedules that match; catch up on the ticks of a pause.

python examples/changing_schedules.py
"""

from __future__ import annotations

from evenbeat import every
from evenbeat.testing import virtual


def main() -> None:
    with virtual(now="2026-03-02T12:00:00Z") as scheduler:

        @scheduler.task
        def book() -> str:
            return "booked"

        schedules = scheduler.schedules
        for name in ("book-eu", "book-us", "look"):
            schedules.add(name, every("1h"), book, catch_up="all")

        found = schedules.update_all({"retries": 3, "tags": ["billing"]}, name="book-*", dry_run=True)
        print(f"{found.matched} schedules would change")
        done = schedules.update_all({"retries": 3, "tags": ["billing"]}, name="book-*")
        assert [each.id for each in done.changed] == ["book-eu", "book-us"]

        schedules.pause_all("the provider is down")
        assert scheduler.travel("3h") == []
        print(schedules.preview_resume("book-eu").sentence)
        print(schedules.preview_resume("book-eu", catch_up=True).sentence)
        schedules.resume_all(catch_up=True, tag="billing")  # these must not miss an hour
        schedules.resume_all()  # the others go on from now
        runs = scheduler.run_pending()
        assert [run.schedule for run in runs].count("book-eu") == 3
        assert not [run for run in runs if run.schedule == "look"]
        (row,) = schedules.skipped("look")
        assert (row.count, row.reason) == (3, "paused")
        assert len(scheduler.travel("1h")) == 3


if __name__ == "__main__":
    main()
