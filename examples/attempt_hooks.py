"""Functions around each attempt, in its own thread: a connection and a context variable.

python examples/attempt_hooks.py
"""

from __future__ import annotations

import sqlite3
from contextvars import ContextVar

from evenbeat import RunContext, Scheduler

app = Scheduler("memory://")
database: ContextVar[sqlite3.Connection] = ContextVar("database")
ends: list[str] = []


@app.before
def connect(run: RunContext) -> None:
    run.log("connecting")
    database.set(sqlite3.connect(":memory:"))  # of this thread, which alone may use it


@app.after
def disconnect(run: RunContext, error: BaseException | None) -> None:
    database.get().close()
    ends.append(f"{run.task}: {'returned' if error is None else repr(error)}")


@app.task
def add(a: int, b: int) -> int:
    (total,) = database.get().execute("SELECT ? + ?", (a, b)).fetchone()
    return int(total)


@app.task
def fail() -> None:
    raise LookupError("no such order")


def main() -> None:
    with app:
        assert app.runs.join(add.enqueue(2, 3).id, "30s").result == 5
        assert app.runs.join(fail.enqueue().id, "30s").state == "failed"
    print(ends)
    assert ends == ["add: returned", "fail: LookupError('no such order')"]


if __name__ == "__main__":
    main()
