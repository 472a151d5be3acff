"""Backfills: the stored form, the ticks of the range, and what a step reserves, counts and writes. Pure.

A backfill is a record of kind ``backfill``. A step *reserves* ticks in it by compare-and-set, writes their
runs together with the row of the schedule and a *batch* record, and the next step moves the ticks of that
batch from ``reserved`` to ``written``. Reserved and written ticks together are never more than
``max_concurrent``, and each of their runs is written once:

- Each write of runs changes the row of the schedule (``fire_seq``). A step reads the row first, then the
  batch records, then the backfill. A batch that another node writes in between makes the row's
  compare-and-set fail, however late the write comes, and even if the runs have been purged since.
- The batch record is written in the same step as the runs, so a node that dies right afterwards leaves the
  proof of what it has written.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from evenbeat.core.backfills import BackfillOrder
from evenbeat.core.durations import UNITS
from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import FINAL_STATES, FORMAT, LOW, Record, RunRecord, ScheduleRecord
from evenbeat.rules.calendars import bare_trigger
from evenbeat.rules.dependencies import replanned
from evenbeat.rules.firing import BYTES_A_STEP, TICKS_A_STEP, Planned, needs_active, wakes_on_run_end
from evenbeat.rules.ticks import own_trigger
from evenbeat.triggers import Calendared, Every, Trigger, parse_trigger

KIND, OPEN, BATCH = "backfill", "backfill_open", "backfill_batch"
"""The kinds of records: a backfill; a note that it is not over, so that nodes need not read those that are;
the ticks of one write of runs."""
KINDS = (KIND, OPEN, BATCH)
KEPT = 90 * UNITS["d"]
"""How long the record of a backfill is kept after its end, in milliseconds."""
MOST_FAILED = 20
"""The most ids of failed runs that a record keeps."""

StoredState: TypeAlias = Literal["running", "done", "cancelled"]


class StoredBackfill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a record of kind ``backfill``; the key is its id."""

    schedule: str
    schedule_since: Instant
    """When the schedule was created: one that was created later has only the same name."""
    generation: int
    trigger: str
    anchor: Instant
    calendars: str = ""
    start: Instant
    end: Instant
    first: Instant
    last: Instant
    """The first and the last tick of the range."""
    order: BackfillOrder = "oldest"
    max_concurrent: int = 1
    priority: int = LOW
    payload: str | None = None
    missing_only: bool = False
    skips: str = ""
    """The ticks of the range that get no run, as ``write_skips`` writes them."""
    ticks: int
    total: int
    created_at: Instant
    created_by: str = ""

    state: StoredState = "running"
    note: str = ""
    position: int = 0
    """How many ticks of the range have been reserved or passed over, in the backfill's order."""
    cursor: Instant | None = None
    """The last of them."""
    is_exhausted: bool = False
    """Whether no tick of the range is left."""
    batch: int = 1
    """The number of the batch that writes reserved ticks next."""
    reserved: tuple[Instant, ...] = ()
    """Ticks whose runs have to be written, or were written in this batch."""
    written: tuple[Instant, ...] = ()
    """Ticks whose runs have been written, and had not ended when a node last looked."""
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    purged: int = 0
    failed_ticks: tuple[Instant, ...] = ()
    waits_for: str = ""
    ended_at: Instant | None = None

    @property
    def outstanding(self) -> int:
        return len(self.reserved) + len(self.written)

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None


_decoder = msgspec.json.Decoder(StoredBackfill)
_batches = msgspec.json.Decoder(tuple[Instant, ...])


# -- the stored form ---------------------------------------------------------------------------------------


def default_id(row: ScheduleRecord, wanted: StoredBackfill) -> str:
    """Return the id of a backfill that has none of its own: the same for the same ticks and payload."""
    parts = (
        row.tenant,
        row.name,
        wanted.generation,
        wanted.trigger,
        wanted.first,
        wanted.last,
        wanted.payload,
        wanted.missing_only,
        wanted.calendars,
    )
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


_WORK = ("schedule", "schedule_since", "trigger", "calendars", "first", "last", "payload", "missing_only")


def is_same_work(one: StoredBackfill, other: StoredBackfill) -> bool:
    """Return whether two backfills are about the same ticks and payload."""
    return all(getattr(one, field) == getattr(other, field) for field in _WORK)


def backfill_record(tenant: str, key: str, backfill: StoredBackfill, version: int) -> Record:
    """Return a backfill as it is stored. One that is over expires."""
    end = None if backfill.ended_at is None else backfill.ended_at + KEPT
    return Record(kind=KIND, tenant=tenant, key=key, body=encode(backfill), version=version, expires=end)


