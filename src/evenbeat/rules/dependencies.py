"""Dependencies between schedules: which ticks wait for others, and what a success starts. Pure.

A schedule with ``after`` fires its ticks by the last successes of its predecessors, which their statistics
keep. A schedule that fires on each success of another has no ticks: the step that settles the success leaves
a record of kind ``success`` for it, and the step that fires the record deletes it. The row of a predecessor
lists its followers, so that a settled success that nobody waits for reads nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evenbeat.core.checks import LONGEST_RUN_ID
from evenbeat.core.dependencies import After, parse_after
from evenbeat.core.ids import made_at_by
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Reason, Record, RunRecord, ScheduleRecord, ScheduleState
from evenbeat.rules.ticks import spread_delay
from evenbeat.triggers.on_success import ON_SUCCESS

PENDING = "success"
"""The kind of the records of successes that have not fired yet. Key: ``<follower>/<run>``, for a run that was
added by hand ``<follower>/<run>@<its end>``."""
# Milliseconds: a year. The time in an id that Evenbeat made is before the end of its run, and not longer ago.
_OLDEST = 366 * 86_400_000
LAST_WRITE = "dependencies"
"""The kind and the key of the record that each write of a dependency changes, one for each tenant: so these
writes come one after the other, and each has seen those before it."""
MOST_SUCCESSES = 1_000
"""How many successes, one after the other, may have led to a run. Schedules that start each other in a cycle,
which only rows written by hand or by another version could make, stop there."""
PENDING_A_STEP = 100
"""How many of them a plan gets at once."""


class Success(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that has succeeded: the body of a pending record."""

    run: str
    tick: Instant | None
    at: Instant
    generation: int = 0
    """The generation of the follower for which it was recorded."""
    paused: bool = False
    """Whether the follower was paused then."""


class Pending(NamedTuple):
    """A success that has not fired yet, with the key of its record."""

    key: str
    success: Success


class Facts(NamedTuple):
    """What the plan of a schedule with dependencies needs besides its own row."""

    last_successes: Mapping[str, Instant | None] = MappingProxyType({})
    """When each predecessor last succeeded, by its name."""
    pending: tuple[Pending, ...] = ()
    """The oldest successes that have not fired yet, at most PENDING_A_STEP."""
    has_more: bool = False
    """Whether there are more of them."""


NO_FACTS = Facts()


class Follower(NamedTuple):
    """The fields of a schedule that decide what the success of another one does to it."""

    tenant: str
    name: str
    trigger: str
    after: str
    state: ScheduleState
    generation: int
    next_tick: Instant | None
    wake_at: Instant | None


FOLLOWER = Follower._fields


class Woken(NamedTuple):
    """The new wake-up of a follower after a success, and the records to add."""

    wake_at: Instant | None
    records: tuple[Record, ...] = ()


def is_on_success(schedule: ScheduleRecord) -> bool:
    """Return whether a schedule has no ticks, and fires on each success of another one."""
    return schedule.trigger.startswith(ON_SUCCESS)


def needs_facts(schedule: ScheduleRecord) -> bool:
    """Return whether ``plan`` needs facts about other schedules: one comparison each for almost all rows."""
    return schedule.after != "" or schedule.trigger.startswith(ON_SUCCESS)


def replanned(schedule: ScheduleRecord, now: Instant) -> ScheduleRecord:
    """Return a schedule that depends on others so that it is planned at once if it may be waiting.

    A success may wake a tick that waits before a change is written: the change must not put it to sleep
    again. Of a schedule that fires on success, the change does not know whether successes wait: the plan
    fires them, or records those that a pause keeps from firing. See ``unfollowing.asleep``.
    """
    if is_on_success(schedule):
        return replace(schedule, wake_at=now)
    if schedule.after and schedule.state == "active" and schedule.wake_at is not None:
        return replace(schedule, wake_at=min(schedule.wake_at, schedule.next_tick or now))
    return schedule


