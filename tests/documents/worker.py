"""``python -m tests.documents.worker KIND URL LOCK LEDGER``: a processor that tests kill, freeze and cut off.

Its handler writes into the ledger, when it begins, the document, when that was due, and a token; and into the
document, when it ends, the same token.
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
    # One write of a line to a file that is only appended to is never torn.
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(document: Document) -> None:
        token = secrets.token_hex(8)
        number = str(document.id).rpartition(":")[2]
        os.write(book, f"{number} {to_ms(document.sleep_until)} {token}\n".encode())
        time.sleep(random.uniform(0, 0.05))  # real time: what a signal finds under way
        document.update(note=token)

    logs.configure("json", "INFO")
    place = KINDS[kind](url)
    print("ready", flush=True)  # noqa: T201  # what the test waits for
    Processor(place.documents(), handle, lock_duration=lock, concurrency=4).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
