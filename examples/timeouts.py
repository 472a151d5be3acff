"""Stop a run that takes too long, and cancel one that is not wanted any more.

python examples/timeouts.py
"""

from __future__ import annotations

import asyncio
import threading
import time

from evenbeat import RunCancelled, RunContext, Scheduler

app = Scheduler("memory://")
exporting = threading.Event()


@app.task(timeout="100ms")
async def probe(host: str) -> str:
    await asyncio.sleep(60)  # the timeout cancels it here
    return f"{host} answers"


@app.task
def export(run: RunContext) -> None:
    for row in range(1_000_000):
        exporting.set()
        try:
            run.raise_if_cancelled()  # a thread can't be stopped from outside: it has to ask
        except RunCancelled as asked:
            run.log(f"stopped after {row} rows: {asked.reason}")
            raise
        time.sleep(0.01)


def main() -> None:
    with app:
        slow = app.runs.join(probe.enqueue("db-1").id, "30s")
        assert (slow.state, slow.error) == ("failed", "timed out after 100ms")

        running = export.enqueue()
        exporting.wait(30)
        app.runs.cancel(running.id)
        assert app.runs.join(running.id, "30s").state == "cancelled"
        print(app.runs.logs(running.id)[0].text)

        waiting = app.enqueue(export, delay="1h")
        assert app.runs.cancel(waiting.id).state == "cancelled"  # it had not started: over at once


if __name__ == "__main__":
    main()
