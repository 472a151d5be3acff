"""The worker and the keeper of its leases, by a clock of their own: when, how many, and in what words."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenbeat.core.records import Execution, LogChunk, RunRecord
from evenbeat.executors.base import Attempt, Outcome
from evenbeat.node.lanes import LONGEST_WAIT, MOST_AHEAD, Lane
from evenbeat.node.leases import GRACE, LeaseRenewer
from evenbeat.node.worker import Worker
from evenbeat.observe.events import Event, Events
from evenbeat.rules import attempts
from evenbeat.stores.base import RunQuery
from evenbeat.tasks.task import Task, Tasks
from evenbeat.testing import VirtualClock
from tests.unit.workbench import HandExecutor, LossyStore, result, work


class Timed:
    """A worker and a keeper whose seconds a test counts."""

    def __init__(self, slots: int = 2, lease: int = 30_000) -> None:
        self.seconds = 100.0
        self.clock = VirtualClock()
        self.store = LossyStore(self.clock)
        tasks = Tasks()
        tasks.add(Task(work, "work"))
        events = Events()
        self.heard: list[Event] = []
        events.listen(self.heard.append)
        self.executor = HandExecutor(slots)
        self.worker = Worker(
            self.store,
            tasks,
            events,
            lambda _: Lane(self.executor, slots),
            name="w1",
            lease=lease,
            clock=self.now,
        )
        self.renewer = LeaseRenewer(self.store, self.worker, lease, clock=self.now)

    def now(self) -> float:
        return self.seconds

    def add(self, *names: str, **fields: Any) -> None:
        now = self.clock.now
        self.store.add_runs(
            [RunRecord(id=name, task="work", run_at=now, created_at=now, **fields) for name in names]
        )

    def step(self) -> None:
        self.worker.step(self.clock.now)

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.clock.now += round(seconds * 1000)

    def renew(self) -> int | None:
        return self.renewer.step(self.clock.now)

    def run(self, name: str = "r") -> RunRecord:
        return self.store.find_runs(RunQuery(ids=(name,))).items[0]


@pytest.fixture
def timed() -> Timed:
    return Timed()


def attempt_of(timed: Timed, name: str = "r") -> Attempt:
    return next(attempt for attempt in timed.worker.held.values() if attempt.run.id == name)


# -- how many to claim ---------------------------------------------------------------------------------------


class Stock(Lane):
    """A lane with so many runs in hand."""

    def __init__(self, slots: int, in_hand: int) -> None:
        super().__init__(HandExecutor(slots), slots)
        filled: dict[tuple[str, int], Any] = {(str(number), 1): None for number in range(in_hand)}
        self.attempts = filled


@pytest.mark.parametrize(("in_hand", "room"), [(0, 4), (3, 1), (4, 0), (5, 0)])
def test_a_lane_has_room_for_its_slots_while_nothing_ends(in_hand: int, room: int) -> None:
    assert Stock(4, in_hand).room(10.0) == room


@pytest.mark.parametrize(("in_hand", "room"), [(0, 54), (3, 51), (4, 50), (27, 27), (28, 0), (53, 0)])
def test_a_lane_whose_runs_are_short_claims_ahead_and_half_at_a_time(in_hand: int, room: int) -> None:
    lane = Stock(4, in_hand)
    lane.room(10.0)
    lane._finished = 1_000
    # A thousand a second: what ends within 50 ms is claimed ahead.
    assert lane.room(11.0) == room


def test_a_lane_measures_over_some_time_and_forgets_a_burst() -> None:
    lane = Stock(4, 0)
    lane.room(16.0)
    lane._finished = 100_000
    assert lane.room(16.015625) == 4
    assert lane.room(16.03125) == 4 + MOST_AHEAD
    assert lane.room(16.046875) == 4 + MOST_AHEAD
    assert lane.room(16.0625) == 4


# -- what an outcome becomes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "asked", "state", "kind"),
    [
        (Outcome("returned", "1"), None, "succeeded", "succeeded"),
        (Outcome("raised", None, "boom"), None, "failed", "failed"),
        (Outcome("stopped", None, "boom"), None, "failed", "failed"),
        (Outcome("stopped"), "cancelled", "cancelled", "cancelled"),
        (Outcome("stopped"), "stopping", "queued", "released"),
        (Outcome("stopped"), "lost", "queued", "released"),
        (Outcome("stopped"), "timeout", "failed", "failed"),
        (Outcome("released"), None, "queued", "released"),
        (Outcome("timeout"), None, "failed", "failed"),
        (Outcome("died", None, "killed"), None, "queued", "crashed"),
    ],
    ids=str,
)
def test_an_outcome_is_recorded_and_told(
    timed: Timed, outcome: Outcome, asked: str | None, state: str, kind: str
) -> None:
    timed.add("r", execution=Execution(timeout=1_500))
    timed.step()
    attempt = attempt_of(timed)
    timed.wait(2.5)
    if asked is not None:
        attempt.control.request_cancel(asked)
    timed.worker.drain()
    timed.executor.end(outcome)
    timed.step()
    assert timed.run().state == state
    event = timed.heard[-1]
    assert (event.kind, event.duration) == (kind, timedelta(seconds=2.5))
    assert event.result == (1 if kind == "succeeded" else None)
    if state == "failed":
        late = outcome.kind == "timeout" or asked == "timeout"
        assert timed.run().error == event.error == ("timed out after 1s500ms" if late else "boom")


def test_a_retry_is_told_with_its_delay(timed: Timed) -> None:
    timed.add("r", execution=Execution(retries=1, backoff=1_000))
    timed.step()
    timed.executor.end(Outcome("raised", None, "boom\nsecond line"))
    timed.worker.drain()
    timed.step()
    event = timed.heard[-1]
    assert (event.kind, event.error) == ("retrying", "boom\nsecond line")
    assert event.delay == timedelta(milliseconds=attempts.backoff(timed.run(), 1))


@pytest.mark.parametrize(
    ("outcome", "retries", "level"),
    [
        (Outcome("returned", "1"), 0, logging.INFO),
        (Outcome("raised", None, "boom\nsecond line"), 1, logging.WARNING),
        (Outcome("raised", None, "boom\nsecond line"), 0, logging.ERROR),
        (Outcome("died", None, "killed"), 0, logging.ERROR),
        (Outcome("released"), 0, logging.INFO),
    ],
    ids=str,
)
def test_an_end_is_logged_by_its_weight_with_the_first_line_of_its_error(
    timed: Timed, caplog: pytest.LogCaptureFixture, outcome: Outcome, retries: int, level: int
) -> None:
    timed.add("r", execution=Execution(retries=retries))
    timed.step()
    timed.worker.drain()
    timed.executor.end(outcome)
    with caplog.at_level(logging.INFO, "evenbeat.node.worker"):
        timed.step()
    (record,) = [record for record in caplog.records if record.name == "evenbeat.node.worker"]
    assert record.levelno == level
    assert vars(record).get("error") == (None if outcome.error is None else outcome.error.split("\n")[0])
    assert ("error" in vars(record)) is (outcome.error is not None)


def test_who_comes_back_to_the_queue_with_a_wish_to_stop_ends_there_and_nobody_else(timed: Timed) -> None:
    timed.add("r", "s", execution=Execution(retries=1, backoff=60_000))
    timed.step()
    # Asked while its attempt ends: this worker does not know yet.
    wish = attempts.cancel(timed.run("r"), timed.clock.now, "wish")
    assert wish is not None
    assert timed.store.settle_runs([wish]) == [True]
    timed.worker.drain()
    for _ in range(2):
        timed.executor.end(Outcome("raised", None, "boom"))
    timed.step()
    assert [timed.run(name).state for name in "rs"] == ["cancelled", "queued"]


# -- leases --------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_at_a_third_and_those_near_it_go_along() -> None:
    timed = Timed(slots=3)
    for name, wait in (("a", 4.0), ("b", 5.0), ("c", 0.0)):
        timed.add(name)
        timed.step()
        timed.wait(wait)
    start = timed.clock.now
    timed.renew()
    assert timed.run("a").lease_until == start - 9_000 + 30_000
    timed.wait(1.0)
    timed.renew()
    # 10 s old, 6 s and 1 s: the youngest has more than five sixths left.
    assert [timed.run(name).lease_until for name in "ab"] == [timed.clock.now + 30_000] * 2
    assert timed.run("c").lease_until == start + 30_000
    assert attempt_of(timed, "a").lease_end == timed.seconds + 30
    before = timed.run("a").lease_until
    timed.wait(8.0)
    timed.renew()
    assert timed.run("a").lease_until == before


def test_what_waits_for_a_slot_is_handed_back_after_some_time_and_not_before() -> None:
    timed = Timed(slots=1)
    lane = timed.worker._lanes["thread"]
    lane._rate, lane._since = 1_000.0, timed.seconds
    timed.add("long", "short")
    timed.step()
    timed.wait(LONGEST_WAIT)
    timed.renew()
    assert not timed.worker._outcomes
    timed.wait(0.01)
    timed.renew()
    assert [(attempt.run.id, outcome.kind) for attempt, outcome in timed.worker._outcomes] == [
        ("short", "released")
    ]


def test_the_keeper_looks_every_quarter_of_a_second_and_more_often_for_short_leases() -> None:
    for lease, look in ((30_000, 250), (3_000, 250), (1_200, 100)):
        timed = Timed(lease=lease)
        assert timed.renew() is None
        timed.add("r")
        timed.step()
        assert timed.renew() == timed.clock.now + look


def test_a_timeout_ends_an_attempt_at_its_time_and_once(timed: Timed) -> None:
    timed.add("r", execution=Execution(timeout=1_500))
    timed.step()
    timed.wait(1.499)
    timed.renew()
    assert timed.executor.interrupted == []
    timed.wait(0.001)
    timed.renew()
    timed.renew()
    assert timed.executor.interrupted == [("r", "timeout")]
    timed.wait(GRACE - 0.25)
    timed.renew()
    timed.step()
    assert timed.run().state == "running"
    timed.wait(0.25)
    timed.renew()
    timed.step()
    assert (timed.run().state, timed.run().error) == ("failed", "timed out after 1s500ms")
    assert timed.executor.interrupted == [("r", "timeout")]


def test_a_function_that_returns_after_its_timeout_has_succeeded_and_is_not_repeated(timed: Timed) -> None:
    timed.add("r", execution=Execution(timeout=1_500, retries=3))
    timed.step()
    timed.wait(1.5)
    timed.renew()
    timed.step()
    timed.wait(2.5)
    timed.executor.end(Outcome("returned", '"paid"'))
    timed.step()
    run = timed.run()
    assert (run.state, run.result, run.attempt, run.failures) == ("succeeded", '"paid"', 1, 0)
    assert timed.heard[-2 if timed.heard[-1].kind == "idle" else -1].kind == "succeeded"


def test_what_a_function_raises_after_its_timeout_comes_second(timed: Timed) -> None:
    timed.add("r", execution=Execution(timeout=1_500))
    timed.step()
    timed.wait(1.5)
    timed.renew()
    timed.executor.end(Outcome("raised", error="ConnectionError: closed\n\nin client.py"))
    timed.step()
    error = "timed out after 1s500ms\n\nConnectionError: closed\n\nin client.py"
    assert (timed.run().state, timed.run().error) == ("failed", error)


def test_a_wish_to_cancel_is_looked_for_once_a_second_and_told_once(timed: Timed) -> None:
    timed.add("r", "s")
    timed.step()
    wish = attempts.cancel(timed.run(), timed.clock.now, "wish")
    assert wish is not None
    timed.store.settle_runs([wish])
    timed.wait(0.875)
    timed.renew()
    assert timed.executor.interrupted == []
    timed.wait(0.125)
    timed.renew()
    assert timed.executor.interrupted == [("r", "cancelled")]
    wish = attempts.cancel(timed.run("s"), timed.clock.now, "another")
    assert wish is not None
    timed.store.settle_runs([wish])
    timed.wait(0.875)
    timed.renew()
    assert timed.executor.interrupted == [("r", "cancelled")]
    timed.wait(0.125)
    timed.renew()
    assert timed.executor.interrupted == [("r", "cancelled"), ("s", "cancelled")]
    timed.worker.drain()
    timed.executor.end(result("all the same"))
    timed.step()
    assert timed.run().state == "succeeded"


def test_lines_that_a_store_takes_are_kept_beside_those_that_it_does_not(
    timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []

    def append(chunks: Sequence[LogChunk]) -> None:
        if any(chunk.text == "bad" for chunk in chunks):
            raise ValueError("not this one")
        kept.extend(chunk.text for chunk in chunks)

    monkeypatch.setattr(timed.store, "append_log", append)
    lines = ["a", "b", "bad", "c", "d", "bad", "e"]
    timed.worker._append(
        [LogChunk(run="r", attempt=1, seq=seq, at=0, text=text) for seq, text in enumerate(lines)]
    )
    assert kept == ["a", "b", "c", "d", "e"]
