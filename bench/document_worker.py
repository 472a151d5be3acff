"""``python -m bench.document_worker KIND URL HOW CONCURRENCY LEDGER``: process documents until SIGTERM.

HOW is ``def`` or ``async`` for a processor with a handler of that kind, or ``one`` for threads that lock one
document at a time. The worker writes the id of each processed document to LEDGER.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from tests.documents.places import KINDS, Place

from bench.one_at_a_time import taker
from evenbeat.documents import Document, Processor
from evenbeat.processes.signals import until_signalled


def main(kind: str, url: str, how: str, concurrency: str, ledger: str) -> None:
    place = KINDS[kind](url)
    handled: list[object] = []

    def handle(document: Document) -> None:
        handled.append(document.id)

    async def handle_async(document: Document) -> None:
        handled.append(document.id)

    if how == "one":
        _one_at_a_time(place, int(concurrency), handled)
    else:
        chosen = handle if how == "def" else handle_async
        Processor(place.documents(), chosen, concurrency=int(concurrency)).run()
    Path(ledger).write_text("".join(f"{number}\n" for number in handled))


def _one_at_a_time(place: Place, threads: int, handled: list[object]) -> None:
    stopping = threading.Event()

    def work() -> None:
        take = taker(place)
        while not stopping.is_set():
            number = take()
            if number is None:
                time.sleep(0.01)
            else:
                handled.append(number)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    until_signalled(hurry=stopping.set)
    stopping.set()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
