"""Each run keeps its own log: what the task wrote with ``run.log``, and what it logged.

python examples/run_logs.py
"""

from __future__ import annotations

import logging

from evenbeat import RunContext, Scheduler

app = Scheduler("memory://")
log = logging.getLogger("shop")


@app.task(retries=1, backoff="10ms")
def bill(run: RunContext, customer: int) -> str:
    run.log(f"customer {customer}")  # kept with the run
    if run.attempt == 1:
        log.warning("no address")  # goes to your logs, and is kept with the run, too
        raise LookupError("no address")
    return "billed"


def main() -> None:
    with app:
        run = app.runs.join(bill.enqueue(42).id, "30s")
    for line in app.runs.logs(run.id):
        print(f"{line.at:%H:%M:%S} attempt {line.attempt}: {line.text.splitlines()[0]}")
    texts = [(line.attempt, line.text) for line in app.runs.logs(run.id)]
    assert (1, "customer 42") in texts
    assert (1, "WARNING shop: no address") in texts
    assert (2, "customer 42") in texts


if __name__ == "__main__":
    main()
