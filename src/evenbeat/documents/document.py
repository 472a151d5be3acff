"""A document as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from evenbeat.core.instants import Instant, Moment, from_ms, read_moment
from evenbeat.documents.base import Found
from evenbeat.documents.rules import Plan
from evenbeat.errors import DocumentLockLost, InvalidValue, shown


class Document(Mapping[str, Any]):
    """A document that is locked for its handler: ``document["customer"]`` is a field of it.

    Reading gives the document as it was before it was locked. Writing (``update``, ``reschedule``) only takes
    notes: they are written when the handler has returned, in one step with what becomes of the document, and
    only if the lock is still ours. What a handler that raises has noted is forgotten.
    """

    def __init__(
        self, found: Found, plan: Plan, now: Callable[[], Instant], reserved: frozenset[str]
    ) -> None:
        self._found = found
        self._plan = plan
        self._now = now
        self._reserved = reserved
        self._changes: dict[str, Any] = {}
        self._wish: Instant | None = None
        self._lost = False

    @property
    def id(self) -> Any:
        """What its database knows it by: ``_id``, the primary key, the key."""
        return self._found.id

    @property
    def sleep_until(self) -> datetime:
        """When it was due."""
        return from_ms(self._found.sleep_until)

    @property
    def interval(self) -> str | None:
        """How it recurs, as it says so itself."""
        return None if self._plan.trigger is None else str(self._found.interval)

    @property
    def repeat_until(self) -> datetime | None:
        """Until when it recurs."""
        return None if self._plan.repeat_until is None else from_ms(self._plan.repeat_until)

    @property
    def auto_remove(self) -> bool:
        """Whether it is removed when it is done."""
        return self._plan.auto_remove

    @property
    def data(self) -> Mapping[str, Any]:
        """The whole of it."""
        return self._found.data

    @property
    def is_lost(self) -> bool:
        """Whether the lock is known to be lost: another processor may have the document by now."""
        return self._lost

    def check(self) -> None:
        """Raise ``DocumentLockLost`` if the lock is known to be lost: for handlers that take long."""
        if self._lost:
            raise DocumentLockLost(self.id)

    def update(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Note fields to be set when the handler has returned; None clears one."""
        changes = {**(fields or {}), **more}
        for name in changes:
            if self._is_reserved(name):
                raise InvalidValue(
                    f"field {shown(name)} is when the document is due, or what it is known by",
                    field=name,
                    value=changes[name],
                    hint="use document.reschedule(…) to say when it is due next",
                )
        self._changes.update(changes)

    def _is_reserved(self, name: str) -> bool:
        """Also ``schedule`` and ``schedule.sleepUntil.x`` where ``schedule.sleepUntil`` is."""
        return any(
            f"{name}.".startswith(f"{field}.") or f"{field}.".startswith(f"{name}.")
            for field in self._reserved
        )

    def reschedule(self, when: Moment) -> None:
        """Note when it is due next, in place of what its interval says: an aware datetime, its text, or how
        long from now, like ``"5m"``. It is neither done nor removed then."""
        self._wish = read_moment(when, "when", self._now())

    def __getitem__(self, name: str) -> Any:
        return self._found.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found.data)

    def __len__(self) -> int:
        return len(self._found.data)

    def __repr__(self) -> str:
        return f"<Document {shown(self.id)}>"

    @property
    def wishes(self) -> tuple[Instant | None, Mapping[str, Any]]:
        """What was noted: when it is due next, and the fields to set."""
        return self._wish, MappingProxyType(self._changes)

    def lose(self) -> None:
        self._lost = True
