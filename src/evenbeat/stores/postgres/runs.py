"""Adds and settles runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, RunRecord, Transition
from evenbeat.stores.base import Lost
from evenbeat.stores.damage import Key, Unreadable, quarantine_note
from evenbeat.stores.decisions import RunStatus, Settlement, all_parts, settlement
from evenbeat.stores.postgres import dependencies, records
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.encoding import (
    is_kept,
    json_list,
    json_runs,
    json_text,
    marked,
    unmarked,
    unmarked_at,
)
from evenbeat.stores.postgres.schedules import json_keys, json_notes
from evenbeat.stores.postgres.session import Session, Statement, Transaction
from evenbeat.stores.rows import RUN, STATISTICS, Row, read_run, statistics_row

_ID, _TENANT, _SCHEDULE, _STATE, _ATTEMPT, _LEASE_UNTIL, _FORMAT = (
    RUN.index(name) for name in ("id", "tenant", "schedule", "state", "attempt", "lease_until", "format")
)
FREE_TEXT = tuple(RUN.index(name) for name in ("worker", "claim", "result", "error", "settled"))
_FREE_TEXT_FIELDS = ("worker", "result", "error", "settled")


def add(
    transaction: Transaction, runs: Sequence[RunRecord], before: Instant | None, clock: int | None
) -> list[bool]:
    first = first_of_each(runs)
    if not first:
        return []
    text, values = sql.INSERT_RUNS, dict[str, Any](rows=json_runs(list(first.values())))
    if before is not None:
        text, values = sql.INSERT_RUNS_BEFORE, {**values, "before": before, "clock": clock}
    (rows,) = transaction.commit("insert runs", [(text, values)])
    new = {row[0] for row in rows}
    answers = []
    for run in runs:
        answers.append(run.id in new)
        new.discard(run.id)
    return answers


def first_of_each(runs: Sequence[RunRecord]) -> dict[str, RunRecord]:
    first: dict[str, RunRecord] = {}
    for run in runs:
        first.setdefault(run.id, run)
    return first


class UnreadableRow(NamedTuple):
    """A row that cannot be read, and the reason."""

    row: Row
    note: str

    @property
    def run(self) -> str:
        return str(self.row[_ID])


def read_rows(rows: list[Row]) -> tuple[list[RunRecord], list[UnreadableRow]]:
    """Return the runs, and the rows that cannot be read. Rows of a newer format are in neither list."""
    runs: list[RunRecord] = []
    to_quarantine: list[UnreadableRow] = []
    for row in unmarked_at(rows, FREE_TEXT):
        try:
            runs.append(read_run(row))
        except Unreadable as error:
            if row[_FORMAT] <= FORMAT:
                to_quarantine.append(UnreadableRow(row, quarantine_note(error)))
    return runs, to_quarantine


def fail_unreadable(transaction: Transaction, to_quarantine: Sequence[UnreadableRow]) -> None:
    """Set unreadable runs to failed, unless another client has changed them since they were read. Such a run
    would block the head of its queue, and no worker could end it."""
    keys = {(row[_TENANT], row[_SCHEDULE]) for row, _ in to_quarantine if row[_SCHEDULE] is not None}
    ids = json_list([row[_ID] for row, _ in to_quarantine])
    locks = [_lock_gates(dict.fromkeys(keys, False)), (sql.LOCK_RUNS, {"ids": ids})]
    waiting, found = transaction.together("lock runs", locks)
    present = {row[0]: (row[1], row[2], row[4]) for row in found}
    same = [
        (row, note)
        for row, note in to_quarantine
        if present.get(row[_ID]) == (row[_STATE], row[_ATTEMPT], row[_LEASE_UNTIL])
    ]
    ends = [{"id": row[_ID], "error": marked(note), "finished_at": transaction.now} for row, note in same]
    notes = [((row[_TENANT], row[_ID]), note) for row, note in same]
    statements: list[Statement] = [
        (sql.FAIL_UNREADABLE, {"rows": json_text(ends)}),
        (sql.QUARANTINE, {"rows": json_notes(notes)}),
    ]
    if waiting:
        statements.append((sql.WAKE, {"rows": json_keys((row[0], row[1]) for row in waiting)}))
    transaction.commit("fail unreadable", statements)


def lost(
    session: Session, ended_by: Instant, limit: int, clock: int | None
) -> tuple[Lost, Sequence[UnreadableRow]]:
    """Find runs whose lease has ended, and rows among them that cannot be read."""
    values = {"ended_by": ended_by, "clock": clock, "limit": limit + 1}
    rows, ((next_end,),) = session.together(
        "select lost", [(sql.SELECT_LOST, values), (sql.NEXT_LEASE_END, values)]
    )
    if len(rows) > limit:
        next_end = rows[limit][_LEASE_UNTIL] or 0
    runs, to_quarantine = read_rows(rows[:limit])
    return Lost(tuple(runs), next_end), to_quarantine


def settle(transaction: Transaction, transitions: Sequence[Transition]) -> tuple[list[bool], bool]:
    """Apply transitions. Return which are accepted, and whether to hint: a schedule may have been woken, or a
    slot of a limit freed."""
    flat = all_parts(transitions)
    locks = _gates(flat)
    ids = json_list({part.run for part in flat if is_kept(part.run)})
    *gates, found = transaction.together("lock runs", [*locks, (sql.LOCK_RUNS, {"ids": ids})])
    statuses = {
        run_id: RunStatus(state, attempt, unmarked(settled), lease_until, cohort, unmarked(claim))
        for run_id, state, attempt, settled, lease_until, cohort, claim in found
    }
    held = [row for rows in gates for row in rows]
    revisions = {(row[0], row[1]): (row[2], row[3], row[4]) for row in held}
    done = settlement(transitions, statuses, transaction.now, revisions)
    wakes = [key for key in done.wakes if key in revisions]
    following = dependencies.wake(flat, done.updates, held, transaction.now)
    done.records.extend(following.records)
    statements = [*_written(done, wakes, transaction.now), *dependencies.waking(following)]
    transaction.commit("settle runs", statements)
    return done.answers, bool(wakes) or done.frees or following.wakes_any


def _gates(transitions: Sequence[Transition]) -> list[Statement]:
    """Return the statement that locks the gates of the transitions, the schedules that may wait for their
    runs, and the followers of those that succeed. Return an empty list if there are none."""
    keys: dict[Key, bool] = {}
    succeeding: set[Key] = set()
    for transition in transitions:
        if transition.counts is not None and transition.counts.success_count and transition.wakes is not None:
            succeeding.add(transition.wakes)
        if transition.wakes is not None and is_kept(*transition.wakes):
            keys.setdefault(transition.wakes, False)
        if transition.gate is not None and is_kept(*transition.gate[:2]):
            keys[transition.gate[:2]] = True
    return [_lock_gates(keys, succeeding)] if keys else []


def _lock_gates(keys: dict[Key, bool], succeeding: Collection[Key] = ()) -> Statement:
    """Return the statement that locks schedules, and the followers of ``succeeding`` ones. It locks a
    schedule that never waits only if its key maps to True."""
    rows = [
        {"tenant": key[0], "name": key[1], "is_gate": is_gate, "succeeds": key in succeeding}
        for key, is_gate in keys.items()
    ]
    return sql.LOCK_GATES, {"rows": json_text(rows)}


def _written(done: Settlement, wakes: Sequence[Key], now: Instant) -> list[Statement]:
    statements: list[Statement] = []
    if done.adds:
        statements.append((sql.INSERT_RUNS, {"rows": json_runs(list(first_of_each(done.adds).values()))}))
    # Runs whose transitions set the same fields share a statement. Almost always one statement is enough.
    groups: defaultdict[tuple[str, ...], list[dict[str, object]]] = defaultdict(list)
    for run_id, fields in done.updates.items():
        row: dict[str, object] = {"id": run_id, **fields}
        for name in _FREE_TEXT_FIELDS:
            if isinstance(text := row.get(name), str):
                row[name] = marked(text)
        groups[tuple(fields)].append(row)
    for names, rows in groups.items():
        statements.append((sql.update_runs(names), {"rows": json_text(rows)}))
    statements += records.addition(done.records, now)
    if done.counts:
        figures = [dict(zip(STATISTICS, statistics_row(more), strict=True)) for more in done.counts.values()]
        for figure in figures:
            figure["last_error"] = marked(figure["last_error"])
        statements.append((sql.COUNT, {"rows": json_text(figures)}))
    if wakes:
        statements.append((sql.WAKE, {"rows": json_keys(wakes)}))
    if done.activated:
        statements.append((sql.COUNT_FIRES, {"rows": json_keys(done.activated)}))
    return statements
