"""``python -m tests.documents.worker KIND URL LOCK LEDGER``: a processor for tests that kill and freeze it.

When its handler begins, it writes the document, when that was due, and a token into the ledger. When it ends,
it writes the same token into the document.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import time

from evenbeat.core.instants import to_ms
from evenbeat.documents import Document, Processor
from evenbeat.observe import logs
from tests.documents.places import KINDS


def main(kind: str, url: str, lock: str, ledger: str) -> None:
    # In append mode, the write of one line is atomic.
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(document: Document) -> None:
        token = secrets.token_hex(8)
        number = str(document.id).rpartition(":")[2]
        os.write(book, f"{number} {to_ms(document.sleep_until)} {token}\n".encode())
        time.sleep(random.uniform(0, 0.05))  # real time: signals come while handlers run
        document.update(note=token)

    logs.configure("json", "INFO")
    place = KINDS[kind](url)
    print("ready", flush=True)  # noqa: T201  # what the test waits for
    Processor(place.documents(), handle, lock_duration=lock, concurrency=4).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