def predecessors(trigger: str, after: str) -> tuple[str, ...]:
    """Return the names of the schedules that a schedule depends on."""
    if trigger.startswith(ON_SUCCESS):
        return (trigger.removeprefix(ON_SUCCESS),)
    return parse_after(after).schedules if after else ()


def last_write(schedule: ScheduleRecord, version: int) -> Record:
    """Return the record of the write by which a schedule begins to depend on others."""
    return Record(
        kind=LAST_WRITE, tenant=schedule.tenant, key=LAST_WRITE, body=schedule.name, version=version
    )


def pending_keys(name: str) -> tuple[str, str]:
    """Return the range of the keys of a follower's pending records: from one to before another."""
    # "0" follows "/", which no name contains.
    return f"{name}/", f"{name}0"


def facts_of(
    last_successes: Mapping[str, Instant | None], records: Sequence[Record], most: int = PENDING_A_STEP
) -> Facts:
    """Return the facts from statistics, and from up to ``most`` + 1 pending records."""
    found = [Pending(record.key, _read(record.body)) for record in records[:most]]
    found.sort(key=lambda pending: pending.success.at)
    return Facts(last_successes, tuple(found), len(records) > most)


def _read(body: str) -> Success:
    try:
        return msgspec.json.decode(body, type=Success)
    except (msgspec.MsgspecError, UnicodeError):
        return Success("", None, 0)  # edited by hand: of no generation, so it never fires


def woken(follower: Follower, name: str, successes: Sequence[Success], now: Instant) -> Woken | None:
    """Return what successes of the schedule ``name`` do to a follower; None if it follows no more.

    The store writes the row in any case, or holds its lock: a plan that has not seen the success must not be
    written after it.
    """
    if follower.trigger == ON_SUCCESS + name:
        if follower.state not in ("active", "paused"):
            return None
        records = tuple(pending_record(follower, success) for success in successes)
        return Woken(now if follower.wake_at is None else min(now, follower.wake_at), records)
    if follower.state != "active" or name not in predecessors(follower.trigger, follower.after):
        return None
    tick, wake_at = follower.next_tick, follower.wake_at
    is_held = tick is not None and wake_at is not None and wake_at > tick
    return Woken(tick if is_held else wake_at)


def pending_record(follower: Follower, success: Success) -> Record:
    """Return the record of a success that the follower has not fired yet.

    A user may give an id without a / again: the time of the end tells the two successes apart.
    """
    own = success.run if "/" in success.run else f"{success.run}@{success.at}"
    body = Success(
        success.run, success.tick, success.at, follower.generation, paused=follower.state == "paused"
    )
    return Record(kind=PENDING, tenant=follower.tenant, key=f"{follower.name}/{own}", body=encode(body))


def is_met(after: After, facts: Facts, now: Instant) -> bool:
    """Return whether each predecessor has succeeded lately enough."""
    return not unmet(after, facts.last_successes, now)


def unmet(after: After, last_successes: Mapping[str, Instant | None], now: Instant) -> tuple[str, ...]:
    """Return the predecessors that have not succeeded lately enough."""
    return tuple(
        name
        for name in after.schedules
        if (last := last_successes.get(name)) is None or last < now - after.within
    )


def waits_until(schedule: ScheduleRecord, now: Instant) -> Instant | None:
    """Return until when the due tick of a schedule waits for its predecessors; None if none waits."""
    tick = schedule.next_tick
    if not schedule.after or schedule.state != "active" or tick is None or schedule.wake_at is None:
        return None
    start = tick + spread_delay(schedule)
    return start + parse_after(schedule.after).wait if start <= now and schedule.wake_at > start else None


def cycle_through(
    name: str, first: tuple[str, ...], leads_to: Callable[[list[str]], Mapping[str, tuple[str, ...]]]
) -> tuple[str, ...] | None:
    """Return the cycle that a schedule with these predecessors would close: ``a -> b -> a``; None if none.

    ``leads_to`` returns the predecessors of schedules, by name.
    """
    paths: dict[str, tuple[str, ...]] = {each: (name, each) for each in first}
    level = list(paths)
    while level:
        if name in paths:
            return paths[name]
        found = leads_to(level)
        level = []
        for each, following in found.items():
            for other in following:
                if other not in paths:
                    paths[other] = (*paths[each], other)
                    level.append(other)
    return None


