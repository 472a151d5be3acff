"""How long a loop waits: until its step is due, it is woken, or the backoff is over. No test really waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from evenbeat.core.instants import Instant
from evenbeat.errors import StoreUnavailable
from evenbeat.node.loop import Loop
from evenbeat.observe.events import Event, Events

NOW = 1_772_366_400_000


class Noted(threading.Event):
    """Does not wait, and records the timeouts."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return self.is_set()


class Worked:
    """A loop that takes its steps from a list, in this thread; the last one stops it."""

    def __init__(self, *steps: Callable[[], Instant | None], poll: int = 30_000) -> None:
        self._steps = list(steps)
        self.emitted: list[Event] = []
        events = Events()
        events.listen(self.emitted.append)
        self.now = NOW
        self.loop = Loop("duty", self._step, lambda: self.now, poll, events)
        self.loop._awake = self.awake = Noted()
        self.loop._stopping = self.stopping = Noted()
        self.seen: list[Instant] = []

    def work(self) -> Worked:
        self.loop._work()
        return self

    def _step(self, now: Instant) -> Instant | None:
        self.seen.append(now)
        step = self._steps.pop(0)
        if not self._steps:
            self.loop.stop()
        return step()


def away() -> Instant | None:
    raise StoreUnavailable("nobody answers")


def broken() -> Instant | None:
    raise ValueError("a defect")


@pytest.mark.parametrize(
    ("due", "waits"),
    [
        (None, [30.0]),
        (NOW + 1, [0.001]),
        (NOW + 29_999, [29.999]),
        (NOW + 30_001, [30.0]),
        (NOW, []),
        (NOW - 1, []),
        (NOW - 60_000, []),
    ],
)
def test_a_loop_waits_until_its_step_is_due_and_no_longer_than_its_poll(
    due: Instant | None, waits: list[float]
) -> None:
    worked = Worked(lambda: due).work()
    assert worked.awake.waits == waits
    assert worked.seen == [NOW]


def test_the_duration_of_a_step_is_part_of_the_wait() -> None:
    def slow() -> Instant:
        worked.now += 400
        return NOW + 1_000

    worked = Worked(slow)
    worked.work()
    assert worked.awake.waits == [0.6]


def test_a_loop_that_is_woken_during_a_step_steps_again() -> None:
    loops: list[Loop] = []

    def step(now: Instant) -> Instant | None:
        if len(steps) == 0:
            loops[0].wake()
            loops[0].wake()
        else:
            loops[0].stop()
        steps.append(now)
        return None

    steps: list[Instant] = []
    loops.append(Loop("duty", step, lambda: NOW, 3_600_000, Events()))
    loops[0].start()
    assert loops[0].join(60)
    assert len(steps) == 2


def test_an_unavailable_store_is_retried_less_and_less_often_and_then_every_two_seconds() -> None:
    worked = Worked(*[away] * 40).work()
    assert worked.stopping.waits[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert set(worked.stopping.waits[5:]) == {2.0}
    assert worked.awake.waits == []


def test_a_recovery_is_emitted_once_and_resets_the_backoff() -> None:
    worked = Worked(away, away, lambda: NOW, lambda: NOW, away, lambda: NOW).work()
    assert worked.stopping.waits == [0.1, 0.2, 0.1]
    assert [(event.kind, event.error) for event in worked.emitted] == [
        ("store_unavailable", "nobody answers"),
        ("store_unavailable", "nobody answers"),
        ("store_back", None),
        ("store_unavailable", "nobody answers"),
        ("store_back", None),
    ]


def test_failures_are_logged_less_and_less_often_and_a_bug_is_not_emitted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "evenbeat.node.loop"):
        worked = Worked(broken, away, *[broken] * 8).work()
    assert [event.kind for event in worked.emitted] == ["store_unavailable"]
    fields = [vars(record) for record in caplog.records]
    assert [(line["component"], line["failures"], line["retry_in"]) for line in fields] == [
        ("duty", 1, 0.1),
        ("duty", 2, 0.2),
        ("duty", 4, 0.8),
        ("duty", 8, 2.0),
    ]
    assert [record.exc_info is not None for record in caplog.records] == [True, False, True, True]


def test_the_thread_of_a_loop_has_its_name_and_keeps_no_process_alive() -> None:
    loop = Loop("duty", lambda _: None, lambda: NOW, 1_000, Events())
    assert (loop._thread.name, loop._thread.daemon) == ("evenbeat-duty", True)
    assert loop.join(0)
    loop.start()
    assert not loop.join(0)
    loop.stop()
    assert loop.join(60)
