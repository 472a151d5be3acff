"""A schedule skips holidays, or moves to the next free day; the calendar changes, and it is planned anew.

python examples/calendars.py
"""

from __future__ import annotations

from datetime import UTC, datetime

from evenbeat import CalendarInUse, Scheduler, cron
from evenbeat.testing import virtual

app = Scheduler("memory://")


@app.task
def report() -> None: ...


def main() -> None:
    # Sunday, 1 March 2026.
    with virtual(app, now=datetime(2026, 3, 1, 12, tzinfo=UTC)) as fake:
        fake.calendars.set("off", days=["2026-03-03..2026-03-04"])
        fake.schedules.add("skips", cron("0 9 * * *", skip="off"), "report")
        fake.schedules.add("moves", cron("0 9 3 * *", skip="off", move="next"), "report")
        print([f"{tick:%a %d}" for tick in fake.schedules.preview("skips", 3)])
        fake.travel("4d")
        assert [run.tick for run in fake.runs.list(schedule="moves")] == [datetime(2026, 3, 5, 9, tzinfo=UTC)]

        # The ledger has what was due by the bare trigger, and why explains it.
        (removed,) = fake.schedules.skipped("skips")
        assert (removed.count, removed.reason) == (2, "calendar")
        print(fake.schedules.why("skips", "2026-03-03T09:00Z").sentence)

        # A changed calendar plans its schedules anew.
        assert fake.calendars.set("off", days=["2026-03-06"]).replanned == 2
        assert fake.schedules.next_run("skips") == datetime(2026, 3, 7, 9, tzinfo=UTC)
        try:
            fake.calendars.delete("off")
        except CalendarInUse as error:
            print(error)
        else:
            raise AssertionError("it is in use")


if __name__ == "__main__":
    main()
