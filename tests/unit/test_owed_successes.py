"""Successes that are settled without the rows of schedules: how nodes owe them, and hand them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat.core.instants import Instant
from evenbeat.core.records import Record, RunRecord, ScheduleRecord, Transition
from evenbeat.errors import RowRefused, StoreUnavailable
from evenbeat.node import owed_successes
from evenbeat.node.owed_successes import _AT_ONCE, _PERIOD, _SOON, OwedSuccesses, without_rows
from evenbeat.rules import attempts
from evenbeat.rules.dependencies import PENDING
from evenbeat.rules.firing import Planned
from evenbeat.rules.owed import OWED, without_schedule
from evenbeat.stores.base import Write, Written
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock

LOAD = ScheduleRecord(name="load", task="load", trigger="every 1h", followers="report")
REPORT = ScheduleRecord(name="report", task="report", trigger="on success of load")


class Watched(MemoryStore):
    """Notes what it is asked, and fails where a test says so."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.limits: list[int] = []
        self.hints = 0
        self.error: Exception | None = None
        self.is_late = False

    def find_records(self, kind: str, *places: Any, **only: Any) -> list[Record]:
        if kind == OWED and "limit" in only:
            self.limits.append(only["limit"])
        return super().find_records(kind, *places, **only)

    def put_schedules(self, writes: Sequence[Write]) -> list[Written]:
        if self.error is not None:
            raise self.error
        if self.is_late:
            writes = [write._replace(expect=None) for write in writes]
        return super().put_schedules(writes)

    def hint(self) -> None:
        self.hints += 1


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Watched:
    made = Watched(clock)
    made.open()
    return made


def add(store: Watched, *rows: ScheduleRecord) -> None:
    for row in rows:
        assert MemoryStore.put_schedules(store, [Write(Planned(row), None)])[0].accepted


def owe(store: Watched, schedule: str = "load", run: str = "r") -> Record:
    """Let a run of a schedule succeed without its row."""
    now = store.now()
    done = RunRecord(id=run, schedule=schedule, task="t", state="running", attempt=1, created_at=now)
    (record,) = without_schedule(attempts.succeeded(done, None, now, run), now).records
    assert store.put_record(record)
    return record


def keys(store: Watched, kind: str) -> list[str]:
    return [record.key for record in MemoryStore.find_records(store, kind)]


def test_a_success_goes_to_the_followers_of_its_schedule(store: Watched, clock: VirtualClock) -> None:
    add(store, LOAD, REPORT)
    owed = OwedSuccesses(store)
    assert owed.step(clock.now) == clock.now + _PERIOD
    assert (store.limits, store.hints) == ([_AT_ONCE], 0)
    owe(store)
    assert owed.step(clock.now) == clock.now
    assert (keys(store, OWED), keys(store, PENDING), store.hints) == ([f">report/r@{clock.now}"], [], 1)
    assert owed.step(clock.now) == clock.now
    assert (keys(store, OWED), len(keys(store, PENDING)), store.hints) == ([], 1, 2)
    assert owed.step(clock.now) == clock.now + _PERIOD
    assert set(store.limits) == {_AT_ONCE}


def test_while_rows_can_not_be_used_nothing_is_asked(store: Watched, clock: VirtualClock) -> None:
    add(store, LOAD, REPORT)
    owe(store)
    assert OwedSuccesses(store, lambda: True).step(clock.now) == clock.now + _PERIOD
    assert store.limits == []


def test_a_record_that_nobody_waits_for_is_deleted(store: Watched, clock: VirtualClock) -> None:
    owe(store, "gone")
    assert OwedSuccesses(store).step(clock.now) == clock.now
    assert (keys(store, OWED), store.hints) == ([], 0)


def test_a_deleted_schedule_still_hands_over(store: Watched, clock: VirtualClock) -> None:
    add(store, replace(LOAD, state="deleted"), REPORT)
    owe(store)
    OwedSuccesses(store).step(clock.now)
    assert keys(store, OWED) == [f">report/r@{clock.now}"]