def read_backfill(record: Record) -> StoredBackfill | None:
    """Return the backfill of a record; None if a person or a newer version wrote it in another form."""
    try:
        return _decoder.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def run_id(tenant: str, schedule: str, key: str, tick: Instant) -> str:
    """Return the id of the run that a backfill adds for a tick."""
    return f"{tenant}/{schedule}/backfill/{key}/{tick}"


def batch_key(key: str, number: int) -> str:
    return f"{key}/{number}"


def batch_range(key: str) -> tuple[str, str]:
    """Return the first key of a backfill's batches, and the first one behind them."""
    return f"{key}/", f"{key}0"  # a 0 comes right after a /


def batch_number(record: Record) -> int:
    return int(record.key.rpartition("/")[2])


def write_skips(ticks: Sequence[Instant], skipped: Collection[Instant]) -> str:
    """Return the ticks that are skipped, in a text of a few bytes if they lie together."""
    bits = bytearray(-(-len(ticks) // 8))
    for index, tick in enumerate(ticks):
        if tick in skipped:
            bits[index >> 3] |= 1 << (index & 7)
    return b64encode(zlib.compress(bytes(bits), 9)).decode() if any(bits) else ""


def _read_skips(text: str) -> bytes:
    return zlib.decompress(b64decode(text)) if text else b""


# -- the ticks ---------------------------------------------------------------------------------------------


def past_trigger(name: str, trigger: str, anchor: Instant, start: Instant, calendars: str = "") -> Trigger:
    """Return a schedule's trigger with its ticks from ``start`` on, also those before the schedule existed.

    An interval without a start of its own counts from when the schedule got it, in both directions.
    """
    row = ScheduleRecord(name=name, task="", trigger=trigger, anchor=anchor, calendars=calendars)
    bound, own = own_trigger(row), bare_trigger(parse_trigger(trigger))
    if isinstance(bound, Calendared) and bound.since is not None:
        bound = replace(bound, since=None)
    if not (isinstance(own, Every) and own.start is None):
        return bound
    first = anchor + own.period
    if start >= first:
        return bound
    earlier = Every(own.period, first - -(-(first - start) // own.period) * own.period, own.until)
    if isinstance(bound, Calendared):
        return Calendared(earlier, bound.skip, bound.only, bound.move, bound.copies)
    return earlier


def trigger_of_backfill(backfill: StoredBackfill) -> Trigger:
    return past_trigger(
        backfill.schedule, backfill.trigger, backfill.anchor, backfill.start, backfill.calendars
    )


def _remaining(backfill: StoredBackfill) -> Iterator[tuple[int, Instant]]:
    """Yield the ticks that no step has reserved, in the backfill's order, each with its place in time."""
    trigger, position, cursor = trigger_of_backfill(backfill), backfill.position, backfill.cursor
    while True:
        if backfill.order == "oldest":
            tick = trigger.next_ms(backfill.start - 1 if cursor is None else cursor)
            if tick is None or tick >= backfill.end:
                return
            yield position, tick
        else:
            tick = trigger.prev_ms(backfill.end if cursor is None else cursor)
            if tick is None or tick < backfill.start:
                return
            yield backfill.ticks - 1 - position, tick
        position, cursor = position + 1, tick


# -- one step ----------------------------------------------------------------------------------------------


def confirmed(backfill: StoredBackfill, batches: Sequence[Record]) -> StoredBackfill:
    """Move the ticks of the present batch, if it has been written, to the written ones."""
    for record in batches:
        if batch_number(record) == backfill.batch:
            ticks = frozenset(_batches.decode(record.body))
            return replace(
                backfill,
                batch=backfill.batch + 1,
                reserved=tuple(tick for tick in backfill.reserved if tick not in ticks),
                written=backfill.written + tuple(tick for tick in backfill.reserved if tick in ticks),
            )
    return backfill


def counted(backfill: StoredBackfill, runs: Mapping[Instant, RunRecord]) -> StoredBackfill:
    """Count the written runs that have ended. ``runs`` was read after ``written``: a run that it lacks has
    been purged."""
    ended = {"succeeded": 0, "failed": 0, "cancelled": 0, "purged": 0}
    left: list[Instant] = []
    failed: list[Instant] = []
    for tick in backfill.written:
        run = runs.get(tick)
        if run is not None and run.state not in FINAL_STATES:
            left.append(tick)
            continue
        state = "purged" if run is None else run.state
        ended[state] += 1
        if state == "failed":
            failed.append(tick)
    if len(left) == len(backfill.written):
        return backfill
    return replace(
        backfill,
        written=tuple(left),
        failed_ticks=(*backfill.failed_ticks, *failed)[-MOST_FAILED:],
        **{state: getattr(backfill, state) + number for state, number in ended.items()},
    )


def reserving(backfill: StoredBackfill, room: int) -> StoredBackfill:
    """Reserve the next ticks: at most ``room``, and never more than ``max_concurrent`` allows."""
    room = min(room, backfill.max_concurrent - backfill.outstanding)
    if backfill.is_exhausted or room <= 0:
        return backfill
    skips = _read_skips(backfill.skips)
    taken: list[Instant] = []
    position, cursor = backfill.position, backfill.cursor
    is_exhausted = True
    for index, tick in _remaining(backfill):
        if len(taken) == room:
            is_exhausted = False
            break
        position, cursor = position + 1, tick
        if not (index >> 3 < len(skips) and skips[index >> 3] >> (index & 7) & 1):
            taken.append(tick)
    return replace(
        backfill,
        position=position,
        cursor=cursor,
        is_exhausted=is_exhausted,
        reserved=(*backfill.reserved, *taken),
    )


def is_gone(backfill: StoredBackfill, row: ScheduleRecord | None) -> bool:
    """Return whether the schedule was deleted; a later one of the same name is another schedule."""
    return row is None or row.state == "deleted" or row.created_at != backfill.schedule_since


def obstacle(row: ScheduleRecord, now: Instant) -> str:
    """Return why the schedule gets no run of a backfill now, whatever runs are active; empty if it may."""
    if row.state == "paused":
        return "the schedule is paused"
    if row.damage or row.format > FORMAT:
        return "this version can't read the schedule"
    if needs_active(row) and row.state == "active" and row.next_tick is not None and row.next_tick <= now:
        return "a tick of the schedule is due, and goes first"
    return ""


def policy_room(row: ScheduleRecord, active: int, payload: str | None = None) -> int:
    """Return how many runs the schedule's policies leave room for, and one step may write."""
    size = len(row.payload if payload is None else payload)
    room = max(1, min(TICKS_A_STEP, BYTES_A_STEP // max(1, size)))
    if row.max_concurrent is not None:
        room = min(room, row.max_concurrent - active)
    if row.overlap != "allow":
        room = min(room, 1 - active)
    return max(0, room)


def writing(row: ScheduleRecord, key: str, backfill: StoredBackfill, room: int, now: Instant) -> Planned:
    """Plan the runs of the first reserved ticks, together with the batch that proves them.

    It counts as a fire: a tick that another node is planning at the same moment conflicts with it. The last
    fire stays, since ticks that catch up count from it.
    """
    ticks = backfill.reserved[:room]
    # A millisecond apart, so that a worker with few slots takes them in the backfill's order.
    starts = range(now - len(ticks) + 1, now + 1)
    runs = tuple(
        replace(_run(row, key, backfill, tick), scheduled_at=at, run_at=at, created_at=now)
        for at, tick in zip(starts, ticks, strict=True)
    )
    batch = Record(kind=BATCH, tenant=row.tenant, key=batch_key(key, backfill.batch), body=encode(ticks))
    return Planned(touched(row, now), runs, records=(batch,))


def touched(row: ScheduleRecord, now: Instant) -> ScheduleRecord:
    """Return the row so that writes of nodes that have read it before are refused.

    If its tick waits for a run, or for the success of another schedule, that may come before this is written
    without waking it: plan it again.
    """
    wake_at = row.next_tick if wakes_on_run_end(row) else row.wake_at
    return replanned(replace(row, fire_seq=row.fire_seq + 1, wake_at=wake_at), now)


def _run(row: ScheduleRecord, key: str, backfill: StoredBackfill, tick: Instant) -> RunRecord:
    """Return the run of a tick. Its planned start is now and not the tick: a run that is years late would
    look so, and ``expires`` would cancel it."""
    return RunRecord(
        id=run_id(row.tenant, row.name, key, tick),
        tenant=row.tenant,
        schedule=row.name,
        generation=row.generation,
        tick=tick,
        cause="backfill",
        task=row.task,
        kind=row.kind,
        payload=row.payload if backfill.payload is None else backfill.payload,
        queue=row.queue,
        priority=backfill.priority,
        execution=row.execution,
    )


def cancelled(backfill: StoredBackfill, note: str = "") -> StoredBackfill:
    """Add no further runs. The reserved ticks stay until the row of the schedule is touched."""
    return replace(backfill, state="cancelled", note=note, waits_for="")


def without_reserved(backfill: StoredBackfill) -> StoredBackfill:
    """Give up the ticks that no node can write any more: the row has been touched since the cancellation."""
    return replace(backfill, reserved=())


def finished(backfill: StoredBackfill, now: Instant) -> StoredBackfill:
    """End the backfill if nothing is left to do."""
    is_complete = backfill.is_exhausted or backfill.state == "cancelled"
    if backfill.is_over or backfill.outstanding or not is_complete:
        return backfill
    state: StoredState = "cancelled" if backfill.state == "cancelled" else "done"
    return replace(backfill, state=state, ended_at=now, waits_for="")
