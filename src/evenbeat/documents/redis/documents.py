"""Documents in Redis or Valkey: hashes whose keys match a pattern, and an index of when they are due."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from evenbeat.core.durations import Duration, read_duration
from evenbeat.core.instants import FIRST, Instant, from_ms, to_ms
from evenbeat.documents import time_formats as formats
from evenbeat.documents.base import Change, DocumentLock, Fields, Found, Taken
from evenbeat.documents.redis import patterns
from evenbeat.documents.redis.server import Client, RedisServer
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.errors import InvalidValue, StoreUnavailable, shown

# Documents in one call of a script: the server executes nothing else meanwhile.
_CHUNK = 100
# About how many keys one step of the scan visits.
_PIECE = 250
# A database of at most so many keys is scanned whenever fewer documents are due than wanted.
_SMALL = 2_000
# Seconds that one call scans, at most.
_SCANNING = 0.1
# At most so many documents are logged whose sleep_until is not a time.
_MOST_WARNED = 100

_T = TypeVar("_T")
_log = logging.getLogger("evenbeat.documents")


class _Batch(NamedTuple):
    now: Instant
    """When it was locked, by the server's clock."""
    found: list[Found]
    has_more: bool
    next_due: Instant | None
    may_scan_all: bool
    may_scan: bool


