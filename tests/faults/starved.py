"""A ticker that has no file descriptor left.

    python -m tests.faults.starved URL

It fires until the first run, takes all descriptors that its process may have, prints a line, and continues
firing until its stdin ends.
"""

from __future__ import annotations

import os
import resource
import select
import sys
from contextlib import closing, suppress

from evenbeat.errors import StoreUnavailable
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Event, Events
from evenbeat.stores.urls import open_url


def main(url: str) -> None:
    fired: list[Event] = []
    events = Events()
    events.listen(fired.append)
    with closing(open_url(url)) as store:
        store.open()
        ticker = Ticker(store, events)
        while not fired:  # late imports and connections are done by then
            ticker.step(store.now())
        taken = take_all_descriptors()
        sys.stdout.write("starved\n")
        sys.stdout.flush()
        while not select.select([0], [], [], 0.05)[0]:
            with suppress(StoreUnavailable):  # a store that wants another connection has to wait
                ticker.step(store.now())
        for descriptor in taken:
            os.close(descriptor)


def take_all_descriptors() -> list[int]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    taken: list[int] = []
    with suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return taken


if __name__ == "__main__":
    main(sys.argv[1])
