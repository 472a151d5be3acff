"""``python -m tests.documents.swarm URL PROCESSORS CONCURRENCY``: run processors until stdin ends.

Prints "ready", and at its end the number of each document, as often as it was processed.
"""

from __future__ import annotations

import sys
from typing import Any

from pymongo import MongoClient

from evenbeat.documents import Document, MongoDocuments, Processor


def main(url: str, processors: str, concurrency: str) -> None:
    done: list[int] = []

    def handle(document: Document) -> None:
        done.append(document["_id"])

    with MongoClient[Any](url) as client:
        orders = client.get_default_database()["orders"]
        running = [
            Processor(MongoDocuments(orders), handle, concurrency=int(concurrency))
            for _ in range(int(processors))
        ]
        for processor in running:
            processor.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()
        for processor in running:
            processor.stop()
    sys.stdout.writelines(f"{number}\n" for number in done)


if __name__ == "__main__":
    main(*sys.argv[1:])
