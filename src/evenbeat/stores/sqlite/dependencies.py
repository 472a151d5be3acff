"""Schedules that depend on others: the facts of their plans, and what a success does to them. Functions of an
open transaction, which holds the write lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord, Transition
from evenbeat.rules.dependencies import PENDING, Follower
from evenbeat.stores.damage import Key
from evenbeat.stores.dependencies import (
    NO_EFFECTS,
    Effects,
    FactsByKey,
    each_pending,
    effects,
    named,
    read_facts,
    successes_of,
)
from evenbeat.stores.sqlite import history, records
from evenbeat.stores.sqlite import statements as sql
from evenbeat.stores.sqlite.json_values import json_list
from evenbeat.stores.sqlite.session import Session


def facts(session: Session, due: Sequence[ScheduleRecord], clock: Instant) -> FactsByKey:
    """Read what the plans of schedules need to know about others; executes nothing if none needs it."""

    def last_successes(keys: Sequence[Key]) -> dict[Key, Instant | None]:
        return {
            (known.tenant, known.schedule): known.last_success for known in history.statistics(session, keys)
        }

    def find(tenant: str, start: str, end: str, limit: int) -> list[Record]:
        return records.find(session, PENDING, tenant, clock, start=start, end=end, limit=limit)

    return read_facts(due, last_successes, partial(each_pending, find))


def wake(
    session: Session,
    transitions: Sequence[Transition],
    updates: Mapping[str, Mapping[str, Any]],
    followers: Mapping[Key, str],
    now: Instant,
) -> Effects:
    """Add the pending records of followers, and wake them. ``followers`` has the text of each schedule that
    has any."""
    successes = successes_of(transitions, updates)
    if not successes:
        return NO_EFFECTS
    rows = session.rows("select followers", sql.SELECT_FOLLOWERS, (json_list(named(followers)),))
    done = effects(successes, followers, (Follower._make(row) for row in rows), now)
    records.add(session, done.records, now)
    changed = [(wake.wake_at, int(wake.has_records), *wake.key) for wake in done.wakes if wake.is_written]
    session.many("wake followers", sql.WAKE_FOLLOWER, changed)
    return done
