"""``app.runs``, call by call: cancelling, trying again, waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from evenbeat import RunNotFound, RunRefused, Scheduler
from evenbeat.model import Run, Transition
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing import VirtualClock


class Watched(MemoryStore):
    """Notes hints and waits; a wait takes its time on a clock of its own, and settling may come too late."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.hints = 0
        self.waits: list[float] = []
        self.seconds = 100.0
        self.refuses = 0
        self.overtaken: Callable[[], object] | None = None

    def hint(self) -> None:
        self.hints += 1

    def wait(self, timeout: float) -> bool:
        self.waits.append(round(timeout, 6))
        self.seconds += timeout
        return False

    def settle_runs(self, transitions: Sequence[Transition]) -> list[bool]:
        if self.overtaken is not None:
            overtaken, self.overtaken = self.overtaken, None
            overtaken()
        if self.refuses:
            self.refuses -= 1
            return [False] * len(transitions)
        return super().settle_runs(transitions)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> Watched:
    return Watched(clock)


@pytest.fixture
def app(store: Watched) -> Scheduler:
    app = Scheduler(store)
    app.task(name="work", retries=3)(lambda: None)
    app.enqueue("work", id="r")
    store.hints = 0
    return app


def claimed(app: Scheduler, clock: VirtualClock) -> Run:
    claim = Claim(worker="w", token=f"t{clock.now}", limit=1, now=clock.now, lease=30_000)
    (run,) = app.store.claim_runs(claim).runs
    return run


def test_a_queued_run_that_is_cancelled_is_over(app: Scheduler, store: Watched) -> None:
    assert app.runs.cancel("r").state == "cancelled"
    assert store.hints == 1
    assert app.runs.cancel("r").state == "cancelled"
    assert store.hints == 1


def test_a_running_one_is_told_once(app: Scheduler, store: Watched, clock: VirtualClock) -> None:
    claimed(app, clock)
    asked = app.runs.cancel("r")
    assert (asked.state, asked.cancel_requested, store.hints) == ("running", True, 1)
    asked = app.runs.cancel("r")
    assert (asked.state, asked.cancel_requested, store.hints) == ("running", True, 1)


def test_one_that_waits_for_a_retry_is_over_though_it_was_told_before(
    app: Scheduler, store: Watched, clock: VirtualClock
) -> None:
    run = claimed(app, clock)
    # As a schedule asks it (overlap="cancel_running"): the wish stays with a run that goes back to the queue.
    wish = attempts.cancel(run, clock.now, "wish")
    assert wish is not None
    assert store.settle_runs([wish, attempts.released(run, store.now(), "back")]) == [True, True]
    (row,) = store.find_runs(RunQuery(ids=("r",))).items
    assert (row.state, row.cancel_requested) == ("queued", True)
    assert app.runs.cancel("r").state == "cancelled"


def test_a_cancel_that_comes_too_late_is_made_again(app: Scheduler, store: Watched) -> None:
    store.refuses = 2
    assert app.runs.cancel("r").state == "cancelled"
    assert store.hints == 1


def test_what_was_cancelled_can_be_tried_again_with_all_its_retries(
    app: Scheduler, store: Watched, clock: VirtualClock
) -> None:
    claimed(app, clock)
    with pytest.raises(RunRefused, match="is running; only failed and cancelled"):
        app.runs.retry("r")
    (row,) = store.find_runs(RunQuery(ids=("r",))).items
    assert store.settle_runs([attempts.cancelled(row, clock.now, "done")]) == [True]
    store.hints = 0
    again = app.runs.retry("r")
    assert (again.id, again.state, again.failures, store.hints) == ("r", "queued", 0, 1)
    with pytest.raises(RunRefused, match="is queued"):
        app.runs.retry("r")


def test_a_retry_that_is_refused_while_the_run_is_as_it_was_is_made_again(
    app: Scheduler, store: Watched
) -> None:
    app.runs.cancel("r")
    store.refuses, store.hints = 2, 0
    assert app.runs.retry("r").state == "queued"
    assert store.hints == 1
    app.runs.cancel("r")
    store.refuses, store.hints = 10_000, 0
    with pytest.raises(RunRefused, match="changed while"):
        app.runs.retry("r")
    assert (app.runs.get("r").state, store.hints) == ("cancelled", 0)


def test_a_retry_that_comes_too_late_says_so(app: Scheduler, store: Watched) -> None:
    app.runs.cancel("r")
    store.overtaken = lambda: app.runs.retry("r")
    with pytest.raises(RunRefused, match="changed while"):
        app.runs.retry("r")
    assert app.runs.get("r").state == "queued"


def test_a_run_that_there_is_not_is_an_error_of_every_call(app: Scheduler) -> None:
    for call in (app.runs.get, app.runs.cancel, app.runs.retry, app.runs.logs, app.runs.wait_for):
        with pytest.raises(RunNotFound, match="nobody"):
            call("nobody")


# -- waiting -------------------------------------------------------------------------------------------------


def test_a_wait_looks_often_at_first_and_then_once_a_second_until_its_time_is_over(
    app: Scheduler, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.runs.time.monotonic", lambda: store.seconds)
    assert app.runs.wait_for("r", "4s").state == "queued"
    assert store.waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 0.74]


def test_a_wait_of_no_time_looks_once(app: Scheduler, store: Watched) -> None:
    assert app.runs.wait_for("r", 0).state == "queued"
    assert store.waits == []


def test_a_wait_without_a_limit_ends_with_the_run(
    app: Scheduler, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.wait

    def wait(timeout: float) -> bool:
        if len(store.waits) == 9:
            app.runs.cancel("r")
        return real(timeout)

    monkeypatch.setattr(store, "wait", wait)
    assert app.runs.wait_for("r").state == "cancelled"
    assert store.waits[-4:] == [1.0, 1.0, 1.0, 1.0]
