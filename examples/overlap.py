"""A tick comes while the last run is active: run both, skip the tick, let it wait, or replace the run.

python examples/overlap.py
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from evenbeat import Run, RunContext, RunRefused, Scheduler, every

app = Scheduler("memory://")
finish = threading.Event()


@app.task
def work(run: RunContext) -> None:
    while not finish.wait(0.01):  # long work: the next tick comes before it ends
        run.raise_if_cancelled()


def running(schedule: str) -> list[Run]:
    return app.runs.list(schedule=schedule, state="running")


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def main() -> None:
    tick = every("200ms")
    app.schedules.add("both", tick, work, overlap="allow", max_concurrent=2)
    app.schedules.add("skip", tick, work, overlap="skip")
    app.schedules.add("queue", tick, work, overlap="queue")
    app.schedules.add("replace", tick, work, overlap="cancel_running")
    with app:
        wait_until(lambda: len(running("both")) == 2)
        wait_until(lambda: any(row.reason == "overlap" for row in app.schedules.skipped("skip")))
        wait_until(lambda: app.schedules.get("queue").is_waiting)
        wait_until(lambda: app.runs.list(schedule="replace", state="cancelled"))
        assert len(running("skip")) == len(running("queue")) == 1

        try:  # a run by hand never waits: where a tick would be skipped or wait, it is refused
            app.schedules.run_now("skip")
        except RunRefused as error:
            print(error)
        else:
            raise AssertionError("two runs at once")
        finish.set()
    print("both: two at once; skip: recorded as skipped; queue: waits; replace: cancelled the run before")


if __name__ == "__main__":
    main()
