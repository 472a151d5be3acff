"""A node of the soak test: executes runs that do nothing, and writes down each one that it began.

    python -m tests.soak.node URL STOP RUNS

RUNS gets a line for each execution: the schedule, the tick, and how many milliseconds after it the run began.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from evenbeat import RunContext, Scheduler


def main() -> None:
    url, stop, runs = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    app = Scheduler(url)
    with runs.open("w") as output:

        @app.task
        async def work(run: RunContext) -> None:
            assert run.tick is not None
            tick = round(run.tick.timestamp() * 1000)
            print(run.schedule, tick, round(time.time() * 1000) - tick, file=output)

        app.start()
        while not stop.exists():
            time.sleep(0.2)
        app.stop(timeout="20s")
        app.close()


if __name__ == "__main__":
    main()
