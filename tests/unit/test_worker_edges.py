"""The worker at its limits: how many runs it claims, and how it records, logs and emits each outcome."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

import pytest

from evenbeat.core.records import Execution, LogChunk, RunRecord
from evenbeat.executors.base import Attempt, Outcome
from evenbeat.node.lanes import MOST_AHEAD, Lane
from evenbeat.rules import attempts
from evenbeat.tasks.task import Task
from tests.unit.workbench import HandExecutor, TimedWorkbench, attempt_of, work


@pytest.fixture
def timed() -> TimedWorkbench:
    return TimedWorkbench()


# -- how many to claim ---------------------------------------------------------------------------------------


class FilledLane(Lane):
    """A lane with so many attempts."""

    def __init__(self, slots: int, count: int) -> None:
        super().__init__(HandExecutor(slots), slots)
        runs = [RunRecord(id=str(number), task="work", attempt=1) for number in range(count)]
        task: Task[[], None] = Task(work, "work")
        held = [Attempt(run, task, 0.0, 30.0, lambda _: True) for run in runs]
        self.attempts = {attempt.identity: attempt for attempt in held}


@pytest.mark.parametrize(("count", "room"), [(0, 4), (3, 1), (4, 0), (5, 0)])
def test_a_lane_has_room_for_its_slots_while_no_run_ends(count: int, room: int) -> None:
    assert FilledLane(4, count).room(10.0) == room


@pytest.mark.parametrize(("count", "room"), [(0, 54), (3, 51), (4, 50), (27, 27), (28, 0), (53, 0)])
def test_a_lane_whose_runs_are_short_claims_ahead_and_half_at_a_time(count: int, room: int) -> None:
    lane = FilledLane(4, count)
    lane.room(10.0)
    lane._finished = 1_000
    # A thousand a second: as many as end within 50 ms are claimed ahead.
    assert lane.room(11.0) == room


def test_a_lane_counts_each_attempt_that_is_removed_once() -> None:
    lane = FilledLane(4, 40)
    lane.room(10.0)
    for attempt in tuple(lane.attempts.values()) * 2:
        lane.remove(attempt)
    # 40 in half a second: four end within 50 ms.
    assert lane.room(10.5) == 4 + 4


def test_a_lane_measures_over_some_time_and_forgets_a_burst() -> None:
    lane = FilledLane(4, 0)
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
def test_an_outcome_is_recorded_and_emitted(
    timed: TimedWorkbench, outcome: Outcome, asked: str | None, state: str, kind: str
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
    event = timed.emitted[-1]
    assert (event.kind, event.duration) == (kind, timedelta(seconds=2.5))
    assert event.result == (1 if kind == "succeeded" else None)
    if state == "failed":
        late = outcome.kind == "timeout" or asked == "timeout"
        assert timed.run().error == event.error == ("timed out after 1s500ms" if late else "boom")


def test_a_retry_is_emitted_with_its_delay(timed: TimedWorkbench) -> None:
    timed.add("r", execution=Execution(retries=1, backoff=1_000))
    timed.step()
    timed.executor.end(Outcome("raised", None, "boom\nsecond line"))
    timed.worker.drain()
    timed.step()
    event = timed.emitted[-1]
    assert (event.kind, event.error) == ("retrying", "boom\nsecond line")
    assert event.delay == timedelta(milliseconds=attempts.backoff(timed.run(), 1))


@pytest.mark.parametrize(
    ("outcome", "retries", "level", "message"),
    [
        (Outcome("returned", "1"), 0, logging.INFO, "a run succeeded"),
        (
            Outcome("raised", None, "boom\nsecond line"),
            1,
            logging.WARNING,
            "an attempt failed, the run will be retried",
        ),
        (Outcome("raised", None, "boom\nsecond line"), 0, logging.ERROR, "a run failed"),
        (Outcome("died", None, "killed"), 0, logging.ERROR, "the process of a run died"),
        (Outcome("released"), 0, logging.INFO, "a run was handed back"),
    ],
    ids=str,
)
def test_an_end_is_logged_with_its_level_and_the_first_line_of_its_error(
    timed: TimedWorkbench,
    caplog: pytest.LogCaptureFixture,
    outcome: Outcome,
    retries: int,
    level: int,
    message: str,
) -> None:
    timed.add("r", execution=Execution(retries=retries))
    timed.step()
    timed.worker.drain()
    timed.executor.end(outcome)
    with caplog.at_level(logging.INFO, "evenbeat.node.worker"):
        timed.step()
    (record,) = [record for record in caplog.records if record.name == "evenbeat.node.worker"]
    assert (record.levelno, record.getMessage()) == (level, message)
    assert vars(record).get("error") == (None if outcome.error is None else outcome.error.split("\n")[0])
    assert ("error" in vars(record)) is (outcome.error is not None)


def test_a_cancelled_run_is_logged(timed: TimedWorkbench, caplog: pytest.LogCaptureFixture) -> None:
    timed.add("r")
    timed.step()
    attempt_of(timed).control.request_cancel("cancelled")
    timed.executor.end(Outcome("stopped"))
    with caplog.at_level(logging.INFO, "evenbeat.node.worker"):
        timed.step()
    assert "a run was cancelled" in caplog.messages


def test_a_process_that_died_after_its_timeout_has_crashed_for_its_own_reason(timed: TimedWorkbench) -> None:
    timed.add("r", execution=Execution(timeout=1_500))
    timed.step()
    attempt_of(timed).control.request_cancel("timeout")
    timed.worker.drain()
    timed.executor.end(Outcome("died", None, "killed"))
    timed.step()
    event = timed.emitted[-1]
    assert (event.kind, event.error) == ("crashed", "killed")


def test_a_requeued_run_with_a_cancel_request_is_cancelled_and_no_other(timed: TimedWorkbench) -> None:
    timed.add("r", "s", execution=Execution(retries=1, backoff=60_000))
    timed.step()
    # Cancelled while its attempt ends: this worker does not know yet.
    request = attempts.cancel(timed.run("r"), timed.clock.now, "user")
    assert request is not None
    assert timed.store.settle_runs([request]) == [True]
    timed.worker.drain()
    for _ in range(2):
        timed.executor.end(Outcome("raised", None, "boom"))
    timed.step()
    assert [timed.run(name).state for name in "rs"] == ["cancelled", "queued"]


def test_log_lines_that_the_store_refuses_do_not_cost_the_others(
    timed: TimedWorkbench, monkeypatch: pytest.MonkeyPatch
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


def test_an_attempt_of_a_purged_run_is_not_taken_for_that_of_a_later_run_of_its_id() -> None:
    lane = Lane(HandExecutor(4), 4)
    task: Task[[], None] = Task(work, "work")
    earlier, later = (
        Attempt(RunRecord(id="a", task="work", attempt=1, claim=claim), task, 0.0, 30.0, lambda _: True)
        for claim in ("c1", "c2")
    )
    for attempt in (earlier, later):
        lane.attempts[attempt.identity] = attempt
    lane.remove(earlier)
    assert list(lane.attempts.values()) == [later]
