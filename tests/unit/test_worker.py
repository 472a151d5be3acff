"""The worker: claims runs for its free slots, records each end once, and loses none."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from evenbeat import Scheduler
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Execution, RunRecord, Transition
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Outcome
from evenbeat.executors.inline import InlineExecutor
from evenbeat.node.lanes import MOST_AHEAD, Lane
from evenbeat.node.worker import Worker
from evenbeat.observe.events import Events
from evenbeat.observe.logs import JsonFormatter
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim, Claimed, RunQuery
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import Task, Tasks
from evenbeat.testing import VirtualClock
from tests.unit.workbench import HandExecutor, PickySettle, Workbench, result, work


def test_a_run_is_claimed_executed_and_its_result_recorded() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    assert bench.run("r").state == "running"
    assert bench.worker.held
    bench.executor.end(result({"n": 1}))
    bench.step()
    run = bench.run("r")
    assert (run.state, run.result, run.attempt, run.finished_at) == (
        "succeeded",
        '{"n":1}',
        1,
        bench.clock.now,
    )
    assert not bench.worker.is_processing
    assert bench.kinds() == ["started", "succeeded", "idle"]


def test_a_worker_claims_no_more_than_its_slots_while_runs_take_long() -> None:
    bench = Workbench(slots=2)
    for at in range(5):
        bench.add(f"r{at}")
    bench.step()
    assert len(bench.executor.running) == 2
    assert bench.step() is None  # nothing to do until one of them ends
    assert bench.store.count_runs() == {"queued": 3, "running": 2}


def test_a_worker_claims_ahead_when_runs_are_short() -> None:
    lane = Lane(HandExecutor(10), 10)
    lane._rate = 1_000_000.0
    assert lane.room(0.0) == 10 + MOST_AHEAD
    assert lane.room(1.0) == 10  # a quiet second later


def test_a_worker_sleeps_until_the_next_run_is_due() -> None:
    bench = Workbench()
    bench.add("later", run_at=bench.clock.now + 3)
    assert bench.step() == bench.clock.now + 3


def test_a_worker_pauses_while_due_runs_can_not_be_claimed() -> None:
    bench = Workbench()
    bench.add("newer", format=99)
    bench.add("other", task="of another node")
    due = bench.step()
    assert due is None or due > bench.clock.now
    assert bench.worker.held == {}


def test_a_failed_attempt_is_retried_and_then_the_run_has_failed() -> None:
    bench = Workbench()
    bench.add("r", Execution(retries=1, backoff=1_000))
    bench.step()
    bench.executor.end(Outcome("raised", error="ValueError: no\n\nin detail"))
    bench.step()
    assert bench.run("r").state == "queued"
    bench.clock.advance("1s")
    bench.step()
    bench.executor.end(Outcome("raised", error="ValueError: no"))
    bench.step()
    run = bench.run("r")
    assert (run.state, run.failures, run.attempt, run.error) == ("failed", 2, 2, "ValueError: no")
    assert [kind for kind in bench.kinds() if kind != "idle"] == ["started", "retrying", "started", "failed"]
    assert bench.emitted[1].delay is not None
    assert bench.emitted[1].delay > timedelta(0)


def test_the_log_of_a_success_has_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.executor.end(result(1))
    bench.step()
    (record,) = [record for record in caplog.records if vars(record).get("job_id") == "r"]
    assert "error" not in json.loads(JsonFormatter().format(record))


def test_a_run_whose_payload_does_not_fit_is_handed_back_and_the_log_has_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Workbench()
    bench.add("r", Execution(retries=5))
    bench.step()
    bench.executor.end(Outcome("unfit", error='InvalidValue: payload of task "work" does not fit: b'))
    bench.step()
    run = bench.run("r")
    assert (run.state, run.failures, run.run_at) == ("queued", 0, bench.clock.now + 1_000)
    assert run.error == 'InvalidValue: payload of task "work" does not fit: b'
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "handed back" in record.getMessage()
    assert vars(record)["error"] == run.error
    assert (bench.emitted[-2].kind, bench.emitted[-2].error) == ("released", run.error)


def test_a_node_with_old_code_leaves_a_run_with_a_new_argument_to_a_node_with_new_code() -> None:
    def add(a: int) -> int:
        return a

    def add_both(a: int, b: int) -> int:
        return a + b

    clock = VirtualClock()
    store = MemoryStore(clock)
    workers = []
    for function in (add, add_both):
        tasks = Tasks()
        tasks.add(Task(function, "add"))
        workers.append(
            Worker(store, tasks, Events(), lambda _: Lane(InlineExecutor(), 1), name=function.__name__)
        )
    old, new = workers
    store.add_runs([RunRecord(id="r", task="add", payload='{"a": 1, "b": 2}', run_at=clock.now)])
    for _ in range(3):  # the old one is faster
        old.step(clock.now)
        old.step(clock.now)
        clock.advance("5s")
    new.step(clock.now)
    new.step(clock.now)
    run = store.find_runs(RunQuery(ids=("r",))).items[0]
    assert (run.state, run.result, run.failures, run.attempt) == ("succeeded", "3", 0, 4)


def test_a_claim_whose_reply_was_lost_is_repeated_and_its_runs_are_executed_once() -> None:
    bench = Workbench(slots=2)
    bench.add("a")
    bench.add("b")
    bench.store.lose.add("claim")
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert bench.executor.running == []
    bench.step()
    assert [attempt.run.id for attempt in bench.executor.running] == ["a", "b"]
    assert bench.run("a").attempt == 1


def test_an_end_whose_reply_was_lost_is_recorded_once() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.executor.end(result(1))
    bench.store.lose.add("settle")
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert bench.worker.is_processing  # the end may not be recorded: the lease is renewed
    bench.step()
    assert bench.run("r").state == "succeeded"
    assert bench.kinds().count("succeeded") == 1
    assert "lost" not in bench.kinds()


def test_a_result_that_comes_after_the_lease_was_taken_over_is_refused() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.clock.advance("31s")
    assert bench.store.settle_runs([attempts.crashed(bench.run("r"), bench.clock.now, "reaper")]) == [True]
    bench.executor.end(result("late"))
    bench.worker.drain()  # so that it is not claimed again by the same step
    bench.step()
    assert bench.run("r").state == "queued"
    assert bench.run("r").result is None
    assert bench.kinds() == ["started", "lost"]


def refused(bench: Workbench, run_id: str = "r") -> list[tuple[int, datetime | None]]:
    """Return the attempts of a run, each with the time at which its late result was refused."""
    return [(each.number, each.refused_at) for each in Scheduler(bench.store).runs.get(run_id).attempts]


@pytest.mark.parametrize("outcome", [result("late"), Outcome("raised", error="late")])
def test_a_refused_result_is_noted_beside_the_run_of_the_next_worker(outcome: Outcome) -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.clock.advance("31s")
    bench.store.settle_runs([attempts.crashed(bench.run("r"), bench.clock.now, "reaper")])
    claim = Claim(worker="w2", token="c2", limit=1, now=bench.clock.now, lease=30_000, tasks=None)
    (second,) = bench.store.claim_runs(claim).runs
    bench.clock.advance("1s")
    bench.executor.end(outcome)
    bench.worker.drain()
    assert refused(bench) == [(1, None)]
    bench.step()
    assert bench.run("r") == second, "the row belongs to the second worker"
    at = from_ms(bench.clock.now)
    assert refused(bench) == [(1, at)]
    (line,) = Scheduler(bench.store).runs.logs("r")
    assert (line.attempt, line.at) == (1, at)
    assert line.text == "WARNING evenbeat: this attempt lost its lease, and its late result was refused"
    bench.clock.advance("1s")
    assert bench.store.settle_runs([attempts.succeeded(second, "1", bench.clock.now, "end")]) == [True]
    assert refused(bench) == [(1, at), (2, None)]
    bench.clock.advance("1d")
    assert bench.store.purge(bench.clock.now, 10).deleted == 1
    assert bench.store.read_log("r") == []


def test_a_worker_that_knows_that_its_lease_is_lost_notes_a_late_result() -> None:
    bench = Workbench(lease=30_000)
    for name in ("r", "s"):
        bench.add(name)
    bench.step()
    bench.clock.advance("31s")
    for attempt in bench.executor.running:
        attempt.lease_end -= 31
        bench.store.settle_runs([attempts.crashed(bench.run(attempt.run.id), bench.clock.now, "reaper")])
    bench.renew()
    bench.worker.drain()
    bench.step()
    assert refused(bench) == [(1, None)]
    bench.clock.advance("1m")
    bench.executor.end(result("late"))
    bench.executor.end(Outcome("stopped", error="lost"))
    bench.step()
    assert refused(bench) == [(1, from_ms(bench.clock.now))]
    assert refused(bench, "s") == [(1, None)], "a function that obeyed has no result"


def test_what_is_not_a_late_result_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench(slots=3)
    for name in ("poison", "handed", "fine"):
        bench.add(name)
    bench.step()
    monkeypatch.setattr(bench.store, "settle_runs", PickySettle(bench, poison=("poison",)))
    bench.executor.end(index=0)
    handed = bench.executor.running[0]
    bench.clock.advance("31s")
    bench.store.settle_runs([attempts.crashed(bench.run("handed"), bench.clock.now, "reaper")])
    handed.control.request_cancel("lost")
    bench.executor.end(Outcome("stopped", error="lost"), index=0)
    bench.executor.end(index=0)
    bench.worker.drain()
    bench.step()
    assert bench.run("poison").state == "running", "this worker has it until its lease ends"
    assert [bench.store.read_log(name) for name in ("poison", "handed", "fine")] == [[], [], []]


def test_a_note_is_written_when_the_store_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    bench.clock.advance("31s")
    bench.store.settle_runs([attempts.crashed(bench.run("r"), bench.clock.now, "reaper")])
    bench.executor.end(result("late"))
    bench.worker.drain()
    append = bench.store.append_log

    def fails(chunks: object) -> None:
        raise StoreUnavailable("no")

    monkeypatch.setattr(bench.store, "append_log", fails)
    with pytest.raises(StoreUnavailable):
        bench.step()
    monkeypatch.setattr(bench.store, "append_log", append)
    at = from_ms(bench.clock.now)
    bench.clock.advance("5s")
    bench.step()
    assert refused(bench) == [(1, at)]


def test_a_result_that_can_not_be_written_does_not_block_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench(slots=2)
    bench.add("a")
    bench.add("b")
    bench.step()
    settle = bench.store.settle_runs

    def picky(transitions: list[Transition]) -> list[bool]:
        if any(transition.run == "a" for transition in transitions):
            raise ValueError("can't write that")
        return settle(transitions)

    monkeypatch.setattr(bench.store, "settle_runs", picky)
    bench.executor.end()
    bench.executor.end()
    bench.worker.drain()
    bench.step()
    assert bench.run("b").state == "succeeded"
    assert bench.run("a").state == "running"  # until its lease ends
    assert not bench.worker.is_processing


def end_all(bench: Workbench, count: int, text: str = "") -> None:
    for at in range(count):
        bench.add(f"r{at:02}")
    bench.step()
    for _ in range(count):
        bench.executor.end(result(text))
    bench.worker.drain()


def test_a_batch_that_is_too_large_for_the_database_is_recorded_in_parts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Workbench(slots=16)
    end_all(bench, 16, "x" * 100)
    picky = PickySettle(bench, most=500)
    monkeypatch.setattr(bench.store, "settle_runs", picky)
    bench.step()
    assert bench.store.count_runs() == {"succeeded": 16}
    assert picky.calls == [16, 8, 4, 4, 8, 4, 4]
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is not None
    assert "the transaction is too large" in str(record.exc_info[1])


def test_one_end_that_can_not_be_written_costs_few_calls_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Workbench(slots=16)
    end_all(bench, 16)
    picky = PickySettle(bench, poison=("r05",))
    monkeypatch.setattr(bench.store, "settle_runs", picky)
    bench.step()
    assert bench.store.count_runs() == {"succeeded": 15, "running": 1}
    assert len(picky.calls) == 9
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [getattr(record, "job_id", None) for record in errors] == [None, "r05"]


def test_after_a_failure_between_two_parts_only_the_rest_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench(slots=16)
    end_all(bench, 16)
    picky = PickySettle(bench, poison=("r15",))
    settle = picky._settle

    def once(transitions: Sequence[Transition]) -> list[bool]:
        if len(picky.calls) > 3:
            raise StoreUnavailable("away")
        return settle(transitions)

    picky._settle = once
    monkeypatch.setattr(bench.store, "settle_runs", picky)
    with pytest.raises(StoreUnavailable):
        bench.step()
    assert picky.calls == [16, 8, 8, 4]
    assert bench.store.count_runs() == {"succeeded": 8, "running": 8}
    assert bench.kinds().count("succeeded") == 8
    picky.calls.clear()
    picky._settle = settle
    bench.step()
    assert picky.calls[0] == 8
    assert bench.kinds().count("succeeded") == 15


def test_results_are_recorded_in_batches_of_a_few_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench(slots=16)
    end_all(bench, 16, "x" * 900_000)
    picky = PickySettle(bench)
    monkeypatch.setattr(bench.store, "settle_runs", picky)
    bench.step()
    assert picky.calls == [5, 5, 5, 1]


def test_draining_hands_back_attempts_that_have_not_begun_and_claims_nothing() -> None:
    bench = Workbench(slots=1)
    bench.claim_ahead()
    for at in range(3):
        bench.add(f"r{at}")
    bench.step()
    assert len(bench.worker.held) == 3
    bench.worker.drain()
    bench.step()
    assert bench.store.count_runs() == {"queued": 2, "running": 1}
    assert bench.run("r1").failures == bench.run("r1").crashes == 0
    bench.executor.end()
    bench.step()
    assert not bench.worker.is_processing
    assert bench.executor.running == []  # the runs that were handed back did not begin here


def test_draining_waits_for_a_claim_that_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    bench.add("r")
    claim = bench.store.claim_runs

    def interrupted(wanted: Claim) -> Claimed:
        bench.worker.drain()  # another thread stops the node just now
        return claim(wanted)

    monkeypatch.setattr(bench.store, "claim_runs", interrupted)
    drained = []
    for _ in range(2):
        bench.step()
        drained.append(bench.worker.is_drained)
    # The node must not stop after the first step.
    assert drained == [False, True]
    bench.executor.end(result("done"))
    bench.step()
    assert bench.run("r").state == "succeeded"


def test_leases_of_a_repeated_claim_begin_when_it_was_first_sent() -> None:
    bench = Workbench(lease=30_000)
    seconds = [100.0]
    bench.worker._clock = lambda: seconds[0]
    bench.add("r")
    bench.store.lose.add("claim")
    with pytest.raises(StoreUnavailable):
        bench.step()
    seconds[0] += 10
    bench.step()
    assert bench.executor.running[0].lease_end == 130.0


def test_a_run_that_fails_after_a_cancel_request_is_not_retried() -> None:
    bench = Workbench()
    bench.add("r", Execution(retries=5, backoff=3_600_000))
    bench.step()
    bench.ask_to_cancel("r")
    bench.executor.end(
        Outcome("raised", error="ValueError: no")
    )  # before the lease renewer queries cancel requests
    bench.step()
    assert bench.run("r").state == "cancelled"


def test_a_function_that_stops_because_the_store_does_not_answer_is_handed_back_and_has_not_failed() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    attempt = bench.executor.running[0]
    attempt.control.request_cancel("lost")  # as run.raise_if_cancelled() does where the store does not answer
    bench.executor.end(Outcome("stopped", error="lost"))
    bench.worker.drain()
    bench.step()
    assert (bench.run("r").state, bench.run("r").failures) == ("queued", 0)


def test_log_lines_that_can_not_be_stored_block_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()

    def refuse(chunks: object) -> None:
        raise OverflowError("not a number of this world")

    monkeypatch.setattr(bench.store, "append_log", refuse)
    bench.executor.running[0].context.log("a line")
    bench.executor.end()
    bench.step()
    assert bench.run("r").state == "succeeded"


def test_handing_back_a_run_wakes_other_workers() -> None:
    bench = Workbench()
    bench.add("r")
    bench.step()
    before = bench.store.hints
    bench.worker.give_up(bench.executor.running[0], "released")
    bench.worker.drain()
    bench.step()
    assert bench.store.hints > before


def test_a_process_that_died_counts_as_a_crash_and_not_as_a_failure() -> None:
    bench = Workbench()
    bench.add("r", Execution(retries=0, max_crashes=1))
    bench.step()
    bench.executor.end(Outcome("died", error="the process died with signal 9"))
    bench.step()
    run = bench.run("r")
    assert (run.state, run.failures, run.crashes) == ("running", 0, 1)  # claimed again in the same step
    bench.executor.end(Outcome("died", error="the process died with signal 9"))
    bench.step()
    assert bench.run("r").state == "failed"


def test_idle_is_emitted_once_each_time_work_runs_out() -> None:
    bench = Workbench()
    for turn in range(2):
        bench.add(f"r{turn}")
        bench.step()
        bench.executor.end()
        bench.step()
        bench.step()
        bench.step()
    assert bench.kinds().count("idle") == 2


def test_a_listener_that_raises_does_not_stop_the_worker() -> None:
    bench = Workbench()
    bench.events.listen(lambda _: 1 / 0)
    bench.events.listen(lambda _: sys.exit(1))
    bench.add("r")
    bench.step()
    bench.executor.end()
    bench.step()
    assert bench.run("r").state == "succeeded"


def test_a_task_that_is_added_later_is_executed() -> None:
    from evenbeat.tasks.task import Task

    bench = Workbench()
    bench.add("r", task="later")
    bench.step()
    assert bench.run("r").state == "queued"
    late = Task[[], None](work, "later")
    bench.tasks.add(late)
    bench.worker.add_task(late)
    bench.step()
    assert bench.run("r").state == "running"


def test_an_attempt_is_begun_or_withdrawn_never_both() -> None:
    bench = Workbench(slots=2)
    bench.add("a")
    bench.add("b")
    bench.step()
    begun = bench.executor.running[0]
    assert not begun.withdraw()
    assert not begun.begin()
