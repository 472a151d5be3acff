"""PostgreSQL servers that crash, fail over and are reached by detours: real processes, real time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from evenbeat.documents import PostgresDocuments
from tests.servers import Postgres, Unavailable, note_missing


@contextmanager
def running(**settings: str) -> Iterator[Postgres]:
    """A server of one's own, which may be harmed."""
    try:
        server = Postgres(settings)
    except Unavailable as error:
        note_missing("postgres", str(error))
        pytest.skip(f"no postgres: {error}")
    try:
        server.start()
        yield server
    finally:
        server.stop()


def test_a_document_that_was_locked_is_locked_after_a_crash_of_the_server() -> None:
    # What is not flushed by a commit is not flushed for as long as the test takes.
    with running(synchronous_commit="off", wal_writer_delay="10s") as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("CREATE TABLE jobs (id int PRIMARY KEY, sleep_until timestamptz)")
            connection.execute("INSERT INTO jobs SELECT n, now() FROM generate_series(1, 5) AS n")
        documents = PostgresDocuments(server.url, "jobs")
        documents.open()
        try:
            found = documents.lock_next(600_000, 10).found
            assert len(found) == 5
            server.kill()
            server.start()
            assert documents.lock_next(600_000, 10).found == []
        finally:
            documents.close()
