"""``@app.before`` and ``@app.after``: around each attempt, where its task runs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from evenbeat import InvalidValue, Retry, Run, RunContext, Scheduler
from evenbeat.app.loading import load_app
from evenbeat.core.records import RunRecord
from evenbeat.testing import virtual

VALUE: ContextVar[str] = ContextVar("VALUE", default="nothing")


@pytest.fixture
def app() -> Iterator[Scheduler]:
    app = Scheduler("memory://", thread_concurrency=1)
    yield app
    app.stop()
    app.close()


def ended(app: Scheduler, task: Any) -> Run:
    return app.runs.join(app.enqueue(task).id, "30s")


def test_they_run_in_the_thread_of_the_attempt_and_what_they_set_ends_with_it(app: Scheduler) -> None:
    threads: list[int] = []
    seen: list[tuple[str, str, BaseException | None]] = []

    @app.before
    def first(run: RunContext) -> None:
        threads.append(threading.get_ident())
        if run.task == "work":
            VALUE.set(run.id)

    @app.after
    def last(run: RunContext, error: BaseException | None) -> None:
        threads.append(threading.get_ident())
        seen.append((run.task, VALUE.get(), error))

    @app.task
    def work() -> str:
        threads.append(threading.get_ident())
        return VALUE.get()

    @app.task
    def other() -> str:
        return VALUE.get()

    app.start()
    run = ended(app, work)
    assert run.result == run.id
    assert ended(app, other).result == "nothing", "the same thread, another attempt"
    assert len(set(threads)) == 1
    assert seen == [("work", run.id, None), ("other", "nothing", None)]
    assert work() == "nothing", "a call is not an attempt"
    assert len(seen) == 2


def test_the_order_of_several_and_what_after_gets(app: Scheduler) -> None:
    calls: list[str] = []

    def before(name: str) -> None:
        app.before(lambda run: calls.append(f"{name} {run.task}"))

    def after(name: str) -> None:
        app.after(lambda _run, error: calls.append(f"{name} {type(error).__name__}"))

    for name in ("a", "b"):
        before(name)
    for name in ("c", "d"):
        after(name)
    app.task(name="good")(lambda: calls.append("task"))

    @app.task(name="bad")
    def bad() -> None:
        raise LookupError

    @app.task(name="again")
    def again(run: RunContext) -> None:
        if run.attempt == 1:
            raise Retry("1ms")

    @app.task(name="exits")
    def exits() -> None:
        raise SystemExit(1)

    app.start()
    assert ended(app, "good").state == "succeeded"
    assert calls == ["a good", "b good", "task", "d NoneType", "c NoneType"]
    calls.clear()
    assert ended(app, "bad").state == "failed"
    assert calls == ["a bad", "b bad", "d LookupError", "c LookupError"]
    calls.clear()
    assert ended(app, "again").attempt == 2
    assert [call for call in calls if call[0] == "c"] == ["c Retry", "c NoneType"]
    calls.clear()
    assert ended(app, "exits").state == "failed"
    assert calls[-2:] == ["d SystemExit", "c SystemExit"]


def test_a_before_that_raises_fails_the_attempt_and_the_task_is_not_called(app: Scheduler) -> None:
    calls: list[str] = []

    @app.before
    def one(run: RunContext) -> None:
        calls.append("one")

    @app.before
    def two(run: RunContext) -> None:
        raise ConnectionError("no database")

    @app.before
    def three(run: RunContext) -> None:
        calls.append("three")

    @app.after
    def close(run: RunContext, error: BaseException | None) -> None:
        calls.append(f"close {error!r}")

    @app.task(retries=3, backoff="1ms", give_up_on=ConnectionError)
    def work() -> None:
        calls.append("work")

    app.start()
    run = ended(app, work)
    assert (run.state, run.failures) == ("failed", 1)
    assert run.error is not None
    assert run.error.startswith("ConnectionError: no database")
    assert run.error.endswith("not retried: give_up_on names ConnectionError")
    assert calls == ["one", "close ConnectionError('no database')"]


def test_an_after_that_raises_is_logged_and_changes_nothing(
    app: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    app.after(lambda _run, _error: calls.append("first"))

    @app.after
    def broken(run: RunContext, error: BaseException | None) -> None:
        raise SystemExit(3) if run.task == "work" else ValueError("no")

    app.task(name="work")(lambda: 7)

    @app.task(name="fail")
    def fail() -> None:
        raise LookupError("mine")

    app.start()
    run = ended(app, "work")
    assert (run.state, run.result) == ("succeeded", 7)
    assert [line.text for line in app.runs.logs(run.id)] == [
        "WARNING evenbeat: an after hook raised SystemExit: 3"
    ]
    failed = ended(app, "fail")
    assert failed.error is not None
    assert failed.error.startswith("LookupError: mine")
    assert calls == ["first", "first"]
    records = [record for record in caplog.records if record.getMessage() == "an after hook raised"]
    assert [record.levelno for record in records] == [logging.WARNING] * 2


def test_async_tasks_have_both_kinds_and_other_tasks_only_plain_ones(app: Scheduler) -> None:
    calls: list[str] = []

    @app.before
    async def opened(run: RunContext) -> None:
        await asyncio.sleep(0)
        VALUE.set("opened")
        calls.append(f"async before {run.task}")

    @app.before
    def plain(run: RunContext) -> None:
        calls.append(f"before {run.task}")

    @app.after
    async def closed(run: RunContext, error: BaseException | None) -> None:
        await asyncio.sleep(0)
        calls.append(f"async after {VALUE.get()} {type(error).__name__}")

    @app.task
    async def coroutine() -> str:
        return VALUE.get()

    @app.task
    def thread() -> str:
        return VALUE.get()

    app.start()
    assert ended(app, coroutine).result == "opened"
    assert calls == ["async before coroutine", "before coroutine", "async after opened NoneType"]
    calls.clear()
    assert ended(app, thread).result == "nothing"
    assert calls == ["before thread"]


def test_after_is_called_when_a_coroutine_or_a_thread_was_cancelled(app: Scheduler) -> None:
    calls: list[str] = []
    begun = {"coroutine": threading.Event(), "thread": threading.Event()}

    @app.after
    async def closed(run: RunContext, error: BaseException | None) -> None:
        await asyncio.sleep(0)
        calls.append(f"async {type(error).__name__}")

    @app.after
    def plain(run: RunContext, error: BaseException | None) -> None:
        calls.append(f"{run.task} {type(error).__name__}")

    @app.task
    async def coroutine() -> None:
        begun["coroutine"].set()
        await asyncio.Event().wait()

    @app.task
    def thread(run: RunContext) -> None:
        begun["thread"].set()
        pause = threading.Event()
        while not pause.wait(0.005):
            run.raise_if_cancelled()

    app.start()
    for task in ("coroutine", "thread"):
        run = app.enqueue(task)
        assert begun[task].wait(30)
        app.runs.cancel(run.id)
        assert app.runs.join(run.id, "30s").state == "cancelled"
    assert calls == ["coroutine CancelledError", "async CancelledError", "thread RunCancelled"]


def test_in_virtual_time() -> None:
    with virtual() as world:
        calls: list[str] = []

        @world.before
        async def opened(run: RunContext) -> None:
            VALUE.set("opened")

        @world.before
        def plain(run: RunContext) -> None:
            calls.append(run.task)

        @world.after
        def closed(run: RunContext, error: BaseException | None) -> None:
            calls.append(f"{VALUE.get()} {error!r}")

        @world.task
        async def coroutine() -> str:
            return VALUE.get()

        @world.task
        def thread() -> str:
            return VALUE.get()

        ids = [coroutine.enqueue().id, thread.enqueue().id]
        world.travel("1s")
        assert [world.runs.get(each).result for each in ids] == ["opened", "nothing"]
        assert calls == ["coroutine", "opened None", "thread", "nothing None"]


def test_in_a_process(tmp_path: Any) -> None:
    file = tmp_path / "hooked_jobs.py"
    file.write_text(
        f"""
