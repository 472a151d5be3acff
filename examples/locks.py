"""A named lock that all processes on one store share.

python examples/locks.py
"""

from __future__ import annotations

import threading

from evenbeat import LockHeld, LockLost, Scheduler

app = Scheduler("memory://")  # in real life a database: "sqlite:///evenbeat.db"


def import_prices(inside: threading.Event, leave: threading.Event) -> None:
    with app.lock("prices", ttl="30s", description="import of the suppliers' prices"):  # renewed while held
        inside.set()
        leave.wait(30)


def main() -> None:
    inside, leave = threading.Event(), threading.Event()
    other = threading.Thread(target=import_prices, args=(inside, leave))
    other.start()
    inside.wait(30)

    try:  # `with` does not wait, unless you give it a timeout: app.lock("prices", timeout="10s")
        with app.lock("prices"):
            raise AssertionError("two holders")
    except LockHeld as error:
        print(error)  # names the holder, since when it holds the lock, and the description

    lock = app.lock("prices")
    assert not lock.try_acquire()  # answers at once
    threading.Timer(0.2, leave.set).start()
    lock.acquire(timeout="30s")  # waits for the other one; LockHeld at the timeout
    print("acquired after the other holder released it")
    lock.release()
    other.join()

    try:
        with app.lock("prices") as held:
            held.release()  # stands for a lock that was lost: it expired while this process was frozen
    except LockLost as error:
        print(error)
    else:
        raise AssertionError("a lost lock was not noticed")
    app.close()


if __name__ == "__main__":
    main()