class Broken(NamedTuple):
    """A schedule whose dependency can't come true."""

    schedule: ScheduleRecord
    missing: str | None = None
    """The predecessor that does not exist any more."""
    cycle: tuple[str, ...] = ()
    """The schedules by which it waits for itself."""


def broken(rows: Sequence[ScheduleRecord]) -> list[Broken]:
    """Return the schedules that wait for one that does not exist, or for themselves. ``rows`` are all
    schedules that are not deleted."""
    graph = {
        row.key: predecessors(row.trigger, row.after) for row in rows if needs_facts(row) and not row.damage
    }
    if not graph:
        return []
    present = {row.key: row for row in rows}
    found = []
    for (tenant, name), names in graph.items():
        row = present[tenant, name]
        found += [Broken(row, missing=each) for each in names if (tenant, each) not in present]

        def leads_to(some: list[str], tenant: str = tenant) -> dict[str, tuple[str, ...]]:
            return {each: graph.get((tenant, each), ()) for each in some}

        cycle = cycle_through(name, names, leads_to)
        if cycle is not None:
            found.append(Broken(row, cycle=cycle))
    return found


class Unlisted(NamedTuple):
    """A schedule that others wait for, and that does not tell them of its successes."""

    leader: ScheduleRecord
    followers: tuple[str, ...]
    """Those that its row does not list."""


def unlisted(rows: Sequence[ScheduleRecord]) -> list[Unlisted]:
    """Return the schedules whose rows do not list all of their followers: the list was edited by hand, or
    damaged. ``rows`` are all schedules that are not deleted."""
    missing: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name in () if row.damage else predecessors(row.trigger, row.after):
            missing.setdefault((row.tenant, name), []).append(row.name)
    found = []
    for row in rows:
        left = set(missing.get(row.key, ())) - set(row.followers.split())
        if left:
            found.append(Unlisted(row, tuple(sorted(left))))
    return found


class Chosen(NamedTuple):
    """What becomes of pending successes."""

    fires: tuple[Pending, ...] = ()
    coalesced: tuple[Pending, ...] = ()
    """Those that the first of ``fires`` stands for."""
    drops: tuple[tuple[Reason, tuple[Pending, ...]], ...] = ()
    """Those that are recorded in the ledger, by reason."""
    left: tuple[Pending, ...] = ()
    """Those that wait for a run to end, or for the next step."""


def choose(schedule: ScheduleRecord, pending: Sequence[Pending], room: int, most: int) -> Chosen:
    """Decide the pending successes of a schedule. ``room`` is how many runs its policies allow to add now,
    ``most`` is how many one step adds.

    Each success fires on its own, oldest first, unless it is the end of a chain of MOST_SUCCESSES. With
    ``overlap`` skip, those that find no room are dropped; with queue and cancel_running, the newest stands
    for the others that waited.
    """
    if schedule.state != "active":
        reason: Reason = "paused" if schedule.state == "paused" else "deleted"
        return Chosen(drops=((reason, tuple(pending)),) if pending else ())
    stale = tuple(each for each in pending if each.success.generation != schedule.generation)
    paused = tuple(each for each in pending if each.success.paused and each not in stale)
    endless = tuple(
        each
        for each in pending
        if each not in stale
        and each not in paused
        and successes_before(each.success.run, schedule.tenant) >= MOST_SUCCESSES
    )
    gone = {each.key for each in (*stale, *paused, *endless)}
    drops: list[tuple[Reason, tuple[Pending, ...]]] = [
        ("changed", stale),
        ("paused", paused),
        ("chain", endless),
    ]
    rest = tuple(each for each in pending if each.key not in gone)
    coalesced: tuple[Pending, ...] = ()
    fires = rest[: max(0, min(room, most))]
    left = rest[len(fires) :]
    if schedule.overlap == "skip":
        drops.append(("overlap", left))
        left = ()
    elif schedule.overlap in ("queue", "cancel_running") and fires:
        fires, coalesced, left = rest[-1:], rest[:-1], ()
    return Chosen(fires, coalesced, tuple(drop for drop in drops if drop[1]), left)


