"""Documents in memory: dicts in a dict. For tests, and for data that may be lost with the process."""

from __future__ import annotations

import copy
import heapq
import logging
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import Instant, from_ms, to_ms, to_ms_up
from evenbeat.documents import paths
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.errors import InvalidValue, shown

_log = logging.getLogger("evenbeat.documents")

Condition: TypeAlias = Callable[[Mapping[str, Any]], bool] | Mapping[str, Any]
"""A function of a document, or values that some of its fields must have."""


class MemoryDocuments:
    """A dict of documents, by keys of any type. Times are datetimes; a naive one is in UTC.

    While a processor works on the documents, hold ``lock`` to add or change one, or replace a whole document.
    """

    def __init__(
        self,
        documents: MutableMapping[Any, dict[str, Any]],
        *,
        sleep_until: str = Fields().sleep_until,
        interval: str = Fields().interval,
        repeat_until: str = Fields().repeat_until,
        auto_remove: str = Fields().auto_remove,
        condition: Condition | None = None,
        clock: Callable[[], Instant] = wall_clock,
    ) -> None:
        self.lock = threading.RLock()
        self._documents = _mapping(documents)
        self._sleep_until = paths.check(sleep_until, "sleep_until")
        self._interval = paths.check(interval, "interval")
        self._repeat_until = paths.check(repeat_until, "repeat_until")
        self._auto_remove = paths.check(auto_remove, "auto_remove")
        paths.check_apart(
            {
                "sleep_until": sleep_until,
                "interval": interval,
                "repeat_until": repeat_until,
                "auto_remove": auto_remove,
            }
        )
        self._condition = _matcher(condition)
        self._clock = clock
        self._has_warned = False

    @property
    def name(self) -> str:
        return "memory"

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({self._sleep_until})

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def now(self) -> Instant:
        return self._clock()

    def lock_next(self, duration: int, limit: int) -> Taken:
        with self.lock:
            now = self._clock()
            waiting = [
                (instant, place, key)
                for place, (key, document) in enumerate(list(self._documents.items()))
                if (instant := self._due(key, document)) is not None and self._meets(key, document)
            ]
            # Documents that are due at the same time are sorted by their place: keys may have no order.
            due = heapq.nsmallest(limit, (entry for entry in waiting if entry[0] <= now))
            found = [self._locked(key, now + duration) for _, _, key in due]
            later = [instant for instant, _, _ in waiting if instant > now]
            return Taken(found, min(later, default=None) if len(found) < limit else None)

    def update(self, changes: Sequence[Change]) -> list[bool]:
        with self.lock:
            return [self._change(change) for change in changes]

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        with self.lock:
            return [self._holds(lock) and self._documents.pop(lock.id, None) is not None for lock in locks]

    def _meets(self, key: Any, document: Mapping[str, Any]) -> bool:
        """Return whether a document meets the condition. It does not if the condition raises; the other
        documents are not affected."""
        try:
            return self._condition(document)
        except Exception as error:
            extra = {"component": "documents", "documents": self.name, "document": shown(key)}
            _log.error(
                "the condition raised an error for a document, which is left out: %r", error, extra=extra
            )
            return False

    def _due(self, key: Any, document: Mapping[str, Any]) -> Instant | None:
        """Return when a document is due, rounded up, so that none is early; None for never."""
        moment = paths.get(document, self._sleep_until)
        if isinstance(moment, datetime):
            return to_ms_up(_aware(moment))
        if moment not in (None, "") and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "document %s is never due: its %s is %s; store a datetime, not a %s",
                shown(key),
                self._sleep_until,
                shown(moment),
                type(moment).__name__,
                extra={"component": "documents", "documents": self.name, "document": shown(key)},
            )
        return None

    def _locked(self, key: Any, until: Instant) -> Found:
        document = self._documents[key]
        was_due = to_ms(_aware(paths.get(document, self._sleep_until)))
        before = _copied(document)
        paths.put(document, self._sleep_until, from_ms(until))
        return Found(
            id=key,
            sleep_until=was_due,
            locked_until=until,
            interval=paths.get(before, self._interval),
            repeat_until=paths.get(before, self._repeat_until),
            auto_remove=paths.get(before, self._auto_remove),
            data=before,
        )

    def _holds(self, lock: DocumentLock) -> bool:
        document = self._documents.get(lock.id)
        if document is None:
            return False
        moment = paths.get(document, self._sleep_until)
        return isinstance(moment, datetime) and _aware(moment) in map(from_ms, lock.ends)

    def _change(self, change: Change) -> bool:
        if not self._holds(change.lock):
            return False
        document = self._documents[change.lock.id]
        for path in change.fields:
            paths.check(path, "field")  # before the first write: all are written, or none
        for path, value in change.fields.items():
            paths.put(document, path, value)
        upcoming = None if change.sleep_until is None else from_ms(change.sleep_until)
        paths.put(document, self._sleep_until, upcoming)
        return True


def _mapping(documents: object) -> MutableMapping[Any, dict[str, Any]]:
    if isinstance(documents, MutableMapping):
        return documents
    raise InvalidValue(
        f"documents {shown(type(documents).__name__)} is not a dict of documents by their keys",
        field="documents",
        value=None,
        hint='write {"a": {"sleep_until": …}}; make a dict of a list: dict(enumerate(documents))',
    )


def _copied(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that later changes do not affect."""
    try:
        return copy.deepcopy(dict(document))
    except Exception:
        # A value in it can't be copied. The document must not block those behind it.
        return dict(document)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _matcher(condition: Condition | None) -> Callable[[Mapping[str, Any]], bool]:
    if condition is None:
        return lambda _document: True
    if isinstance(condition, Mapping):
        wanted = {paths.check(path, "condition"): value for path, value in condition.items()}
        return lambda document: all(paths.get(document, path) == value for path, value in wanted.items())
    if callable(condition):
        return condition
    raise InvalidValue(
        f"condition {shown(condition)} is neither a function nor a dict of values",
        field="condition",
        value=condition,
        hint='write {"active": True} or lambda document: document["total"] > 100',
    )