class RedisDocuments:
    """Hashes whose keys match a pattern, on Redis 6.2 or Valkey 7.2 or later.

    The id of a document is its key; its data are texts by the names of its fields.

    **The index.** Evenbeat keeps a sorted set of the keys by when they are due beside the documents. It is
    a cache, and may be deleted at any time: an entry is compared with its hash before that is locked.
    A second key has a short text with the progress of the scan. Evenbeat adds nothing else, and does not
    change the expiry of a hash.

    **Documents that are not in the index.** ``put`` writes a document and its entry in the index in one step.
    A scan of the database finds documents that others have written (by HSET), documents that are due sooner
    than before, and those that meet the condition now and did not before. A database of up to 2,000 keys is
    scanned whenever fewer documents are due than wanted, so that such documents are found at once. A larger
    one is scanned in rounds, at most one every ``rescan``, in steps of 250 keys, by all processors together,
    and for about a twentieth of the server's time: 100,000 documents take 12 s, a million 2 minutes. Other
    keys of the database take a sixth of that. The first round, which makes the index, is not slowed down:
    100,000 documents take one or two seconds. So a document that was written by HSET may wait for ``rescan``
    or for the rest of a round, whichever is longer, and for one more round; a hint to the processor does not
    shorten that. Where this is too late, or too much load, use ``put``, and a long ``rescan``.

    **Failover.** When a server is demoted, the next call finds the new primary: behind the same address, by
    sentinels, or in a cluster. Writes that were not replicated to it are lost, also locks.

    **Clusters.** The pattern has a hash tag (``{shop}:order:*``), so that all documents and the index are on
    one node. Give the URL of a cluster, or a ``redis.RedisCluster``.

    **Lost replies.** A client that retries commands by itself, which is the default of redis-py, may lock
    documents twice: those of the lost reply are processed when their locks end. The retry of a result may
    also report a lock as lost although the result was written. For a URL, Evenbeat makes a client that does
    not retry. A client of yours should have a ``socket_timeout``.

    Clearing the last field of a document deletes it: Redis has no empty hashes.

    :param client: a ``redis.Redis`` (also of a sentinel) or ``redis.RedisCluster``, which stays open; or a
        URL: ``redis://host:6379/0``, ``rediss://`` over TLS, ``valkey://``,
        ``redis+sentinel://host:26379,host2:26379/service_name/0``, ``redis+cluster://host:6379,host2:6379``.
    :param pattern: the pattern of the keys, as Redis matches them: ``order:*``. Keys that are not hashes are
        ignored.
    :param condition: values that fields must have: ``{"active": "1"}``.
    :param times: the format of ``sleep_until`` and ``repeat_until``: ``text`` (RFC 3339; UTC without an
        offset), or numbers of ``seconds`` or ``milliseconds`` since 1970. A new value keeps the style of the
        old one. A document whose ``sleep_until`` is neither empty nor such a time is not a job; a warning is
        logged.
    :param index: the key of the index. By default it is made of the pattern, ``sleep_until``, condition and
        ``times``. Stores that differ in one of these must not share an index.
    :param rescan: how often to scan a large database.
    """

    def __init__(
        self,
        client: str | Client,
        pattern: str,
        *,
        sleep_until: str = Fields().sleep_until,
        interval: str = Fields().interval,
        repeat_until: str = Fields().repeat_until,
        auto_remove: str = Fields().auto_remove,
        condition: Mapping[str, str] | None = None,
        times: TimeFormat = "text",
        index: str | None = None,
        rescan: Duration = "10s",
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        self._pattern = patterns.check(pattern)
        self._matches = patterns.matcher(pattern)
        self._fields = Fields(
            _name(sleep_until, "sleep_until"),
            _name(interval, "interval"),
            _name(repeat_until, "repeat_until"),
            _name(auto_remove, "auto_remove"),
        )
        self._times = formats.check(times)
        wanted = _condition(condition)
        self._rescan = read_duration(rescan, "rescan")
        default = patterns.index_key(pattern, sleep_until, wanted, self._times)
        self.index = _name(default if index is None else index, "index")
        """The key of the index."""
        self._server = RedisServer(client, self.index, clock)
        if self._server.is_cluster:
            _check_slot(pattern, self.index)
        encode = self._server.encode
        self._terms = [
            encode(sleep_until, "sleep_until"),
            self._times.encode(),
            [encode(name, "condition") for name in wanted],
            [encode(value, "condition") for value in wanted.values()],
        ]
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        return self._pattern

    @property
    def reserved(self) -> frozenset[str]:
        return frozenset({self._fields.sleep_until})

    def open(self) -> None:
        for key, kind in zip(self._server.keys, (b"zset", b"string"), strict=True):
            found = self._server.execute("TYPE", key)
            if found not in (kind, b"none"):
                name = self._server.decode(key)
                raise InvalidValue(
                    f"index: the key {shown(name)} exists, and is a {found.decode()}",
                    field="index",
                    value=name,
                    hint='name another key: index="…"',
                )

    def close(self) -> None:
        self._server.close()

    def now(self) -> Instant:
        return self._server.now()

    def put(self, key: str, fields: Mapping[str, Any]) -> None:
        """Set fields of a document, new or not, and update the index in the same step, so that processors
        see it at once. Without fields, only update the index. None clears a field; a datetime is written in
        the format ``times``. Setting ``sleep_until`` of a locked document takes its lock away."""
        if not self._matches.fullmatch(key):
            raise InvalidValue(
                f"key {shown(key)} does not match {shown(self._pattern)}", field="key", value=key
            )
        values, cleared = self._encoded(fields)
        (invalid,) = self._server.run("put", self._terms, self._server.encode(key, "key"), values, cleared)
        self._warn_of(invalid)

    # Locking

    def lock_next(self, duration: int, limit: int) -> Taken:
        batch = self._take(duration, limit)
        try:
            return self._completed(batch, duration, limit)
        except StoreUnavailable:
            if not batch.found:
                raise
            return Taken(batch.found, batch.now)  # they are locked; the next call raises

    def _completed(self, batch: _Batch, duration: int, limit: int) -> Taken:
        """Scan for more documents, if a scan is due, and lock those that it finds."""
        is_building = False
        if len(batch.found) == limit:
            if batch.may_scan:
                self._scan(None)
        elif batch.may_scan_all or batch.may_scan:
            changed, is_building = self._scan_all() if batch.may_scan_all else self._scan_some()
            # Also without a change of the index, a document may have become due that its owner has moved.
            if changed or (batch.next_due is not None and batch.next_due <= batch.now):
                found = batch.found
                batch = self._take(duration, limit - len(found))
                batch.found.extend(found)
                batch.found.sort(key=lambda one: one.sleep_until)
        if len(batch.found) == limit:
            return Taken(batch.found, None)
        # Until the first round of the scan is over, due documents may be missing from the index.
        return Taken(batch.found, FIRST if is_building else batch.next_due)

    def _take(self, duration: int, limit: int) -> _Batch:
        """Lock documents that the index has."""
        found: list[Found] = []
        while True:
            wanted = min(limit - len(found), _CHUNK)
            sent = self._server.mark()
            try:
                now, rows, more, upcoming, small, scan, invalid = self._server.run(
                    "lock", self._terms, self._server.given_time(), duration, wanted, self._rescan, _SMALL
                )
            except StoreUnavailable:
                if not found:
                    raise
                return _Batch(now, found, True, now, False, False)  # the ones before are locked
            self._server.update_clock(now, sent)
            self._warn_of(invalid)
            found.extend(self._found(key, due, flat, now + duration) for key, due, flat in rows)
            if not more or len(found) >= limit:
                return _Batch(now, found, bool(more), upcoming, bool(small), bool(scan))

    def _found(self, key: bytes, due: int, flat: Sequence[bytes], until: Instant) -> Found:
        decode = self._server.decode
        texts = [decode(text) for text in flat]
        data = dict(zip(texts[::2], texts[1::2], strict=True))
        return Found(
            id=decode(key),
            sleep_until=max(due, FIRST),
            locked_until=until,
            interval=data.get(self._fields.interval),
            repeat_until=self._repeat_until(data.get(self._fields.repeat_until)),
            auto_remove=data.get(self._fields.auto_remove),
            data=data,
        )

    def _repeat_until(self, text: str | None) -> object:
        if text is None or self._times == "text":
            return text
        try:
            instant = formats.read(text, self._times, "repeat_until")
        except InvalidValue:
            return text  # ``rules.read`` refuses it
        return None if instant is None else from_ms(instant)

    # Scanning

    def _scan_all(self) -> tuple[int, bool]:
        """Scan the whole database. Return how many entries of the index changed, and False."""
        changed = 0
        cursor = b"0"
        while True:
            next_cursor, some, _ = self._scan(cursor)
            changed += some
            if next_cursor in (b"0", None):
                return changed, False
            cursor = next_cursor

    def _scan_some(self) -> tuple[int, bool]:
        """Continue the common round for as long as is allowed now. Return how many entries of the index
        changed, and whether the first round is not over yet."""
        changed = 0
        began = time.monotonic()
        while True:
            cursor, some, is_building = self._scan(None)
            changed += some
            if cursor in (b"0", None) or time.monotonic() - began >= _SCANNING:
                return changed, is_building

    def _scan(self, cursor: bytes | None) -> tuple[bytes | None, int, bool]:
        pattern = self._server.encode(self._pattern, "pattern")
        next_cursor, changed, is_building, invalid = self._server.run(
            "scan", self._terms, pattern, False if cursor is None else cursor, self._rescan, _PIECE
        )
        self._warn_of(invalid)
        return next_cursor, changed, bool(is_building)

    def _warn_of(self, invalid: Sequence[Sequence[bytes]]) -> None:
        for key, text in invalid:
            name = self._server.decode(key)
            if name not in self._warned and len(self._warned) < _MOST_WARNED:
                self._warned.add(name)
                _log.warning(
                    "the %s of a document is not a time (%s), so it is never due: %s",
                    self._fields.sleep_until,
                    self._times,
                    shown(self._server.decode(text)),
                    extra={"component": "documents", "documents": self._pattern, "document": shown(name)},
                )

    # Writing

    def update(self, changes: Sequence[Change]) -> list[bool]:
        wanted: list[object] = [
            [*self._lock(change.lock), _or_false(change.sleep_until), *self._encoded(change.fields)]
            for change in changes
        ]
        return self._each("update", wanted)

    def remove(self, locks: Sequence[DocumentLock]) -> list[bool]:
        return self._each("remove", [self._lock(lock) for lock in locks])

    def _each(self, script: str, wanted: list[object]) -> list[bool]:
        return [
            bool(answer)
            for chunk in _chunks(wanted, _CHUNK)
            for answer in self._server.run(script, self._terms, chunk)
        ]

    def _lock(self, lock: DocumentLock) -> list[Any]:
        return [self._server.encode(lock.id, "id"), list(lock.ends)]

    def _encoded(self, fields: Mapping[str, Any]) -> tuple[list[bytes], list[bytes]]:
        """Return the fields to set, with their values, and the fields to clear."""
        values: list[bytes] = []
        cleared: list[bytes] = []
        for name, value in fields.items():
            field = self._server.encode(_name(name, "field"), "field")
            if value is None:
                cleared.append(field)
            else:
                values += field, self._value(name, value)
        return values, cleared

    def _value(self, name: str, value: object) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, datetime):
            value = formats.write(to_ms(value, name), self._times)
        if isinstance(value, str):
            return self._server.encode(value, name)
        if isinstance(value, int):  # also True and False: 1 and 0
            return str(int(value)).encode()
        if isinstance(value, float):
            return repr(float(value)).encode()
        raise InvalidValue(
            f"{name}: Redis can't hold {shown(value)}",
            field=name,
            value=value,
            hint="a field has a text, bytes, a number, True or False (1 or 0), or a datetime; write other "
            "values as a text: json.dumps(…)",
        )


