"""A report that was added today is also made for the days before, two at a time; a failed day is made again.

python examples/backfill.py
"""

from __future__ import annotations

from evenbeat import RunContext, cron
from evenbeat.testing import virtual


def main() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as scheduler:
        is_fixed = False
        days: list[int] = []

        @scheduler.task
        def report(run: RunContext) -> None:
            assert run.tick is not None
            if run.tick.day == 26 and not is_fixed:
                raise RuntimeError("the data of this day is bad")
            days.append(run.tick.day)

        scheduler.schedules.add("daily-report", cron("0 9 * * *"), report)

        backfill = scheduler.schedules.backfill
        plan = backfill("daily-report", "2026-02-24", "2026-03-01", dry_run=True)
        print(f"would add {plan.total} runs")

        made = backfill("daily-report", "2026-02-24", "2026-03-01", max_concurrent=2)
        print(f"{made.active} of {made.total} runs are queued")
        scheduler.run_pending()
        over = scheduler.backfills.get(made.id)
        print(f"{over.state}: {over.succeeded} succeeded, {over.failed} failed")

        is_fixed = True
        again = backfill("daily-report", "2026-02-24", "2026-03-01", missing_only=True)
        scheduler.run_pending()
        print(f"{again.total} of {again.ticks} was missing; now there are reports of {sorted(days)}")

    assert (over.succeeded, over.failed) == (4, 1)
    assert again.total == 1
    assert sorted(days) == [24, 25, 26, 27, 28]


if __name__ == "__main__":
    main()
