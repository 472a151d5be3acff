"""The app of ``evenbeat demo``: cron with seconds, intervals, a one-shot, async, CPU-bound, failing; a flow.

Copy from here. ``evenbeat dev`` runs a file like this one.
"""

from __future__ import annotations

import asyncio
import logging
import time

from evenbeat import RunContext, Scheduler, cron, every
from evenbeat.demo.history import RETENTION
from evenbeat.demo.shop import add_tasks

app = Scheduler(
    "sqlite:///evenbeat-demo.db",
    thread_concurrency=4,
    process_concurrency=1,
    drain_timeout="10s",
    queues=["default", "mail", "reports"],
    retention=RETENTION,
    allow_private_webhooks=["127.0.0.1"],
)
log = logging.getLogger("demo")
add_tasks(app)  # the tasks of the schedules in the demo's history


@app.task(schedule=cron("*/10 * * * * *"))
def clock(run: RunContext) -> str:
    """Cron with seconds: at :00, :10, :20, … of every minute."""
    return f"{run.scheduled_at:%H:%M:%S}"


@app.task(schedule=every("2s"))
async def pulse() -> None:
    """An async interval: it keeps its phase, whatever happens."""
    await asyncio.sleep(0.02)


@app.task(schedule=every("7s"), retries=2, backoff="1s")
def flaky(run: RunContext) -> str:
    """Fails at first, and is retried."""
    if run.failures == 0:
        raise ConnectionError("the mail server did not answer")
    return f"sent with attempt {run.attempt}"


@app.task(schedule=every("9s"), executor="process")
def primes(below: int = 5_000_000) -> int:
    """Keeps a processor busy: executed in a process of its own."""
    sieve = bytearray([1]) * below
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return sum(sieve) - 2


@app.task(schedule=every("12s"), overlap="skip", timeout="30s")
def slow(run: RunContext) -> str:
    """Takes a while; ticks in the meantime are skipped, and recorded."""
    for step in range(1, 5):
        run.raise_if_cancelled()  # ends here when it is cancelled
        time.sleep(1)
        log.info("step %d of 4", step)
        run.progress(step, total=4)
    return "4 steps"


@app.task(schedule=every("10s"), catch_up="all", catch_up_limit=5)
def ledger(run: RunContext) -> str:
    """Needs every tick: missed ticks run later, at most five."""
    return f"booked {run.scheduled_at:%H:%M:%S}"


@app.task(schedule=every("15s"), catch_up="skip", grace="5s")
def reminder() -> str:
    """Useless when late: missed ticks are skipped, and recorded."""
    return "reminded"


@app.task
def list_suppliers() -> list[str]:
    time.sleep(0.5)
    return ["north", "south", "east", "west"]


@app.task(retries=1, backoff="2s")
def fetch_prices(run: RunContext, supplier: str) -> int:
    """One run for each supplier, beside each other."""
    time.sleep(1)
    if supplier == "north" and run.failures == 0:
        raise TimeoutError("north.example did not answer")
    return 300 + len(supplier)


@app.task
def publish_prices(counts: list[int], season: str) -> str:
    time.sleep(1)
    return f"{sum(counts)} prices of {season}"


@app.task
def tell_suppliers() -> None:
    time.sleep(0.3)


@app.flow(schedule=every("1m"))
def price_list(season: str = "winter") -> object:
    """A flow: its steps are tasks, and get the results of others."""
    counts = fetch_prices.map(list_suppliers.step())
    published = publish_prices.step(counts, season=season)
    tell_suppliers.step(after=[published])
    return published


@app.task
def welcome(name: str = "you") -> str:
    """A one-shot: enqueued once, without a schedule."""
    return f"hello, {name}"
