"""Hints: with a poll of 30 s, a run whose hint is not sent starts late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evenbeat import Scheduler, every
from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.node.ticker import Ticker
from evenbeat.observe.events import Events
from evenbeat.rules import changes
from evenbeat.stores.base import Fired, PlanFunction, Write
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock
from evenbeat.testing.contract.base import schedule


class Counting(MemoryStore):
    """Counts hints, and may lose the reply to a fire."""

    hints = 0
    loses_reply = False

    def hint(self) -> None:
        self.hints += 1
        super().hint()

    def fire_due(self, now: Instant, limit: int, plan: PlanFunction) -> Fired:
        done = super().fire_due(now, limit, plan)
        if self.loses_reply:
            self.loses_reply = False
            raise StoreUnavailable("the reply was lost")
        return done


def test_a_fire_whose_reply_was_lost_is_hinted_at_with_the_next_one() -> None:
    clock = VirtualClock()
    store = Counting(clock)
    store.put_schedules([Write(changes.create(schedule(), clock.now), None)])
    woken: list[bool] = []
    ticker = Ticker(store, Events(), lambda: woken.append(True))
    clock.advance("1m")
    store.loses_reply = True
    with pytest.raises(StoreUnavailable):
        ticker.step(clock.now)
    assert (store.hints, woken) == (0, [])
    ticker.step(clock.now)
    assert (store.hints, woken) == (1, [True])
    ticker.step(clock.now)
    assert store.hints == 1


def test_a_run_that_is_enqueued_again_is_hinted_at_again() -> None:
    store = Counting()
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    for expected in (1, 2):
        app.enqueue("work", id="mine")
        assert store.hints == expected


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("", "schedules.add('beat', '* * * * *', 'work')"),
        ("", "schedules.declare('beat', '* * * * *', 'work')"),
        ("add", "schedules.declare('beat', '0 * * * *', 'work')"),
        ("add", "schedules.update('beat', priority=9)"),
        ("add", "schedules.pause('beat')"),
        ("add pause", "schedules.resume('beat')"),
        ("add", "schedules.reschedule('beat', '1h')"),
        ("add", "schedules.run_now('beat')"),
        ("add", "schedules.delete('beat')"),
        ("", "enqueue('work')"),
        ("", "enqueue_many(['work', 'work'])"),
        ("enqueue", "runs.cancel('mine')"),
        ("enqueue cancel", "runs.retry('mine')"),
    ],
)
def test_every_change_by_a_user_is_hinted_at_once(before: str, call: str) -> None:
    store = Counting()
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    steps: dict[str, Callable[[], object]] = {
        "add": lambda: app.schedules.add("beat", "* * * * *", "work"),
        "pause": lambda: app.schedules.pause("beat"),
        "enqueue": lambda: app.enqueue("work", id="mine"),
        "cancel": lambda: app.runs.cancel("mine"),
    }
    for step in before.split():
        steps[step]()
    hints = store.hints
    eval(f"app.{call}", {"app": app})  # noqa: S307  # its own text is the name of the case
    assert store.hints == hints + 1


def test_a_call_that_changes_nothing_is_not_hinted_at() -> None:
    store = Counting()
    app = Scheduler(store)
    app.task(name="work")(lambda: None)
    app.schedules.declare("beat", "* * * * *", "work")
    app.enqueue("work", id="mine")
    app.runs.cancel("mine")
    hints = store.hints
    app.schedules.declare("beat", "* * * * *", "work")
    app.schedules.resume("beat")
    app.runs.cancel("mine")
    assert store.hints == hints


def test_a_schedule_that_is_added_while_a_node_sleeps_runs_when_it_is_due() -> None:
    # Real time: a node in threads, which would poll by itself after an hour.
    app = Scheduler(MemoryStore())
    came = threading.Event()
    app.task(name="first")(lambda: None)
    app.task(name="work")(came.set)
    asleep = threading.Event()
    app.on_idle(asleep.set)
    app.start(poll_interval="1h")
    try:
        app.enqueue("first")
        assert asleep.wait(60)
        app.schedules.add("beat", every("1s"), "work")
        assert came.wait(60)
    finally:
        app.stop()


def test_a_run_that_goes_back_to_the_queue_is_hinted_at() -> None:
    # Real time: a node in threads. The timeout is only reached when the test fails.
    store = Counting()
    app = Scheduler(store)
    tried = threading.Event()

    @app.task(retries=1, backoff="1h")
    def fail() -> None:
        tried.set()
        raise ValueError("not now")

    app.start()
    try:
        info = app.enqueue(fail)
        before = store.hints
        assert tried.wait(20)
        while app.runs.get(info.id).failures == 0:
            store.wait(0.01)
        while store.hints == before:
            store.wait(0.01)
    finally:
        app.stop()


class Deaf(MemoryStore):
    """Gives no hints, and records each wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []
        self.first = threading.Event()

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        if len(self.waits) > 1:
            self.first.set()
        return super().wait(min(timeout, 0.05))

    def hint(self) -> None:
        pass


def test_changes_before_the_first_wait_are_found_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []
    from evenbeat.node import loop

    real = loop.Loop.wake

    def wake(self: Any) -> None:
        woken.append(self.name)
        real(self)

    monkeypatch.setattr(loop.Loop, "wake", wake)
    store = Deaf()
    app = Scheduler(store)
    app.start()
    try:
        assert store.first.wait(20)
        assert {"ticker", "worker"} <= set(woken)
        assert store.waits[0] < 1
        assert store.waits[1] == 30
    finally:
        app.stop()
