"""The audit: an entry for each change by hand, written together with the change."""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from evenbeat import AuditEntry, InvalidValue, RunNotFound, ScheduleNotFound, Scheduler, acting_as, every
from evenbeat.app import audit
from evenbeat.app.audit import audited
from evenbeat.core.ids import first_key_of, new_key
from evenbeat.core.instants import to_ms
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Transition
from evenbeat.errors import RunRefused, StoreUnavailable
from evenbeat.rules import attempts, auditing, changes, overdue
from evenbeat.rules.firing import Planned, plan
from evenbeat.stores.base import Claim, Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

_T = TypeVar("_T")

YEAR = timedelta(days=365)


class Failing(MemoryStore):
    """Fails the next write of schedules or runs, before or after it takes effect; counts its calls."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.fails: str | None = None
        self.overtake: Callable[[], object] | None = None
        self.calls: list[str] = []
        self.limits: list[int | None] = []
        self.found: list[int] = []

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        return self._write("put_schedules", lambda: MemoryStore.put_schedules(self, writes))

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        return self._write("settle_runs", lambda: MemoryStore.settle_runs(self, transitions))

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        self.calls.append("put_record")
        return super().put_record(record, expect)

    def find_records(self, kind: str, tenant: str | None = None, **options: Any) -> list[Record]:
        self.calls.append("find_records")
        self.limits.append(options.get("limit"))
        found = super().find_records(kind, tenant, **options)
        self.found.append(len(found))
        return found

    def _write(self, name: str, write: Callable[[], list[_T]]) -> list[_T]:
        self.calls.append(name)
        overtake, self.overtake = self.overtake, None
        if overtake is not None:
            overtake()
        fails, self.fails = self.fails, None
        if fails == "before":
            raise StoreUnavailable("the connection was lost")
        answer = write()
        if fails == "after":
            raise StoreUnavailable("the reply was lost")
        return answer


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Failing:
    return Failing(clock)


@pytest.fixture
def app(store: Failing) -> Scheduler:
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    return app


def actions(entries: Sequence[AuditEntry]) -> list[tuple[str, str]]:
    return [(entry.action, entry.subject) for entry in entries]


def last(app: Scheduler) -> AuditEntry:
    return app.audit.list()[0]


def failed_run(app: Scheduler, clock: VirtualClock, run_id: str) -> None:
    app.enqueue("work", id=run_id)
    held = claimed(app, clock)
    assert app.store.settle_runs([attempts.failed(held, "boom", clock.now, run_id)]) == [True]


def claimed(app: Scheduler, clock: VirtualClock) -> RunRecord:
    claim = Claim(worker="w", token=new_key(clock.now), limit=1, now=clock.now, lease=30_000)
    (run,) = app.store.claim_runs(claim).runs
    return run


# -- what an entry says --------------------------------------------------------------------------------------


def test_a_new_schedule_is_recorded_with_what_is_not_a_default(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1h"), "mail", {"team": "ops"}, retries=3, backoff="90s", tags=["b", "a"])
    (entry,) = app.audit.list()
    assert (entry.action, entry.kind, entry.subject, entry.tenant) == ("add", "schedule", "beat", "default")
    assert (entry.actor, entry.via) == (f"{getpass.getuser()}@{socket.gethostname()}", "python")
    assert to_ms(entry.at) == clock.now
    assert entry.before == {}
    next_run = app.schedules.get("beat").next_run
    assert next_run is not None
    assert entry.after == {
        "task": "mail",
        "trigger": "every 1h",
        "state": "active",
        "payload": {"team": "ops"},
        "retries": 3,
        "backoff": "1m30s",
        "tags": ["a", "b"],
        "next_run": next_run.isoformat().replace("+00:00", "Z"),
    }


def test_a_change_is_recorded_with_the_fields_that_changed(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", timeout="5m")
    app.schedules.update("beat", timeout="1h", retries=2, overlap="allow")
    entry = last(app)
    assert (entry.action, entry.before, entry.after) == (
        "update",
        {"retries": 0, "timeout": "5m"},
        {"retries": 2, "timeout": "1h"},
    )


def test_a_pause_names_its_note_and_its_end(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1h"), "work")
    with acting_as("anna", "api"):
        app.schedules.pause("beat", "migration", until="90m")
    entry = last(app)
    assert (entry.action, entry.actor, entry.via) == ("pause", "anna", "api")
    assert entry.before["state"] == "active"
    assert (entry.after["state"], entry.after["pause_note"]) == ("paused", "migration")
    assert entry.after["paused_until"].endswith("Z")
    clock.advance("1s")
    app.schedules.resume("beat")
    entry = last(app)
    assert (entry.action, entry.before["state"], entry.after["state"]) == ("resume", "paused", "active")
    assert entry.before["pause_note"] == "migration"


def test_every_change_of_a_schedule_has_its_entry(app: Scheduler, clock: VirtualClock) -> None:
    declared: dict[str, Any] = {"name": "beat", "trigger": every("1h"), "task": "work"}
    app.schedules.declare(**declared)
    app.schedules.update("beat", queue="slow")
    app.schedules.reset("beat")
    app.schedules.pause("beat")
    app.schedules.resume("beat")
    app.schedules.reschedule("beat", "2h")
    app.schedules.run_now("beat", id="mine")
    app.schedules.declare(**declared, retries=1)
    app.schedules.delete("beat")
    assert [entry.action for entry in reversed(app.schedules.history("beat"))] == [
        "declare",
        "update",
        "reset",
        "pause",
        "resume",
        "reschedule",
        "run_now",
        "declare",
        "delete",
    ]
    assert app.schedules.history("beat") == app.audit.list()


def test_a_call_that_changes_nothing_has_no_entry(app: Scheduler) -> None:
    app.schedules.declare("beat", every("1h"), "work")
    app.schedules.declare("beat", every("1h"), "work")
    app.schedules.update("beat", retries=0)
    app.schedules.resume("beat")
    app.schedules.reset("beat")
    assert actions(app.audit.list()) == [("declare", "beat")]


def test_a_refused_call_has_no_entry(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", overlap="skip", run_now=True)
    with pytest.raises(RunRefused):
        app.schedules.run_now("beat")
    with pytest.raises(ScheduleNotFound):
        app.schedules.pause("other")
    assert actions(app.audit.list()) == [("add", "beat")]


def test_what_nodes_do_is_not_recorded(app: Scheduler, store: Failing, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1h"), "work")
    clock.advance("1h")
    assert len(store.fire_due(clock.now, 10, plan).planned) == 1
    held = claimed(app, clock)
    assert store.settle_runs([attempts.succeeded(held, None, clock.now, "t")]) == [True]
    app.enqueue("work")
    assert actions(app.audit.list()) == [("add", "beat")]


def test_a_run_now_names_its_run_and_its_own_payload(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "mail", {"to": "ops", "password": "old"})
    app.schedules.run_now("beat", id="first")
    assert last(app).after == {"run": "first"}
    app.schedules.run_now("beat", {"to": "dev", "password": "hunter2"}, id="second")
    assert last(app).after == {"run": "second", "payload": {"to": "dev", "password": "***"}}
    assert last(app).before == {}


def test_a_deleted_schedule_is_recorded_as_it_was(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", description="daily work", retries=2)
    app.schedules.delete("beat")
    entry = last(app)
    assert entry.after == {}
    assert (entry.before["description"], entry.before["retries"]) == ("daily work", 2)
    assert (entry.before["task"], entry.before["trigger"]) == ("work", "every 1h")
    app.schedules.add("beat", every("2h"), "work")
    assert (last(app).before, last(app).after["trigger"]) == ({}, "every 2h")


def test_no_secret_is_stored(app: Scheduler, store: Failing) -> None:
    old, new = ({"to": "ops", "login": {"password": word}} for word in ("hunter1", "hunter2"))
    app.schedules.add("beat", every("1h"), "mail", old, description="of amqp://u:hunter3@queue")
    app.schedules.update("beat", payload=new)
    app.schedules.run_now("beat", old)
    with acting_as("anna", "cli"):
        app.enqueue("mail", old)
    bodies = [record.body for kind in ("audit", "audited") for record in store.find_records(kind)]
    assert len(bodies) == 8
    assert [body for body in bodies if "hunter" in body] == []
    changed = app.schedules.history("beat")[1]
    # That it changed is recorded; what the secret was is not.
    assert changed.before == changed.after == {"payload": {"to": "ops", "login": {"password": "***"}}}


def test_long_values_are_cut(app: Scheduler, store: Failing) -> None:
    payload = {"text": "x" * 100_000, "words": ["y"] * 50_000}
    app.schedules.add("beat", every("1h"), "mail", payload)
    value = last(app).after["payload"]
    assert value.startswith('{"text":"xxx')
    assert value.endswith("x… (cut)")
    assert len(value) == 2_000 + len("… (cut)")
    app.schedules.pause("beat", "n" * 2_000)
    assert last(app).after["pause_note"] == "n" * 2_000
    app.schedules.pause("beat", "n" * 5_000)
    assert last(app).after["pause_note"] == "n" * 2_000 + "… (cut)"
    assert max(len(record.body) for record in store.find_records("audit")) < 10_000


def test_a_secret_is_masked_before_its_value_is_cut() -> None:
    value = {"a": "x" * 1_990, "password": "hunter2" * 1_000}
    change = auditing.Change("schedule", "beat", "default", "add", {}, {"payload": value})
    record = auditing.records_of(change, "anna", "cli", new_key(1), 1)[0]
    assert "hunter" not in record.body
    assert "… (cut)" in record.body


def test_a_value_that_is_nested_too_deeply_does_not_stop_the_change() -> None:
    value: Any = "end"
    for _ in range(100_000):
        value = [value]
    change = auditing.Change("schedule", "beat", "default", "add", {}, {"payload": value})
    record = auditing.records_of(change, "anna", "cli", new_key(1), 1)[0]
    entry = auditing.read_entry(record)
    assert entry is not None
    assert entry.after == {"payload": "(can't be kept)"}


@pytest.mark.parametrize(("payload", "kept"), [("{broken", "{broken"), ("{\ud800", "{?")])
def test_a_damaged_schedule_is_recorded_with_its_damage(payload: str, kept: str) -> None:
    row = changes.create(app_row(), 1_000).schedule
    damaged = replace(row, payload=payload, damage="payload: not JSON")
    planned = Planned(replace(row, payload="null", revision=2))
    change = auditing.schedule_change("declare", damaged, planned)
    assert change.before == {"payload": kept, "damage": "payload: not JSON"}
    assert change.after == {"payload": None, "damage": ""}


def test_a_trigger_that_can_not_be_read_here_does_not_stop_the_change() -> None:
    row = changes.create(app_row(), 1_000).schedule
    unknown = replace(row, trigger="nonsense", state="paused", paused_until=10_000_000_000)
    change = auditing.schedule_change("resume", unknown, Planned(replace(unknown, state="active")))
    assert change.before == {"state": "paused"}
    assert auditing.schedule_change("delete", unknown, Planned(replace(row, state="deleted"))).before[
        "next_run"
    ] == ("1970-01-01T01:00:01Z")


def test_a_damaged_payload_of_a_run_is_recorded_as_text() -> None:
    assert auditing.enqueued(RunRecord(id="r", task="work", payload="{broken")).after["payload"] == "{broken"


def app_row() -> ScheduleRecord:
    return ScheduleRecord(name="beat", task="work", trigger="every 1h")


# -- runs ----------------------------------------------------------------------------------------------------


def test_a_cancelled_run_has_an_entry(app: Scheduler, clock: VirtualClock) -> None:
    app.enqueue("work", id="r")
    app.runs.cancel("r")
    app.runs.cancel("r")
    (entry,) = app.runs.history("r")
    assert (entry.action, entry.kind, entry.subject) == ("cancel", "run", "r")
    assert (entry.before, entry.after) == ({"state": "queued"}, {"state": "cancelled"})


def test_a_running_run_that_is_asked_to_stop_has_one_entry(app: Scheduler, clock: VirtualClock) -> None:
    app.enqueue("work", id="r")
    claimed(app, clock)
    app.runs.cancel("r")
    app.runs.cancel("r")
    assert app.runs.cancel_all().done == 1
    (entry,) = app.runs.history("r")
    assert entry.action == "cancel"
    assert (entry.before, entry.after) == ({"cancel_requested": False}, {"cancel_requested": True})


def test_a_retried_run_has_an_entry(app: Scheduler, clock: VirtualClock) -> None:
    failed_run(app, clock, "r")
    app.runs.retry("r")
    (entry,) = app.runs.history("r")
    assert (entry.action, entry.before, entry.after) == ("retry", {"state": "failed"}, {"state": "queued"})


def test_a_retry_by_a_new_run_of_its_schedule_names_that_run(app: Scheduler, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1h"), "work", overlap="skip")
    app.schedules.run_now("beat", id="r")
    held = claimed(app, clock)
    assert app.store.settle_runs([attempts.failed(held, "boom", clock.now, "t")]) == [True]
    again = app.runs.retry("r")
    (entry,) = app.runs.history("r")
    assert (entry.action, entry.after) == ("retry", {"run": again.id})
    assert actions(app.schedules.history("beat")) == [("run_now", "beat"), ("add", "beat")]


def test_bulk_changes_of_runs_have_an_entry_for_each_run(app: Scheduler, clock: VirtualClock) -> None:
    app.enqueue_many(["work"] * 3, ids=["a", "b", "c"])
    with acting_as("anna"):
        assert app.runs.cancel_all().done == 3
        assert app.runs.retry_all(state="cancelled").done == 3
    entries = app.audit.list(actor="anna")
    assert sorted(actions(entries)) == [(action, run) for action in ("cancel", "retry") for run in "abc"]


def test_runs_that_a_pause_cancels_have_entries(app: Scheduler) -> None:
    app.schedules.add("beat", every("1h"), "work", run_now=True)
    (run,) = app.runs.list()
    app.schedules.pause("beat", cancel_queued=True)
    assert actions(app.runs.history(run.id)) == [("cancel", run.id)]


@pytest.mark.parametrize("via", ["cli", "api"])
def test_a_run_that_a_person_enqueues_has_an_entry(app: Scheduler, clock: VirtualClock, via: Any) -> None:
    with acting_as("anna", via):
        app.enqueue("work", id="r", delay="1h")
        app.enqueue("work", id="r")
        app.enqueue_many(["work", "work"], ids=["r", "s"])
    assert actions(app.audit.list()) == [("enqueue", "s"), ("enqueue", "r")]
    (entry,) = app.runs.history("r")
    assert (entry.via, entry.before) == (via, {})
    run_at = app.runs.get("r").run_at.isoformat().replace("+00:00", "Z")
    assert entry.after == {"task": "work", "queue": "default", "payload": None, "run_at": run_at}


def test_the_history_of_a_run_outlives_the_run(app: Scheduler, store: Failing, clock: VirtualClock) -> None:
    app.enqueue("work", id="r")
    app.runs.cancel("r")
    clock.advance("40d")
    assert store.purge(clock.now - 1, 100).deleted == 1
    with pytest.raises(RunNotFound):
        app.runs.get("r")
    assert actions(app.runs.history("r")) == [("cancel", "r")]


def test_the_history_of_what_never_was_is_an_error(app: Scheduler) -> None:
    with pytest.raises(RunNotFound):
        app.runs.history("r")
    with pytest.raises(ScheduleNotFound):
        app.schedules.history("beat")
    app.enqueue("work", id="r")
    assert app.runs.history("r") == []


def test_a_run_whose_id_is_the_beginning_of_another_has_its_own_history(app: Scheduler) -> None:
    tick_run = RunRecord(id="acme/beat/1/1000", task="work", schedule="beat", tick=1_000, tenant="default")
    app.store.add_runs([tick_run])
    app.enqueue("work", id="acme")
    app.runs.cancel(tick_run.id)
    app.runs.cancel("acme")
    assert actions(app.runs.history("acme")) == [("cancel", "acme")]
    assert actions(app.audit.list(subject="acme")) == [("cancel", "acme")]
    assert actions(app.runs.history(tick_run.id)) == [("cancel", tick_run.id)]


# -- an entry exists if and only if the change took effect ---------------------------------------------------


@pytest.mark.parametrize("change", ["add", "update", "pause", "run_now", "delete"])
def test_a_write_that_did_not_take_effect_leaves_no_entry(
    app: Scheduler, store: Failing, change: str
) -> None:
    if change != "add":
        app.schedules.add("beat", every("1h"), "work")
    before = len(app.audit.list())
    store.fails = "before"
    with pytest.raises(StoreUnavailable):
        change_schedule(app, change)
    assert len(app.audit.list()) == before
    assert store.find_records("audited") == store.find_records("audited")[:before]


@pytest.mark.parametrize("change", ["add", "update", "pause", "run_now", "delete"])
def test_a_write_whose_reply_was_lost_has_its_entry(app: Scheduler, store: Failing, change: str) -> None:
    if change != "add":
        app.schedules.add("beat", every("1h"), "work")
    store.fails = "after"
    with pytest.raises(StoreUnavailable):
        change_schedule(app, change)
    assert actions(app.audit.list(limit=1)) == [(change, "beat")]


def change_schedule(app: Scheduler, change: str) -> None:
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: app.schedules.add("beat", every("1h"), "work"),
        "update": lambda: app.schedules.update("beat", retries=1),
        "pause": lambda: app.schedules.pause("beat"),
        "run_now": lambda: app.schedules.run_now("beat"),
        "delete": lambda: app.schedules.delete("beat"),
    }
    calls[change]()


@pytest.mark.parametrize(("fails", "entries"), [("before", []), ("after", [("cancel", "r")])])
def test_a_cancel_has_its_entry_if_it_took_effect(
    app: Scheduler, store: Failing, fails: str, entries: list[tuple[str, str]]
) -> None:
    app.enqueue("work", id="r")
    store.fails = fails
    with pytest.raises(StoreUnavailable):
        app.runs.cancel("r")
    assert actions(app.audit.list()) == entries
    assert app.runs.get("r").state == ("cancelled" if entries else "queued")


def test_a_change_that_loses_a_race_is_recorded_upon_what_won(app: Scheduler, store: Failing) -> None:
    app.schedules.add("beat", every("1h"), "work")
    store.overtake = lambda: app.schedules.update("beat", retries=1)
    app.schedules.update("beat", retries=2)
    entries = app.audit.list(action="update")
    assert [(entry.before, entry.after) for entry in entries] == [
        ({"retries": 1}, {"retries": 2}),
        ({"retries": 0}, {"retries": 1}),
    ]


def test_a_cancel_that_loses_a_race_leaves_no_entry(
    app: Scheduler, store: Failing, clock: VirtualClock
) -> None:
    app.enqueue("work", id="r")
    held = claimed(app, clock)
    end = attempts.succeeded(held, None, clock.now, "t")
    store.overtake = lambda: MemoryStore.settle_runs(store, [end])
    assert app.runs.cancel("r").state == "succeeded"
    assert app.runs.history("r") == []


def test_a_change_that_needs_several_writes_has_one_entry(
    app: Scheduler, store: Failing, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("beat", every("1m"), "work", catch_up="all", catch_up_limit=1_000)
    monkeypatch.setattr(overdue, "RUNS_A_CHANGE", 10)
    clock.advance("250m")
    store.calls.clear()
    app.schedules.update("beat", retries=1)
    assert store.calls.count("put_schedules") > 1
    (entry,) = app.audit.list(action="update")
    assert (entry.before["retries"], entry.after["retries"]) == (0, 1)


def test_the_resume_of_an_ended_pause_with_a_long_backlog_has_its_entry(
    app: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.schedules.add("beat", every("1m"), "work", catch_up="all", catch_up_limit=1_000)
    app.schedules.pause("beat", "migration", until="1s")
    monkeypatch.setattr(overdue, "RUNS_A_CHANGE", 10)
    clock.advance("250m")
    before = app.schedules.get("beat").revision
    resumed = app.schedules.resume("beat")
    assert (resumed.state, resumed.revision) == ("active", before + 1)
    (entry,) = app.audit.list(action="resume")
    assert (entry.before["pause_note"], entry.after["state"]) == ("migration", "active")
    assert app.schedules.resume("beat").revision == resumed.revision
    assert len(app.audit.list(action="resume")) == 1


def test_an_audited_write_makes_no_call_of_its_own(
    app: Scheduler, store: Failing, clock: VirtualClock
) -> None:
    app.schedules.add("beat", every("1h"), "work")
    app.schedules.update("beat", retries=1)
    app.schedules.pause("beat")
    app.enqueue("work", id="r")
    app.runs.cancel("r")
    # The first call reads the quotas, and those of the next five seconds know them. A cancel reads the alert
    # rules.
    assert store.calls == ["find_records"] + ["put_schedules"] * 3 + ["find_records", "settle_runs"]


# -- reading -------------------------------------------------------------------------------------------------


def test_keys_sort_the_newest_first() -> None:
    keys = [new_key(now) for now in (1_000, 1_000, 1_001, 1_772_438_400_000, 1_772_438_400_001)]
    assert sorted(keys) == keys[::-1]
    assert len(set(keys)) == 5
    assert {len(key) for key in keys} == {32}
    assert first_key_of(1_001) <= keys[2] < first_key_of(1_000) <= keys[1] < first_key_of(999)


@pytest.fixture
def busy(app: Scheduler, clock: VirtualClock) -> Scheduler:
    """Twelve entries, one a minute: a0, b1, a2, …"""
    for number in range(12):
        name = f"{'ab'[number % 2]}{number}"
        with acting_as("anna" if number % 3 == 0 else "ben"):
            app.schedules.add(name, every("1h"), "work")
        clock.advance("1m")
    return app


def names(entries: Sequence[AuditEntry]) -> list[str]:
    return [entry.subject for entry in entries]


def test_entries_come_newest_first_and_are_filtered(busy: Scheduler) -> None:
    everything = ["b11", "a10", "b9", "a8", "b7", "a6", "b5", "a4", "b3", "a2", "b1", "a0"]
    assert names(busy.audit.list()) == everything
    assert names(busy.audit.list(limit=3)) == everything[:3]
    assert names(busy.audit.list(limit=0)) == []
    assert names(busy.audit.list(actor="anna")) == ["b9", "a6", "b3", "a0"]
    assert names(busy.audit.list(action="add", limit=2)) == ["b11", "a10"]
    assert names(busy.audit.list(action="pause")) == []
    assert names(busy.audit.list(subject="a2")) == ["a2"]
    assert names(busy.audit.list(subject="a2", actor="anna")) == []
    assert names(busy.audit.list(since="3m")) == ["b11", "a10", "b9"]
    assert names(busy.audit.list(until="10m")) == ["b1", "a0"]
    first = busy.audit.list(subject="a2")[0].at
    assert names(busy.audit.list(since=first, until=first + timedelta(minutes=1))) == ["a2"]
    assert names(busy.audit.list(since=first, until=first + timedelta(minutes=1), subject="b3")) == []
    tick = timedelta(milliseconds=1)
    assert names(busy.audit.list(since=first, until=first + tick)) == ["a2"]
    assert names(busy.audit.list(since=first - tick, until=first)) == []
    assert names(busy.audit.list(since=first + tick, until=first + 2 * tick)) == []


@pytest.mark.parametrize("limit", [1, 2, 5, 11, 12, 100])
@pytest.mark.parametrize("actor", [None, "anna"])
def test_pages_continue_where_the_last_one_ended(
    busy: Scheduler, clock: VirtualClock, limit: int, actor: str | None
) -> None:
    wanted = names(busy.audit.list(actor=actor))
    found: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = busy.audit.page(limit=limit, actor=actor, cursor=cursor)
        assert len(page.entries) <= limit
        found += names(page.entries)
        cursor = page.cursor
        if cursor is None:
            break
        # What is added meanwhile comes before the first page.
        busy.schedules.add(f"new-{len(found)}", every("1h"), "work")
    assert found == wanted


def test_a_page_reads_a_bounded_number_of_entries(
    busy: Scheduler, store: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_SCANNED", 5)
    page = busy.audit.page(actor="nobody")
    assert (page.entries, page.cursor is None) == ((), False)
    page = busy.audit.page(actor="anna", cursor=page.cursor)
    assert names(page.entries) == ["a6", "b3"]
    assert len(busy.audit.list(limit=7)) == 7
    assert names(busy.audit.list(actor="anna")) == ["b9", "a6", "b3", "a0"]


def test_no_more_records_are_read_than_are_needed(busy: Scheduler, store: Failing) -> None:
    store.limits.clear()
    busy.audit.list(limit=3)
    busy.audit.list(limit=1_000)
    busy.schedules.history("a2", 3)
    # One more than asked for says whether there are others.
    assert store.limits == [4, 500, 3]


def test_long_audits_are_read_in_batches(busy: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = names(busy.audit.list())
    monkeypatch.setattr(audit, "_BATCH", 5)
    assert names(busy.audit.list()) == wanted
    assert names(busy.audit.list(all_tenants=True)) == wanted


def test_a_filter_that_makes_no_sense_is_refused(app: Scheduler) -> None:
    unknown: Any = "pauze"
    with pytest.raises(InvalidValue, match='action "pauze" is not one of add, declare'):
        app.audit.list(action=unknown)
    with pytest.raises(InvalidValue, match='until "2h" is not after the start "1h"'):
        app.audit.list(since="1h", until="2h")
    with pytest.raises(InvalidValue, match=r"cursor .* is not one that a page gave"):
        app.audit.page(cursor="zz")
    app.schedules.add("beat", every("1h"), "work")
    moment = last(app).at
    with pytest.raises(InvalidValue, match="is not after the start"):
        app.audit.list(since=moment, until=moment)
    calls: list[Callable[[], object]] = [
        lambda: app.audit.list(limit=-1),
        lambda: app.audit.page(limit=-1),
        lambda: app.schedules.history("beat", -1),
    ]
    for call in calls:
        with pytest.raises(InvalidValue, match="limit -1 is negative"):
            call()


def test_tenants_do_not_see_each_other(app: Scheduler, clock: VirtualClock) -> None:
    for tenant in ("acme", "default", "zoo"):
        app.schedules.add("beat", every("1h"), "work", tenant=tenant)
        clock.advance("1s")
    app.enqueue("work", id="r", tenant="acme")
    app.runs.cancel("r", tenant="acme")
    assert [entry.tenant for entry in app.audit.list()] == ["default"]
    assert [entry.tenant for entry in app.audit.page().entries] == ["default"]
    assert actions(app.audit.list(tenant="acme")) == [("cancel", "r"), ("add", "beat")]
    assert actions(app.schedules.history("beat", tenant="zoo")) == [("add", "beat")]
    with pytest.raises(RunNotFound):
        app.runs.history("r")
    assert app.audit.list(tenant="nobody") == []
    everything = app.audit.list(all_tenants=True)
    assert [entry.tenant for entry in everything] == ["acme", "zoo", "default", "acme"]
    assert [entry.tenant for entry in app.audit.list(all_tenants=True, subject="beat")] == [
        "zoo",
        "default",
        "acme",
    ]
    first = app.audit.page(all_tenants=True, limit=2)
    rest = app.audit.page(all_tenants=True, limit=2, cursor=first.cursor)
    assert [*first.entries, *rest.entries] == everything
    assert rest.cursor is None


@pytest.mark.parametrize("gap", ["0s", "1ms", "40s", "1h", "3d", "30d"])
def test_the_entries_of_all_tenants_come_in_one_order_however_dense_they_are(
    app: Scheduler, store: Failing, clock: VirtualClock, gap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_BATCH", 3)
    for number in range(8):
        app.schedules.add(f"s{number}", every("1h"), "work", tenant=("zoo", "acme", "default")[number % 3])
        clock.advance(gap)
    wanted = [f"s{number}" for number in reversed(range(8))]
    assert names(app.audit.list(all_tenants=True)) == wanted
    assert max(store.found) <= (8 if gap == "0s" else 3)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = app.audit.page(all_tenants=True, limit=3, cursor=cursor)
        found += names(page.entries)
        cursor = page.cursor
        if cursor is None:
            break
    assert found == wanted
    since = app.audit.list(all_tenants=True, subject="s3")[0].at
    until = app.audit.list(all_tenants=True, subject="s6")[0].at
    if gap != "0s":
        assert names(app.audit.list(all_tenants=True, since=since, until=until)) == ["s5", "s4", "s3"]


def test_an_empty_audit_of_all_tenants_takes_few_queries(app: Scheduler, store: Failing) -> None:
    assert app.audit.list(all_tenants=True) == []
    assert len(store.limits) < 10


def test_entries_are_kept_for_a_year(app: Scheduler, store: Failing, clock: VirtualClock) -> None:
    app.schedules.add("beat", every("1000d"), "work")
    clock.advance(YEAR - timedelta(seconds=1))
    app.schedules.pause("beat")
    assert actions(app.audit.list()) == [("pause", "beat"), ("add", "beat")]
    clock.advance("1s")
    assert actions(app.audit.list(all_tenants=True)) == [("pause", "beat")]
    assert actions(app.schedules.history("beat")) == [("pause", "beat")]
    clock.advance("1s")
    assert store.purge(clock.now, 100).deleted == 2
    assert actions(app.audit.list()) == [("pause", "beat")]


def test_a_record_that_a_person_edited_is_left_out(app: Scheduler, store: Failing) -> None:
    app.schedules.add("beat", every("1h"), "work")
    (record,) = store.find_records("audit")
    assert store.put_record(replace(record, body="{oops", version=2), 1)
    app.schedules.pause("beat")
    assert actions(app.audit.list()) == [("pause", "beat")]


def test_the_actor_of_an_awaited_call_is_that_of_its_caller(app: Scheduler) -> None:
    async def work() -> list[AuditEntry]:
        with acting_as("anna", "api"):
            await app.schedules.aadd("beat", every("1h"), "work")
        await app.schedules.apause("beat")
        return await app.audit.alist()

    paused, added = asyncio.run(work())
    assert (added.actor, added.via, paused.via) == ("anna", "api", "python")
    assert asyncio.run(app.audit.apage(limit=1)).entries == (paused,)
    assert asyncio.run(app.schedules.ahistory("beat", 1)) == [paused]


def test_two_changes_of_the_same_moment_have_two_entries(app: Scheduler, clock: VirtualClock) -> None:
    change = auditing.Change("schedule", "beat", "default", "pause", {}, {})
    first, second = audited(change, clock.now), audited(change, clock.now)
    assert first[0].key != second[0].key
    assert first[0].key > second[0].key


# -- tokens --------------------------------------------------------------------------------------------------


def test_a_token_that_is_created_or_revoked_has_an_entry_without_its_secret(
    app: Scheduler, store: Failing
) -> None:
    made = app.tokens.create("ci", "operator", tenant="acme", expires="1d")
    app.tokens.revoke(made.token.id)
    revoked, created = app.audit.list(tenant="acme")
    assert (created.action, created.kind, created.subject) == ("create", "token", made.token.id)
    assert (created.after["name"], created.after["role"], created.after["tenant"]) == (
        "ci",
        "operator",
        "acme",
    )
    assert (revoked.action, revoked.before, revoked.after) == ("revoke", created.after, {})
    secret = made.secret.split("_", 2)[2]
    assert [record for record in store.find_records("audit") if secret in record.body] == []
    app.tokens.create("all", "viewer")
    assert [entry.action for entry in app.audit.list()] == ["create"]
