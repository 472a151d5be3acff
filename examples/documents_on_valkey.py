"""Carts in hashes of Redis or Valkey as jobs: a reminder, another one, and the cart is deleted.

    EVENBEAT_STORE=redis://localhost:6379/0 python examples/documents_on_valkey.py

The example creates the hashes, and deletes them at its end.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import redis

from evenbeat.documents import Document, Processor, RedisDocuments

URL = os.environ.get("EVENBEAT_STORE", "redis://localhost:6379/0")


def remind(cart: Document) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S}  {cart.id}: {cart['owner']}, you left {cart['items']} things here")
    if cart.get("reminded"):
        return  # the last reminder: auto_remove deletes the cart
    cart.update(reminded="1")
    cart.reschedule("1s")


def main() -> None:
    client = redis.Redis.from_url(URL, decode_responses=True)
    now = datetime.now(UTC)
    for number, owner in enumerate(["Ada", "Bob", "Cleo"]):
        due = (now + timedelta(seconds=number / 2)).isoformat(timespec="milliseconds")
        key, items = f"example-cart:{number}", str(number + 1)
        client.hset(key, mapping={"owner": owner, "items": items, "sleep_until": due, "auto_remove": "1"})
    # Not a job: it has no date.
    client.hset("example-cart:9", mapping={"owner": "Dan", "items": "1"})

    with Processor(RedisDocuments(client, "example-cart:*"), remind, concurrency=4):
        deadline = time.monotonic() + 20
        while len(list(client.scan_iter("example-cart:*"))) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)

    left = sorted(client.scan_iter("example-cart:*"))
    print("left:", left)
    assert left == ["example-cart:9"]
    client.delete(*left)
    client.close()


if __name__ == "__main__":
    main()
