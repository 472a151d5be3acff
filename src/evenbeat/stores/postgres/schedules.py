"""Schedules: written by compare-and-set, found, and fired."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenbeat.core.instants import Instant
from evenbeat.core.records import FORMAT, Record, RunRecord, ScheduleRecord, Version
from evenbeat.rules.firing import Active, Planned, needs_active
from evenbeat.stores.base import Fired, Page, PlanFunction, ScheduleQuery, Write, Written
from evenbeat.stores.damage import Key, Unreadable, quarantine_note
from evenbeat.stores.decisions import Budget, may_be_repetition
from evenbeat.stores.pages import read_schedule_cursor, schedule_page
from evenbeat.stores.postgres import dependencies, records
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.encoding import is_kept, json_list, json_runs, json_text, marked, unmarked_at
from evenbeat.stores.postgres.session import Session, Statement, Transaction
from evenbeat.stores.refusals import REFUSALS, FireRefused, Selection
from evenbeat.stores.rows import (
    FIRED_FIELDS,
    SCHEDULE,
    SKIPPED,
    Row,
    key_of,
    read_schedule,
    read_schedules,
    schedule_row,
    skipped_row,
    version_of,
)

_FREE_TEXT = tuple(SCHEDULE.index(name) for name in ("description", "managed_by", "pause_note", "paused_by"))


def put(transaction: Transaction, writes: Sequence[Write]) -> list[Written]:
    """Decide the writes one after the other, each on the result of those before it; then write all rows at
    once."""
    keys = {write.planned.schedule.key for write in writes}
    found = transaction.rows("lock schedules", sql.LOCK_SCHEDULES, {"rows": json_keys(keys)})
    # The version is compared also if the rest of a row cannot be read, so that the row can be replaced.
    versions: dict[Key, Version] = {(row[0], row[1]): version_of(row) for row in found}
    there = frozenset(versions)
    present = {schedule.key: schedule for schedule in read_schedules(unmarked_at(found, _FREE_TEXT))}
    accepted: list[Planned] = []
    answers: list[Written] = []
    for write in writes:
        wanted = write.planned.schedule
        current = present.get(wanted.key)
        if write.expect != versions.get(wanted.key):
            repeated = may_be_repetition(current, wanted) and _are_there(transaction, write, accepted)
            answers.append(Written(repeated, current))
            continue
        if write.record is not None and not records.change(transaction, *write.record):
            answers.append(Written(False, current))
            continue
        versions[wanted.key], present[wanted.key] = wanted.version, wanted
        accepted.append(write.planned)
        answers.append(Written(True, wanted))
    following = _what_follows(accepted, transaction.now)
    transaction.commit("put schedules", [*_written(accepted, there), *following])
    return answers


def _written(accepted: list[Planned], there: frozenset[Key]) -> list[Statement]:
    last = {planned.schedule.key: planned.schedule for planned in accepted}
    new = [_fields(schedule) for key, schedule in last.items() if key not in there]
    old = [_fields(schedule) for key, schedule in last.items() if key in there]
    pairs = ((sql.INSERT_SCHEDULES, new), (sql.UPDATE_SCHEDULES, old))
    return [(text, {"rows": json_text(rows)}) for text, rows in pairs if rows]


def _fields(schedule: ScheduleRecord) -> dict[str, object]:
    fields = dict(zip(SCHEDULE, schedule_row(schedule), strict=True))
    for at in _FREE_TEXT:
        fields[SCHEDULE[at]] = marked(fields[SCHEDULE[at]])
    return fields


def _are_there(transaction: Transaction, write: Write, accepted: list[Planned]) -> bool:
    """Whether the runs that a write adds exist already, or are added earlier in the same batch."""
    missing = {run.id for run in write.planned.runs}
    missing -= {run.id for planned in accepted for run in planned.runs}
    if not missing:
        return True
    found = transaction.rows("select present", sql.SELECT_PRESENT, {"ids": json_list(missing)})
    return len(found) == len(missing)


def _what_follows(accepted: Iterable[Planned], now: Instant) -> list[Statement]:
    """Return the statements for the runs, ledger rows, cancel requests and records of written schedules; none
    for a kind of which there is none. They take no round trip of their own."""
    runs: dict[str, RunRecord] = {}
    skipped: list[dict[str, object]] = []
    cancels: set[str] = set()
    notes: list[Record] = []
    spent: list[tuple[str, str, str]] = []
    for planned in accepted:
        for run in planned.runs:
            runs.setdefault(run.id, run)
        for row in planned.skipped:
            skipped.append(dict(zip(SKIPPED, skipped_row(row), strict=True)))
        cancels.update(planned.cancels)
        notes += planned.records
        spent += planned.spent
    statements: list[Statement] = []
    if cancels:
        statements.append((sql.REQUEST_CANCELS, {"ids": json_list(cancels)}))
    if runs:
        statements.append((sql.INSERT_RUNS, {"rows": json_runs(list(runs.values()))}))
    if skipped:
        statements.append((sql.INSERT_SKIPPED, {"rows": json_text(skipped)}))
    return [*statements, *records.addition(notes, now), *dependencies.deletion(spent)]


def find(session: Session, query: ScheduleQuery) -> Page[ScheduleRecord]:
    after = read_schedule_cursor(query.cursor)
    if not is_kept(query.tenant, query.name, query.task):
        return Page((), None)
    text, values = search_statement(query, after)
    # One more than the page holds says whether there is more.
    rows = session.rows("select schedules", f"{text} LIMIT %s", [*values, query.limit + 1])
    found = read_schedules(unmarked_at(rows, _FREE_TEXT))
    return schedule_page(found, query.limit)


def search_statement(query: ScheduleQuery, after: Key | None = None) -> tuple[str, list[object]]:
    """Return the text and the values of a search."""
    source = "evenbeat.schedules"
    values: list[object] = []
    if query.keys is not None:
        source = sql.SCHEDULES_BY_KEY
        values = [json_keys(key for key in dict.fromkeys(query.keys) if is_kept(*key))]
    elif query.wakes_before is not None:
        source, values = sql.SCHEDULES_BY_WAKE_UP, [query.wakes_before]
    conditions = {
        "tenant = %s": query.tenant,
        "name = %s": query.name,
        "task = %s": query.task,
        "updated_at >= %s": query.changed_since,
        "wake_at < %s": query.wakes_before,
    }
    asked = {text: value for text, value in conditions.items() if value is not None}
    where = ["state <> ALL (CAST(%s AS text[]))", *asked]
    values += [query.unwanted, *asked.values()]
    if after is not None:
        where.append("(tenant, name) > (%s, %s)")
        values += after
    text = f"SELECT {sql.SCHEDULE_COLUMNS} FROM {source}"
    return f"{text} WHERE {' AND '.join(where)} ORDER BY tenant, name", values


def fire(
    transaction: Transaction, selection: Selection, now: Instant, plan: PlanFunction, clock: int | None
) -> Fired:
    """Plan and write due rows that no other transaction has locked."""
    values = {"now": now, "clock": clock, "format": FORMAT, "limit": selection.most_read}
    found = selection.chosen(transaction.rows("select due", sql.SELECT_DUE, values), key_of)
    now = min(now, transaction.now)
    due: list[ScheduleRecord] = []
    to_quarantine: list[tuple[Key, Exception]] = []
    for row in unmarked_at(found, _FREE_TEXT):
        try:
            due.append(read_schedule(row))
        except Unreadable as error:
            to_quarantine.append(((row[0], row[1]), error))
    active = _active(transaction, [schedule.key for schedule in due if needs_active(schedule)])
    facts = dependencies.facts(transaction, due)
    planned: list[Planned] = []
    budget = Budget()
    for schedule in due:
        if budget.is_spent:
            break
        try:
            planned.append(plan(schedule, now, active.get(schedule.key, ()), *facts.get(schedule.key, ())))
        except Exception as error:
            to_quarantine.append((schedule.key, error))
        else:
            budget.spend(planned[-1])
    quarantined = tuple(key for key, _ in to_quarantine)
    try:
        following = _what_follows(planned, transaction.now)
        statements = [*_moves(planned), *following, *_quarantine(to_quarantine)]
        answers = transaction.commit("fire", [*statements, next_wakes(selection.without)])
    except REFUSALS as error:
        raise FireRefused(due, quarantined, error) from error
    return Fired(tuple(planned), first_wake(answers[-1], selection.without), quarantined)


def next_wakes(without: frozenset[Key]) -> Statement:
    """Return the statement that ``first_wake`` reads."""
    if not without:
        return sql.NEXT_WAKE, {"format": FORMAT}
    return sql.NEXT_WAKES, {"format": FORMAT, "limit": len(without) + 1}


def first_wake(rows: list[Row], without: frozenset[Key]) -> Instant | None:
    """Return the next wake-up of the schedules that are not left out."""
    return next((row[0] for row in rows if not without or row[1:] not in without), None)


def _moves(planned: list[Planned]) -> list[Statement]:
    if not planned:
        return []
    rows = []
    for outcome in planned:
        s = outcome.schedule
        row = {"tenant": s.tenant, "name": s.name} | {name: getattr(s, name) for name in FIRED_FIELDS}
        rows.append(row | {"pause_note": marked(s.pause_note), "paused_by": marked(s.paused_by)})
    return [(sql.ADVANCE_SCHEDULES, {"rows": json_text(rows)})]


def _active(transaction: Transaction, keys: list[Key]) -> dict[Key, tuple[Active, ...]]:
    found: dict[Key, tuple[Active, ...]] = {}
    if keys:
        for tenant, name, run_id, state, asked in transaction.rows(
            "select active", sql.SELECT_ACTIVE, {"rows": json_keys(keys)}
        ):
            key = (tenant, name)
            found[key] = (*found.get(key, ()), Active(run_id, state, asked))
    return found


def _quarantine(to_quarantine: list[tuple[Key, Exception]]) -> list[Statement]:
    if not to_quarantine:
        return []
    notes = [(key, quarantine_note(error)) for key, error in to_quarantine]
    return [
        (sql.PUT_TO_SLEEP, {"rows": json_keys(key for key, _ in to_quarantine)}),
        (sql.QUARANTINE, {"rows": json_notes(notes)}),
    ]


def json_notes(notes: Iterable[tuple[Key, str]]) -> str:
    """Encode notes of kind ``quarantine``, by (tenant, key)."""
    return json_text([{"tenant": key[0], "key": key[1], "body": marked(note)} for key, note in notes])


def json_keys(keys: Iterable[Key]) -> str:
    return json_text([{"tenant": tenant, "name": name} for tenant, name in keys])
