"""Checks of dependencies: each success fires each follower once, or is in its ledger, and no tick fires or
sleeps against its predecessors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from evenbeat.core.dependencies import parse_after
from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, ScheduleRecord, Skipped
from evenbeat.rules.firing import CLOCKS_APART
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


class Owed(NamedTuple):
    """A success that was settled without the rows of schedules."""

    run: str
    leader: str
    tick: Instant | None
    followers: dict[Key, tuple[int, int]]
    """The followers then, with generation and revision."""


class DependencyOracle:
    """What has become of each success."""

    def __init__(self) -> None:
        self.owed: list[Owed] = []
        self.handed_over: Counter[tuple[Key, int, str]] = Counter()
        """How often the record of a success was added for a follower, after one that was owed."""
        self.successes: Counter[str] = Counter()
        """How often a run has succeeded: a flow may do so again when a step is retried."""
        self._waiting: frozenset[str] = frozenset()
        self.expected: dict[Key, dict[str, list[Expected]]] = {}
        self.fired: dict[Key, set[str]] = {}
        self.skipped: dict[Key, int] = {}
        self.pending: frozenset[str] = frozenset()

    def succeeded(
        self, run: RunRecord, view: View, begun: Mapping[Key, ScheduleRecord], now: Instant
    ) -> None:
        """Note that a run has succeeded: the same commit has a record for each follower.

        ``begun`` are the rows when the call began. A follower that was created later, or anew, may come after
        the success.
        """
        assert run.schedule is not None
        leader = view.schedules.get((run.tenant, run.schedule))
        self.successes[run.id] += 1
        if f"{run.schedule}/{run.id}" in map(_without_time, view.owed):
            rows = (
                [view.schedules.get((run.tenant, name)) for name in leader.followers.split()]
                if leader
                else []
            )
            followers = {
                row.key: (row.generation, row.revision)
                for row in rows
                if row is not None and row.trigger == PREFIX + run.schedule
                if row.state in ("active", "paused") and row.key in begun
                if row.created_at <= now + CLOCKS_APART  # by the clock of its user
            }
            self.owed.append(Owed(run.id, run.schedule, run.tick, followers))
            return
        for name in () if leader is None else leader.followers.split():
            key = (run.tenant, name)
            row = view.schedules.get(key)
            if row is None or row.trigger != PREFIX + run.schedule or row.state not in ("active", "paused"):
                continue
            if f"{name}/{_identity(run)}" not in view.pending:
                before = begun.get(key)
                if before is None or before.state == "deleted" or before.trigger != row.trigger:
                    continue
                raise Violation(f"{run.id} succeeded, and nothing says so to {name}", name)
            known = Expected(row.generation, run.tick, row.state == "paused")
            self.expected.setdefault(key, {}).setdefault(_identity(run), []).append(known)

    def hand_over(self, view: View) -> None:
        """Note the owed successes that a write has handed over: each once, to each follower that is as it
        was when the run succeeded."""
        for owed in tuple(self.owed):
            for key, row in view.schedules.items():
                mark = (key, row.generation, owed.run)
                new = [
                    each
                    for each in view.pending - self._waiting
                    if _without_time(each) == f"{key[1]}/{owed.run}"
                ]
                if not new or row.trigger != PREFIX + owed.leader:
                    continue
                self.handed_over[mark] += 1
                if self.handed_over[mark] > self.successes[owed.run]:
                    raise Violation(f"the success of {owed.run} is handed over to {key[1]} twice", key[1])
                known = self.expected.setdefault(key, {}).setdefault(new[0].partition("/")[2], [])
                known.append(Expected(row.generation, owed.tick, row.state == "paused"))
            left = set(map(_without_time, view.owed))
            if f"{owed.leader}/{owed.run}" in left:
                continue
            if any(f">{key[1]}/{owed.run}" in left for key in view.schedules):
                continue
            self.owed.remove(owed)
            for key, version in owed.followers.items():
                row = view.schedules[key]
                if (row.generation, row.revision) == version:
                    if not self.handed_over[key, row.generation, owed.run]:
                        raise Violation(f"the success of {owed.run} is not handed over to {key[1]}", key[1])
        self._waiting = view.pending

    @staticmethod
    def check_pending(view: View) -> None:
        """Check that each success that has not fired yet waits for a schedule that still follows."""
        for each in view.pending:
            name, _, run_id = each.partition("/")
            row, run = view.schedules.get(("default", name)), view.runs.get(run_id.partition("@")[0])
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
        if self.owed:
            return f"the success of {self.owed[0].run} is owed"
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


def _identity(run: RunRecord) -> str:
    """Return what names a success: a user may give the id of a run that was added by hand again."""
    return run.id if "/" in run.id else f"{run.id}@{run.finished_at}"


def _without_time(key: str) -> str:
    """Return the key of a record without the time that tells runs of one id apart."""
    return key.partition("@")[0]
