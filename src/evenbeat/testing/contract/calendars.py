"""Schedules with calendars: every node plans by the copy in the row, and removed ticks are in the ledger."""

from __future__ import annotations

from evenbeat.core.records import CatchUp
from evenbeat.rules import changes
from evenbeat.stores.base import Store
from evenbeat.testing.clock import VirtualClock
from evenbeat.testing.contract.base import MINUTE, Contract, Handles, schedule
from evenbeat.triggers.calendar_copies import CalendarCopies
from evenbeat.triggers.time_sets import TimeSet


def copies(*spans: tuple[int, int]) -> str:
    """Return the copy of a calendar ``off`` with these spans, in milliseconds."""
    times = TimeSet(spans=tuple((start // 1000, end // 1000) for start, end in spans))
    return CalendarCopies.of({"off": times}).text


class CalendarContract(Contract):
    def test_a_tick_that_a_calendar_removes_does_not_fire_and_is_in_the_ledger(
        self, store: Store, clock: VirtualClock
    ) -> None:
        start = clock.now
        off = copies((start + 2 * MINUTE, start + 4 * MINUTE))
        made = self.add(store, schedule(trigger="every 1m skip=off", calendars=off))
        assert made.calendars == off
        for _ in range(5):
            clock.advance("1m")
            self.fire(store)
        ticks = sorted(run.tick or 0 for run in self.runs(store))
        assert ticks == [start + MINUTE, start + 4 * MINUTE, start + 5 * MINUTE]
        (row,) = store.find_skipped("default", "cleanup", 10)
        assert (row.first, row.last, row.count, row.reason, row.run) == (
            start + 2 * MINUTE,
            start + 3 * MINUTE,
            2,
            "calendar",
            None,
        )

    def test_nodes_that_catch_up_at_once_fire_no_removed_tick(
        self, store: Store, handles: Handles, clock: VirtualClock
    ) -> None:
        start = clock.now
        off = copies((start + 3 * MINUTE, start + 6 * MINUTE))
        wanted = schedule(trigger="every 1m skip=off", calendars=off, catch_up=CatchUp("all"))
        self.add(store, wanted)
        clock.advance("10m")

        def fire(handle: Store) -> None:
            self.fire(handle)

        self.in_threads(handles, fire)
        ticks = sorted(run.tick or 0 for run in self.runs(store))
        assert ticks == [start + at * MINUTE for at in (1, 2, 6, 7, 8, 9, 10)]
        assert [row.count for row in store.find_skipped("default", "cleanup", 10)] == [3]

    def test_a_fire_by_an_old_copy_loses_against_a_new_one(self, store: Store, clock: VirtualClock) -> None:
        start = clock.now
        self.add(store, schedule(trigger="every 1m skip=off", calendars=copies((start, start + MINUTE))))
        seen = self.get(store)
        assert seen is not None
        changed = changes.copy_calendars(seen, copies((start + MINUTE, start + 3 * MINUTE)), clock.now)
        assert self.put(store, seen, changed).accepted
        stale = changes.copy_calendars(seen, copies((start, start + 9 * MINUTE)), clock.now)
        assert not self.put(store, seen, stale).accepted
        clock.advance("1m")
        assert self.fire(store).planned == ()
        clock.advance("2m")
        self.fire(store)
        assert [run.tick for run in self.runs(store)] == [start + 3 * MINUTE]
