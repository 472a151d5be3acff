"""Selects the runs that a claim takes without considering limits, and starts runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import RunRecord
from evenbeat.errors import RowRefused
from evenbeat.rules.limits import Candidate, choose, share
from evenbeat.stores.base import Claim, Claimed
from evenbeat.stores.postgres import claim_statements as sql
from evenbeat.stores.postgres.encoding import json_list, marked
from evenbeat.stores.postgres.outlook import Groups, Guess, Scope
from evenbeat.stores.postgres.runs import UnreadableRow
from evenbeat.stores.postgres.session import Statement, Transaction
from evenbeat.stores.refusals import ClaimRefused
from evenbeat.stores.rows import RUN, Row

_ID, _TENANT, _QUEUE, _PRIORITY, _RUN_AT, _COHORT = (
    RUN.index(name) for name in ("id", "tenant", "queue", "priority", "run_at", "cohort")
)


class ClaimResult(NamedTuple):
    """The result of a claim."""

    claimed: Claimed
    expected: Guess | None = None
    """The range in which the next claim probably finds runs; None if no run is due."""
    to_quarantine: Sequence[UnreadableRow] = ()
    """Rows that cannot be read. The claim has not changed them."""


def free_runs(
    transaction: Transaction,
    wanted: Claim,
    of_claim: Scope,
    groups: Groups,
    guess: Guess | None,
    of_guess: list[list[Row]],
) -> list[Row]:
    """Select and lock due runs, in the order in which a claim takes them. ``of_guess`` are those that the
    guess named."""
    due = min(wanted.now, transaction.now)
    chosen: list[Row] = []
    for priority in groups.due(due):
        room = wanted.limit - len(chosen)
        if room <= 0:
            break
        tenant = groups.only_tenant(priority)
        is_guessed = guess is not None and priority == guess.priority and guess.tenant in (None, tenant)
        if is_guessed:
            found = of_guess
        else:
            found = transaction.together("select claimable", of_claim.claimable(priority, tenant, room))
        if tenant is not None:
            rows = [row[: sql.COLUMNS] for of_queue in found for row in of_queue]
            if len(wanted.queues) > 1:
                rows.sort(key=_order)
            chosen += rows[:room]
        else:
            chosen += _in_turn(transaction, wanted, of_claim, priority, room, found)
    return chosen


def _order(row: Row) -> tuple[Instant, str]:
    return row[_RUN_AT], row[_ID]


def _in_turn(
    transaction: Transaction, wanted: Claim, of_claim: Scope, priority: int, room: int, found: list[list[Row]]
) -> list[Row]:
    """Return runs of the tenants in turn: those that were found, and more of the tenants that have more,
    until the claim is full."""
    rows: dict[str, Row] = {}
    while True:
        for row in chain.from_iterable(found):
            rows[row[_ID]] = row[: sql.COLUMNS]
        missing = room - len(rows)
        # A tenant that has filled its part, in a queue, may have more runs there.
        counts = Counter((row[_QUEUE], row[_TENANT], row[sql.COLUMNS]) for row in chain.from_iterable(found))
        left = [(queue, tenant, size) for (queue, tenant, size), count in counts.items() if count == size]
        if missing <= 0 or not left:
            break
        more = share(missing, len(left))
        rooms: dict[str, dict[str, int]] = {}
        for queue, tenant, size in left:
            rooms.setdefault(queue, {})[tenant] = size + more
        found = transaction.together(
            "select claimable",
            [of_claim.claimable_of(queue, priority, of_queue) for queue, of_queue in rooms.items()],
        )
    return [rows[run.id] for run in choose(map(candidate, rows.values()), room, wanted.turn)]


def candidate(row: Row) -> Candidate:
    return Candidate(row[_ID], row[_TENANT], row[_PRIORITY], row[_RUN_AT], row[_COHORT])


def started(
    transaction: Transaction, wanted: Claim, runs: Sequence[RunRecord]
) -> tuple[list[RunRecord], list[Statement]]:
    """Return the runs as the claim starts them, and the statement that writes this."""
    now = transaction.now
    lease_until = now + wanted.lease
    taken = [
        replace(
            run,
            state="running",
            attempt=run.attempt + 1,
            worker=wanted.worker,
            claim=wanted.token,
            lease_until=lease_until,
            started_at=now,
        )
        for run in runs
    ]
    if not taken:
        return [], []
    values = {
        "worker": marked(wanted.worker),
        "token": marked(wanted.token),
        "lease_until": lease_until,
        "started_at": now,
        "ids": json_list([run.id for run in taken]),
    }
    return taken, [(sql.CLAIM, values)]


def committed(
    transaction: Transaction, taken: Sequence[RunRecord], statements: Sequence[Statement]
) -> list[list[Row]]:
    """Commit the statements that start these runs."""
    try:
        return transaction.commit("claim runs", statements)
    except RowRefused as error:
        if not taken:
            raise
        raise ClaimRefused([run.id for run in taken], error) from error
