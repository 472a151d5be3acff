"""Documents in Redis keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import redis
from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG

from evenbeat.core.instants import Instant
from evenbeat.documents import time_formats
from evenbeat.documents.base import Documents, Found
from evenbeat.documents.redis import RedisDocuments
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.testing import DocumentsContract, DocumentsUnderTest, StoredDocument, VirtualClock


class RedisHashes(DocumentsUnderTest):
    def __init__(
        self, url: str, source: str | redis.Redis, form: TimeFormat, clock: VirtualClock, stack: ExitStack
    ) -> None:
        (self._prefix,) = parse_qs(urlsplit(url).query)["prefix"]
        self._client: Any = redis.Redis.from_url(_plain(url), decode_responses=True)
        stack.callback(self._client.close)
        self._source = source
        self._form = form
        self._clock = clock
        self._stack = stack

    def open_store(self, *, only_active: bool = False) -> Documents:
        documents = RedisDocuments(
            self._source,
            f"{self._prefix}:*",
            # Under the prefix of this test, so that its keys are deleted with the others.
            index=f"{self._prefix}:due{':active' if only_active else ''}",
            condition={"active": "1"} if only_active else None,
            times=self._form,
            clock=self._clock,
        )
        self._stack.callback(documents.close)
        documents.open()
        return documents

    def add(
        self,
        key: str,
        sleep_until: Instant | None,
        *,
        interval: str | None = None,
        repeat_until: Instant | None = None,
        auto_remove: bool = False,
        active: bool = True,
        note: str | None = None,
    ) -> None:
        fields = {
            "sleep_until": self._time(sleep_until),
            "interval": interval,
            "repeat_until": self._time(repeat_until),
            "auto_remove": "1" if auto_remove else None,
            "active": "1" if active else "0",
            "note": note,
        }
        present = {name: value for name, value in fields.items() if value is not None}
        self._client.hset(self._key(key), mapping=present)

    def row(self, key: str) -> StoredDocument | None:
        found = self._client.hgetall(self._key(key))
        if not found:
            return None
        return StoredDocument(time_formats.read(found.get("sleep_until"), self._form), found.get("note"))

    def move(self, key: str, sleep_until: Instant | None) -> None:
        if sleep_until is None:
            self._client.hdel(self._key(key), "sleep_until")
        else:
            self._client.hset(self._key(key), "sleep_until", str(self._time(sleep_until)))

    def delete(self, key: str) -> None:
        self._client.delete(self._key(key))

    def key_of(self, found: Found) -> str:
        return str(found.id).removeprefix(f"{self._prefix}:")

    def _key(self, key: str) -> str:
        return f"{self._prefix}:{key}"

    def _time(self, instant: Instant | None) -> str | None:
        return None if instant is None else str(time_formats.write(instant, self._form))


def _plain(url: str) -> str:
    return url.partition("?")[0].replace("valkey", "redis", 1)


class _RedisContract(DocumentsContract):
    __test__ = False
    form: ClassVar[TimeFormat] = "text"
    options: ClassVar[dict[str, Any] | None] = None
    """The options of the user's client; None for a URL."""

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[DocumentsUnderTest]:
        with own_place(server_url("valkey")) as url, ExitStack() as stack:
            source: str | redis.Redis = url
            if self.options is not None:
                source = redis.Redis.from_url(_plain(url), **self.options)
                stack.callback(source.close)
            yield RedisHashes(url, source, self.form, clock, stack)


class TestRedis(_RedisContract):
    __test__ = True


@LONG
class TestRedisMilliseconds(_RedisContract):
    __test__ = True
    form = "milliseconds"
    options: ClassVar[dict[str, Any] | None] = {"decode_responses": True}


@LONG
class TestRedisSeconds(_RedisContract):
    __test__ = True
    form = "seconds"
    options: ClassVar[dict[str, Any] | None] = {}
