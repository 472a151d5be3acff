"""What stores read and write for schedules that depend on others, where they decide in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord, Transition
from evenbeat.rules.dependencies import (
    PENDING_A_STEP,
    Facts,
    Follower,
    Success,
    facts_of,
    is_on_success,
    needs_facts,
    pending_keys,
    predecessors,
    woken,
)
from evenbeat.stores.damage import Key

FactsByKey = Mapping[Key, tuple[Facts, ...]]
"""The facts of each schedule that needs them, as the arguments that ``plan`` gets besides."""
NO_FACTS: FactsByKey = {}


def read_facts(
    due: Iterable[ScheduleRecord],
    last_successes: Callable[[Sequence[Key]], Mapping[Key, Instant | None]],
    pending: Callable[[Sequence[Key], int], Mapping[Key, Sequence[Record]]],
) -> FactsByKey:
    """Read the facts of the schedules that need them; calls nothing if none does.

    ``last_successes`` reads statistics; ``pending`` reads the pending records of schedules, for each of them
    up to a limit.
    """
    dependent = [schedule for schedule in due if needs_facts(schedule)]
    if not dependent:
        return NO_FACTS
    wanted = {
        (schedule.tenant, name): None
        for schedule in dependent
        if not is_on_success(schedule)
        for name in predecessors(schedule.trigger, schedule.after)
    }
    known = last_successes(list(wanted)) if wanted else {}
    without_ticks = [schedule.key for schedule in dependent if is_on_success(schedule)]
    waiting = pending(without_ticks, PENDING_A_STEP + 1) if without_ticks else {}
    found: dict[Key, tuple[Facts, ...]] = {}
    for schedule in dependent:
        names = () if is_on_success(schedule) else predecessors(schedule.trigger, schedule.after)
        last = {name: known.get((schedule.tenant, name)) for name in names}
        found[schedule.key] = (facts_of(last, waiting.get(schedule.key, ())),)
    return found


def each_pending(
    find: Callable[[str, str, str, int], Sequence[Record]], keys: Sequence[Key], limit: int
) -> dict[Key, Sequence[Record]]:
    """Read the pending records of schedules one by one. ``find`` takes a tenant, a range of keys and a
    limit."""
    return {key: find(key[0], *pending_keys(key[1]), limit) for key in keys}


class Wake(NamedTuple):
    """A follower whose row a success writes."""

    key: Key
    wake_at: Instant | None
    is_new: bool
    """Whether the wake-up has changed."""
    has_records: bool = False
    """Whether pending records are added for it. The store then counts its ``fire_seq`` up: the write of a
    user who has not seen the records, and may end what they wait for, is refused."""

    @property
    def is_written(self) -> bool:
        return self.is_new or self.has_records


class Effects(NamedTuple):
    """What successes do to the followers of their schedules."""

    wakes: tuple[Wake, ...] = ()
    records: tuple[Record, ...] = ()

    @property
    def wakes_any(self) -> bool:
        return any(wake.is_new for wake in self.wakes)


NO_EFFECTS = Effects()


def successes_of(
    transitions: Sequence[Transition], updates: Mapping[str, Mapping[str, Any]]
) -> dict[Key, list[Success]]:
    """Return the successes that a batch of transitions has counted, by the schedules that they wake.
    ``updates`` are the fields that each run got."""
    found: dict[Key, list[Success]] = {}
    for transition in transitions:
        counts, fields = transition.counts, updates.get(transition.run)
        if counts is None or not counts.success_count or fields is None or transition.wakes is None:
            continue
        if fields.get("settled") == transition.token:
            success = Success(transition.run, transition.tick, fields["finished_at"])
            found.setdefault((counts.tenant, counts.schedule), []).append(success)
    return found


def effects(
    successes: Mapping[Key, Sequence[Success]],
    followers: Mapping[Key, str],
    rows: Iterable[Follower],
    now: Instant,
) -> Effects:
    """Return what successes do. ``followers`` has the text of each schedule that has any, ``rows`` are the
    present rows of the schedules that these texts name."""
    present = {(row.tenant, row.name): row for row in rows}
    wakes: dict[Key, Wake] = {}
    records: list[Record] = []
    for (tenant, name), some in successes.items():
        for follower in followers.get((tenant, name), "").split():
            row = present.get((tenant, follower))
            done = None if row is None else woken(row, name, some, now)
            if row is None or done is None:
                continue
            before = wakes.get((tenant, follower))
            wakes[tenant, follower] = Wake(
                (tenant, follower),
                done.wake_at,
                done.wake_at != row.wake_at or (before is not None and before.is_new),
                bool(done.records) or (before is not None and before.has_records),
            )
            records += done.records
            present[tenant, follower] = row._replace(wake_at=done.wake_at)
    return Effects(tuple(wakes[key] for key in sorted(wakes)), tuple(records))


def named(followers: Mapping[Key, str]) -> list[Key]:
    """Return the keys of the schedules that texts of followers name."""
    keys = {(tenant, name) for (tenant, _), text in followers.items() for name in text.split()}
    return sorted(keys)
