"""CPU-bound work in processes of its own: it uses other cores, and can be killed when it takes too long.

python examples/process_tasks.py
"""

from __future__ import annotations

import os

from evenbeat import Scheduler

app = Scheduler("memory://", process_concurrency=2)


@app.task(executor="process")
def count_primes(below: int) -> tuple[int, int]:
    primes = sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, below))
    return primes, os.getpid()


@app.task(executor="process", timeout="500ms")
def endless() -> None:
    while True:  # never asks whether it should end: after 2 seconds of grace it is stopped
        pass


@app.task(executor="process", on_crash="fail")
def crash() -> None:
    os._exit(1)  # stands for a segmentation fault in a library


def main() -> None:
    with app:
        found = app.runs.join(count_primes.enqueue(20_000).id, "60s")
        primes, pid = found.result
        print(f"{primes} primes, counted by process {pid}; this one is {os.getpid()}")
        assert primes == 2262
        assert pid != os.getpid()

        crashed = app.runs.join(crash.enqueue().id, "60s")
        print(f"crash: {crashed.state}, {crashed.error}")
        assert crashed.state == "failed"

        stopped = app.runs.join(endless.enqueue().id, "60s")
        print(f"endless: {stopped.state}, {(stopped.error or '').splitlines()[0]}")
        assert stopped.state == "failed"


if __name__ == "__main__":
    main()
