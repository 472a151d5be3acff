"""Writes schedules by compare-and-set, finds them, and fires them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, Record, RunState, ScheduleRecord
from evenbeat.rules.dependencies import PENDING, PENDING_A_STEP, Facts, facts_of
from evenbeat.rules.firing import Active, Planned, needs_active
from evenbeat.rules.refusals import LONGEST_WAIT, SHORTEST_WAIT, refusal_text
from evenbeat.stores.base import Fired, Page, PlanFunction, ScheduleQuery, Write, Written
from evenbeat.stores.batching import BYTES, batches
from evenbeat.stores.damage import Unreadable, quarantine_note
from evenbeat.stores.decisions import Budget, may_be_repetition
from evenbeat.stores.pages import keys_after, read_schedule_cursor, schedule_page
from evenbeat.stores.redis.encoding import (
    Fields,
    count_text,
    fields_of,
    member_of,
    optional_instant,
    path_of,
    read_member,
    version_fields,
)
from evenbeat.stores.redis.ledger import skipped_row
from evenbeat.stores.redis.records import record_change, record_row
from evenbeat.stores.redis.rows import (
    SCHEDULE,
    fired_fields,
    found_schedule,
    new_run,
    schedule_fields,
    schedule_of,
)
from evenbeat.stores.redis.session import Session

# How many rows one script writes. This takes some 10 ms, in which the server executes no other command.
BATCH = 500
# How many lists follow a written schedule in any case: runs, ledger rows, cancel requests.
_FOLLOWING = 3
# Where the records to add are in a row of fire.lua; the records to delete and the facts follow.
_RECORDS = 10
# How many rows one script reads, which takes 1 ms.
READ_LIMIT = 500
# How many members of an index one command reads, which takes 1 ms.
MEMBERS_READ = 5_000
# For how many ms a node reserves the rows that it plans. After that, other nodes may plan them, too.
RESERVATION_MS = 2_000
# A node that found only reserved rows in so many calls plans them anyway: the other node may be dead.
TRIES_BEFORE_TAKEOVER = 10

FAMILIES = ["", *(f".{number}" for number in range(2, FORMAT + 1))]
"""Each format has its own index of due schedules, so a node never reads schedules of newer formats."""


class ReservedSchedule(NamedTuple):
    """A due schedule that this node has reserved."""

    member: str
    fields: Fields
    active: list[str] | None
    known: list[Any] | None = None
    """What take_due.lua has read about other schedules; None unless the plan needs it."""

    @property
    def key(self) -> tuple[str, str]:
        return read_member(self.member)

    @property
    def version(self) -> list[str | bool]:
        """The version as it was read. The script compares it even if the rest of the row cannot be read."""
        return [count_text(self.fields.get(name)) for name in ("generation", "revision", "fire_seq")]


def put(session: Session, writes: Sequence[Write]) -> list[Written]:
    answers: list[Written] = []
    for part in batches(writes, BATCH, _write_size):
        (replies,) = session.run("put_schedules", [_write_row(write) for write in part])
        session.committed()
        answers += [_written(write, reply) for write, reply in zip(part, replies, strict=True)]
    return answers


def _write_size(write: Write) -> int:
    planned = write.planned
    size = len(planned.schedule.payload) * (1 + len(planned.runs))
    return size + sum(len(record.body) for record in planned.records) if planned.records else size


def _write_row(write: Write) -> list[object]:
    s = write.planned.schedule
    expect = False if write.expect is None else version_fields(write.expect)
    following = _following(write.planned)
    if write.record is not None:
        following += [[], []][len(following) - _FOLLOWING :]
        following.append(record_change(*write.record))
    return [
        member_of(*s.key),
        path_of(*s.key),
        expect,
        schedule_fields(s),
        _score(s.wake_at),
        s.format,
        s.updated_at,
        *following,
    ]


def _following(planned: Planned) -> list[object]:
    """Return the runs, ledger rows and cancel requests of a written schedule, and its records if it has any:
    the usual plan sends nothing for them, and the script tests for nil alone."""
    s = planned.schedule
    following: list[object] = [
        [new_run(run) for run in planned.runs],
        [skipped_row(s, position, row) for position, row in enumerate(planned.skipped)],
        list(planned.cancels),
    ]
    if planned.records or planned.spent:
        following.append([record_row(record) for record in planned.records])
    if planned.spent:
        following.append(list(planned.spent))
    return following


def _score(instant: Instant | None) -> Instant | bool:
    return False if instant is None else instant


def _written(write: Write, reply: int | list[list[str]]) -> Written:
    if isinstance(reply, int):
        return Written(True, write.planned.schedule)
    flat, runs_are_there = reply
    fields = fields_of(flat)
    # A hash without a revision contains the statistics of a schedule that does not exist.
    current = found_schedule(member_of(*write.planned.schedule.key), fields) if "revision" in fields else None
    return Written(may_be_repetition(current, write.planned.schedule) and bool(runs_are_there), current)


def find(session: Session, query: ScheduleQuery) -> Page[ScheduleRecord]:
    after = read_schedule_cursor(query.cursor)
    keys: Iterable[tuple[str, str]] | None = query.keys
    if keys is None and query.wakes_before is not None:
        keys = _due_before(session, query.wakes_before)
    elif keys is None and query.changed_since is not None and after is None:
        # Only for the first page: further pages may be most of the schedules, and each would sort them.
        keys = _by_score(session, "find changed", "changed", str(query.changed_since), "+inf")
    if keys is None:
        found = _in_order(session, query, after)
    else:
        found = _among(session, query, keys_after(query, keys, after))
    return schedule_page(found, query.limit)


def _in_order(session: Session, query: ScheduleQuery, after: tuple[str, str] | None) -> list[ScheduleRecord]:
    found: list[ScheduleRecord] = []
    first, last = _range(query)
    if after is not None and (first == "-" or member_of(*after) >= first[1:]):
        first = f"({member_of(*after)}"
    while True:
        position, rows = session.run("find_schedules", [first, last, *_conditions(query, len(found))])
        found += [found_schedule(member, fields_of(flat)) for member, flat in rows]
        if len(found) > query.limit or position is None:
            return found
        first = f"({position}"


def _among(session: Session, query: ScheduleQuery, keys: Sequence[tuple[str, str]]) -> list[ScheduleRecord]:
    found: list[ScheduleRecord] = []
    for start in range(0, len(keys), READ_LIMIT):
        members = [member_of(*key) for key in keys[start : start + READ_LIMIT]]
        _, rows = session.run("find_schedules", [False, False, *_conditions(query, len(found)), members])
        found += [found_schedule(member, fields_of(flat)) for member, flat in rows]
        if len(found) > query.limit:
            break
    return found


def _conditions(query: ScheduleQuery, already: int) -> list[object]:
    equal = {name: value for name, value in (("task", query.task), ("name", query.name)) if value is not None}
    # Ask for one more row than the page holds, to know whether there are more.
    missing = min(query.limit + 1 - already, READ_LIMIT)
    since, before = _score(query.changed_since), _score(query.wakes_before)
    return [READ_LIMIT, missing, equal, query.unwanted, since, before]


def _due_before(session: Session, instant: Instant) -> list[tuple[str, str]]:
    """Return the keys of the schedules that wake up before an instant, those of newer formats excepted."""
    return [
        key
        for family in FAMILIES
        for key in _by_score(session, "find due", f"due{family}", "-inf", f"({instant}")
    ]


def _by_score(session: Session, name: str, index: str, first: str, last: str) -> list[tuple[str, str]]:
    """Return the keys of the schedules in a range of an index."""
    found: list[tuple[str, str]] = []
    passed = 0
    while True:
        words = (first, last, "WITHSCORES", "LIMIT", passed, MEMBERS_READ)
        flat: list[str] = session.execute(name, "ZRANGEBYSCORE", session.location.base + index, *words)
        found += map(read_member, flat[::2])
        if len(flat) < 2 * MEMBERS_READ:
            return found
        # Continue after the last score, or inside it.
        passed = flat[1::2].count(flat[-1]) + (passed if flat[-1] == first else 0)
        first = flat[-1]


def _range(query: ScheduleQuery) -> tuple[str, str]:
    if query.tenant is None:
        return "-", "+"
    if query.name is None:
        return f"[{query.tenant} ", f"({query.tenant}!"
    member = member_of(query.tenant, query.name)
    return f"[{member}", f"[{member}"


class Firing:
    """Fires due schedules for one store object. Counts how often other nodes had reserved all of them."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._tries_in_vain = 0

    def fire(self, now: Instant, limit: int, plan: PlanFunction, thread: int) -> Fired:
        """Fire due schedules in batches, one script each. A written batch stays if the next one fails."""
        planned: list[Planned] = []
        quarantined: list[tuple[str, str]] = []
        lost: list[tuple[str, str]] = []
        next_wake: Instant | None = None
        while True:
            room = min(limit - len(planned) - len(quarantined), BATCH)
            # The name is short, since the script writes it for each row. If two threads have the same name,
            # both plan the same rows, and the compare-and-set refuses one of them.
            name = f"{self._name}.{thread // 4096 % 1000}"
            ignores_others = self._tries_in_vain >= TRIES_BEFORE_TAKEOVER
            due_by, next_wake, rows, is_cut = self._session.run(
                "take_due",
                [
                    now,
                    room,
                    name,
                    RESERVATION_MS,
                    int(ignores_others),
                    FAMILIES,
                    SCHEDULE,
                    BYTES,
                    PENDING_A_STEP + 1,
                ],
            )
            taken = [
                ReservedSchedule(member, _present(values), active, *known)
                for member, values, active, *known in rows
            ]
            self._note(due_by, next_wake, limit, taken)
            if not taken:
                break
            part = _fire(self._session, taken, due_by, plan)
            planned += part.planned
            quarantined += part.quarantined
            lost += part.lost
            next_wake = part.next_wake
            done = len(part.planned) + len(part.quarantined)
            # A fired schedule may be due again at once: the next call fires it.
            is_all = len(taken) < room and not is_cut
            if is_all or done == 0 or len(planned) + len(quarantined) >= limit:
                break
        return Fired(tuple(planned), next_wake, tuple(quarantined), tuple(lost))

    def _note(
        self, due_by: Instant, next_wake: Instant | None, limit: int, taken: list[ReservedSchedule]
    ) -> None:
        is_due = next_wake is not None and next_wake <= due_by
        self._tries_in_vain = self._tries_in_vain + 1 if is_due and limit > 0 and not taken else 0


