"""The audit on every database: entries are written with their changes, and read by ranges."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenbeat import AuditEntry, Scheduler, acting_as, every
from evenbeat.app import rows, run_changes
from evenbeat.stores.base import Store
from evenbeat.stores.mongo import MongoStore
from evenbeat.stores.postgres import PostgresStore
from evenbeat.stores.redis import RedisStore


@pytest.fixture(params=["sqlite", "postgres", "valkey", "mongo"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scheduler]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/evenbeat.db"
    else:
        url = request.getfixturevalue(request.param)
    app = Scheduler(url)
    yield app
    app.close()


def actions(entries: list[AuditEntry]) -> list[tuple[str, str]]:
    return [(entry.action, entry.subject) for entry in entries]


def test_changes_are_recorded_and_read_newest_first(app: Scheduler) -> None:
    with acting_as("anna", "api"):
        app.schedules.add("beat", every("1h"), "work", {"password": "hunter2"}, tags=["billing"])
        app.schedules.update("beat", retries=2)
        app.schedules.run_now("beat", id="by-hand")
    app.runs.cancel("by-hand")
    app.runs.retry("by-hand")
    app.schedules.add("beat", every("1h"), "work", tenant="acme")
    app.schedules.delete("beat")

    expected = [
        ("delete", "beat"),
        ("retry", "by-hand"),
        ("cancel", "by-hand"),
        ("run_now", "beat"),
        ("update", "beat"),
        ("add", "beat"),
    ]
    assert actions(app.audit.list()) == expected
    assert actions(app.audit.list(actor="anna")) == expected[3:]
    assert actions(app.schedules.history("beat")) == [each for each in expected if each[1] == "beat"]
    assert actions(app.schedules.history("beat", 2)) == [("delete", "beat"), ("run_now", "beat")]
    assert actions(app.runs.history("by-hand")) == expected[1:3]
    assert actions(app.audit.list(subject="beat", action="update")) == [("update", "beat")]
    assert actions(app.audit.list(tenant="acme")) == [("add", "beat")]
    assert len(app.audit.list(since="1h", all_tenants=True)) == 7
    assert app.audit.list(until="1h") == []
    assert app.audit.list()[-1].after["payload"] == {"password": "***"}

    everything: list[AuditEntry] = []
    cursor: str | None = None
    while True:
        page = app.audit.page(all_tenants=True, limit=2, cursor=cursor)
        everything += page.entries
        cursor = page.cursor
        if cursor is None:
            break
    assert everything == app.audit.list(all_tenants=True)
    assert {entry.tenant for entry in everything} == {"acme", "default"}


def test_many_schedules_are_paused_at_once_each_with_its_entry(app: Scheduler) -> None:
    for number in range(30):
        app.schedules.add(f"beat-{number:02}", every("1h"), "work", tags=["billing"] if number % 3 else [])
    done = app.schedules.pause_all("migration", tag="billing")
    assert (done.matched, done.done, done.refused) == (20, 20, ())
    assert len(app.schedules.list(state="paused")) == 20
    assert {entry.subject for entry in app.audit.list(action="pause")} == {
        row.name for row in app.schedules.list(state="paused")
    }
    assert app.schedules.delete_all(state="paused").done == 20
    assert len(app.schedules.list()) == 10


def test_entries_of_writes_that_race_form_one_chain(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work")
    numbers = range(1, 19)

    def update(share: range) -> None:
        for number in share:
            app.schedules.update("beat", retries=number)

    threads = [threading.Thread(target=update, args=(numbers[start::3],)) for start in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = app.audit.list(action="update")
    after = {entry.before["retries"]: entry.after["retries"] for entry in entries}
    assert len(entries) == len(after) == len(numbers)
    chain = [0]
    while chain[-1] in after:
        chain.append(after[chain[-1]])
    # Each entry begins where another one ended: none is missing, and none is of a write that lost.
    assert sorted(chain) == [0, *numbers]
    assert app.schedules.get("beat").retries == chain[-1]


STORES: dict[str, Callable[..., Store]] = {
    "postgres": PostgresStore,
    "valkey": RedisStore,
    "mongo": MongoStore,
}


@pytest.mark.parametrize(("server", "more"), [("postgres", [0, 0]), ("valkey", [0, 0]), ("mongo", [1, 2])])
def test_an_entry_costs_no_round_trip(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server: str, more: list[int]
) -> None:
    """In MongoDB, records are another collection: the entry is one more command of the transaction, and the
    change of a single run becomes a transaction."""
    commands: list[str] = []
    app = Scheduler(STORES[server](request.getfixturevalue(server), on_command=commands.append))

    def sent(change: Callable[[], object]) -> int:
        commands.clear()
        change()
        return len(commands)

    app.schedules.add("beat", every("1h"), "work")
    app.schedules.update("beat", retries=1)  # the first write may open connections
    app.enqueue_many(["work"] * 3, ids=["a", "b", "c"])
    app.runs.cancel("a")
    with_entry = [sent(lambda: app.schedules.update("beat", retries=2)), sent(lambda: app.runs.cancel("b"))]
    assert len(app.audit.list()) == 5
    monkeypatch.setattr(rows, "audited", lambda *_: ())
    monkeypatch.setattr(run_changes, "audited", lambda *_: ())
    without = [sent(lambda: app.schedules.update("beat", retries=3)), sent(lambda: app.runs.cancel("c"))]
    app.close()
    assert [audited - bare for audited, bare in zip(with_entry, without, strict=True)] == more
