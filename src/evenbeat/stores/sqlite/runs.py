"""Runs: added, settled, and lost. Functions of an open transaction, which holds the write lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord, Transition
from evenbeat.stores.base import Lost
from evenbeat.stores.damage import Key, Unreadable, quarantine_note
from evenbeat.stores.decisions import NO_REVISIONS, RunStatus, all_parts, settlement
from evenbeat.stores.refusals import write_each
from evenbeat.stores.rows import RUN, Row, read_run, readable_runs, statistics_row
from evenbeat.stores.sqlite import dependencies, new_runs, records
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.bulk import bulk
from evenbeat.stores.sqlite.json_values import json_list
from evenbeat.stores.sqlite.session import Session

_LEASE_UNTIL = RUN.index("lease_until")


def add(session: Session, runs: Sequence[RunRecord]) -> list[bool]:
    """Add runs. A bulk insert returns how many rows are new but not which, so existing ones are read
    first."""
    ids = json_list([run.id for run in runs])
    present = {row[0] for row in session.rows("select present", sql.SELECT_PRESENT, (ids,))}
    answers: list[bool] = []
    new: list[RunRecord] = []
    for run in runs:
        is_new = run.id not in present
        if is_new:
            present.add(run.id)
            new.append(run)
        answers.append(is_new)
    new_runs.insert(session, new)
    return answers


def quarantine(session: Session, to_quarantine: list[tuple[Row, Unreadable]], now: Instant) -> None:
    """Set unreadable runs to failed: at the head of its queue, such a run would block the others."""
    notes = [(row, quarantine_note(error)) for row, error in to_quarantine]

    def write(part: Sequence[tuple[Row, str]]) -> None:
        session.many("quarantine", sql.FAIL_UNREADABLE, [(note, now, row[-1]) for row, note in part])
        session.many("quarantine", sql.QUARANTINE, [(row[1], row[0], note) for row, note in part])

    # One that is refused stays running until its lease ends, and then is tried again.
    write_each(write, notes, lambda one: f"run {one[0][0]}")


def lost(session: Session, ended_by: Instant, limit: int) -> tuple[Lost, bool]:
    """Find runs whose lease has ended, and whether there are unreadable rows among them."""
    rows = session.rows("select lost", sql.SELECT_LOST, (ended_by, limit + 1))
    runs = tuple(readable_runs(rows[:limit]))
    unreadable = len(runs) < len(rows[:limit])
    if len(rows) > limit:
        return Lost(runs, rows[limit][_LEASE_UNTIL] or 0), unreadable
    ((next_end,),) = session.rows("select next lease end", sql.NEXT_LEASE_END, (ended_by,))
    return Lost(runs, next_end), unreadable


def fail_unreadable(session: Session, ended_by: Instant, limit: int, now: Instant) -> None:
    """Set unreadable lost runs to failed: no worker can record how they ended."""
    rows = session.rows("select lost", sql.SELECT_LOST, (ended_by, limit))
    to_quarantine: list[tuple[Row, Unreadable]] = []
    for row in rows:
        try:
            read_run(row)
        except Unreadable as error:
            to_quarantine.append((row, error))
    quarantine(session, to_quarantine, now)


def settle(session: Session, transitions: Sequence[Transition], now: Instant) -> tuple[list[bool], bool]:
    """Apply transitions. Return which are accepted, and whether to wake other nodes: a schedule was woken,
    or a slot of a limit is free."""
    flat = all_parts(transitions)
    targets = json_list({part.run for part in flat})
    statuses = {
        row[0]: RunStatus._make(row[1:]) for row in session.rows("select runs", sql.SELECT_STATUS, (targets,))
    }
    done = settlement(transitions, statuses, now, _revisions(session, flat))
    new_runs.insert(session, done.adds)
    _update(session, done.updates)
    records.add(session, done.records, now)
    session.many("count", sql.COUNT, [statistics_row(more) for more in done.counts.values()])
    session.many("count fires", sql.COUNT_FIRE, list(done.activated))
    woken = session.rows("wake schedules", sql.WAKE, (json_list(done.wakes),)) if done.wakes else []
    followers = {(tenant, name): text for tenant, name, text in woken if text}
    if followers:
        dependencies.wake(session, flat, done.updates, followers, now)
    return done.answers, len(woken) > 0 or done.frees


def _revisions(session: Session, transitions: Sequence[Transition]) -> Mapping[Key, tuple[int, int, int]]:
    """Read (generation, revision, fire_seq) of the schedules that transitions name as their gates."""
    gates = {transition.gate[:2] for transition in transitions if transition.gate is not None}
    if not gates:
        return NO_REVISIONS
    rows = session.rows("select revisions", sql.SELECT_REVISIONS, (json_list(gates),))
    return {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}


def _update(session: Session, updates: dict[str, dict[str, object]]) -> None:
    """Update runs. Runs whose transitions set the same fields share a statement: almost always there is
    one."""
    groups: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for run_id, fields in updates.items():
        groups[tuple(fields)].append((run_id, *fields.values()))
    for names, rows in groups.items():
        together = bulk(rows)
        if together is None:
            session.many("update runs", sql.update_run(names), [(*row[1:], row[0]) for row in rows])
        else:
            session.run("update runs", sql.update_runs(names, together.expressions), together.values)