def _name(value: object, field: str) -> str:
    if isinstance(value, str) and value:
        return value
    raise InvalidValue(f"{field} {shown(value)} is not a name", field=field, value=value)


def _check_slot(pattern: str, index: str) -> None:
    tag = patterns.hash_tag(pattern)
    if tag is None:
        raise InvalidValue(
            f"pattern {shown(pattern)} has no hash tag, so a cluster keeps its documents on several nodes",
            field="pattern",
            value=pattern,
            hint='name keys like "{shop}:order:*"',
        )
    if patterns.hash_tag(index) != tag:
        raise InvalidValue(
            f"index {shown(index)} does not have the hash tag of the pattern, {{{tag}}}",
            field="index",
            value=index,
            hint="in a cluster both need the same one, so that all keys are on one node",
        )


def _condition(condition: object) -> dict[str, str]:
    if condition is None:
        return {}
    if isinstance(condition, Mapping):
        texts = {name: value for name, value in condition.items() if isinstance(name, str) and name}
        if len(texts) == len(condition) and all(isinstance(value, str) for value in texts.values()):
            return texts
    raise InvalidValue(
        f"condition {shown(condition)} is not a dict of texts by fields",
        field="condition",
        value=condition,
        hint='write it like {"active": "1"}: the values of a hash are texts',
    )


def _or_false(instant: Instant | None) -> Instant | bool:
    """Return False for None: a list in Lua can't contain nil."""
    return False if instant is None else instant


def _chunks(items: list[_T], size: int) -> Iterator[list[_T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]
