"""Run a task once: at once, later, with an id of your own, and from async code.

python examples/enqueue.py
"""

from __future__ import annotations

import asyncio

from evenbeat import Scheduler

app = Scheduler("memory://")


@app.task(retries=3)
def send_receipt(order: int, copy: bool = False) -> str:
    return f"receipt for order {order}{', a copy' if copy else ''}"


async def buy(order: int) -> str:
    """Enqueue from a coroutine, without blocking the event loop."""
    run = await send_receipt.aenqueue(order)
    return run.id


def main() -> None:
    with app:
        run = send_receipt.enqueue(17, copy=True)  # checked here: a wrong argument is an error now
        assert app.runs.join(run.id, "30s").result == "receipt for order 17, a copy"

        assert app.runs.join(asyncio.run(buy(18)), "30s").result == "receipt for order 18"

        # Options of the run: app.enqueue takes the task with its arguments bound.
        soon = app.enqueue(send_receipt.bind(19), delay="50ms", priority="high", retries=0)
        assert app.runs.join(soon.id, "30s").state == "succeeded"

        # With an id of your own, a repeated call adds nothing.
        first = app.enqueue(send_receipt.bind(20), id="receipt-20", delay="1h")
        again = app.enqueue(send_receipt.bind(20), id="receipt-20", delay="1h")
        assert first == again

        many = app.enqueue_many(send_receipt.bind(order) for order in range(100))
        done = [app.runs.join(run_id, "30s") for run_id in many]
        assert all(each.state == "succeeded" for each in done)
        print(f"{app.runs.count()['succeeded']} succeeded, {app.runs.count()['queued']} waits for its time")


if __name__ == "__main__":
    main()
