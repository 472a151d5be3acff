"""Schedules that depend on others: the facts of their plans, and what a success does to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord, Transition
from evenbeat.rules.dependencies import PENDING, Follower
from evenbeat.stores.damage import Key
from evenbeat.stores.dependencies import NO_EFFECTS, Effects, FactsByKey, effects, read_facts, successes_of
from evenbeat.stores.postgres import statements as sql
from evenbeat.stores.postgres.encoding import json_text, unmarked
from evenbeat.stores.postgres.session import Statement, Transaction
from evenbeat.stores.rows import Row

GATE = ("tenant", "name", "generation", "revision", "fire_seq")
"""What LOCK_GATES returns of each schedule, before the leader and the fields of a follower."""


def facts(transaction: Transaction, due: Sequence[ScheduleRecord]) -> FactsByKey:
    """Read what the plans of schedules need to know about others, after their rows are locked. Sends nothing
    if none needs it."""

    def last_successes(keys: Sequence[Key]) -> dict[Key, Instant | None]:
        rows = transaction.rows("select successes", sql.SELECT_LAST_SUCCESSES, {"rows": _keys(keys)})
        return {(tenant, name): last for tenant, name, last in rows}

    def pending(keys: Sequence[Key], limit: int) -> dict[Key, list[Record]]:
        found: dict[Key, list[Record]] = {}
        values = {"rows": _keys(keys), "limit": limit}
        for tenant, name, key, body in transaction.rows("select pending", sql.SELECT_PENDING, values):
            record = Record(kind=PENDING, tenant=tenant, key=key, body=unmarked(body) or "")
            found.setdefault((tenant, name), []).append(record)
        return found

    return read_facts(due, last_successes, pending)


def _keys(keys: Sequence[Key]) -> str:
    return json_text([{"tenant": tenant, "name": name} for tenant, name in keys])


def wake(
    transitions: Sequence[Transition],
    updates: Mapping[str, Mapping[str, Any]],
    gates: Sequence[Row],
    now: Instant,
) -> Effects:
    """Return what successes do to followers. ``gates`` are rows of LOCK_GATES, which holds their locks."""
    behind = len(GATE)
    rows = [row for row in gates if row[behind] is not None]
    if not rows:
        return NO_EFFECTS
    followers: dict[Key, str] = {}
    for row in rows:
        leader = (row[0], row[behind])
        followers[leader] = f"{followers.get(leader, '')} {row[1]}"
    present = {(row[0], row[1]): Follower._make(row[behind + 1 :]) for row in rows}
    return effects(successes_of(transitions, updates), followers, present.values(), now)


def waking(done: Effects) -> list[Statement]:
    """Return the statement that sets the wake-ups of followers; an empty list if none changes."""
    rows = [
        {"tenant": wake.key[0], "name": wake.key[1], "wake_at": wake.wake_at, "counts": wake.has_records}
        for wake in done.wakes
        if wake.is_written
    ]
    return [(sql.WAKE_FOLLOWERS, {"rows": json_text(rows)})] if rows else []


def deletion(spent: Sequence[tuple[str, str, str]]) -> list[Statement]:
    """Return the statement that deletes spent records; an empty list if there are none."""
    rows = [{"kind": kind, "tenant": tenant, "key": key} for kind, tenant, key in spent]
    return [(sql.DELETE_SPENT, {"rows": json_text(rows)})] if rows else []
