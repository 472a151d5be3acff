"""Retention rules: how long, and how many, ended runs are kept. And a repair, which finds what is wrong in a
store, and mends it when it is told to.

python examples/retention.py
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from evenbeat import Scheduler, every


def keep_the_newest(app: Scheduler, path: Path) -> None:
    # No rule deletes a run within a minute of its end: let these have ended an hour ago.
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE evenbeat_runs SET finished_at = finished_at - 3600000")

    app.retention.set(state="failed", keep="90d")
    app.retention.set(tenant="acme", keep="7d", most=3)
    for rule in app.retention.list():
        print(rule.words)

    # Nodes apply the rules when they start, and once a minute.
    deadline = time.monotonic() + 30
    with app:
        while len(app.runs.list(tenant="acme")) > 3 and time.monotonic() < deadline:
            time.sleep(0.05)
    print(f"acme has {len(app.runs.list(tenant='acme'))} runs, default {len(app.runs.list())}")
    assert [run.id for run in app.runs.list(tenant="acme")] == ["acme-9", "acme-8", "acme-7"]
    assert len(app.runs.list()) == 10

    app.retention.remove(tenant="acme")
    assert [rule.state for rule in app.retention.list()] == ["failed"]


def mend(app: Scheduler, path: Path) -> None:
    app.schedules.add("nightly", every("1d"), "work")
    # A script that somebody ran by hand.
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE evenbeat_schedules SET wake_at = NULL")
    print(f"nightly: {app.quarantine.show('nightly').reason}")

    (finding,) = app.repair().findings  # changes nothing
    assert (finding.kind, finding.subject) == ("asleep", "nightly")
    report = app.repair(dry_run=False)
    print(f"{report.mended} mended")
    assert report.mended == 1
    assert app.repair().findings == ()
    assert [entry.action for entry in app.schedules.history("nightly")] == ["repair", "add"]


def main() -> None:
    with TemporaryDirectory(prefix="evenbeat-example-") as folder:
        path = Path(folder, "evenbeat.db")
        app = Scheduler(f"sqlite:///{path}")

        @app.task
        def work() -> None: ...

        with app:
            for number in range(10):
                for tenant in ("acme", "default"):
                    app.enqueue(work, id=f"{tenant}-{number}", tenant=tenant)
                    app.runs.join(f"{tenant}-{number}", "30s", tenant=tenant)
        keep_the_newest(app, path)
        mend(app, path)
        app.close()


if __name__ == "__main__":
    main()
