"""Schedules that depend on others: the facts of their plans, and what a success does to them. Functions of an
open transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pymongo import UpdateOne

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, ScheduleRecord
from evenbeat.rules.dependencies import FOLLOWER, PENDING, Follower, Success
from evenbeat.stores.dependencies import (
    NO_EFFECTS,
    Effects,
    FactsByKey,
    each_pending,
    effects,
    named,
    read_facts,
)
from evenbeat.stores.mongo import history, records
from evenbeat.stores.mongo.location import Document
from evenbeat.stores.mongo.rows import Key, key_text, set_and_unset
from evenbeat.stores.mongo.schedules import TOUCH
from evenbeat.stores.mongo.schema import SCHEDULES
from evenbeat.stores.mongo.session import Session

_FIELDS = dict.fromkeys((*FOLLOWER, "fire_seq"), 1)
COUNT_FIRE: Document = {"$inc": {"fire_seq": 1}}


def facts(session: Session, due: Sequence[ScheduleRecord], clock: Instant) -> FactsByKey:
    """Read what the plans of schedules need to know about others; sends nothing if none needs it.

    A success that is settled at the same time writes the document of the follower, as the fire does: one of
    the two transactions is repeated.
    """

    def last_successes(keys: Sequence[Key]) -> dict[Key, Instant | None]:
        return {
            (known.tenant, known.schedule): known.last_success for known in history.statistics(session, keys)
        }

    def find(tenant: str, start: str, end: str, limit: int) -> list[Record]:
        return records.find(session, (PENDING, tenant), (start, end), limit, clock)

    return read_facts(due, last_successes, partial(each_pending, find))


def wake(session: Session, successes: Mapping[Key, Sequence[Success]], now: Instant) -> Effects:
    """Wake the followers of schedules whose runs succeeded. The caller adds the records."""
    if not successes:
        return NO_EFFECTS
    leaders = _find(session, "find leaders", list(successes), {"tenant": 1, "name": 1, "followers": 1})
    followers = {
        (document["tenant"], document["name"]): str(document["followers"])
        for document in leaders
        if document.get("followers")
    }
    rows = _find(session, "find followers", named(followers), _FIELDS)
    present = [Follower(*(_field(document, name) for name in FOLLOWER)) for document in rows]
    # The server refuses to count up what is not a number.
    counted = {
        (document["tenant"], document["name"])
        for document in rows
        if isinstance(document.get("fire_seq"), int)
    }
    done = effects(successes, followers, present, now)
    # Also those whose wake-up stays: a fire at the same time, which has not seen the success, must conflict.
    session.bulk(
        "wake followers",
        SCHEDULES,
        [
            UpdateOne(
                {"_id": key_text(wake.key)},
                {
                    **set_and_unset({"wake_at": wake.wake_at}),
                    **(COUNT_FIRE if wake.has_records and wake.key in counted else TOUCH),
                },
            )
            for wake in done.wakes
        ],
    )
    return done


def _find(session: Session, name: str, keys: Sequence[Key], fields: Document) -> list[Document]:
    ids = [key_text(key) for key in keys]
    return session.find(name, SCHEDULES, {"_id": {"$in": ids}}, fields=fields) if ids else []


def _field(document: Document, name: str) -> Any:
    return document.get(name, "" if name in ("trigger", "after") else None)