import os
from contextvars import ContextVar
from evenbeat import Scheduler
app = Scheduler("memory://")
VALUE = ContextVar("VALUE")

@app.before
def first(run): VALUE.set(os.getpid())

@app.after
def last(run, error):
    with open({str(tmp_path / "after")!r}, "a") as notes: notes.write(f"{{os.getpid()}} {{error!r}}\\n")

@app.task(executor="process")
def work(fail: bool = False):
    if fail: raise LookupError("no")
    if os.fork() == 0: return "in the fork"
    os.wait()
    return VALUE.get()
"""
    )
    app = load_app(str(file))
    with app:
        run = app.runs.join(app.enqueue("work").id, "60s")
        failed = app.runs.join(app.enqueue("work", {"fail": True}).id, "60s")
    assert run.error is None
    assert run.result != os.getpid()
    assert failed.state == "failed"
    # Not in the fork, which ends where the function returns.
    expected = [f"{run.result} None", f"{run.result} LookupError('no')"]
    assert (tmp_path / "after").read_text().splitlines() == expected


@pytest.mark.parametrize("name", ["before", "after"])
def test_what_is_not_a_function_is_refused(app: Scheduler, name: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        getattr(app, name)(3)
    assert refused.value.field == name


def test_a_payload_that_does_not_fit_calls_no_hook() -> None:
    calls: list[str] = []
    with virtual() as world:
        world.before(lambda run: calls.append(run.task))

        @world.task
        def work(number: int) -> None: ...

        world.store.add_runs([RunRecord(id="r", task="work", payload='{"number": "x"}')])
        world.travel("1s")
        assert {each.outcome for each in world.runs.get("r").attempts} == {"handed back"}
    assert calls == []
