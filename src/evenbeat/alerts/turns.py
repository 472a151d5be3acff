"""Turns: the process that evaluates alert rules now, and what one turn leaves for the next.

A process takes the turn by compare-and-set. That saves work, and guarantees nothing: a process that was
paused may go on with an old turn, so everything that a turn does is idempotent.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.rules.alert_records import DEFAULT_TENANT, TURN
from evenbeat.stores.base import Store

_KEY = "turn"


class KnownNode(msgspec.Struct, frozen=True):
    """A node that was alive."""

    expires: Instant
    """When its record expires, unless the node writes it again."""
    host: str | None = None


class TurnBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of the record."""

    who: str
    at: Instant
    """When the turn was taken."""
    nodes: dict[str, KnownNode] = {}
    """The live nodes of the last turn that looked for lost ones."""
    nodes_at: Instant = 0
    """When that was."""


class Turn(NamedTuple):
    """A turn of this process, and what the turn before it has left."""

    body: TurnBody
    version: int


_decoder = msgspec.json.Decoder(TurnBody)


def take_turn(store: Store, who: str, now: Instant, gap: int) -> Turn | Instant:
    """Take the turn if the last one began ``gap`` ms ago; otherwise return when to try again."""
    record = store.get_record(TURN, DEFAULT_TENANT, _KEY)
    before = _read(record)
    # A turn in the future: the store's clock was set back.
    if before is not None and before.at <= now < before.at + gap:
        return before.at + gap
    body = replace(before or TurnBody(who, now), who=who, at=now)
    version = _put(store, body, None if record is None else record.version)
    return now + gap if version is None else Turn(body, version)


def leave_nodes(store: Store, turn: Turn, nodes: dict[str, KnownNode], now: Instant) -> None:
    """Note the live nodes for the next turn, unless another process has taken it already."""
    _put(store, replace(turn.body, nodes=nodes, nodes_at=now), turn.version)


def _put(store: Store, body: TurnBody, expect: int | None) -> int | None:
    version = secrets.randbits(53)
    record = Record(kind=TURN, tenant=DEFAULT_TENANT, key=_KEY, body=encode(body), version=version)
    return version if store.put_record(record, expect) else None


def _read(record: Record | None) -> TurnBody | None:
    if record is None:
        return None
    try:
        return _decoder.decode(record.body)
    except (msgspec.MsgspecError, UnicodeError):
        return None
