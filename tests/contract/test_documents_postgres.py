"""Documents in PostgreSQL keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from tests.conftest import server_url
from tests.isolation import own_place
from tests.lengths import LONG

from evenbeat.core.instants import Instant, from_ms, to_ms
from evenbeat.documents import PostgresDocuments
from evenbeat.documents.base import Documents
from evenbeat.testing import DocumentsContract, DocumentsUnderTest, StoredDocument, VirtualClock


@pytest.fixture(scope="module", name="server")
def a_server() -> Iterator[str]:
    with own_place(server_url("postgres")) as url:
        yield url


class PostgresTable(DocumentsUnderTest):
    def __init__(self, url: str, schema: str, kind: str, clock: VirtualClock) -> None:
        self._url = url
        self._clock = clock
        self._is_aware = kind == "timestamptz"
        self._handles: list[PostgresDocuments] = []
        self._table = f'"{schema}"."Reminders %"'
        self._connection = psycopg.connect(url.partition("?")[0], autocommit=True)
        self._sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
        self._sql("DROP TABLE IF EXISTS REMINDERS")
        self._sql(
            f'CREATE TABLE REMINDERS ("Key" text PRIMARY KEY, "sleepUntil" {kind}, interval text, '
            f"repeat_until {kind}, auto_remove boolean, active boolean, note text)"
        )

    def _sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a statement, with the table in place of REMINDERS."""
        query = text.replace("REMINDERS", self._table.replace("%", "%%"))
        cursor = self._connection.execute(query.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    def close(self) -> None:
        for handle in self._handles:
            handle.close()
        self._sql("DROP TABLE REMINDERS")
        self._connection.close()

    def open_store(self, *, only_active: bool = False) -> Documents:
        documents = PostgresDocuments(
            self._url,
            self._table,
            key="Key",
            sleep_until="sleepUntil",
            clock=self._clock,
            timeout=30,
            condition="active = %s AND note IS DISTINCT FROM '100%%'" if only_active else None,
            parameters=[True] if only_active else (),
        )
        documents.open()
        self._handles.append(documents)
        return documents

    def _moment(self, instant: Instant | None) -> datetime | None:
        if instant is None:
            return None
        return from_ms(instant) if self._is_aware else from_ms(instant).replace(tzinfo=None)

    def add(self, key: str, sleep_until: Instant | None, **fields: Any) -> None:
        self._sql(
            "INSERT INTO REMINDERS VALUES (%s, %s, %s, %s, %s, %s, %s)",
            key,
            self._moment(sleep_until),
            fields.get("interval"),
            self._moment(fields.get("repeat_until")),
            fields.get("auto_remove"),
            fields.get("active", True),
            fields.get("note"),
        )

    def row(self, key: str) -> StoredDocument | None:
        rows = self._sql('SELECT "sleepUntil", note FROM REMINDERS WHERE "Key" = %s', key)
        if not rows:
            return None
        due, note = rows[0]
        return StoredDocument(
            None if due is None else to_ms(due if self._is_aware else due.replace(tzinfo=UTC)), note
        )

    def move(self, key: str, sleep_until: Instant | None) -> None:
        text = 'UPDATE REMINDERS SET "sleepUntil" = %s WHERE "Key" = %s'
        self._sql(text, self._moment(sleep_until), key)

    def delete(self, key: str) -> None:
        self._sql('DELETE FROM REMINDERS WHERE "Key" = %s', key)


class TestPostgres(DocumentsContract):
    kind: ClassVar[str] = "timestamptz"

    @pytest.fixture(autouse=True)
    def _server(self, server: str) -> None:
        self.url = server

    @contextmanager
    def make(self, clock: VirtualClock, tmp_path: Path) -> Iterator[DocumentsUnderTest]:
        stored = PostgresTable(self.url, self.url.rpartition("schema=")[2], self.kind, clock)
        try:
            yield stored
        finally:
            stored.close()


@LONG
class TestPostgresWithoutTimeZones(TestPostgres):
    kind = "timestamp"
