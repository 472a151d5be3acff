"""Which errors are retried, ``raise Retry``, and runs that expire, with every executor."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evenbeat import InvalidValue, Retry, Run, RunContext, RunRefused, Scheduler
from evenbeat.app.loading import load_app
from evenbeat.core.json_text import with_attempt
from evenbeat.core.records import AttemptRecord, Execution, RunRecord
from evenbeat.executors.base import Outcome
from evenbeat.rules import attempts
from evenbeat.testing import VirtualScheduler, virtual
from tests.unit.workbench import TimedWorkbench

# Its error class exists where the module was loaded, so each process has one of its own.
PROGRAM = """
from evenbeat import Retry, RunContext, Scheduler

class Broken(Exception): ...
class VeryBroken(Broken): ...

app = Scheduler("memory://")
GIVE_UP_ON = (VeryBroken, FileNotFoundError)
OPTIONS = dict(retries=2, backoff="1ms", retry_on=(Broken, OSError), give_up_on=GIVE_UP_ON)

def fail(run, kind):
    if kind == "again":
        if run.attempt < 3: raise Retry(after="1ms", reason="not yet")
        return run.failures
    kinds = {"retried": Broken, "given up": VeryBroken, "other": ValueError, "file": FileNotFoundError}
    raise kinds[kind]("no")

@app.task(**OPTIONS)
def thread(run: RunContext, kind: str): return fail(run, kind)

@app.task(**OPTIONS)
async def coroutine(run: RunContext, kind: str): return fail(run, kind)

@app.task(executor="process", **OPTIONS)
def process(run: RunContext, kind: str): return fail(run, kind)
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduler]:
    file = tmp_path_factory.mktemp("retrying") / "retrying_jobs.py"
    file.write_text(PROGRAM)
    app = load_app(str(file))
    with app:
        yield app


def ended(app: Scheduler, task: str, kind: str) -> Run:
    return app.runs.join(app.enqueue(task, {"kind": kind}).id, "60s")


@pytest.mark.parametrize("task", ["thread", "coroutine", "process"])
@pytest.mark.parametrize(
    ("kind", "failures", "why"),
    [
        ("retried", 3, None),
        ("given up", 1, "give_up_on names VeryBroken"),
        ("file", 1, "give_up_on names FileNotFoundError"),
        ("other", 1, "retry_on names only Broken, OSError"),
    ],
)
def test_classes_decide_whether_an_error_is_retried(
    app: Scheduler, task: str, kind: str, failures: int, why: str | None
) -> None:
    run = ended(app, task, kind)
    assert (run.state, run.failures) == ("failed", failures)
    assert run.error is not None
    words = app.runs.why(run.id).sentence
    if why is None:
        assert "not retried" not in run.error + words
    else:
        assert run.error.endswith(f"\n\nnot retried: {why}")
        assert words.endswith(f"; not retried: {why}")
        assert run.attempts[-1].error == run.error


@pytest.mark.parametrize("task", ["thread", "coroutine", "process"])
def test_a_task_that_raises_retry_runs_again_without_a_failure(app: Scheduler, task: str) -> None:
    run = ended(app, task, "again")
    assert (run.state, run.attempt, run.result, run.failures, run.error) == ("succeeded", 3, 0, 0, None)
    assert [(each.outcome, each.error) for each in run.attempts] == [
        ("handed back", "the task asked to run again after 1ms: not yet"),
        ("handed back", "the task asked to run again after 1ms: not yet"),
        ("succeeded", None),
    ]


@pytest.fixture
def world() -> Iterator[VirtualScheduler]:
    with virtual() as world:
        yield world


def test_in_virtual_time_retry_waits_as_long_as_it_says(world: VirtualScheduler) -> None:
    starts: list[datetime] = []
    kinds: list[tuple[str, str | None]] = []
    world.on_event(lambda event: kinds.append((event.kind, event.error)))

    @world.task(retries=1, backoff="10s")
    async def poll(run: RunContext) -> None:
        starts.append(world.now)
        if run.attempt == 2:
            raise ConnectionError
        if run.attempt < 4:
            raise Retry("30s")

    run = poll.enqueue()
    began = world.now
    world.travel("10s")
    assert world.runs.get(run.id).error is None
    assert "the task asked to run again after 30s" in world.runs.why(run.id).sentence
    wait = world.runs.why_waiting(run.id)
    assert wait is not None
    assert wait.reason == "later"
    world.travel("5m")
    waits = [start - began for start in starts]
    seconds = timedelta(seconds=1)
    assert waits[:2] == [0 * seconds, 30 * seconds]
    assert 39 * seconds <= waits[2] <= 40 * seconds, "the backoff is spread by a tenth"
    assert waits[3] == waits[2] + 30 * seconds
    run = world.runs.get(run.id)
    assert (run.state, run.failures) == ("succeeded", 1)
    assert [kind for kind, _ in kinds if kind in ("released", "retrying", "failed")] == [
        "released",
        "retrying",
        "released",
    ]


