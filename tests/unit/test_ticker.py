"""The ticker: what it does after a fire."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant, from_ms, write_instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Skipped
from evenbeat.errors import StoreUnavailable
from evenbeat.node.ticker import BATCH, Ticker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import changes, firing
from evenbeat.rules.firing import DEFERRED, Planned
from evenbeat.rules.ticks import spread_delay
from evenbeat.stores.base import Fired, PlanFunction, RunQuery, ScheduleQuery, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

T = 1_772_366_400_000
BEAT = ScheduleRecord(name="beat", task="work", trigger="every 1m", tenant="acme")


class Scripted(MemoryStore):
    """Returns the result of a fire that the test sets."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.answer = Fired((), None)
        self.limits: list[int] = []
        self.hints = 0
        self.is_away = False
        self.due: list[ScheduleRecord] = []
        """Planned before the fire fails."""

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        self.limits.append(limit)
        if self.due:
            for schedule in self.due:
                plan(schedule, now, ())
            raise StoreUnavailable("the disk is full")
        return self.answer

    def hint(self) -> None:
        self.hints += 1

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        if self.is_away:
            raise StoreUnavailable("nobody answers")
        return super().put_record(record, expect)


class Bench:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = Scripted(self.clock)
        self.emitted: list[Event] = []
        self.woken = 0
        events = Events()
        events.listen(self.emitted.append)
        self.ticker = Ticker(self.store, events, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def step(self, *planned: Planned, next_wake: Instant | None = None, **rest: Any) -> Instant | None:
        self.store.answer = Fired(planned, next_wake, **rest)
        return self.ticker.step(self.clock.now)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def run(name: str = "r", **fields: Any) -> RunRecord:
    return RunRecord(id=name, task="work", tenant="acme", schedule="beat", **fields)


def test_a_step_fires_a_batch_of_five_hundred(bench: Bench) -> None:
    bench.step()
    assert bench.store.limits == [BATCH] == [500]


def test_the_ticker_steps_when_the_next_schedule_wakes_up(bench: Bench) -> None:
    now = bench.clock.now
    assert bench.step() is None
    assert bench.step(next_wake=now + 1) == now + 1
    assert bench.step(Planned(BEAT), next_wake=now - 5) == now - 5


def test_the_ticker_retries_soon_if_another_node_holds_due_schedules(bench: Bench) -> None:
    now = bench.clock.now
    assert bench.step(next_wake=now) == now + 20
    assert bench.step(next_wake=now - 60_000) == now + 20


def test_workers_are_woken_for_runs_and_for_cancel_requests_alone(bench: Bench) -> None:
    bench.step(Planned(BEAT))
    assert (bench.woken, bench.store.hints) == (0, 0)
    bench.step(Planned(BEAT), Planned(BEAT, runs=(run(),)))
    assert (bench.woken, bench.store.hints) == (1, 1)
    bench.step(Planned(BEAT, cancels=("r",)))
    assert (bench.woken, bench.store.hints) == (2, 2)


def test_a_cancelled_run_that_waits_for_a_retry_ends_and_its_schedule_is_planned_at_once(
    bench: Bench,
) -> None:
    now = bench.clock.now
    # More than a page of them, the last ones running.
    names = [f"r{number:03}" for number in range(150)]
    bench.store.add_runs([run(name, run_at=now, created_at=now) for name in names])
    assert bench.step(Planned(BEAT, cancels=tuple(names)), next_wake=now + 60_000) == now
    assert bench.store.count_runs() == {"cancelled": 150}
    # A second node comes too late, and repeats the transition; other waiting runs are not touched.
    bench.store.add_runs([run("other", run_at=now, created_at=now)])
    assert bench.step(Planned(BEAT, cancels=("elsewhere",)), next_wake=now + 60_000) == now + 60_000
    assert bench.store.count_runs() == {"cancelled": 150, "queued": 1}


def test_a_fire_is_emitted_with_its_run_and_its_schedule(bench: Bench) -> None:
    coming = replace(BEAT, next_tick=T + 60_000)
    skipped = Skipped(
        tenant="acme", schedule="beat", generation=1, first=T, last=T, count=3, reason="late", recorded_at=T
    )
    bench.step(Planned(coming, runs=(run(),), skipped=(skipped,)))
    fired, passed = bench.emitted
    assert fired.run is not None
    assert (fired.kind, fired.run.id, fired.schedule) == ("fired", "r", "beat")
    assert (passed.kind, passed.tenant, passed.schedule, passed.reason, passed.count) == (
        "skipped",
        "acme",
        "beat",
        "late",
        3,
    )
    assert fired.next_run == passed.next_run == from_ms(T + 60_000)


def test_a_fire_of_a_spread_schedule_has_the_time_of_its_next_fire(
    caplog: pytest.LogCaptureFixture, bench: Bench
) -> None:
    caplog.set_level("INFO")
    spread = replace(BEAT, next_tick=T + 60_000, spread=30_000)
    bench.step(Planned(spread, runs=(run(),)))
    start = T + 60_000 + spread_delay(spread)
    assert start > T + 60_000
    assert bench.emitted[0].next_run == from_ms(start)
    (record,) = [record for record in caplog.records if record.getMessage() == "fired"]
    assert vars(record)["next_run"] == write_instant(start)


def test_skipped_ticks_are_logged_with_their_fields(caplog: pytest.LogCaptureFixture, bench: Bench) -> None:
    skipped = Skipped(
        tenant="acme", schedule="beat", generation=1, first=T, last=T, count=3, reason="late", recorded_at=T
    )
    with caplog.at_level(logging.WARNING, "evenbeat.node.ticker"):
        bench.step(Planned(BEAT, skipped=(skipped,)))
    assert caplog.records == []
    with caplog.at_level(logging.INFO, "evenbeat.node.ticker"):
        bench.step(Planned(BEAT, skipped=(skipped,)))
    (logged,) = [vars(record) for record in caplog.records]
    assert (
        logged["message"],
        logged["schedule_id"],
        logged["tenant"],
        logged["reason"],
        logged["count"],
    ) == ("skipped", "beat", "acme", "late", 3)


def test_a_running_run_is_left_to_its_worker(bench: Bench) -> None:
    now = bench.clock.now
    bench.store.add_runs([run(state="running", attempt=1)])
    assert bench.step(Planned(BEAT, cancels=("r",)), next_wake=now + 60_000) == now + 60_000
    (row,) = bench.store.find_runs(RunQuery(ids=("r",))).items
    assert row.state == "running"


def test_a_deferred_schedule_has_a_note_that_is_renewed_and_expires(bench: Bench) -> None:
    bench.step(Planned(BEAT, deferred="no file descriptors"))
    note = bench.store.get_record("deferred", "acme", "beat")
    assert note is not None
    assert (note.body, note.version) == ("no file descriptors", 1)
    assert note.expires == bench.clock.now + 2 * DEFERRED
    bench.clock.advance("1m")
    bench.step(Planned(BEAT, deferred="no memory"), Planned(BEAT))
    note = bench.store.get_record("deferred", "acme", "beat")
    assert note is not None
    assert (note.body, note.version) == ("no memory", 2)
    bench.clock.advance(f"{2 * DEFERRED + 1}ms")
    assert bench.store.get_record("deferred", "acme", "beat") is None


def test_a_note_that_can_not_be_written_stops_nothing(bench: Bench) -> None:
    bench.store.is_away = True
    now = bench.clock.now
    assert bench.step(Planned(BEAT, deferred="no memory"), next_wake=now + 7) == now + 7


def test_a_quarantined_row_is_emitted(bench: Bench) -> None:
    bench.step(quarantined=(("acme", "beat"),))
    (event,) = bench.emitted
    assert (event.kind, event.tenant, event.schedule) == ("quarantined", "acme", "beat")


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_a_fire_is_logged_without_listeners(caplog: pytest.LogCaptureFixture, level: int) -> None:
    clock = VirtualClock()
    store = Scripted(clock)
    store.answer = Fired((Planned(BEAT, runs=(run(),)),), None)
    with caplog.at_level(level, "evenbeat.node.ticker"):
        Ticker(store, Events()).step(clock.now)
    assert [record.message for record in caplog.records] == (["fired"] if level == logging.INFO else [])


# -- other nodes, and fires that fail ------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture, *fields: str) -> list[tuple[Any, ...]]:
    found = [
        (record.levelname, record.getMessage(), *(vars(record).get(field) for field in fields))
        for record in caplog.records
    ]
    caplog.clear()
    return found


def test_a_tick_that_another_node_fired_is_logged_at_debug(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "evenbeat.node.ticker")
    now = bench.clock.now
    text = write_instant(now)
    fired = "another node fired the tick, or the schedule was changed meanwhile"
    bench.step(next_wake=now)
    assert logged(caplog, "due") == [("DEBUG", "another node is firing the tick", text)]
    bench.step(next_wake=now + 60_000)
    assert logged(caplog, "due") == [("DEBUG", fired, text)]
    bench.step(next_wake=now + 60_000)
    assert logged(caplog) == [], "woken by a hint: nothing was due"
    bench.clock.advance("1m")
    bench.step(Planned(BEAT), next_wake=now + 120_000)
    assert logged(caplog) == [], "this node fired it"
    bench.step(Planned(BEAT), next_wake=now + 120_000, lost=(("acme", "other"),))
    assert logged(caplog, "schedule_id", "tenant") == [("DEBUG", fired, "other", "acme")]
    bench.clock.advance("1m")
    bench.step()
    assert logged(caplog, "due") == [("DEBUG", fired, write_instant(now + 120_000))], "the last of all"


def test_a_failed_fire_logs_its_schedules_less_and_less_often(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "evenbeat.node.ticker")
    message = "a schedule could not be fired, retrying: the disk is full"
    bench.store.due = [replace(BEAT, name=f"s{number:02}", next_tick=T) for number in range(12)]
    levels = []
    for failures in range(1, 6):
        with pytest.raises(StoreUnavailable):
            bench.ticker.step(bench.clock.now)
        lines = logged(caplog, "schedule_id", "tenant", "failures", "schedules")
        assert [line[1:] for line in lines] == [
            (message, f"s{number:02}", "acme", failures, 12) for number in range(10)
        ]
        levels.append(lines[0][0])
    assert levels == ["ERROR", "ERROR", "DEBUG", "ERROR", "DEBUG"]
    due, bench.store.due = bench.store.due, []
    bench.step()
    bench.store.due = due
    with pytest.raises(StoreUnavailable):
        bench.ticker.step(bench.clock.now)
    assert logged(caplog, "failures")[0][2] == 1, "counted anew after one that did not fail"


# -- with a store in memory ----------------------------------------------------------------------------------


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    store = MemoryStore(clock)
    store.open()
    return store


def recorded_events() -> tuple[Events, list[Event]]:
    events, emitted = Events(), list[Event]()
    events.listen(emitted.append)
    return events, emitted


def make(store: MemoryStore, name: str, trigger: str = "every 1m") -> None:
    wanted = ScheduleRecord(name=name, task="work", trigger=trigger)
    store.put_schedules([Write(changes.create(wanted, store.now()), None)])


def test_a_schedule_that_a_node_can_not_plan_is_deferred_with_a_note(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    events, emitted = recorded_events()
    make(store, "minutely")
    clock.advance("1m")

    def out_of_files(*_: object) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(firing, "trigger_of", out_of_files)
        poor = Ticker(store, events)
        waits = []
        for _ in range(7):
            again = poor.step(clock.now)
            assert again is not None
            waits.append(again - clock.now)
            clock.now = again
        # Briefly at first, so that a node that can plan it gets it soon.
        assert waits == [1_000] * 5 + [60_000] * 2
    (note,) = store.find_records("deferred")
    assert (note.key, note.version) == ("minutely", 7)
    assert "Too many open files" in note.body
    assert "can't plan a schedule" in caplog.text
    assert emitted == []
    assert Ticker(store, events).step(clock.now) is not None
    (run,) = store.find_runs(RunQuery()).items
    assert run.coalesced == 2
    assert store.find_records("quarantine") == []
    clock.advance("2m")
    assert store.find_records("deferred") == []


def test_the_ticker_fires_due_schedules_and_returns_the_time_of_its_next_step(
    store: MemoryStore, clock: VirtualClock
) -> None:
    events, emitted = recorded_events()
    woken: list[bool] = []
    ticker = Ticker(store, events, lambda: woken.append(True))
    make(store, "minutely")
    assert ticker.step(clock.now) == clock.now + 60_000
    assert not woken
    clock.advance("1m")
    assert ticker.step(clock.now) == clock.now + 60_000
    assert woken == [True]
    assert [(event.kind, event.schedule, event.next_run) for event in emitted] == [
        ("fired", "minutely", from_ms(clock.now + 60_000))
    ]


def test_the_ticker_steps_no_later_than_the_next_tick(store: MemoryStore, clock: VirtualClock) -> None:
    make(store, "often", "every 100ms")
    clock.advance("97ms")
    assert Ticker(store, Events()).step(clock.now) == clock.now + 3


def test_the_ticker_steps_at_once_when_more_is_due_than_a_batch(
    store: MemoryStore, clock: VirtualClock
) -> None:
    for at in range(BATCH + 1):
        make(store, f"s{at}")
    clock.advance("1m")
    ticker = Ticker(store, Events())
    due = ticker.step(clock.now)
    assert due is not None
    assert due <= clock.now
    ticker.step(clock.now)
    assert store.count_runs() == {"queued": BATCH + 1}


def test_the_ticker_emits_skipped_ticks_with_the_reason(store: MemoryStore, clock: VirtualClock) -> None:
    events, emitted = recorded_events()
    make(store, "minutely")
    clock.advance("1h")
    Ticker(store, events).step(clock.now)
    assert [(event.kind, event.count, event.reason) for event in emitted] == [
        ("fired", 1, None),
        ("skipped", 59, "coalesced"),
    ]


def test_the_ticker_emits_a_schedule_that_can_not_be_read(store: MemoryStore, clock: VirtualClock) -> None:
    events, emitted = recorded_events()
    make(store, "good")
    make(store, "bad")
    # A row that was edited by hand.
    row = store.find_schedules(ScheduleQuery(name="bad")).items[0]
    from msgspec.structs import replace

    from evenbeat.rules.firing import Planned

    store.put_schedules([Write(Planned(replace(row, trigger="nonsense", revision=2)), row.version)])
    clock.advance("1m")
    Ticker(store, events).step(clock.now)
    assert {(event.kind, event.schedule) for event in emitted} == {("fired", "good"), ("quarantined", "bad")}
