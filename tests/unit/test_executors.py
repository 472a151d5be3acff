"""Executors: every end of a function is an outcome, and none of them harms the next."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evenbeat.core.clocks import steady_clock
from evenbeat.core.json_text import to_json
from evenbeat.core.records import RunRecord
from evenbeat.errors import RunCancelled
from evenbeat.executors.base import Attempt, Executor, Outcome, describe
from evenbeat.executors.coroutines import CoroutineExecutor
from evenbeat.executors.inline import InlineExecutor
from evenbeat.executors.threads import ThreadExecutor
from evenbeat.observe import run_logs
from evenbeat.observe.capture import start_capture, stop_capture
from evenbeat.tasks import context
from evenbeat.tasks.task import Task


class Bench:
    """An executor, and the outcomes that it reported."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.outcomes: dict[str, Outcome] = {}
        self._news = threading.Condition()
        executor.start(self._ended)

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        with self._news:
            assert attempt.run.id not in self.outcomes, "reported twice"
            self.outcomes[attempt.run.id] = outcome
            self._news.notify_all()

    def attempt(self, function: Callable[..., Any], run_id: str = "r", **payload: Any) -> Attempt:
        run = RunRecord(id=run_id, task="t", payload=to_json(payload), attempt=1)
        return Attempt(run, Task(function, "t"), steady_clock(), 30, lambda _: True)

    def submit(self, *attempts: Attempt) -> None:
        self.executor.submit(attempts)

    def outcome(self, run_id: str = "r") -> Outcome:
        with self._news:
            assert self._news.wait_for(lambda: run_id in self.outcomes, timeout=30)
        return self.outcomes[run_id]

    def execute(self, function: Callable[..., Any], **payload: Any) -> Outcome:
        attempt = self.attempt(function, **payload)
        self.submit(attempt)
        return self.outcome()


