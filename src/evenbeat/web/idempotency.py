"""Idempotency-Key: a repeated request adds nothing.

The creator of a run may choose its id, so the key becomes the id. It is known as long as the run is kept.

For a schedule, the store keeps a note of the request for a day, written before the schedule and again after
it. By the note, the server distinguishes a repeated request from another request for the same name.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from msgspec.structs import replace

from evenbeat.core.instants import to_ms
from evenbeat.core.json_text import encode
from evenbeat.core.records import Record
from evenbeat.core.results import Run, Schedule
from evenbeat.errors import RunExists, StoreUnavailable
from evenbeat.rules.templates import template_word
from evenbeat.triggers import parse_trigger
from evenbeat.web.endpoint import Call
from evenbeat.web.problems import Refused

KIND = "idempotency"
# How long a request that creates a schedule can be repeated.
KEPT = 86_400_000


def add_run(call: Call[Any, Any], add: Callable[..., Run], *args: Any, **options: Any) -> Run:
    """Return the run that ``add`` adds for a request, or that an earlier request with its key added.

    Refuses the key if that request was about another task or payload.
    """
    key = call.idempotency_key
    run_id = None if key is None else f"key-{_digest(call)}"
    try:
        run = add(*args, **options, id=run_id, tenant=call.owner)
    except RunExists:  # not without a key: a new id is chosen then
        raise _used_twice(call) from None
    given = call.body.payload
    # Another id: the run that has the unique key.
    if run.id == run_id and given is not None and given != run.payload:
        raise _used_twice(call)
    return run


class Creation:
    """A request that creates a schedule, as its note in the store has it. Without a key there is no note."""

    def __init__(self, call: Call[Any, Any], note: Record | None) -> None:
        self._call = call
        self._note = note
        since, _, created = ("", "", "") if note is None else note.body.split(" ")
        self._since = since
        self._created = created

    @property
    def is_done(self) -> bool:
        """Whether the request has created its schedule before."""
        return self._created not in ("", "-")

    def is_of(self, schedule: Schedule, request: dict[str, Any]) -> bool:
        """Return whether the request created this schedule."""
        created = to_ms(schedule.created_at)
        if self.is_done:
            return created == int(self._created)
        # The process may have died before it noted the end. Something else may have made the schedule, too.
        return (
            self._note is not None
            and created >= int(self._since)
            and schedule.task == request["task"]
            and (schedule.payload or None) == (request.get("payload") or None)
            and _has_trigger(schedule, request.get("trigger"), request.get("template"))
        )

    def finish(self, schedule: Schedule) -> None:
        """Note that the request has created its schedule: a repetition adds nothing, even after a delete."""
        if self._note is None or self.is_done:
            return
        body = self._note.body.removesuffix("-") + str(to_ms(schedule.created_at))
        done = replace(self._note, body=body, version=secrets.randbits(53))
        # The schedule is there, so the request has succeeded.
        with suppress(StoreUnavailable):
            self._call.app.store.put_record(done, self._note.version)


def _has_trigger(schedule: Schedule, trigger: str | None, template: str | None) -> bool:
    """Return whether a schedule has the trigger, or the template, of a request."""
    word = template_word(trigger)
    if trigger is None or word is not None:
        return schedule.template == (word or template) and "trigger" in schedule.inherited
    return schedule.trigger == str(parse_trigger(trigger))


def begin(call: Call[Any, Any], request: dict[str, Any]) -> Creation:
    """Note a request that creates a schedule. A key that came with another request is refused."""
    if call.idempotency_key is None:
        return Creation(call, None)
    store = call.app.store
    key = _digest(call)
    body = hashlib.sha256(encode(request).encode()).hexdigest()
    now = store.now()
    note = Record(
        kind=KIND,
        tenant=call.owner,
        key=key,
        body=f"{now} {body} -",
        version=secrets.randbits(53),
        expires=now + KEPT,
    )
    present = note if store.put_record(note) else store.get_record(KIND, call.owner, key) or note
    if present.body.split(" ")[1] != body:
        raise _used_twice(call)
    return Creation(call, present)


def gone(call: Call[Any, Any]) -> Refused:
    """Return the answer to a repeated request whose schedule was deleted since."""
    return Refused(
        HTTPStatus.CONFLICT,
        "key-used-before",
        "a request with this key created the schedule, which was deleted since",
        field="Idempotency-Key",
        value=call.idempotency_key,
        hint="choose a new key to create it again",
    )


def _used_twice(call: Call[Any, Any]) -> Refused:
    return Refused(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "key-used-twice",
        "another request came with this key",
        field="Idempotency-Key",
        value=call.idempotency_key,
        hint="choose a new key for each request, and repeat a request unchanged",
    )


def _digest(call: Call[Any, Any]) -> str:
    """Return a text that differs by the token, the tenant, the path and the key."""
    parts = (
        call.principal.token or "",
        call.owner,
        str(sorted(call.path.items())),
        str(call.idempotency_key),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:40]