def success_run(schedule: ScheduleRecord, success: Success, now: Instant, coalesced: int = 0) -> RunRecord:
    """Create the run that a success starts: it has the tick of the run that succeeded."""
    start = success.at + spread_delay(schedule)
    return RunRecord(
        id=_run_id(schedule, success),
        tenant=schedule.tenant,
        schedule=schedule.name,
        generation=schedule.generation,
        tick=success.tick,
        cause="tick",
        coalesced=coalesced,
        task=schedule.task,
        kind=schedule.kind,
        payload=schedule.payload,
        queue=schedule.queue,
        priority=schedule.priority,
        execution=schedule.execution,
        scheduled_at=start,
        run_at=start,
        created_at=now,
    )


def _named(success: Success) -> str:
    """Return the id of a run that succeeded; with the time of its end if a user may have chosen the id, and
    may give it again once the run is purged."""
    made_at = made_at_by(success.run)
    is_own = "/" in success.run or (made_at is not None and made_at <= success.at < made_at + _OLDEST)
    return success.run if is_own else f"{success.run}@{success.at}"


def _run_id(schedule: ScheduleRecord, success: Success) -> str:
    """Return the id of the run that a success starts: every node computes the same, and it is never given
    twice.

    It contains the id of the run that succeeded, without their tenant. Where that would be too long, it has
    the number of the successes that led to it, and a hash.
    """
    run = _named(success)
    own = f"{schedule.tenant}/"
    prefix = f"{own}{schedule.name}/{schedule.generation}/after/"
    found = prefix + (run.removeprefix(own) if run.startswith(own) else f"/{run}")
    if len(found) <= LONGEST_RUN_ID:
        return found
    hashed = blake2b(run.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{prefix}~{successes_before(run, schedule.tenant) + 1}.{hashed}"


def successes_before(run: str, tenant: str) -> int:
    """Return how many successes led to a run, one after the other, by its id: 0 for a run that a tick or a
    user started."""
    own = f"{tenant}/"
    found, rest = 0, run.removeprefix(own) if run.startswith(own) else ""
    while True:
        # name / generation / "after" / the run that succeeded
        parts = rest.split("/", 3)
        if len(parts) < 4 or parts[2] != "after":
            return found
        rest = parts[3]
        number, dot, _ = rest[1:].partition(".")
        if rest.startswith("~") and dot and number.isascii() and number.isdigit():
            return found + int(number)
        found += 1


def predecessor_schedule(run: RunRecord) -> str | None:
    """Return the schedule whose success started a run, if the id of the run that succeeded contains it: a run
    that was added by hand has an id of its own."""
    parts = (predecessor_run(run) or "").split("/")
    return parts[1] if len(parts) > 3 and parts[0] == run.tenant else None


def is_after_success(run: RunRecord) -> bool:
    """Return whether the success of another run started a run: its tick is not one of its schedule."""
    return run.cause == "tick" and run.id.startswith(f"{run.tenant}/{run.schedule}/{run.generation}/after/")


def predecessor_run(run: RunRecord) -> str | None:
    """Return the id of the run whose success started a run; None if none did, or its id was too long."""
    if not is_after_success(run):
        return None
    rest = run.id.removeprefix(f"{run.tenant}/{run.schedule}/{run.generation}/after/")
    if rest.startswith("~"):
        return None
    if rest.startswith("/"):
        run_id, _, ended = rest[1:].rpartition("@")
        return run_id if run_id and ended.isdigit() else rest[1:]
    return f"{run.tenant}/{rest}"
