"""Limits over all machines: at most so many runs at once, for each customer, and in a period.

python examples/limits.py
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from evenbeat import Scheduler

app = Scheduler("memory://")  # in real life a database: "sqlite:///evenbeat.db"
lock = threading.Lock()
running: Counter[str] = Counter()
most: Counter[str] = Counter()


@app.task
def charge(customer: str) -> None:
    with lock:
        running.update([customer, "all"])
        most[customer] = max(most[customer], running[customer])
        most["all"] = max(most["all"], running["all"])
    time.sleep(0.02)  # the call of the bank
    with lock:
        running.subtract([customer, "all"])


@app.task
def send(to: str) -> None: ...


def main() -> None:
    app.limits.set(task="charge", concurrency=3)
    app.limits.set(task="charge", key="customer", concurrency=1)  # for each customer
    app.limits.set(task="send", rate="1/h", burst=2)
    for limit in app.limits.list():
        print(limit.words)

    charges = [charge.enqueue(customer) for customer in "aaabbbcccdddeee"]
    mails = [send.enqueue(to) for to in ("ann", "bob", "cid")]
    app.start(thread_concurrency=10)
    for run in (*charges, *mails[:2]):
        assert app.runs.join(run.id, "30s").state == "succeeded"

    # Two starts are the burst of the rate; the third one waits for its token, and blocks nobody.
    waits = app.runs.why_waiting(mails[2].id)
    print(app.runs.why(mails[2].id).sentence)
    app.stop()

    print(f"at most {most['all']} charges at once, {max(most[name] for name in 'abcde')} of each customer")
    assert 1 <= most["all"] <= 3
    assert all(most[customer] == 1 for customer in "abcde")
    assert waits is not None
    assert (waits.reason, waits.limit) == ("limited", "task=send")
    assert app.limits.get(task="send").waiting == 1
    app.close()


if __name__ == "__main__":
    main()