def test_a_row_that_is_refused_keeps_its_records_and_is_tried_soon(
    store: Watched, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, LOAD, REPORT)
    record = owe(store)
    owed = OwedSuccesses(store)
    store.error = RowRefused("auditors say no")
    assert owed.step(clock.now) == clock.now + _SOON
    assert (keys(store, OWED), store.hints) == ([record.key], 0)
    (logged,) = caplog.records
    fields = logged.__dict__
    assert (fields["component"], fields["schedule_id"], fields["tenant"]) == (
        "owed successes",
        "load",
        "default",
    )
    store.error = StoreUnavailable("gone")
    with pytest.raises(StoreUnavailable):
        owed.step(clock.now)
    store.error = None
    assert owed.step(clock.now) == clock.now


def test_a_row_that_changes_meanwhile_is_read_again_soon(
    store: Watched, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    add(store, LOAD, REPORT)
    record = owe(store)
    store.is_late = True
    assert OwedSuccesses(store).step(clock.now) == clock.now + _SOON
    assert (keys(store, OWED), store.hints) == ([record.key], 0)
    assert caplog.records == []


def test_rows_that_can_not_be_written_do_not_hide_the_others(
    store: Watched, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owed_successes, "_AT_ONCE", 2)
    add(store, replace(LOAD, name="a", damage="task: it is empty"), LOAD, REPORT)
    owed = OwedSuccesses(store)
    for run in ("1", "2", "3"):
        owe(store, "a", run)
    assert owed.step(clock.now) == clock.now + _SOON  # two were found, and nothing could be done
    assert owed.step(clock.now) == clock.now + _SOON  # of four, three are there
    owe(store)
    assert owed.step(clock.now) == clock.now
    assert keys(store, OWED)[0].startswith(">report/")
    assert store.limits == [2, 2, 4, 4, 4, 4]
    store.limits.clear()
    owed.step(clock.now)
    assert store.limits[0] == 2


def test_a_damaged_row_keeps_its_record_and_a_damaged_record_goes(
    store: Watched, clock: VirtualClock
) -> None:
    add(store, replace(LOAD, damage="task: it is empty"))
    record = owe(store)
    assert OwedSuccesses(store).step(clock.now) == clock.now + _PERIOD
    assert keys(store, OWED) == [record.key]
    assert store.delete_record(OWED, record.tenant, record.key, record.version)
    assert store.put_record(replace(record, body="{"))
    assert OwedSuccesses(store).step(clock.now) == clock.now
    assert keys(store, OWED) == []


# Settling.


class Settling:
    """A store that only settles: it answers, or fails, as a test says."""

    def __init__(self, *answers: bool) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[Transition]] = []

    def now(self) -> Instant:
        return 5_000

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        self.asked.append(transitions)
        if not self.answers.pop(0):
            raise StoreUnavailable(f"call {len(self.asked)}")
        return [True] * len(transitions)


RUN = RunRecord(id="r", schedule="load", task="t", state="running", attempt=1)
END = attempts.succeeded(RUN, None, 4_000, "t")
ALONE = attempts.succeeded(replace(RUN, schedule=None), None, 4_000, "t")


def settle(
    inner: Settling, transition: Transition, *, is_failing: bool = False
) -> tuple[list[Sequence[Transition]], int]:
    owed: list[int] = []
    store = without_rows(inner, lambda: is_failing, lambda: owed.append(1))  # type: ignore[arg-type]
    assert store.settle_runs([transition]) == [True]
    return inner.asked, len(owed)


def test_an_end_that_can_be_settled_with_its_row_is_settled_so() -> None:
    assert settle(Settling(True), END) == ([[END]], 0)


def test_an_end_that_can_not_is_settled_without_and_owed() -> None:
    without = without_schedule(END, 5_000)
    assert settle(Settling(False, True), END) == ([[END], [without]], 1)
    assert settle(Settling(True), END, is_failing=True) == ([[without]], 1)


def test_a_store_that_is_down_is_reported_by_its_first_error() -> None:
    with pytest.raises(StoreUnavailable, match="call 1"):
        settle(Settling(False, False), END)
    inner = Settling(False)
    with pytest.raises(StoreUnavailable, match="call 1"):
        settle(inner, ALONE)
    assert len(inner.asked) == 1