def _present(values: list[str | None]) -> Fields:
    """Read the fields of a row; empty if the key is not a hash."""
    return {name: value for name, value in zip(SCHEDULE, values, strict=bool(values)) if value is not None}


def _fire(session: Session, taken: list[ReservedSchedule], now: Instant, plan: PlanFunction) -> Fired:
    """Plan the reserved schedules, and write those that have not changed meanwhile."""
    outcomes: list[tuple[ScheduleRecord, Planned]] = []
    rows: list[list[object]] = []
    to_quarantine: list[tuple[ReservedSchedule, str]] = []
    budget = Budget()
    for row in taken:
        if budget.is_spent:
            break  # this thread has reserved the other rows, and plans them next
        try:
            if not row.fields:
                raise Unreadable(f"there is no hash at schedules:{path_of(*row.key)}")
            schedule = schedule_of(row.member, row.fields)
            if schedule.format > FORMAT:
                continue  # a user wrote this format by hand: leave the row alone
            active = _active(row.active) if row.active is not None and needs_active(schedule) else ()
            outcome = plan(schedule, now, active, *_facts(row.known))
        except MemoryError:
            raise  # the machine is at fault, not the row, which this thread plans again
        except Exception as error:
            to_quarantine.append((row, quarantine_note(error)))
            continue
        s = outcome.schedule
        budget.spend(outcome)
        outcomes.append((schedule, outcome))
        written: list[object] = [
            row.member,
            path_of(*row.key),
            row.version,
            False if row.active is None else row.active,
            fired_fields(s, schedule),
            _score(s.wake_at),
            s.format,
            *_following(outcome),
        ]
        if row.known is not None:
            written += [[], []][len(written) - _RECORDS :]
            written.append(row.known)
        rows.append(written)
    notes = [
        [row.member, path_of(*row.key), row.version, row.key[0], row.key[1], note]
        for row, note in to_quarantine
    ]
    fired, quarantined, next_wake = session.run("fire", [rows, notes, FAMILIES, SHORTEST_WAIT, LONGEST_WAIT])
    session.committed()
    return Fired(
        tuple(
            _outcome(before, planned, reply)
            for (before, planned), reply in zip(outcomes, fired, strict=True)
            if reply != 0
        ),
        next_wake,
        tuple(row.key for (row, _), is_noted in zip(to_quarantine, quarantined, strict=True) if is_noted),
        tuple(before.key for (before, _), reply in zip(outcomes, fired, strict=True) if reply == 0),
    )


