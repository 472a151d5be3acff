"""Orders in a MongoDB collection as jobs: the times of each order are in a document inside of it.

    EVENBEAT_STORE=mongodb://localhost:27017/evenbeat python examples/documents_on_mongo.py

A standalone server is enough. The example creates the collection, and drops it at its end.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import MongoClient

from evenbeat.documents import Document, MongoDocuments, Processor

URL = os.environ.get("EVENBEAT_STORE", "mongodb://localhost:27017/evenbeat")


def main() -> None:
    client: MongoClient[dict[str, Any]] = MongoClient(URL)
    orders = client.get_default_database("evenbeat")["example_orders"]
    orders.drop()
    orders.create_index("schedule.sleepUntil", sparse=True)
    now = datetime.now(UTC)
    orders.insert_many(
        [
            {"customer": "Ada", "active": True, "schedule": {"sleepUntil": now}},
            {"customer": "Bob", "active": True, "schedule": {"sleepUntil": now + timedelta(seconds=1)}},
            # Not a job: it does not meet the condition.
            {"customer": "Cleo", "active": False, "schedule": {"sleepUntil": now}},
            # Not a job: it has no date.
            {"customer": "Dan", "active": True, "schedule": {"sleepUntil": None}},
            {
                "customer": "Eve",
                "active": True,
                "schedule": {
                    "sleepUntil": now,
                    "cron": "* * * * * *",
                    "repeatUntil": now + timedelta(seconds=3),
                },
            },
        ]
    )
    handled: list[str] = []
    enough = threading.Event()

    async def handle(order: Document) -> None:
        handled.append(order["customer"])
        print(f"{datetime.now(UTC):%H:%M:%S}  {order['customer']:<5} was due {order.sleep_until:%H:%M:%S}")
        order.update({"schedule.lastRun": datetime.now(UTC)})
        if {"Ada", "Bob"} <= set(handled) and handled.count("Eve") >= 3:
            enough.set()

    documents = MongoDocuments(
        orders,
        sleep_until="schedule.sleepUntil",
        interval="schedule.cron",
        repeat_until="schedule.repeatUntil",
        condition={"active": True},
    )
    # Two independent processors, as in two processes: one of them handles each order.
    with Processor(documents, handle, concurrency=8), Processor(documents, handle, concurrency=8):
        assert enough.wait(20)

    assert sorted(handled.count(name) for name in ("Ada", "Bob")) == [1, 1]
    assert not {"Cleo", "Dan"} & set(handled)
    for order in orders.find({}, {"_id": 0}):
        print(order)
    orders.drop()
    client.close()


if __name__ == "__main__":
    main()
