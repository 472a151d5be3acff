"""A document as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

from evenbeat.core.instants import Instant, Moment, from_ms, read_moment
from evenbeat.documents.base import Found
from evenbeat.documents.rules import DocumentPlan
from evenbeat.errors import DocumentLockLost, InvalidValue, shown


class Document(Mapping[str, Any]):
    """A document that is locked for its handler: ``document["customer"]`` is a field of it.

    Reading returns the document as it was before it was locked. ``update`` and ``reschedule`` only note what
    to write: the processor writes it when the handler has returned, in one step with what becomes of the
    document, and only if it still holds the lock. The notes of a handler that raises are discarded.
    """

    def __init__(
        self, found: Found, plan: DocumentPlan, now: Callable[[], Instant], reserved: frozenset[str]
    ) -> None:
        self._found = found
        self._plan = plan
        self._now = now
        self._reserved = reserved
        self._changes: dict[str, Any] = {}
        self._rescheduled_to: Instant | None = None
        self._lost = False

    @property
    def id(self) -> Any:
        """Its key in the database: ``_id``, the primary key, the key of a hash."""
        return self._found.id

    @property
    def sleep_until(self) -> datetime:
        """When it was due."""
        return from_ms(self._found.sleep_until)

    @property
    def interval(self) -> str | None:
        """How it recurs, as the document has it; None if it does not."""
        return None if self._plan.trigger is None else str(self._found.interval)

    @property
    def repeat_until(self) -> datetime | None:
        """Until when it recurs."""
        return None if self._plan.repeat_until is None else from_ms(self._plan.repeat_until)

    @property
    def auto_remove(self) -> bool:
        """Whether the processor removes it when it is done."""
        return self._plan.auto_remove

    @property
    def data(self) -> Mapping[str, Any]:
        """The whole document."""
        return self._found.data

    @property
    def is_lost(self) -> bool:
        """Whether the lock is known to be lost: another processor may have the document by now."""
        return self._lost

    def raise_if_lost(self) -> None:
        """Raise ``DocumentLockLost`` if the lock is known to be lost: for handlers that take long."""
        if self._lost:
            raise DocumentLockLost(self.id)

    def update(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Note fields to set when the handler has returned; None clears one."""
        changes = {**(fields or {}), **more}
        for name in changes:
            if self._is_reserved(name):
                raise InvalidValue(
                    f"field {shown(name)} is the key of the document, or when it is due",
                    field=name,
                    value=changes[name],
                    hint="use document.reschedule(…) to set when it is due next",
                )
        self._changes.update(changes)

    def _is_reserved(self, name: str) -> bool:
        """Also ``schedule`` and ``schedule.sleepUntil.x`` where ``schedule.sleepUntil`` is reserved."""
        return any(
            f"{name}.".startswith(f"{field}.") or f"{field}.".startswith(f"{name}.")
            for field in self._reserved
        )

    def reschedule(self, when: Moment) -> None:
        """Note when it is due next, instead of the next tick of its interval: an aware datetime, its text, or
        a duration from now, like ``"5m"``. The document is then neither done nor removed."""
        self._rescheduled_to = read_moment(when, "when", self._now())

    def __getitem__(self, name: str) -> Any:
        return self._found.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found.data)

    def __len__(self) -> int:
        return len(self._found.data)

    def __repr__(self) -> str:
        return f"<Document {shown(self.id)}>"

    @property
    def noted(self) -> tuple[Instant | None, Mapping[str, Any]]:
        """The notes, for the processor: when it is due next, and the fields to set."""
        return self._rescheduled_to, MappingProxyType(self._changes)

    def lose(self) -> None:
        """Note that the lock is lost; for the processor."""
        self._lost = True
