"""Idempotency-Key: a repeated request adds nothing.

Runs have ids that their creator chooses, so the key becomes the id. A schedule has a name: a note of the
request, written before the schedule, tells a repetition from another request for the same name.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from evenbeat.core.instants import to_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.core.results import Schedule
from evenbeat.web.endpoint import Call
from evenbeat.web.problems import Refused

KIND = "idempotency"
# How long a request can be repeated.
KEPT = 86_400_000


def run_id(call: Call[Any, Any]) -> str | None:
    """Return the id of the run that a request adds; None to let the app choose one."""
    return None if call.idempotency_key is None else f"key-{_digest(call)}"


def repeated_or_begun(call: Call[Any, Any], request: dict[str, Any]) -> Callable[[Schedule], bool]:
    """Note the request, and return a function that tells whether it was what made a schedule.

    A key that came with another request is refused.
    """
    if call.idempotency_key is None:
        return lambda _: False
    store = call.app.store
    key = _digest(call)
    body = hashlib.sha256(encode(request).encode()).hexdigest()
    now = store.now()
    note = Record(
        kind=KIND,
        tenant=call.owner,
        key=key,
        body=f"{now} {body}",
        version=secrets.randbits(53),
        expires=now + KEPT,
    )
    present = note if store.put_record(note) else store.get_record(KIND, call.owner, key)
    since, _, known = (note if present is None else present).body.partition(" ")
    if known != body:
        raise Refused(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "key-used-twice",
            "another request came with this key",
            field="Idempotency-Key",
            value=call.idempotency_key,
            hint="choose a new key for each request, and repeat a request unchanged",
        )
    # A schedule that is older than the first request was made by something else.
    return lambda schedule: to_ms(schedule.created_at) >= int(since)


def _digest(call: Call[Any, Any]) -> str:
    """Return a text that differs by who asks, for which tenant and path, and by the key."""
    parts = (
        call.principal.token or "",
        call.owner,
        str(sorted(call.path.items())),
        str(call.idempotency_key),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]
