"""Adds, claims and settles runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Statistics, Transition
from evenbeat.stores.base import Claim, Claimed, Lost
from evenbeat.stores.batching import BYTES, batches
from evenbeat.stores.damage import Unreadable, quarantine_note
from evenbeat.stores.decisions import leaves_cohort, parts, weight
from evenbeat.stores.redis.encoding import Fields, fields_of, instant_text, member_of, number_text, path_of
from evenbeat.stores.redis.limited import Batch, LimitedClaims
from evenbeat.stores.redis.records import record_row
from evenbeat.stores.redis.rows import new_run, read_run
from evenbeat.stores.redis.schedules import FAMILIES
from evenbeat.stores.redis.session import Session

# How many runs one script handles. This takes some 10 ms, in which the server executes no other command.
BATCH = 1000
# Outcomes of the script that claims.
_HELD, _LIMITED = 1, 2


def size_of(run: RunRecord) -> int:
    size = len(run.payload) + len(run.result or "") + len(run.error or "")
    return size + len(run.earlier or "") + len(run.flow or "")


def add(session: Session, runs: Sequence[RunRecord], before: Instant | None) -> list[bool]:
    answers: list[bool] = []
    for part in batches(runs, BATCH, size_of):
        (replies,) = session.run("add_runs", [[new_run(run) for run in part], before or False])
        session.committed()
        answers += map(bool, replies)
    return answers


def claim(session: Session, wanted: Claim, limited: LimitedClaims) -> tuple[Claimed, bool]:
    """Claim runs. Return them, and whether a slot of a limit became free.

    A large claim takes several steps, always with the same token: so a repeated claim finds all its runs.
    """
    runs: list[RunRecord] = []
    to_quarantine: list[tuple[str, Exception]] = []
    taken = 0
    goes_on = False
    while True:
        room = min(wanted.limit - taken, BATCH)
        batch = limited.take(wanted, room, goes_on) if limited.are_expected else None
        if batch is None:
            batch = _take(session, wanted, room, goes_on)
        if batch is None:
            limited.are_expected = True
            continue
        for attempt, flat in batch.rows:
            fields = fields_of(flat)
            if not batch.is_repetition:
                fields |= _taken(wanted, attempt, batch.lease_until, batch.now)
            _read_into(runs, to_quarantine, fields)
        taken += len(batch.rows)
        goes_on = True
        if batch.rows:
            session.committed()
        if batch.is_repetition or batch.is_over or taken >= wanted.limit:
            break
    if batch.is_repetition:
        runs.sort(key=lambda run: (-run.priority, run.run_at, run.id))
    frees = _quarantine(session, to_quarantine)
    return Claimed(tuple(runs), batch.next_due), frees


def _take(session: Session, wanted: Claim, room: int, goes_on: bool) -> Batch | None:
    """Claim runs in one script; None if there are limits."""
    due_by, next_due, outcome, rows, lease_until, now = session.run(
        "claim",
        [
            wanted.worker,
            wanted.token,
            room,
            wanted.now,
            wanted.lease,
            list(dict.fromkeys(wanted.queues)),
            False if wanted.tasks is None else sorted(wanted.tasks),
            FAMILIES,
            int(goes_on),
            BYTES,
            wanted.turn,
        ],
    )
    if outcome == _LIMITED:
        return None
    is_over = not rows or next_due is None or next_due > due_by
    return Batch(rows, next_due, outcome == _HELD, is_over, lease_until, now)


def _taken(wanted: Claim, attempt: int, lease_until: Instant, now: Instant) -> Fields:
    """Return the fields of a claimed run that the script wrote after it had read the run."""
    return {
        "state": "running",
        "attempt": str(attempt),
        "worker": wanted.worker,
        "claim": wanted.token,
        "lease_until": instant_text(lease_until),
        "started_at": instant_text(now),
    }


def _read_into(runs: list[RunRecord], to_quarantine: list[tuple[str, Exception]], fields: Fields) -> None:
    try:
        runs.append(read_run(fields))
    except Unreadable as error:
        if "id" in fields:
            to_quarantine.append((fields["id"], error))


def _quarantine(session: Session, to_quarantine: Iterable[tuple[str, Exception]]) -> bool:
    """Set runs to failed. Return whether a slot of a limit became free."""
    rows = [[run_id, quarantine_note(error)] for run_id, error in to_quarantine]
    if not rows:
        return False
    (freed,) = session.run("fail_runs", rows)
    session.committed()
    return bool(freed)


def lost(session: Session, ended_by: Instant, limit: int) -> tuple[Lost, bool]:
    """Find lost runs. Return them, and whether a slot of a limit became free."""
    runs: list[RunRecord] = []
    to_quarantine: list[tuple[str, Exception]] = []
    next_end, rows = session.run("lost_runs", [ended_by, limit])
    for flat in rows:
        _read_into(runs, to_quarantine, fields_of(flat))
    frees = _quarantine(session, to_quarantine)
    return Lost(tuple(runs), next_end), frees


def settle(session: Session, transitions: Sequence[Transition]) -> tuple[list[bool], bool]:
    """Apply transitions. Return which are accepted, and whether a schedule was woken or a slot of a limit
    became free."""
    answers: list[bool] = []
    is_woken = False
    for part in batches(transitions, BATCH, weight):
        replies, woken = session.run("settle", [_row_or_rows(transition) for transition in part])
        session.committed()
        answers += map(bool, replies)
        is_woken = is_woken or woken == 1
    return answers, is_woken


def _row_or_rows(transition: Transition) -> list[object]:
    """Return a transition as one entry of the request: the script applies the rows of an entry together."""
    if not transition.ends:
        return _transition_row(transition)
    together = list(parts(transition))
    return [[_transition_row(part) for part in together], [not part.ends for part in together]]


def _transition_row(t: Transition) -> list[object]:
    """Return a transition in the form that the script expects. The script computes times from the server's
    clock."""
    fields: list[str] = []
    gone: list[str] = []
    if t.state is not UNSET:
        fields += ("state", t.state)
    if t.failures is not UNSET:
        fields += ("failures", number_text(t.failures))
    if t.crashes is not UNSET:
        fields += ("crashes", number_text(t.crashes))
    if t.cancel_requested is not UNSET:
        fields += ("cancel_requested", "true" if t.cancel_requested else "false")
    if t.earlier is not UNSET:
        fields += ("earlier", t.earlier)
    if t.flow is not UNSET:
        fields += ("flow", t.flow)
    if t.payload is not UNSET:
        fields += ("payload", t.payload)
    if t.task is not UNSET:
        fields += ("task", t.task)
    for name, text in (("worker", t.worker), ("result", t.result), ("error", t.error)):
        if text is None:
            gone.append(name)
        elif text is not UNSET:
            fields += (name, text)
    row: list[object] = [
        t.run,
        str(t.attempt),
        t.expect,
        t.token,
        fields,
        gone,
        False if t.state is UNSET else t.state,
        False if t.delay is UNSET else t.delay,
        _value_or_mark(t.lease),
        _value_or_mark(t.finished_at),
        t.lease_ended,
        t.renews,
        False if t.worker is UNSET else (t.worker or ""),
        [new_run(run) for run in t.adds],
        False if t.counts is None else _figures(t.counts, t.tick),
        False if t.wakes is None else member_of(*t.wakes),
        _gate(t),
        False if t.claim is None else t.claim,
    ]
    if t.records or leaves_cohort(t):
        row.append([record_row(record) for record in t.records])
    if leaves_cohort(t):
        row.append([False if t.task is UNSET else t.task, False if t.kind is UNSET else t.kind])
    return row


def _gate(t: Transition) -> object:
    if t.gate is None:
        return False
    fires = [] if t.gate_fires is None else [str(t.gate_fires)]
    return [path_of(*t.gate[:2]), *map(str, t.gate[2:]), *fires]


def _value_or_mark(value: object) -> object:
    if value is UNSET:
        return False
    return "none" if value is None else value


def _figures(more: Statistics, tick: Instant | None) -> list[object]:
    last: dict[str, str] = {}
    if more.last_run:
        last["last_run"] = instant_text(more.last_run)
    if more.last_success:
        last["last_success"] = instant_text(more.last_success)
    if more.last_failure:
        last["last_failure"] = instant_text(more.last_failure)
    if more.last_error is not None:
        last["last_error"] = more.last_error
    path = path_of(more.tenant, more.schedule)
    counts = (more.run_count, more.success_count, more.failure_count)
    return [path, *counts, last, False if tick is None else tick]
