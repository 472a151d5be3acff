"""Documents in SQLite keep the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from tests.lengths import LONG

from evenbeat.core.instants import Instant
from evenbeat.documents import SqliteDocuments, time_formats
from evenbeat.documents.base import Documents
from evenbeat.documents.time_formats import TimeFormat
from evenbeat.testing import DocumentsContract, DocumentsUnderTest, StoredDocument, VirtualClock

SCHEMA = """
CREATE TABLE "My reminders" (
    "Key" TEXT PRIMARY KEY, "sleep""Until" {time}, interval, repeat_until, auto_remove, active, note
)
"""


class SqliteTable(DocumentsUnderTest):
    def __init__(self, path: Path, schema: str, form: TimeFormat, like: object, clock: VirtualClock) -> None:
        self._path = path
        self._form = form
        self._like = like
        self._clock = clock
        self._handles: list[SqliteDocuments] = []
        self._sql(schema)

    def _sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(text, values).fetchall()

    def close(self) -> None:
        for handle in self._handles:
            handle.close()

    def open_store(self, *, only_active: bool = False) -> Documents:
        documents = SqliteDocuments(
            self._path,
            '"My reminders"',
            key="Key",
            sleep_until='sleep"Until',
            clock=self._clock,
            times=self._form,
            busy_timeout=30,
            condition="active = ? -- as it is" if only_active else None,
            parameters=[True] if only_active else (),
        )
        documents.open()
        self._handles.append(documents)
        return documents

    def _time(self, instant: Instant | None) -> Any:
        return None if instant is None else time_formats.write(instant, self._form, self._like)

    def add(self, key: str, sleep_until: Instant | None, **fields: Any) -> None:
        self._sql(
            'INSERT INTO "My reminders" VALUES (?, ?, ?, ?, ?, ?, ?)',
            key,
            self._time(sleep_until),
            fields.get("interval"),
            self._time(fields.get("repeat_until")),
            fields.get("auto_remove"),
            fields.get("active", True),
            fields.get("note"),
        )

    def row(self, key: str) -> StoredDocument | None:
        rows = self._sql('SELECT "sleep""Until", note FROM "My reminders" WHERE "Key" = ?', key)
        return StoredDocument(time_formats.read(rows[0][0], self._form), rows[0][1]) if rows else None

    def move(self, key: str, sleep_until: Instant | None) -> None:
        text = 'UPDATE "My reminders" SET "sleep""Until" = ? WHERE "Key" = ?'
        self._sql(text, self._time(sleep_until), key)

    def delete(self, key: str) -> None:
        self._sql('DELETE FROM "My reminders" WHERE "Key" = ?', key)


class TestSqlite(DocumentsContract):
    """Texts as SQLite's own datetime() writes them."""

    form: ClassVar[TimeFormat] = "text"
    like: ClassVar[object] = "2026-11-15 12:00:00"
    schema: ClassVar[str] = SCHEMA.format(time="DATETIME")

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[DocumentsUnderTest]:
        stored = SqliteTable(tmp_path / "own.db", self.schema, self.form, self.like, clock)
        try:
            yield stored
        finally:
            stored.close()


@LONG
class TestSqliteWithOffsets(TestSqlite):
    like = "2026-11-15T12:00:00+05:30"


@LONG
class TestSqliteWithSeconds(TestSqlite):
    form = "seconds"
    like = 0
    schema = SCHEMA.format(time="INTEGER")


@LONG
class TestSqliteWithMilliseconds(TestSqlite):
    form = "milliseconds"
    like = 0
    schema = SCHEMA.format(time="INTEGER") + " WITHOUT ROWID"
