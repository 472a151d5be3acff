"""``async def`` tasks share one event loop: a hundred of them wait at once, in one thread.

python examples/async_tasks.py
"""

from __future__ import annotations

import asyncio
import time

from evenbeat import Scheduler

app = Scheduler("memory://", async_concurrency=100)
loops: set[asyncio.AbstractEventLoop] = set()


@app.task
async def probe(number: int) -> str:
    assert asyncio.get_running_loop() in loops
    await asyncio.sleep(0.5)  # stands for a request
    return f"host {number} answers"


@app.on_start
async def connect() -> None:  # on the event loop of the tasks: they can use what it opens
    loops.add(asyncio.get_running_loop())


async def main() -> None:
    async with app:  # starts a node; stops it and closes the store at the end
        began = time.monotonic()
        runs = [await probe.aenqueue(number) for number in range(100)]
        done = [await app.runs.ajoin(run.id, "60s") for run in runs]
        seconds = time.monotonic() - began
    assert [run.result for run in done] == [f"host {number} answers" for number in range(100)]
    print(f"100 runs of half a second each took {seconds:.1f} s")
    assert seconds < 25  # one after the other they would take 50


if __name__ == "__main__":
    asyncio.run(main())