def _outcome(before: ScheduleRecord, planned: Planned, reply: int | list[Any]) -> Planned:
    """Return the plan that the script wrote. If the script found a key of an unexpected type, return how it
    lets the schedule wait instead."""
    if isinstance(reply, int):
        return planned
    reason, next_tick, wake_at = reply
    waiting = replace(before, next_tick=int(next_tick), wake_at=int(wake_at))
    return Planned(waiting, deferred=refusal_text(reason))


def _facts(known: list[Any] | None) -> tuple[Facts, ...]:
    """Return the facts that take_due.lua has read, as the arguments of a plan."""
    if known is None:
        return ()
    if known[0] == "pending":
        records = [
            Record(kind=PENDING, key=key, body=body)
            for key, body in zip(known[2::2], known[3::2], strict=True)
        ]
        return (facts_of({}, records),)
    last = {name: _success(text) for name, text in zip(known[1::2], known[2::2], strict=True)}
    return (facts_of(last, ()),)


def _success(text: str) -> Instant | None:
    try:
        return optional_instant(text)
    except ValueError:
        return None  # edited by hand


def _active(flat: list[str]) -> tuple[Active, ...]:
    states: list[RunState] = flat[1::3]  # type: ignore[assignment]  # as the runs say
    return tuple(
        Active(run_id, state, asked == "true")
        for run_id, state, asked in zip(flat[::3], states, flat[2::3], strict=True)
    )
