"""Many documents without an index cause a warning."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evenbeat.documents import indexes
from tests.conftest import server_url
from tests.documents.places import MongoPlace, Place, PostgresPlace, SqlitePlace, fresh

REMEDIES = {
    "sqlite": 'CREATE INDEX "jobs_due" ON "jobs" ("sleep_until")',
    "postgres": 'CREATE INDEX CONCURRENTLY ON jobs ("sleep_until") WHERE "sleep_until" IS NOT NULL',
    "mongo": 'db.jobs.createIndex({"sleep_until": 1}, {sparse: true})',
}


def drop_index(place: Place) -> None:
    if isinstance(place, MongoPlace):
        place.collection.drop_index("sleep_until_1")
    elif isinstance(place, PostgresPlace):
        with place.connect() as connection:
            connection.execute("DROP INDEX jobs_sleep_until_idx")
    else:
        assert isinstance(place, SqlitePlace)
        with place.connect() as lite:
            lite.execute("DROP INDEX jobs_due")


@pytest.mark.parametrize("kind", REMEDIES)
def test_many_documents_without_an_index_cause_a_warning(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind != "sqlite":
        server_url(kind)
    monkeypatch.setattr(indexes, "MANY", 100)
    with fresh(kind, tmp_path) as place, caplog.at_level(logging.WARNING, "evenbeat.documents"):
        place.make()
        place.fill(0, 90, datetime.now(UTC))
        documents = place.documents()
        documents.open()
        documents.close()
        drop_index(place)
        documents.open()
        documents.close()
        assert not caplog.messages  # an index, or few documents: no warning

        place.fill(90, 60, datetime.now(UTC))
        documents.open()
        documents.close()
        (message,) = caplog.messages
        assert message.endswith(f"create one: {REMEDIES[kind]}")
