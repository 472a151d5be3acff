"""The same documents, locked one at a time by 25 threads in each process: the obvious first solution."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from tests.documents.places import MongoPlace, Place, PostgresPlace

LOCK = timedelta(minutes=10)


def taker(place: Place) -> Callable[[], object | None]:
    """Return a function for one thread: it locks the next document, settles it, and returns its number."""
    if isinstance(place, MongoPlace):
        return _mongo(place)
    assert isinstance(place, PostgresPlace)
    return _postgres(place)


def _mongo(place: MongoPlace) -> Callable[[], object | None]:
    collection = place.collection

    def take() -> object | None:
        now = datetime.now(UTC)
        found = collection.find_one_and_update(
            {"sleep_until": {"$lte": now}}, {"$set": {"sleep_until": now + LOCK}}
        )
        if found is None:
            return None
        collection.update_one({"_id": found["_id"]}, {"$set": {"sleep_until": None}})
        number: object = found["_id"]
        return number

    return take


def _postgres(place: PostgresPlace) -> Callable[[], object | None]:
    connection = place.connect()

    def take() -> object | None:
        row = connection.execute(
            "UPDATE jobs SET sleep_until = now() + interval '10 minutes' WHERE id = (SELECT id FROM jobs"
            " WHERE sleep_until <= now() ORDER BY sleep_until FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id"
        ).fetchone()
        if row is None:
            return None
        connection.execute("UPDATE jobs SET sleep_until = NULL WHERE id = %(id)s", row)
        number: object = row["id"]
        return number

    return take
