"""``python -m tests.documents.worker KIND URL LOCK``: a processor that tests kill, freeze and cut off.

Its handler counts in the document itself: ``ends`` grows by one with each end that was written, and ``note``
gets the instant that the document was due at.
"""

from __future__ import annotations

import random
import sys
import time

from evenbeat.documents import Document, Processor
from evenbeat.instants import to_ms
from evenbeat.observe import logs
from tests.documents.places import KINDS


def handle(document: Document) -> None:
    time.sleep(random.uniform(0, 0.02))  # real time: what a signal finds under way
    note = f"{document['note']} {to_ms(document.sleep_until)}"
    ends = int(document["ends"]) + 1
    # Redis has texts alone.
    is_text = isinstance(document["ends"], str)
    document.update(ends=str(ends) if is_text else ends, note=note)


def main(kind: str, url: str, lock: str) -> None:
    logs.configure("json", "INFO")
    place = KINDS[kind](url)
    print("ready", flush=True)  # noqa: T201  # what the test waits for
    Processor(place.documents(), handle, lock_duration=lock, concurrency=4).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