def test_retry_is_no_error_in_statistics(world: VirtualScheduler) -> None:
    @world.task(schedule="every 1h")
    def beat(run: RunContext) -> None:
        if run.attempt < 5:
            raise Retry(after="1s")

    world.travel("61m")
    stats = world.schedules.stats("beat")
    assert (stats.run_count, stats.success_count, stats.failure_count, stats.last_error) == (1, 1, 0, None)


def test_retry_of_a_run_that_was_cancelled_meanwhile_ends_it() -> None:
    run = RunRecord(id="r", task="t", state="running", attempt=1, worker="w", cancel_requested=True)
    assert attempts.again(run, 1, "", 0, "t").state == "cancelled"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (-1, "after -1 is negative"),
        (0, "after 0 is less than 1ms"),
        ("0s", 'after "0s" is less than 1ms'),
        (2**63, "is longer than 100 years"),
        ("soon", 'after "soon" is not a duration'),
        (None, "after None is not a duration"),
        (True, "after True is not a duration"),
        (float("nan"), "after nan is not a finite number"),
    ],
)
def test_wrong_times_of_retry_are_refused(after: Any, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Retry(after=after)
    assert refused.value.field == "after"
    assert words in str(refused.value)


@pytest.mark.parametrize("reason", [None, 3, b"busy"])
def test_reasons_that_are_not_texts_are_refused(reason: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        Retry("1s", reason)
    assert refused.value.field == "reason"


@pytest.mark.parametrize(
    ("reason", "kept"),
    [("x" * 500, "x" * 500), ("x" * 501, "x" * 500), ("é" * 100_000, "é" * 500), ("a\ud800b", "a?b")],
)
def test_a_reason_is_kept_as_errors_are(world: VirtualScheduler, reason: str, kept: str) -> None:
    released: list[str | None] = []
    world.on_event(lambda event: released.append(event.error) if event.kind == "released" else None)

    @world.task(retry_on=ConnectionError)
    def poll(run: RunContext) -> None:
        if run.attempt == 1:
            raise Retry("1s", reason)

    run = poll.enqueue()
    world.travel("5s")
    assert released == [kept]
    assert world.runs.get(run.id).state == "succeeded"


@pytest.mark.parametrize("field", ["retry_on", "give_up_on"])
@pytest.mark.parametrize(
    "value", [(), [], "ValueError", ("ValueError",), ValueError("x"), 3, (ValueError, int)]
)
def test_what_is_not_an_exception_class_is_refused(field: str, value: Any) -> None:
    app = Scheduler("memory://")
    with pytest.raises(InvalidValue) as refused:
        app.task(name="work", **{field: value})
    assert refused.value.field == field


def test_a_timeout_is_retried_whatever_the_stopped_function_raised() -> None:
    bench = TimedWorkbench()
    now = bench.clock.now
    execution = Execution(retries=1, timeout=1_000)
    bench.store.add_runs([RunRecord(id="r", task="work", run_at=now, created_at=now, execution=execution)])
    bench.worker.step(now)
    bench.executor.running[0].control.request_cancel("timeout")
    bench.executor.end(Outcome("raised", error="KeyError: 1", final="retry_on names only OSError"))
    bench.worker.step(now)
    run = Scheduler(bench.store).runs.get("r")
    assert (run.state, run.failures) == ("queued", 1)


def test_a_long_error_keeps_the_reason_why_it_was_not_retried() -> None:
    run = RunRecord(id="r", task="t", state="running", attempt=1, worker="w", execution=Execution(retries=1))
    failed = attempts.failed(run, "x" * 20_000, 0, "t", "give_up_on names ValueError")
    assert failed.state == "failed"
    assert isinstance(failed.error, str)
    assert len(failed.error) == 10_000
    stored = replace(run, state="failed", error=failed.error)
    assert attempts.given_up(stored) == "give_up_on names ValueError"
    assert attempts.given_up(replace(stored, error="x")) is None
    last = attempts.failed(replace(run, failures=1), "x", 0, "t", "give_up_on names ValueError")
    assert last.error == "x", "it would not have been retried anyway"


def test_many_retries_that_were_asked_for_do_not_count_as_payloads_that_do_not_fit() -> None:
    earlier: str | None = None
    for number in range(1, 16):
        asked = AttemptRecord(number, "w", 0, 0, "handed back", f"{attempts.AGAIN} after 1s")
        earlier = with_attempt(earlier, asked)
    run = RunRecord(id="r", task="t", state="running", attempt=16, worker="w", earlier=earlier)
    assert attempts.unfit(run, "InvalidValue: no", 0, "t").state == "queued"
    assert not attempts.was_unfit(replace(run, state="queued", worker=None))


# -- expiry ------------------------------------------------------------------------------------------------


def test_a_run_that_waited_too_long_is_cancelled_and_not_executed(world: VirtualScheduler) -> None:
    executed: list[str] = []

    @world.task(expires="10m")
    def work(run: RunContext) -> None:
        executed.append(run.id)

    now = world.now
    in_time = world.enqueue(work, delay="5m")
    assert in_time.expires_at == now + timedelta(minutes=15)
    assert in_time.expires == timedelta(minutes=10)
    late = RunRecord(id="late", task="work", execution=Execution(expires=600_000))
    instant = int(now.timestamp() * 1000)
    for name, ago in (("late", 600_000), ("just in time", 599_999)):
        planned = instant - ago
        world.store.add_runs(
            [
                replace(
                    late, id=name.replace(" ", "-"), scheduled_at=planned, run_at=planned, created_at=planned
                )
            ]
        )
    world.travel("1h")
    assert executed == ["just-in-time", in_time.id]
    run = world.runs.get("late")
    assert (run.state, run.failures) == ("cancelled", 0)
    assert run.error == (
        f"expired: it had not started by {now:%Y-%m-%dT%H:%M:%SZ}, 10m after its planned start"
    )
    why = world.runs.why("late")
    assert "expired, and was not executed: it had not started by" in why.sentence
    assert why.remedy == "to run it after all: evenbeat runs enqueue work"
    with pytest.raises(RunRefused, match="run late has expired"):
        world.runs.retry("late")
    bulk = world.runs.retry_all(state="cancelled")
    assert (bulk.done, ["has expired" in each.why for each in bulk.refused]) == (0, [True])


def test_retries_after_the_expiry_are_not_executed(world: VirtualScheduler) -> None:
    @world.task(schedule="every 1h", expires="10m", retries=9, backoff="4m", max_backoff="4m")
    def work() -> None:
        raise OSError("no")

    world.travel("90m")
    (run,) = world.runs.list()
    assert run.state == "cancelled"
    assert [each.outcome for each in run.attempts] == ["failed", "failed", "failed", "cancelled"]
    stats = world.schedules.stats("work")
    assert (stats.run_count, stats.failure_count, stats.last_error) == (1, 0, None)


def test_a_retry_that_is_asked_for_is_bounded_by_the_expiry(world: VirtualScheduler) -> None:
    @world.task
    def poll() -> None:
        raise Retry("20s")

    run = world.enqueue(poll, expires="1m")
    world.travel("1h")
    ended_run = world.runs.get(run.id)
    assert (ended_run.state, ended_run.attempt) == ("cancelled", 4)
    assert ended_run.error is not None
    assert ended_run.error.startswith("expired: ")


def test_a_time_is_converted(world: VirtualScheduler) -> None:
    run = world.enqueue("work", delay="1h", expires=world.now + timedelta(hours=3))
    assert run.expires == timedelta(hours=2)
    assert world.enqueue("work", expires=None).expires_at is None


@pytest.mark.parametrize(
    "expires", [-1, 0, "0s", 2**63, "late", datetime(2026, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)]
)
def test_wrong_expiries_are_refused(world: VirtualScheduler, expires: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        world.enqueue("work", expires=expires)
    assert refused.value.field == "expires"
    if not isinstance(expires, datetime):
        with pytest.raises(InvalidValue) as refused:
            world.schedules.add("beat", "every 1h", "work", expires=expires)
        assert refused.value.field == "expires"


def test_a_schedule_gives_its_expiry_to_its_runs(world: VirtualScheduler, tmp_path: Path) -> None:
    world.schedules.add("beat", "every 1h", "work", expires="5m")
    assert world.schedules.get("beat").expires == timedelta(minutes=5)
    world.travel("61m")
    (run,) = world.runs.list()
    assert run.expires_at == run.scheduled_at + timedelta(minutes=5)
    assert world.schedules.update("beat", expires=None).expires is None
