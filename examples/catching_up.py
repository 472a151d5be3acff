"""No node ran for an hour: each schedule decides what becomes of its missed ticks, and how fast they run.

python examples/catching_up.py
"""

from __future__ import annotations

from evenbeat import RunContext, every
from evenbeat.testing import virtual


def main() -> None:
    with virtual(now="2026-03-01T12:00:00Z") as scheduler:

        @scheduler.task
        def work(run: RunContext) -> str:
            return f"{run.tick:%H:%M}, stands for {run.coalesced} more"

        add = scheduler.schedules.add
        add("sync", every("10m"), work)  # catch_up="latest": one run for all
        add("billing", every("10m"), work, catch_up="all", catch_up_limit=3)
        add("reminder", every("10m"), work, catch_up="skip", grace="6m")

        scheduler.down_for("1h5m")
        runs = scheduler.run_pending()

        for name in ("sync", "billing", "reminder"):
            print(f"{name}:", "; ".join(sorted(run.result for run in runs if run.schedule == name)))
            for row in scheduler.schedules.skipped(name):
                print(f"  {row.count} from {row.first:%H:%M} to {row.last:%H:%M}: {row.reason}")

        ledger = {name: scheduler.schedules.skipped(name)[0] for name in ("sync", "billing", "reminder")}

    slowly()
    assert len(runs) == 1 + 3 + 1
    assert (ledger["sync"].count, ledger["sync"].reason) == (5, "coalesced")
    assert (ledger["billing"].count, ledger["billing"].reason) == (3, "limit")
    assert (ledger["reminder"].count, ledger["reminder"].reason) == (5, "late")


def slowly() -> None:
    """Catch up with ten ticks a minute, and leave out those that are older than 40 minutes."""
    with virtual(now="2026-03-01T12:00:00Z") as scheduler:
        starts: list[str] = []

        @scheduler.task
        def book(run: RunContext) -> None:
            starts.append(f"{run.tick:%H:%M} at {scheduler.now:%H:%M:%S}")

        scheduler.schedules.add(
            "bookings", every("10m"), book, catch_up="all", catch_up_max_age="40m", catch_up_rate="10/m"
        )
        scheduler.down_for("1h5m")
        scheduler.run_pending()
        left = scheduler.schedules.get("bookings").catch_up_left
        print(f"bookings: catching up, {left} ticks left")
        scheduler.travel("1m")
        print("  " + "; ".join(starts))

    assert left == 3
    assert starts == ["12:30 at 13:05:00", "12:40 at 13:05:06", "12:50 at 13:05:12", "13:00 at 13:05:18"]


if __name__ == "__main__":
    main()
