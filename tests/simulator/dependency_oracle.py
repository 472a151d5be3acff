"""Checks of dependencies: each success fires each follower once, or is in its ledger, and no tick fires or
sleeps against its predecessors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from evenbeat.core.dependencies import parse_after
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.rules.ticks import spread_delay
from tests.simulator.backends import Key, View
from tests.simulator.violation import Violation

PREFIX = "on success of "


class Expected(NamedTuple):
    """A success that a follower has to deal with."""

    generation: int
    tick: Instant | None
    paused: bool


def is_follower(row: ScheduleRecord | None) -> bool:
    return row is not None and row.trigger.startswith(PREFIX)


class DependencyOracle:
    """What has become of each success."""

    def __init__(self) -> None:
        self.expected: dict[Key, dict[str, list[Expected]]] = {}
        self.fired: dict[Key, set[str]] = {}
        self.skipped: dict[Key, int] = {}
        self.pending: frozenset[str] = frozenset()

    def succeeded(self, run: RunRecord, view: View, begun: Mapping[Key, ScheduleRecord]) -> None:
        """Note that a run has succeeded: the same commit has a record for each follower.

        ``begun`` are the rows when the call began. A follower that was created later, or anew, may come after
        the success.
        """
        assert run.schedule is not None
        leader = view.schedules.get((run.tenant, run.schedule))
        for name in () if leader is None else leader.followers.split():
            key = (run.tenant, name)
            row = view.schedules.get(key)
            if row is None or row.trigger != PREFIX + run.schedule or row.state not in ("active", "paused"):
                continue
            if f"{name}/{run.id}" not in view.pending:
                before = begun.get(key)
                if before is None or before.state == "deleted" or before.trigger != row.trigger:
                    continue
                raise Violation(f"{run.id} succeeded, and nothing says so to {name}", name)
            known = Expected(row.generation, run.tick, row.state == "paused")
            self.expected.setdefault(key, {}).setdefault(run.id, []).append(known)

    @staticmethod
    def check_pending(view: View) -> None:
        """Check that each success that has not fired yet waits for a schedule that still follows."""
        for each in view.pending:
            name, _, run_id = each.partition("/")
            row, run = view.schedules.get(("default", name)), view.runs.get(run_id)
            if not is_follower(row) or row is None or row.state == "deleted":
                raise Violation(f"the success {each} waits for nothing", name)
            if run is not None and row.trigger != f"{PREFIX}{run.schedule}":
                raise Violation(f"the success {each} waits for a schedule that fires {row.trigger}", name)

    def added(self, run: RunRecord, key: Key) -> None:
        """Check a run that a success has started."""
        prefix = f"{run.tenant}/{run.schedule}/{run.generation}/after/"
        rest = run.id.removeprefix(prefix)
        before = rest[1:] if rest.startswith("/") else f"{run.tenant}/{rest}"
        known = self.expected.get(key, {}).get(before)
        if known is None:
            raise Violation(f"{run.id} fired without a success", key[1])
        if Expected(run.generation or 0, run.tick, paused=False) not in known:
            raise Violation(f"{run.id} fired for {known}", key[1])
        fired = self.fired.setdefault(key, set())
        if before in fired:
            raise Violation(f"the success of {before} fired {key[1]} twice", key[1])
        fired.add(before)

    def recorded(self, key: Key, rows: list[Skipped]) -> None:
        self.skipped[key] = self.skipped.get(key, 0) + sum(row.count for row in rows)

    def check_tick(self, run: RunRecord, row: ScheduleRecord, before: ScheduleRecord, view: View) -> None:
        """Check that the tick of a schedule with ``after`` fired by its predecessors, or at the deadline of
        the first tick that was due."""
        after = parse_after(row.after)
        assert before.next_tick is not None
        is_over = run.created_at >= before.next_tick + spread_delay(row) + after.wait
        if after.otherwise == "run" and is_over:
            return
        if not self.is_met(row, view, run.created_at):
            raise Violation(f"{run.id} fired, though {row.after} is not true", row.name)

    @staticmethod
    def is_met(row: ScheduleRecord, view: View, now: Instant) -> bool:
        after = parse_after(row.after)
        known = (view.statistics.get((row.tenant, name)) for name in after.schedules)
        return all(
            each is not None and each.last_success is not None and each.last_success >= now - after.within
            for each in known
        )

    def unfinished(self) -> str | None:
        return None if not self.pending else f"the success {min(self.pending)} has not fired"

    def check_all(self) -> None:
        """Check the end: each success has fired once, or is in the ledger."""
        for key, successes in self.expected.items():
            fired, skipped = len(self.fired.get(key, ())), self.skipped.get(key, 0)
            # A flow of which a step is retried may succeed again: its follower has run for it already.
            most = sum(len(each) for each in successes.values())
            if not len(successes) <= fired + skipped <= most:
                raise Violation(
                    f"{key[1]} had {len(successes)} successes: {fired} fired, {skipped} are in its ledger",
                    key[1],
                )
