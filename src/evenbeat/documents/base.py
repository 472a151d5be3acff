"""Documents that are jobs: what a store of them answers, and what every store of them can do.

A document is whatever the user keeps: a document of MongoDB, a row of a table, a hash in Redis, a dict. Four
of its fields matter here, under names that the user chooses: ``sleep_until``, ``interval``, ``repeat_until``
and ``auto_remove``. Nothing else is added to it.

**The lock is the field ``sleep_until`` itself.** Locking a document sets it to the instant at which the lock
ends, so that nobody takes the document before, and everybody may afterwards. That instant is also the fence:
whoever writes a result says which value of ``sleep_until`` he believes to be his lock, and is refused if
the document has another by now. A lock always ends later than the one before it, so that no two are alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from evenbeat.core.instants import Instant

HELD: Instant = 253_370_764_800_000
"""``sleep_until`` of a document that is held: 9999-01-01T00:00:00Z. It waits for a person, who corrects it
and says anew when it is due."""


class Fields(msgspec.Struct, frozen=True):
    """The names of the four fields in a user's documents."""

    sleep_until: str = "sleep_until"
    interval: str = "interval"
    repeat_until: str = "repeat_until"
    auto_remove: str = "auto_remove"


class Found(msgspec.Struct, frozen=True):
    """A document that was locked, as it was before.

    Of the fields, ``sleep_until`` alone was read by the store, which had to compare it. The others are what
    stood there, whatever that was; None where there was nothing. ``rules.read`` makes sense of them.
    """

    id: Any
    """Opaque: it is only ever given back. It may not even be hashable."""
    sleep_until: Instant
    """When it was due: rounded down to the millisecond."""
    locked_until: Instant
    """The lock that it has now."""
    interval: object = None
    repeat_until: object = None
    """A datetime, where a naive one is in UTC; a date; or its ISO 8601 text."""
    auto_remove: object = None
    data: Mapping[str, Any] = {}
    """The whole document in the terms of its database, the four fields included, as before the lock."""
    trouble: str | None = None
    """Why the document can't be read, if it can't: it is told of and held."""


class Taken(NamedTuple):
    """What ``lock_next`` gives."""

    found: Sequence[Found]
    next_due: Instant | None
    """When the next document is due that was not; those just locked may count, as their locks end. Asked for
    only where fewer were found than wanted. None if there is none, and where as many were found as wanted."""


class DocumentLock(NamedTuple):
    """A lock as its holder knows it."""

    id: Any
    ends: tuple[Instant, ...]
    """The value of ``sleep_until`` that is his lock; more than one where the answer to a renewal was lost,
    and either may be there."""


class Change(msgspec.Struct, frozen=True):
    """What a holder writes into his document. Fields that are not named are left as they are."""

    lock: DocumentLock
    sleep_until: Instant | None
    """When it is due next. None clears the field: the document is no job any more."""
    fields: Mapping[str, Any] = {}
    """Further fields to set, in the terms of the database; None clears one. Written in the same step, or
    not at all."""


class Documents(Protocol):
    """A store of documents. Safe to be called from several threads, and by any number of processes at once.

    Every call is one atomic step per document, and raises ``StoreUnavailable`` if the database did not
    answer: whether the call took effect is not known then.
    """

    @property
    def name(self) -> str:
        """What it is, for logs: the collection, the table, the pattern of the keys. No password."""

    @property
    def reserved(self) -> frozenset[str]:
        """The paths that a handler must not set, nor what they are inside of: ``sleep_until``, and what a
        document is known by."""

    def open(self) -> None:
        """Get ready: connect, and look whether everything named is there. ``InvalidValue`` if it is not.
        Safe to repeat, and to call again after ``close``."""

    def close(self) -> None:
        """Let go of what ``open`` took. What the user gave stays open. Safe to repeat."""

    def now(self) -> Instant:
        """The clock of the database, by which all its users agree on what is due."""

    def lock_next(self, duration: int, limit: int) -> Taken:
        """Lock up to ``limit`` documents that are due, for ``duration`` milliseconds, the longest due first.

        Due is a document that meets the condition and whose ``sleep_until`` is there, not null, and not after
        now. Of all who ask at the same time, exactly one gets it. Where many ask at once, the order
        may give way a little.
        """

    def update(self, changes: Sequence[Change]) -> Sequence[bool | None]:
        """Write each change whose document still has that lock. Answers which were written; None for one that
        was not, and that nobody can tell of now, as a transaction of its owner's holds it: try again later.

        A document that is gone, that others have locked since, or whose ``sleep_until`` its owner has
        changed, is left alone: False. One change that the database refuses (a value that does not fit)
        raises, and may keep the others from being written: give each alone then.
        """

    def remove(self, locks: Sequence[DocumentLock]) -> Sequence[bool | None]:
        """Delete each document that still has that lock. Answers which were deleted; None as above."""
