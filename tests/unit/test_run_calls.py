"""``app.runs``, call by call: cancelling, trying again, waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, RunNotFound, RunRefused, Scheduler
from evenbeat.app import runs
from evenbeat.core.records import LogChunk, RunRecord, Transition
from evenbeat.node.presence import NodeInfo, Presence
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import ExecutorKind
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


def claimed(app: Scheduler, clock: VirtualClock) -> RunRecord:
    claim = Claim(worker="w", token=f"t{clock.now}", limit=1, now=clock.now, lease=30_000)
    (run,) = app.store.claim_runs(claim).runs
    return run


def test_a_queued_run_that_is_cancelled_is_over(app: Scheduler, store: Watched) -> None:
    assert app.runs.cancel("r").state == "cancelled"
    assert store.hints == 1
    assert app.runs.cancel("r").state == "cancelled"
    assert store.hints == 1


def test_a_running_one_is_notified_once(app: Scheduler, store: Watched, clock: VirtualClock) -> None:
    claimed(app, clock)
    asked = app.runs.cancel("r")
    assert (asked.state, asked.cancel_requested, store.hints) == ("running", True, 1)
    asked = app.runs.cancel("r")
    assert (asked.state, asked.cancel_requested, store.hints) == ("running", True, 1)


def test_one_that_waits_for_a_retry_is_over_though_it_was_notified_before(
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
    # The retry has a number of its own: a late repetition of what came before it is refused.
    assert (row.attempt, again.attempt) == (1, 2)
    repeated = attempts.retried(replace(row, state="cancelled"), "late")
    assert repeated is not None
    assert app.runs.cancel("r").state == "cancelled"
    assert store.settle_runs([repeated]) == [False]
    assert app.runs.get("r").state == "cancelled"


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
    for call in (app.runs.get, app.runs.cancel, app.runs.retry, app.runs.logs, app.runs.join):
        with pytest.raises(RunNotFound, match="nobody"):
            call("nobody")


# -- waiting -------------------------------------------------------------------------------------------------


def test_a_wait_polls_often_at_first_and_then_once_a_second_until_its_timeout(
    app: Scheduler, store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenbeat.app.runs.time.monotonic", lambda: store.seconds)
    assert app.runs.join("r", "4s").state == "queued"
    assert store.waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 0.74]


def test_a_wait_of_no_time_polls_once(app: Scheduler, store: Watched) -> None:
    assert app.runs.join("r", 0).state == "queued"
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
    assert app.runs.join("r").state == "cancelled"
    assert store.waits[-4:] == [1.0, 1.0, 1.0, 1.0]


# -- many at once --------------------------------------------------------------------------------------------


@pytest.fixture
def failed(app: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """Seven runs that failed, looked at two at a time; r was the first."""
    monkeypatch.setattr(runs, "_PAGE", 2)
    for number in range(1, 7):
        clock.advance("1s")
        app.enqueue("work", id=f"r{number}", retries=0)
    claim = Claim(worker="w", token="all", limit=100, now=clock.now, lease=30_000)
    for held in app.store.claim_runs(claim).runs:
        end = attempts.failed(replace(held, failures=3), "boom", clock.now, held.id)
        assert app.store.settle_runs([end]) == [True]
    return app


def states(app: Scheduler) -> dict[str, str]:
    return {run.id: run.state for run in app.runs.list()}


def test_all_failed_runs_are_tried_again(failed: Scheduler, store: Watched) -> None:
    store.hints = 0
    done = failed.runs.retry_all()
    assert (done.matched, done.done, done.refused, done.more) == (7, 7, (), False)
    assert [run.id for run in done.sample] == ["r6", "r5", "r4", "r3", "r2"]
    assert set(states(failed).values()) == {"queued"}
    assert store.hints == 4
    assert failed.runs.retry_all().matched == 0


def test_a_dry_run_only_counts(failed: Scheduler, store: Watched) -> None:
    store.hints = 0
    found = failed.runs.retry_all(dry_run=True, limit=3)
    assert (found.matched, found.done, found.more, len(found.sample)) == (3, 0, True, 3)
    assert set(states(failed).values()) == {"failed"}
    assert store.hints == 0


def test_no_more_runs_are_changed_than_the_limit_allows(failed: Scheduler) -> None:
    done = failed.runs.retry_all(limit=3)
    assert (done.matched, done.done, done.more) == (3, 3, True)
    assert [run_id for run_id, state in states(failed).items() if state == "queued"] == ["r6", "r5", "r4"]


def test_a_run_that_fails_again_at_once_is_not_met_again(
    failed: Scheduler, store: Watched, clock: VirtualClock
) -> None:
    seen: list[str] = []

    def fails_again() -> None:
        claim = Claim(worker="w", token=f"again-{len(seen)}", limit=100, now=clock.now, lease=30_000)
        for held in MemoryStore.claim_runs(store, claim).runs:
            seen.append(held.id)
            end = attempts.failed(replace(held, failures=3), "boom", clock.now, f"again-{held.id}")
            assert MemoryStore.settle_runs(store, [end]) == [True]
        store.overtaken = fails_again

    store.overtaken = fails_again
    done = failed.runs.retry_all()
    assert (done.matched, done.done) == (7, 7)
    assert len(seen) == len(set(seen))


def test_what_changes_meanwhile_is_left_as_it_is_and_named(failed: Scheduler, store: Watched) -> None:
    store.overtaken = lambda: failed.runs.retry("r5")
    done = failed.runs.retry_all(task="work")
    assert (done.matched, done.done) == (7, 6)
    (refused,) = done.refused
    assert (refused.id, "r5 is queued" in refused.why) == ("r5", True)


def test_runs_of_a_schedule_with_bounds_are_asked_of_the_schedule(
    app: Scheduler, clock: VirtualClock
) -> None:
    app.runs.cancel("r")
    app.schedules.add("beat", "@daily", "work", overlap="skip", retries=0)
    for name in ("b1", "b2"):
        app.schedules.run_now("beat", id=name)
        held = claimed(app, clock)
        assert app.store.settle_runs([attempts.failed(held, "boom", clock.now, name)]) == [True]
        clock.advance("1s")
    done = app.runs.retry_all(schedule="beat")
    assert (done.matched, done.done) == (2, 1)
    assert done.refused[0].id == "b1"
    assert len(app.runs.list(schedule="beat", state="queued")) == 1


def test_what_is_active_is_cancelled_all_at_once(
    app: Scheduler, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_PAGE", 2)
    claimed(app, clock)
    app.enqueue_many(["work"] * 3, ids=["a", "b", "c"])
    app.enqueue("work", id="other", tenant="acme")
    assert app.runs.cancel_all(dry_run=True).matched == 4
    assert app.runs.cancel_all(state="running").done == 1
    assert app.runs.get("r").cancel_requested
    done = app.runs.cancel_all()
    assert (done.matched, done.done) == (4, 4)
    assert states(app) == {"r": "running", "a": "cancelled", "b": "cancelled", "c": "cancelled"}
    assert app.runs.get("other", tenant="acme").state == "queued"
    assert app.runs.cancel_all(all_tenants=True, queue="default").done == 2


def test_a_run_that_ends_before_it_can_be_cancelled_is_named(
    app: Scheduler, store: Watched, clock: VirtualClock
) -> None:
    held = claimed(app, clock)
    end = attempts.succeeded(held, None, clock.now, "t")
    store.overtaken = lambda: MemoryStore.settle_runs(store, [end])
    done = app.runs.cancel_all()
    assert (done.done, done.refused[0].why) == (0, "run r is over already: succeeded")


def test_a_choice_that_makes_no_sense_is_refused(app: Scheduler) -> None:
    unknown: Any = "asleep"
    for call in (app.runs.retry_all, app.runs.cancel_all):
        with pytest.raises(InvalidValue, match="asleep"):
            call(state=unknown)
        with pytest.raises(InvalidValue, match="has no option tasks; did you mean task"):
            call(tasks="work")  # type: ignore[call-arg]
        with pytest.raises(InvalidValue, match='until "2h" is not after the start "1h"'):
            call(since="1h", until="2h")
        with pytest.raises(
            InvalidValue, match=r'since "\+2h" is in the future.*write "2h", which counts back'
        ):
            call(since="+2h")


# -- why a run waits -----------------------------------------------------------------------------------------


def test_a_run_waits_for_a_node_and_then_for_a_slot(app: Scheduler, clock: VirtualClock) -> None:
    def why(run_id: str) -> tuple[str, tuple[str, ...]]:
        wait = app.runs.why_waiting(run_id)
        assert wait is not None
        return wait.reason, wait.nodes

    assert why("r") == ("no_worker", ())
    tasks: dict[str, ExecutorKind] = {"work": "thread", "other": "thread", "fetch": "async"}
    for name in ("n1", "n2"):
        info = NodeInfo(
            name=name,
            host="h",
            pid=1,
            version="",
            started_at=0,
            seen_at=0,
            ticker=True,
            worker=True,
            tasks=tasks,
            queues=["default"],
            slots={"thread": 2, "async": 100, "process": 1},
        )
        Presence(app.store, info).step(clock.now)
    assert why("r") == ("next", ("n1", "n2"))
    for number in range(5):
        app.enqueue("other" if number % 2 else "work", id=f"busy-{number}", priority=9)
    app.enqueue("fetch", id="fetch", priority=9)

    def claim(worker: str, limit: int) -> None:
        wanted = Claim(worker=worker, token=worker, limit=limit, now=clock.now, lease=30_000)
        assert len(app.store.claim_runs(wanted).runs) == limit

    claim("n1", 3)
    assert why("r") == ("next", ("n1", "n2"))
    claim("n2", 2)
    assert why("r") == ("busy", ("n1", "n2"))
    # Its slots are others.
    app.runs.cancel_all(task="fetch")
    app.enqueue("fetch", id="another")
    assert why("another") == ("next", ("n1", "n2"))
    with pytest.raises(RunNotFound):
        app.runs.why_waiting("nobody")


# -- tenants -------------------------------------------------------------------------------------------------


def test_a_run_of_another_tenant_is_not_found_by_its_id(app: Scheduler) -> None:
    made = app.enqueue("work", id="theirs", tenant="acme")
    calls = (
        app.runs.get,
        app.runs.cancel,
        app.runs.retry,
        app.runs.logs,
        app.runs.join,
        app.runs.why_waiting,
    )
    for call in calls:
        with pytest.raises(RunNotFound, match="theirs"):
            call("theirs")
    assert app.runs.get("theirs", tenant="acme") == made
    assert app.runs.join("theirs", "0s", tenant="acme") == made
    assert app.runs.logs("theirs", tenant="acme") == []
    assert app.runs.why_waiting("theirs", tenant="acme") is not None
    assert app.runs.cancel("theirs", tenant="acme").state == "cancelled"
    assert app.runs.retry("theirs", tenant="acme").state == "queued"


def test_the_log_of_another_tenants_run_is_not_shown(app: Scheduler, store: Watched) -> None:
    app.enqueue("work", id="theirs", tenant="acme")
    store.append_log([LogChunk(run="theirs", attempt=1, seq=1, text="their secret", at=store.now())])
    with pytest.raises(RunNotFound):
        app.runs.logs("theirs")
    assert [line.text for line in app.runs.logs("theirs", tenant="acme")] == ["their secret"]


def test_runs_of_all_tenants_are_retried_and_cancelled_together(app: Scheduler, store: Watched) -> None:
    for tenant in ("acme", "umbrella"):
        app.enqueue("work", id=tenant, tenant=tenant)
    store.refuses = 1  # each alone, then
    assert app.runs.cancel_all(all_tenants=True).done == 3
    store.refuses = 1
    assert app.runs.retry_all(state="cancelled", all_tenants=True).done == 3
