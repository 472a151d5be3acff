"""A process whose threads all add schedules of the same names at the same moments.

    python -m tests.faults.adder URL START NAMES THREADS

Each name has its moment: START (seconds of the clock), and each next one 100 ms later. Prints a JSON line:
how many threads added each name, how many got an error because it exists, and how many got no answer.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

from evenbeat import Scheduler
from evenbeat.errors import ScheduleExists, StoreUnavailable
from evenbeat.stores.urls import open_url
from tests.faults.node import persist

BETWEEN = 0.1


def main(url: str, start: float, names: int, threads: int) -> None:
    app = Scheduler(open_url(url))
    persist(app.store.open)
    app.schedules.list()  # creates now what the first call creates
    made: Counter[str] = Counter()
    existed: Counter[str] = Counter()
    unsure: Counter[str] = Counter()
    saying = threading.Lock()

    def add_all() -> None:
        for at in range(names):
            name = f"name-{at}"
            time.sleep(max(0.0, start + at * BETWEEN - time.time()))
            try:
                app.schedules.add(name, "every 1h", "work")
            except ScheduleExists:
                outcome = existed
            except StoreUnavailable:
                outcome = unsure
            else:
                outcome = made
            with saying:
                outcome[name] += 1

    adders = [threading.Thread(target=add_all) for _ in range(threads)]
    for adder in adders:
        adder.start()
    for adder in adders:
        adder.join()
    app.close()
    sys.stdout.write(json.dumps({"made": made, "existed": existed, "unsure": unsure}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
