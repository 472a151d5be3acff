"""Documents that are jobs: the protocol of a document store, and the values that it takes and returns.

A document is a record that the user already has: a document of MongoDB, a row of a table, a hash in Redis, a
dict. Evenbeat uses four of its fields, under names that the user chooses: ``sleep_until``, ``interval``,
``repeat_until`` and ``auto_remove``. It adds no field.

**The lock is the field ``sleep_until`` itself.** Locking a document sets it to the instant at which the lock
ends: no processor takes the document before that instant, and any may afterwards. That instant is also the
fence: a processor that writes a result passes the value of ``sleep_until`` that is its lock, and the store
refuses the write if the document has another value by now. A lock always ends later than the one before it,
so that no two locks are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from evenbeat.core.instants import Instant, to_ms

HELD = datetime(9999, 1, 1, tzinfo=UTC)
"""``sleep_until`` of a held document: it waits for a person, who corrects it and sets the field again."""
HELD_AT: Instant = to_ms(HELD)
"""The same as an instant."""


class Fields(msgspec.Struct, frozen=True):
    """The names of the four fields in a user's documents."""

    sleep_until: str = "sleep_until"
    interval: str = "interval"
    repeat_until: str = "repeat_until"
    auto_remove: str = "auto_remove"


class Found(msgspec.Struct, frozen=True):
    """A document that was locked, as it was before.

    Of the four fields, the store has read ``sleep_until`` alone, since it had to compare it. The others have
    the value that the document has, of any type; None where there is none. ``rules.read`` interprets them.
    """

    id: Any
    """Opaque: the worker only passes it back. It may have no hash."""
    sleep_until: Instant
    """When it was due: rounded down to the millisecond."""
    locked_until: Instant
    """The end of the lock that it has now."""
    interval: object = None
    repeat_until: object = None
    """A datetime, where a naive one is in UTC; a date; or its ISO 8601 text."""
    auto_remove: object = None
    data: Mapping[str, Any] = {}
    """The whole document as its database has it, the four fields included, before the lock."""
    trouble: str | None = None
    """Why the document can't be read; None if it can. Such a document is reported and held."""


class Taken(NamedTuple):
    """The result of ``lock_next``."""

    found: Sequence[Found]
    next_due: Instant | None
    """When the next document is due; the end of a lock that was just set may count. The store asks for it
    only if it found fewer documents than wanted. None if there is no such document, or as many were found as
    wanted."""


class DocumentLock(NamedTuple):
    """A lock as its holder knows it."""

    id: Any
    ends: tuple[Instant, ...]
    """The value of ``sleep_until`` that is the lock. More than one where the database did not answer to a
    renewal, and the document may have either value."""


class Change(msgspec.Struct, frozen=True):
    """The fields that the holder of a lock writes into its document. Other fields stay as they are."""

    lock: DocumentLock
    sleep_until: Instant | None
    """When it is due next. None clears the field: the document is not a job any more."""
    fields: Mapping[str, Any] = {}
    """Further fields to set, with values as the database has them; None clears one. The store writes all of
    them in the same step, or none."""


class Documents(Protocol):
    """A document store. Safe to call from several threads, and from any number of processes at once.

    Every call is one atomic step per document. It raises ``StoreUnavailable`` if the database did not
    answer: the call may have taken effect or not.
    """

    @property
    def name(self) -> str:
        """The name of the collection or table, or the pattern of the keys, for logs. Without a password."""

    @property
    def reserved(self) -> frozenset[str]:
        """The paths that a handler must not set, nor any path inside of them or around them: ``sleep_until``,
        and the key of a document."""

    def open(self) -> None:
        """Connect, and check that the table, fields and condition exist: ``InvalidValue`` if they do not.
        Safe to repeat, and to call again after ``close``."""

    def close(self) -> None:
        """Release what ``open`` acquired. Connections that the user passed stay open. Safe to repeat."""

    def now(self) -> Instant:
        """Return the time by the database's clock, by which all processors agree on what is due."""

    def lock_next(self, duration: int, limit: int) -> Taken:
        """Lock up to ``limit`` documents that are due, for ``duration`` milliseconds, the longest due first.

        A document is due if it meets the condition and its ``sleep_until`` is present, not null, and not
        after now. If several processors ask for it at the same time, exactly one gets it. Under contention,
        the order is approximate.
        """

    def update(self, changes: Sequence[Change]) -> Sequence[bool | None]:
        """Write each change whose document still has that lock. Return for each whether it was written; None
        if a transaction of the document's owner has locked the document: try again later.

        The store leaves a document alone, and returns False, if it is gone, if another processor has locked
        it since, or if its owner has changed ``sleep_until``. If the database refuses one of the changes
        (a value that does not fit), the call raises, and may write none: pass each change alone then.
        """

    def remove(self, locks: Sequence[DocumentLock]) -> Sequence[bool | None]:
        """Delete each document that still has that lock. Return for each whether it was deleted; None as in
        ``update``."""
