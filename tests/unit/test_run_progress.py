"""What a job reports about its progress: stored while it runs, and kept when it has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

from evenbeat import InvalidValue, RunContext, RunProgress, Scheduler
from evenbeat.core.ids import id_of_key
from evenbeat.core.instants import from_ms
from evenbeat.core.records import Execution, Record, RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.executors.base import Attempt, Outcome
from evenbeat.node import leases
from evenbeat.node.progress import store_progress
from evenbeat.observe.run_progress import Reported, ReportedProgress, key_of
from evenbeat.rules import attempts
from evenbeat.stores.base import Claim
from evenbeat.testing import virtual
from tests.unit.workbench import TimedWorkbench, Workbench


@pytest.fixture
def bench() -> TimedWorkbench:
    return TimedWorkbench(slots=3)


def started(bench: TimedWorkbench, *ids: str) -> Sequence[Attempt]:
    """Let attempts of runs begin, two seconds ago."""
    now = bench.clock.now
    bench.store.add_runs([RunRecord(id=id_, task="work", run_at=now, created_at=now) for id_ in ids])
    bench.worker.step(now)
    pass_seconds(bench, 2)
    return bench.executor.running


def pass_seconds(bench: TimedWorkbench, seconds: float) -> None:
    bench.seconds += seconds
    bench.clock.advance(seconds)


def progress(bench: TimedWorkbench | Workbench, run_id: str = "r") -> RunProgress | None:
    return Scheduler(bench.store).runs.get(run_id).progress


def test_the_last_value_is_stored_once_a_second(
    bench: TimedWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[str] = []
    put = bench.store.put_record

    def counted(record: Record, expect: int | None = None) -> bool:
        writes.append(record.body)
        return put(record, expect)

    monkeypatch.setattr(bench.store, "put_record", counted)
    (attempt,) = started(bench, "r")
    assert progress(bench) is None
    for number in range(1000):
        attempt.context.progress(number, "sending", total=5000)
    assert writes == [], "the job itself writes nothing"
    bench.renewer.step(bench.clock.now)
    assert progress(bench) == RunProgress(done=999, total=5000, note="sending", at=from_ms(bench.clock.now))
    attempt.context.progress(1000, total=5000)
    pass_seconds(bench, 0.9)
    bench.renewer.step(bench.clock.now)
    assert len(writes) == 1
    pass_seconds(bench, 0.1)
    bench.renewer.step(bench.clock.now)
    assert len(writes) == 2
    found = progress(bench)
    assert found is not None
    assert (found.done, found.note) == (1000, "")
    pass_seconds(bench, 1)
    bench.renewer.step(bench.clock.now)
    assert len(writes) == 2, "nothing new was reported"


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome("returned", "null"), "INFO evenbeat: the progress at the end: 2 of 4,000 (0 %), almost"),
        (Outcome("raised", error="x"), "INFO evenbeat: the progress at the end: 2 of 4,000 (0 %), almost"),
    ],
)
def test_when_the_attempt_ends_the_last_value_is_kept_and_a_line_of_the_log(
    bench: TimedWorkbench, outcome: Outcome, line: str
) -> None:
    (attempt,) = started(bench, "r")
    attempt.context.progress(1, total=4000)
    bench.renewer.step(bench.clock.now)
    attempt.context.progress(2, "almost", total=4000)
    bench.executor.end(outcome)
    bench.worker.step(bench.clock.now)
    assert progress(bench) == RunProgress(done=2, total=4000, note="almost", at=from_ms(bench.clock.now))
    assert [each.text for each in bench.store.read_log("r")] == [line]
    pass_seconds(bench, 29 * 86_400)
    assert progress(bench) is not None, "as long as the run"
    pass_seconds(bench, 86_400)
    assert bench.store.find_records("progress") == []


def test_a_value_that_the_store_has_keeps_its_time_when_the_attempt_ends(bench: TimedWorkbench) -> None:
    (attempt,) = started(bench, "r")
    attempt.context.progress(1)
    bench.renewer.step(bench.clock.now)
    reported = from_ms(bench.clock.now)
    pass_seconds(bench, 5)
    bench.executor.end()
    bench.worker.step(bench.clock.now)
    assert progress(bench) == RunProgress(done=1, total=None, note="", at=reported)


def test_a_run_that_waits_for_its_retry_shows_no_progress(bench: TimedWorkbench) -> None:
    now = bench.clock.now
    run = RunRecord(id="r", task="work", run_at=now, created_at=now, execution=Execution(retries=1))
    bench.store.add_runs([run])
    bench.worker.step(now)
    (attempt,) = bench.executor.running
    attempt.context.progress(1)
    bench.executor.end(Outcome("raised", error="x"))
    bench.worker.step(bench.clock.now)
    assert Scheduler(bench.store).runs.get("r").state == "queued"
    assert progress(bench) is None


def test_an_attempt_that_reported_nothing_leaves_nothing(bench: TimedWorkbench) -> None:
    started(bench, "r")
    bench.renewer.step(bench.clock.now)
    assert bench.store.find_records("progress") == []
    bench.executor.end()
    bench.worker.step(bench.clock.now)
    assert bench.store.read_log("r") == []


def test_the_last_value_is_written_when_the_store_answers_again(
    bench: TimedWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (attempt,) = started(bench, "r")
    attempt.context.progress(1)
    bench.renewer.step(bench.clock.now)
    attempt.context.progress(2)

    def away(*_: object) -> bool:
        raise StoreUnavailable("locked")

    bench.executor.end()
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "put_record", away)
        with pytest.raises(StoreUnavailable):
            bench.worker.step(bench.clock.now)
    assert Scheduler(bench.store).runs.get("r").state == "succeeded", "the end does not wait for it"
    bench.worker.step(bench.clock.now)
    found = progress(bench)
    assert found is not None
    assert found.done == 2


def test_a_record_that_the_store_refuses_keeps_nothing_else_waiting(
    bench: TimedWorkbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = started(bench, "r", "s")
    put, refused = bench.store.put_record, []

    def refuse_r(record: Record, expect: int | None = None) -> bool:
        if id_of_key(record.key) == "r":
            refused.append(record.body)
            raise ValueError("no such column")
        return put(record, expect)

    monkeypatch.setattr(bench.store, "put_record", refuse_r)
    for attempt in (first, second):
        attempt.context.progress(1)
    for _ in range(2):
        bench.renewer.step(bench.clock.now)
        pass_seconds(bench, 1)
    assert (progress(bench, "r"), len(refused)) == (None, 1), "it is tried again with the next report"
    assert progress(bench, "s") is not None

    for _ in range(2):
        bench.executor.end()
    bench.worker.step(bench.clock.now)
    assert {Scheduler(bench.store).runs.get(each).state for each in ("r", "s")} == {"succeeded"}
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("the progress of a run can't be stored: no such column") == 2


def test_a_retry_starts_without_progress_and_replaces_what_a_dead_worker_left(bench: TimedWorkbench) -> None:
    (attempt,) = started(bench, "r")
    attempt.context.progress(90, total=100)
    bench.renewer.step(bench.clock.now)
    pass_seconds(bench, 40)
    crashed = attempts.crashed(attempt.run, bench.clock.now, "reaper")
    assert bench.store.settle_runs([crashed]) == [True]
    claim = Claim(worker="w2", token="c2", limit=1, now=bench.clock.now, lease=30_000, tasks=None)
    (second,) = bench.store.claim_runs(claim).runs
    assert progress(bench) is None
    theirs = ReportedProgress(second)
    theirs.report(1, "again", 100)
    store_progress(bench.store, theirs, bench.clock.now)
    # The first worker, which lives after all, does not replace it.
    attempt.context.progress(95, total=100)
    store_progress(bench.store, attempt.progress, bench.clock.now)
    found = progress(bench)
    assert found is not None
    assert (found.done, found.note) == (1, "again")
    bench.executor.end()
    bench.worker.drain()
    bench.worker.step(bench.clock.now)
    assert progress(bench) == found, "nor does it when it ends"


def test_a_lost_reply_does_not_stop_the_next_write(
    bench: TimedWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (attempt,) = started(bench, "r")
    put = bench.store.put_record

    def lossy(record: Record, expect: int | None = None) -> bool:
        put(record, expect)
        raise StoreUnavailable("the reply was lost")

    attempt.context.progress(1)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "put_record", lossy)
        with pytest.raises(StoreUnavailable):
            bench.renewer.step(bench.clock.now)
    attempt.context.progress(2)
    bench.renewer.step(bench.clock.now)
    found = progress(bench)
    assert found is not None
    assert found.done == 2


def test_what_a_dead_worker_leaves_behind_expires(bench: TimedWorkbench) -> None:
    (attempt,) = started(bench, "r")
    attempt.context.progress(1)
    bench.renewer.step(bench.clock.now)
    pass_seconds(bench, 7 * 86_400 + 1)
    assert bench.store.find_records("progress") == []
    assert bench.store.purge(bench.clock.now, 10).deleted == 1


def test_a_bounded_number_is_stored_at_once_and_each_in_turn(
    bench: TimedWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MOST_PROGRESS", 2)
    running = started(bench, "a", "b", "c")
    stored: set[str] = set()
    for _ in range(2):
        for attempt in running:
            attempt.context.progress(1)
        bench.renewer.step(bench.clock.now)
        stored |= {id_of_key(record.key) for record in bench.store.find_records("progress")}
        pass_seconds(bench, 1)
    assert stored == {"a", "b", "c"}


def test_a_record_that_can_not_be_read_is_no_progress(bench: TimedWorkbench) -> None:
    (attempt,) = started(bench, "r")
    key = key_of(attempt.run)
    for body in ("{", "[]", json.dumps({"attempt": 1, "done": "x", "total": None, "note": "", "at": 0})):
        assert bench.store.put_record(Record(kind="progress", key=key, body=body))
        assert progress(bench) is None
        assert bench.store.delete_record("progress", "default", key, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((-1,), "done -1 is not a number of 0 to 9,007,199,254,740,992"),
        (("3",), 'done "3" is not a number'),
        ((True,), "done True is not a number"),
        ((None,), "done None is not a number"),
        ((float("nan"),), "done nan is not a number"),
        ((float("inf"),), "done inf is not a number"),
        ((1 << 54,), "done 18014398509481984 is not a number"),
        ((1, -1), "total -1 is not a number"),
        ((1, "many"), 'total "many" is not a number'),
        ((1, 2, None), "note None is not a text"),
        ((1, 2, "x" * 201), "note is 201 characters long; at most 200"),
        ((1, 2, "\ud800"), "which no database accepts"),
    ],
)
def test_wrong_values_are_refused(arguments: tuple[Any, ...], words: str) -> None:
    done, total, note = arguments + (None, None, "")[len(arguments) :]
    with pytest.raises(InvalidValue) as refused:
        RunContext(RunRecord(id="r", task="t")).progress(done, note, total=total)
    assert words in str(refused.value)


def test_a_total_may_be_an_estimate_and_numbers_of_any_kind() -> None:
    seen: list[tuple[float, str, float | None]] = []

    def note(*value: Any) -> None:
        seen.append(value)

    context = RunContext(RunRecord(id="r", task="t"), progress=note)
    context.progress(0)
    context.progress(0, total=0)
    context.progress(12, "x" * 200, total=10)
    context.progress(Fraction(1, 2), total=1.5)  # type: ignore[arg-type]  # any real number will do
    assert seen == [(0, "", None), (0, "", 0), (12, "x" * 200, 10), (0.5, "", 1.5)]
    words = ["0 of 0", f"12 of 10 (120 %), {'x' * 200}", "0.5 of 1.5 (33 %)"]
    assert [str(Reported(*each)) for each in seen[1:]] == words
    assert str(Reported(4312.0, "", None)) == "4,312"


def test_a_float_up_to_one_is_a_share() -> None:
    seen: list[Reported] = []
    context = RunContext(RunRecord(id="r", task="t"), progress=lambda *value: seen.append(Reported(*value)))
    context.progress(0.4, "step 2")
    context.progress(1.0)
    context.progress(1)
    context.progress(1.5)
    assert [str(each) for each in seen] == ["40 %, step 2", "100 %", "1", "1.5"]


def test_in_virtual_time_the_last_value_is_kept() -> None:
    app = Scheduler("memory://")

    @app.task
    def work(run: RunContext) -> None:
        run.progress(3, total=4)

    with virtual(app) as world:
        run_id = app.enqueue("work").id
        world.travel("1s")
        texts = [line.text for line in app.runs.logs(run_id)]
        assert texts == ["INFO evenbeat: the progress at the end: 3 of 4 (75 %)"]
        kept = app.runs.get(run_id).progress
        assert kept is not None
        assert (kept.done, kept.total) == (3, 4)
