"""Loops: threads that step when they are due or woken, and that survive failures.

Threads are the subject here: they run in real time, and the tests wait for what they do, never for a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from evenbeat.errors import StoreUnavailable
from evenbeat.node.loop import Loop
from evenbeat.observe.events import Event, Events


def recorded_events() -> tuple[Events, list[Event]]:
    events, emitted = Events(), list[Event]()
    events.listen(emitted.append)
    return events, emitted


def stopped(loop: Loop) -> None:
    loop.stop()
    assert loop.join(10)


def loop_of(step: Callable[[int], int | None], events: Events | None = None, poll: int = 60_000) -> Loop:
    return Loop("test", step, lambda: 0, poll, events or Events())


def test_a_loop_steps_when_it_is_woken_and_sleeps_otherwise() -> None:
    steps: list[int] = []
    stepped = threading.Semaphore(0)

    def step(now: int) -> None:
        steps.append(now)
        stepped.release()

    loop = loop_of(step)
    loop.start()
    assert stepped.acquire(timeout=10)
    loop.wake()
    assert stepped.acquire(timeout=10)
    stopped(loop)
    assert len(steps) == 2


def test_a_wake_up_during_a_step_leads_to_another_step() -> None:
    stepped = threading.Semaphore(0)
    loop: Loop

    def step(now: int) -> None:
        if not stepped._value:
            loop.wake()
        stepped.release()

    loop = loop_of(step)
    loop.start()
    for _ in range(2):
        assert stepped.acquire(timeout=10)
    stopped(loop)


def test_a_loop_survives_errors_of_its_step_and_emits_when_the_store_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, emitted = recorded_events()
    outcomes: list[Exception | None] = [StoreUnavailable("locked"), ValueError("a bug"), None]
    done = threading.Event()

    def step(now: int) -> None:
        outcome = outcomes.pop(0) if outcomes else None
        if outcome is not None:
            raise outcome
        done.set()

    loop = loop_of(step, events)
    loop.start()
    assert done.wait(10)
    stopped(loop)
    assert [event.kind for event in emitted] == ["store_unavailable", "store_back"]
    assert [record.levelname for record in caplog.records][:2] == ["ERROR", "ERROR"]
    assert "locked" in caplog.records[0].getMessage()


def test_a_loop_backs_off_while_the_store_is_unavailable() -> None:
    loop = loop_of(lambda _: None)
    waits = [loop._fail(StoreUnavailable("away")) for _ in range(12)]
    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1] == 2.0


def test_a_long_outage_is_logged_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    loop = loop_of(lambda _: None)
    for _ in range(100):
        loop._fail(StoreUnavailable("away"))
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 7