@pytest.fixture(params=["threads", "coroutines", "inline"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made: dict[str, Callable[[], Executor]] = {
        "threads": lambda: ThreadExecutor(2),
        "coroutines": lambda: CoroutineExecutor(2),
        "inline": InlineExecutor,
    }
    bench = Bench(made[request.param]())
    bench.kind = request.param  # type: ignore[attr-defined]  # for `fit` alone
    yield bench
    bench.executor.stop()


def fit(bench: Bench, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as this executor takes it."""
    if getattr(bench, "kind", "") != "coroutines":
        return function

    async def call(**arguments: Any) -> Any:
        await asyncio.sleep(0)
        return function(**arguments)

    return call


def test_a_value_is_returned_as_json(bench: Bench) -> None:
    assert bench.execute(fit(bench, lambda: {"n": [1, None]})) == Outcome("returned", '{"n":[1,null]}')


def test_arguments_come_from_the_payload(bench: Bench) -> None:
    assert bench.execute(fit(bench, lambda **given: given), a=1, b="x").result == '{"a":1,"b":"x"}'


def test_an_error_is_shown_in_a_line_and_then_where_it_came_from(bench: Bench) -> None:
    def breaks() -> None:
        raise ValueError("no such team")

    outcome = bench.execute(fit(bench, breaks))
    assert outcome.kind == "raised"
    assert outcome.error is not None
    assert outcome.error.splitlines()[0] == "ValueError: no such team"
    assert "in breaks" in outcome.error
    assert "executors/" not in outcome.error  # the frames between are nobody's business


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_a_task_that_exits_harms_nobody(bench: Bench, error: BaseException) -> None:
    def exits() -> None:
        raise error

    if isinstance(bench.executor, InlineExecutor) and isinstance(error, KeyboardInterrupt):
        # In the thread of who runs the tests: it is meant for them.
        with pytest.raises(KeyboardInterrupt):
            bench.execute(exits)
        return
    assert bench.execute(fit(bench, exits)).kind == "raised"
    again = bench.attempt(fit(bench, lambda: 1), "again")
    bench.submit(again)
    assert bench.outcome("again").kind == "returned"


def test_a_result_that_is_not_json_is_not_kept_and_the_log_says_so(bench: Bench) -> None:
    attempt = bench.attempt(fit(bench, lambda: object()))
    bench.submit(attempt)
    assert bench.outcome() == Outcome("returned", "null")
    assert "the result is not kept" in attempt.log.take()[0].text


def test_a_payload_that_does_not_fit_is_an_error_of_the_run(bench: Bench) -> None:
    def takes(a: int) -> int:
        return a

    attempt = bench.attempt(takes, b=1)
    if getattr(bench, "kind", "") == "coroutines":

        async def takes_too(a: int) -> int:
            return a

        attempt = bench.attempt(takes_too, b=1)
    bench.submit(attempt)
    assert bench.outcome().kind == "unfit"
    assert "it takes a" in (bench.outcome().error or "")


def test_what_was_withdrawn_is_not_executed(bench: Bench) -> None:
    called: list[int] = []
    attempt = bench.attempt(fit(bench, lambda: called.append(1)))
    assert attempt.withdraw()
    bench.submit(attempt, bench.attempt(fit(bench, lambda: None), "after"))
    assert bench.outcome("after").kind == "returned"
    assert called == []
    assert "r" not in bench.outcomes


def test_a_function_that_obeys_ends_as_stopped(bench: Bench) -> None:
    def obeys(run: context.RunContext) -> None:
        run.raise_if_cancelled()

    attempt = bench.attempt(obeys) if getattr(bench, "kind", "") != "coroutines" else None
    if attempt is None:

        async def obeys_too(run: context.RunContext) -> None:
            run.raise_if_cancelled()

        attempt = bench.attempt(obeys_too)
    attempt.control.request_cancel("cancelled")
    bench.submit(attempt)
    assert bench.outcome().kind == "stopped"


def test_a_cancellation_that_nobody_asked_for_is_an_error(bench: Bench) -> None:
    def raises() -> None:
        raise RunCancelled("by myself")

    assert bench.execute(fit(bench, raises)).kind == "raised"


def test_log_records_of_a_run_are_kept_with_it_and_those_of_others_are_not(bench: Bench) -> None:
    log = logging.getLogger("somebody")
    start_capture()
    try:
        attempt = bench.attempt(fit(bench, lambda: log.warning("inside %d", 1)))
        log.warning("outside")
        bench.submit(attempt)
        bench.outcome()
        log.warning("outside")
    finally:
        stop_capture()
    assert [chunk.text for chunk in attempt.log.take()] == ["WARNING somebody: inside 1"]


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_no_more_run_at_once_than_there_are_slots(kind: str) -> None:
    bench = Bench(ThreadExecutor(2) if kind == "threads" else CoroutineExecutor(2))
    gate, guard = threading.Event(), threading.Lock()
    running, most = 0, 0

    def count(change: int) -> None:
        nonlocal running, most
        with guard:
            running += change
            most = max(most, running)

    def blocks() -> None:
        count(1)
        assert gate.wait(30)
        count(-1)

    async def waits() -> None:
        count(1)
        while not gate.is_set():
            await asyncio.sleep(0.001)
        count(-1)

    names = [f"r{at}" for at in range(6)]
    bench.submit(*(bench.attempt(blocks if kind == "threads" else waits, name) for name in names))
    gate.set()
    assert [bench.outcome(name).kind for name in names] == ["returned"] * 6
    assert most <= 2
    bench.executor.stop()


def test_a_coroutine_is_cancelled_when_it_is_interrupted() -> None:
    bench = Bench(CoroutineExecutor(2))
    begun = threading.Event()

    async def sleeps() -> None:
        begun.set()
        await asyncio.sleep(3600)

    attempt = bench.attempt(sleeps)
    bench.submit(attempt)
    assert begun.wait(30)
    attempt.control.request_cancel("timeout")
    bench.executor.interrupt(attempt)
    assert bench.outcome() == Outcome("stopped", error="timeout")
    bench.executor.stop()


def test_stopping_leaves_a_thread_that_does_not_end_behind() -> None:
    bench = Bench(ThreadExecutor(1))
    begun, gate = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        assert gate.wait(60)

    bench.submit(bench.attempt(stuck))
    assert begun.wait(30)
    bench.executor.stop()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("evenbeat-job"))
    gate.set()
    assert bench.outcome().kind == "returned"


def test_an_error_that_can_not_even_be_shown_is_named() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert "Silent" in describe(Silent())


def test_an_error_says_what_it_came_from() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        text = describe(error)
    assert text.splitlines()[0] == "ValueError: outer"
    assert "because of KeyError: 'inner'" in text


def test_a_log_is_bounded_and_says_how_much_it_left_out() -> None:
    log = run_logs.RunLog(RunRecord(id="r", task="t", attempt=1))
    for at in range(run_logs.MOST_LINES + 10):
        log.add(f"line {at}")
    chunks = log.take(last=True)
    assert len(chunks) == run_logs.MOST_LINES + 1
    assert chunks[-1].text == "… 10 more lines were dropped"
    assert len({chunk.seq for chunk in chunks}) == len(chunks)
    huge = run_logs.RunLog(RunRecord(id="r", task="t", attempt=2))
    for _ in range(100):
        huge.add("x" * 1_000_000)
    assert sum(len(chunk.text) for chunk in huge.take()) <= run_logs.MOST_CHARACTERS + run_logs.LONGEST_LINE


def test_where_nobody_set_up_logging_what_failed_is_shown_all_the_same() -> None:
    code = """
import sys
from evenbeat import Scheduler
app = Scheduler("memory://")
@app.task
def divide(): return 1 / 0
app.start()
app.runs.join(app.enqueue(divide).id, "30s")
app.stop()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ERROR   a run failed" in done.stderr
    assert "job_name=divide" in done.stderr
    assert "error=ZeroDivisionError: division by zero" in done.stderr


def test_a_log_takes_what_no_database_does() -> None:
    log = run_logs.RunLog(RunRecord(id="r", task="t", attempt=1))
    log.add("a\0b\ud800c")
    text = log.take()[0].text
    text.encode()
    assert "\0" not in text


def test_the_module_of_coroutines_is_loaded_only_when_it_is_needed() -> None:
    code = "import evenbeat, sys; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- what tasks can do to an executor ----------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_task_started_by_a_coroutine_that_exits_harms_nobody_else(error: BaseException) -> None:
    bench = Bench(CoroutineExecutor(3))
    begun = threading.Event()

    async def exits() -> None:
        raise error

    async def awaits() -> None:
        await asyncio.gather(asyncio.create_task(exits()))

    async def leaves_behind() -> str:
        left = asyncio.create_task(exits())
        await asyncio.wait([left])
        return "went on"

    async def waits() -> str:
        begun.set()
        while "left" not in bench.outcomes:
            await asyncio.sleep(0.001)
        return "unharmed"

    bench.submit(bench.attempt(waits, "other"))
    assert begun.wait(30)
    bench.submit(bench.attempt(awaits))
    outcome = bench.outcome()
    assert (outcome.kind, str(outcome.error).partition("\n")[0].partition(":")[0]) == (
        "raised",
        type(error).__name__,
    )
    bench.submit(bench.attempt(leaves_behind, "left"))
    assert bench.outcome("left") == Outcome("returned", '"went on"')
    assert bench.outcome("other") == Outcome("returned", '"unharmed"')
    bench.executor.stop()


def test_a_loop_that_a_task_breaks_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(CoroutineExecutor(2))

    def bad_file() -> None:
        raise OSError("bad file descriptor")

    async def breaks() -> None:
        # As if it had closed a file that was the loop's.
        loop: Any = asyncio.get_running_loop()
        loop._run_once = bad_file
        await asyncio.sleep(3600)

    async def works() -> int:
        return 1

    attempt = bench.attempt(breaks)
    bench.submit(attempt)
    outcome = bench.outcome()
    assert outcome.kind == "raised"
    assert str(outcome.error).startswith("the event loop broke: ")
    bench.executor.interrupt(attempt)
    bench.submit(bench.attempt(works, "after"))
    assert bench.outcome("after") == Outcome("returned", "1")
    assert "the event loop broke, and is replaced" in caplog.messages
    bench.executor.stop()


def test_a_loop_whose_files_were_closed_is_not_written_to() -> None:
    executor = CoroutineExecutor(2)
    bench = Bench(executor)

    async def works() -> int:
        return 1

    bench.submit(bench.attempt(works, "before"))
    assert bench.outcome("before") == Outcome("returned", "1")
    loop: Any = executor._loop
    assert executor._probe is not None
    os.close(executor._probe._number)  # as a job that closes all of them
    woken: list[str] = []
    wake, loop._write_to_self = loop._write_to_self, lambda: woken.append("wrote to what has the number now")
    bench.submit(bench.attempt(works, "after"))
    bench.executor.interrupt(bench.attempt(works, "other"))
    assert woken == []
    loop._write_to_self = wake
    loop.call_soon_threadsafe(loop.stop)  # its own files are still there, in this test
    bench.executor.stop()


def test_a_loop_that_is_gone_can_still_be_spoken_to() -> None:
    bench = Bench(CoroutineExecutor(2))

    async def works() -> int:
        return 1

    attempt = bench.attempt(works)
    bench.submit(attempt)
    bench.outcome()
    for _ in range(2):
        bench.executor.stop()
        bench.executor.interrupt(attempt)
        bench.submit(bench.attempt(works, "late"))
    assert "late" not in bench.outcomes


def test_a_coroutine_that_is_interrupted_before_its_first_step_ends() -> None:
    bench = Bench(CoroutineExecutor(1))
    begun, gate = threading.Event(), threading.Event()

    async def blocks() -> None:
        begun.set()
        assert gate.wait(30)

    async def sleeps() -> None:
        await asyncio.sleep(3600)

    bench.submit(bench.attempt(blocks))
    assert begun.wait(30)
    attempt = bench.attempt(sleeps, "asked")
    bench.submit(attempt)
    attempt.control.request_cancel("cancelled")
    bench.executor.interrupt(attempt)
    gate.set()
    assert bench.outcome("asked") == Outcome("stopped", error="cancelled")
    bench.executor.stop()


class Scarce:
    """A system in which no thread of some name can be started for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.left = 0
        real = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            if thread.name.startswith(name):
                if self.left <= 0:
                    raise RuntimeError("can't start new thread")
                self.left -= 1
            real(thread)

        monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_threads_that_can_not_be_started_are_tried_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scarce = Scarce(monkeypatch, "evenbeat-")
    bench = Bench(ThreadExecutor(2) if kind == "threads" else CoroutineExecutor(2))
    function: Callable[..., Any] = lambda: 1  # noqa: E731
    if kind == "coroutines":

        async def function() -> int:
            return 1

    withdrawn, kept = bench.attempt(function, "withdrawn"), bench.attempt(function, "kept")
    bench.submit(withdrawn, kept)
    assert withdrawn.withdraw(), "nobody has begun it"
    scarce.left = 1
    bench.submit(bench.attempt(function, "next"))
    assert bench.outcome("kept") == bench.outcome("next") == Outcome("returned", "1")
    assert "withdrawn" not in bench.outcomes
    bench.executor.stop()


def test_a_thread_that_is_missing_is_made_up_for_with_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scarce = Scarce(monkeypatch, "evenbeat-job")
    bench = Bench(ThreadExecutor(3))
    together = threading.Barrier(3, timeout=30)
    scarce.left = 1
    bench.submit(*(bench.attempt(together.wait, name) for name in ("a", "b")))
    scarce.left = 2
    bench.submit(bench.attempt(together.wait, "c"))
    assert {bench.outcome(name).kind for name in "abc"} == {"returned"}
    bench.executor.stop()


def test_a_thread_is_made_for_what_another_one_is_about_to_leave_waiting() -> None:
    bench = Bench(ThreadExecutor(2))
    together = threading.Barrier(2, timeout=30)
    bench.submit(bench.attempt(lambda: None, "first"))
    bench.outcome("first")
    bench.submit(bench.attempt(together.wait, "a"))
    bench.submit(bench.attempt(together.wait, "b"))
    assert {bench.outcome(name).kind for name in "ab"} == {"returned"}
    bench.executor.stop()


FORKS = """
import asyncio, os, sys, threading, time
from evenbeat.executors.base import Attempt
from evenbeat.executors.coroutines import CoroutineExecutor
from evenbeat.executors.threads import ThreadExecutor
from evenbeat.core.records import RunRecord
from evenbeat.tasks.task import Task

def forks():
    pid = os.fork()
    if pid == 0:
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

async def forks_too():
    return forks()

def says():
    os.write(1, b"executed\\n")

async def says_too():
    says()

executor = ThreadExecutor(1) if sys.argv[1] == "threads" else CoroutineExecutor(1)
first, second = (forks, says) if sys.argv[1] == "threads" else (forks_too, says_too)
ends = []
executor.start(lambda attempt, outcome: (os.write(1, outcome.kind.encode() + b"\\n"), ends.append(outcome)))
executor.submit([
    Attempt(RunRecord(id=name, task="t", attempt=1), Task(function, "t"), 0.0, 30.0, lambda _: True)
    for name, function in (("a", first), ("b", second))
])
while len(ends) < 2:
    time.sleep(0.01)
os.write(1, ends[0].result.encode())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_a_fork_of_a_task_executes_nothing_else_and_ends_as_it_would_anywhere(kind: str) -> None:
    words = [sys.executable, "-W", "ignore", "-c", FORKS, kind]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["returned", "executed", "returned", "7"]
