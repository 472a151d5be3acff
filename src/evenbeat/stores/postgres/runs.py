"""Runs: added, claimed, settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from evenbeat.instants import Instant
from evenbeat.model import ACTIVE_STATES, FORMAT, Run, Transition
from evenbeat.stores.base import Claim, Claimed, Insertion, Lost
from evenbeat.stores.decisions import Settlement, Standing, settlement
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.commands import Commands, Statement, Transaction
from evenbeat.stores.postgres.places import Place
from evenbeat.stores.postgres.schedules import json_keys, json_notes
from evenbeat.stores.postgres.texts import (
    json_list,
    json_runs,
    json_text,
    marked,
    unmarked,
    unmarked_at,
)
from evenbeat.stores.rows import (
    RUN,
    STATISTICS,
    Row,
    Unreadable,
    quarantine_note,
    read_run,
    readable_runs,
    statistics_row,
)

_LEASE_UNTIL = RUN.index("lease_until")
FREE = tuple(RUN.index(name) for name in ("worker", "claim", "result", "error", "settled"))
_FREE_FIELDS = ("worker", "result", "error", "settled")
PRIORITIES = range(9, -1, -1)


def add(transaction: Transaction, runs: Sequence[Run]) -> list[bool]:
    first = _first_of_each(runs)
    if not first:
        return []
    (rows,) = transaction.commit(
        "insert runs", [(sql.INSERT_RUNS, {"rows": json_runs(list(first.values()))})]
    )
    new = {row[0] for row in rows}
    answers = []
    for run in runs:
        answers.append(run.id in new)
        new.discard(run.id)
    return answers


def insertion(place: Place, runs: Sequence[Run]) -> Insertion:
    """The statement of ``add`` with a hint, for a connection that is not ours."""
    return Insertion("postgresql", place.own(sql.INSERTION), json_runs(list(_first_of_each(runs).values())))


def _first_of_each(runs: Sequence[Run]) -> dict[str, Run]:
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(run.id, run)
    return first


class Outlook:
    """What a claim may count on: read without a lock, so that it may be out of date."""

    def __init__(self, row: Row) -> None:
        self.servers_clock: Instant = row[0]
        self.is_repetition: bool = row[1]
        self.earliest: list[Instant | None] = row[2] or [None] * 10
        """The first ``run_at`` of each priority, the highest first."""

    @property
    def next_due(self) -> Instant | None:
        return min((run_at for run_at in self.earliest if run_at is not None), default=None)

    def due(self, now: Instant) -> list[int]:
        """The priorities of which something is due, the highest first."""
        pairs = zip(PRIORITIES, self.earliest, strict=True)
        return [priority for priority, run_at in pairs if run_at is not None and run_at <= now]


def ask_outlook(wanted: Claim) -> Statement:
    values = {
        "worker": marked(wanted.worker), "token": marked(wanted.token), "format": FORMAT,
        "queues": list(dict.fromkeys(wanted.queues)),
    }  # fmt: skip
    if wanted.tasks is None:
        return sql.OUTLOOK, values
    return sql.OUTLOOK_OF_TASKS, {**values, "tasks": sorted(wanted.tasks)}


def claim(
    transaction: Transaction, wanted: Claim, guess: int, clock: int | None
) -> tuple[Claimed, int | None]:
    """Take runs; also answers the priority of which most likely more is due, None if nothing is.

    ``guess`` is the priority that is looked at before it is known which ones are due: all but always the
    right one, so that there is one round trip to look and one to take.
    """
    token = {"worker": marked(wanted.worker), "token": marked(wanted.token)}
    known: list[Statement] = [(sql.LOCK_CLAIM, token), (sql.SELECT_CLAIMED, token), ask_outlook(wanted)]
    guessed = _claimable(wanted, guess, wanted.limit, clock)
    _, held, (row,), *of_guess = transaction.together("select claimable", [*known, *guessed])
    if held:
        # The reply was lost. What else was looked at is let go of; what is held is read again, since nothing
        # keeps others from taking over what has run out meanwhile.
        held, (row,) = transaction.commit(
            "select claimed", [(sql.SELECT_CLAIMED, token), ask_outlook(wanted)]
        )
        return Claimed(tuple(readable_runs(unmarked_at(held, FREE))), Outlook(row).next_due), None
    due = min(wanted.now, transaction.now)
    chosen: list[Row] = []
    for priority in Outlook(row).due(due):
        room = wanted.limit - len(chosen)
        if room <= 0:
            break
        found = of_guess
        if priority != guess:
            found = transaction.together("select claimable", _claimable(wanted, priority, room, clock))
        rows = [run for of_queue in found for run in of_queue]
        if len(wanted.queues) > 1:
            rows.sort(key=_order)
        chosen += rows[:room]
    return _take(transaction, wanted, chosen, due)


_RUN_AT, _ID = RUN.index("run_at"), RUN.index("id")


def _order(row: Row) -> tuple[Instant, str]:
    return row[_RUN_AT], row[_ID]


def _claimable(wanted: Claim, priority: int, limit: int, clock: int | None) -> list[Statement]:
    """The questions for due runs of a priority, one for each queue."""
    values: dict[str, object] = {
        "priority": priority, "now": wanted.now, "clock": clock, "format": FORMAT, "limit": limit,
    }  # fmt: skip
    text = sql.SELECT_CLAIMABLE
    if wanted.tasks is not None:
        text = sql.SELECT_CLAIMABLE_OF_TASKS
        values["tasks"] = sorted(wanted.tasks)
    return [(text, {**values, "queue": queue}) for queue in dict.fromkeys(wanted.queues)]


def _take(
    transaction: Transaction, wanted: Claim, chosen: list[Row], due: Instant
) -> tuple[Claimed, int | None]:
    now = transaction.now
    lease_until = now + wanted.lease
    taken: list[Run] = []
    troubled: list[tuple[Row, str]] = []
    for row in unmarked_at(chosen, FREE):
        try:
            run = read_run(row)
        except Unreadable as error:
            troubled.append((row, quarantine_note(error)))
            continue
        taken.append(
            replace(
                run, state="running", attempt=run.attempt + 1, worker=wanted.worker, claim=wanted.token,
                lease_until=lease_until, started_at=now,
            )
        )  # fmt: skip
    statements: list[Statement] = []
    if taken:
        values = {
            "worker": marked(wanted.worker), "token": marked(wanted.token), "lease_until": lease_until,
            "started_at": now, "ids": json_list([run.id for run in taken]),
        }  # fmt: skip
        statements.append((sql.CLAIM, values))
    if troubled:
        # Over and done with: waiting at the head of its queue, such a run would starve the others.
        ends = [{"id": row[0], "error": marked(note), "finished_at": now} for row, note in troubled]
        statements.append((sql.FAIL_UNREADABLE, {"rows": json_text(ends)}))
        notes = [((row[1], row[0]), note) for row, note in troubled]
        statements.append((sql.QUARANTINE, {"rows": json_notes(notes)}))
    answers = transaction.commit("claim runs", [*statements, ask_outlook(wanted)])
    coming = Outlook(answers[-1][0])
    return Claimed(tuple(taken), coming.next_due), next(iter(coming.due(due)), None)


def lost(commands: Commands, ended_by: Instant, limit: int, clock: int | None) -> Lost:
    values = {"ended_by": ended_by, "clock": clock, "limit": limit + 1}
    rows, ((next_end,),) = commands.together(
        "select lost", [(sql.SELECT_LOST, values), (sql.NEXT_LEASE_END, values)]
    )
    unmarked_at(rows, FREE)
    if len(rows) > limit:
        return Lost(tuple(readable_runs(rows[:limit])), rows[limit][_LEASE_UNTIL] or 0)
    return Lost(tuple(readable_runs(rows)), next_end)


def settle(transaction: Transaction, transitions: Sequence[Transition]) -> list[bool]:
    locks = _gates(transitions)
    ids = json_list({transition.run for transition in transitions})
    found = transaction.together("lock runs", [*locks, (sql.LOCK_RUNS, {"ids": ids})])[-1]
    standing = {
        run_id: Standing(state, attempt, unmarked(settled), lease_until)
        for run_id, state, attempt, settled, lease_until in found
    }
    done = settlement(transitions, standing, transaction.now)
    transaction.commit("settle runs", _written(done))
    return done.answers


def _gates(transitions: Sequence[Transition]) -> list[Statement]:
    """The lock on schedules for which it matters how many runs are active."""
    wakes = {transition.wakes for transition in transitions if transition.wakes is not None}
    revived = {transition.run for transition in transitions if _revives(transition)}
    if not wakes and not revived:
        return []
    return [(sql.LOCK_GATES, {"rows": json_keys(wakes), "ids": json_list(revived)})]


def _revives(transition: Transition) -> bool:
    """Whether a run that is over may become active again: somebody wants it to be tried once more."""
    return transition.state in ACTIVE_STATES and not ACTIVE_STATES.issuperset(transition.expect)


def _written(done: Settlement) -> list[Statement]:
    statements: list[Statement] = []
    if done.adds:
        statements.append((sql.INSERT_RUNS, {"rows": json_runs(list(_first_of_each(done.adds).values()))}))
    # Runs whose transitions set the same fields share a statement: all but always that is one.
    groups: defaultdict[tuple[str, ...], list[dict[str, object]]] = defaultdict(list)
    for run_id, fields in done.updates.items():
        row: dict[str, object] = {"id": run_id, **fields}
        for name in _FREE_FIELDS:
            if isinstance(text := row.get(name), str):
                row[name] = marked(text)
        groups[tuple(fields)].append(row)
    for names, rows in groups.items():
        statements.append((sql.update_runs(names), {"rows": json_text(rows)}))
    if done.counts:
        figures = [dict(zip(STATISTICS, statistics_row(more), strict=True)) for more in done.counts.values()]
        for figure in figures:
            figure["last_error"] = marked(figure["last_error"])
        statements.append((sql.COUNT, {"rows": json_text(figures)}))
    if done.wakes:
        statements.append((sql.WAKE, {"rows": json_keys(done.wakes)}))
    return statements
