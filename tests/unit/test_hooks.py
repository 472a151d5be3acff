"""Hooks of a scheduler: called in place or awaited, and on which event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evenbeat import Event, Scheduler
from evenbeat.executors.coroutine_pool import EventLoop
from evenbeat.testing import virtual


@pytest.fixture
def app() -> Iterator[Scheduler]:
    app = Scheduler("memory://")
    yield app
    app.stop()


def test_async_hooks_are_awaited(app: Scheduler) -> None:
    called: list[str] = []
    failed, idle = threading.Event(), threading.Event()

    @app.on_start
    async def begin() -> None:
        await asyncio.sleep(0)
        called.append("start")

    @app.on_stop
    async def end() -> None:
        await asyncio.sleep(0)
        called.append("stop")

    @app.on_error
    async def error(event: Event) -> None:
        await asyncio.sleep(0)
        called.append(event.kind)
        failed.set()

    @app.on_event
    async def event(event: Event) -> None:
        await asyncio.sleep(0)
        if event.kind == "node_started":
            called.append(event.kind)

    @app.on_idle
    async def rests() -> None:
        await asyncio.sleep(0)
        idle.set()

    @app.task
    def fails() -> None:
        raise ValueError("no")

    app.start()
    assert called == ["node_started", "start"]
    fails.enqueue()
    assert failed.wait(30)
    assert idle.wait(30)
    app.stop()
    assert called == ["node_started", "start", "failed", "stop"]
    assert not [thread for thread in threading.enumerate() if thread.name == "evenbeat-hooks"]


def test_hooks_and_async_tasks_share_an_event_loop(app: Scheduler) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    app.on_start(note)
    app.on_stop(note)

    @app.task
    async def work() -> None:
        await note()

    app.start()
    assert app.runs.join(work.enqueue().id, "60s").state == "succeeded"
    app.stop()
    assert len(loops) == 3
    assert len(set(loops)) == 1


def test_an_async_hook_that_raises_keeps_the_node_from_starting(app: Scheduler) -> None:
    @app.on_start
    async def begin() -> None:
        raise OSError("no connection")

    with pytest.raises(OSError, match="no connection"):
        app.start()
    assert not app.is_running


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("hook", ["on_stop", "on_idle", "on_event", "task"])
def test_a_hook_or_a_task_may_stop_the_scheduler(app: Scheduler, hook: str, kind: str) -> None:
    answers: list[bool] = []
    called, stopped = threading.Event(), threading.Event()

    def stops(*_: Event) -> None:
        if not called.is_set() and app.node is not None:
            called.set()
            answers.append(app.stop())

    async def astops(*_: Event) -> None:
        if not called.is_set() and app.node is not None:
            called.set()
            answers.append(await app.astop())

    chosen: Callable[..., object] = astops if kind == "async def" else stops

    async def nothing() -> None: ...

    app.task(nothing)  # so that there is an event loop of tasks
    if hook == "task":

        async def aends() -> None:
            await astops()

        app.task(name="ends")(aends if kind == "async def" else lambda: stops())
    else:
        getattr(app, hook)(chosen)
    app.on_stop(stopped.set)
    app.start()
    if hook == "on_stop":
        assert app.stop()
    else:
        app.enqueue("ends" if hook == "task" else "nothing")
    assert stopped.wait(30)
    app.stop()
    assert not app.is_running
    assert answers == [False]
    assert app.runs.count().get("running", 0) == 0


def test_a_second_stop_has_the_answer_of_the_first_and_its_own_timeout(app: Scheduler) -> None:
    begun, go = threading.Event(), threading.Event()

    @app.task
    def waits() -> None:
        begun.set()
        go.wait(60)

    app.start()
    waits.enqueue()
    assert begun.wait(30)
    first: list[bool] = []
    stopping = threading.Thread(target=lambda: first.append(app.stop("60s")))
    stopping.start()
    while app.is_running:
        stopping.join(0.01)
    assert not app.stop("10ms")
    app.hurry()
    assert not app.stop()
    stopping.join(30)
    assert first == [False]
    go.set()


def test_async_hooks_are_awaited_in_virtual_time() -> None:
    kinds: list[str] = []
    with virtual() as scheduler:

        @scheduler.on_event
        async def event(event: Event) -> None:
            await asyncio.sleep(0)
            kinds.append(event.kind)

        @scheduler.task
        def work() -> None: ...

        work.enqueue()
        scheduler.run_pending()
    assert kinds == ["started", "succeeded", "idle"]
    assert not [thread for thread in threading.enumerate() if thread.name == "evenbeat-hooks"]


def test_an_event_loop_returns_answers_and_errors() -> None:
    loop = EventLoop("test-loop")

    async def answer() -> int:
        await asyncio.sleep(0)
        return 7

    async def too_late() -> None:
        raise TimeoutError("its own")

    assert loop.run(answer) == 7
    with pytest.raises(TimeoutError, match="its own"):
        loop.run(too_late)

    async def waits_for_itself() -> None:
        loop.run(answer)

    with pytest.raises(RuntimeError, match="can't wait"):
        loop.run(waits_for_itself)
    loop.stop()
    with pytest.raises(RuntimeError, match="has stopped"):
        loop.run(answer)


def test_an_async_listener_is_notified_when_the_node_has_stopped(
    app: Scheduler, caplog: pytest.LogCaptureFixture
) -> None:
    kinds: list[str] = []

    @app.on_event
    async def event(event: Event) -> None:
        await asyncio.sleep(0)
        kinds.append(event.kind)

    @app.task
    async def work() -> None: ...

    app.start()
    app.stop()
    assert kinds[-2:] == ["node_stopping", "node_stopped"]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_hook_that_nobody_waits_for_any_more_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = EventLoop("test-loop")
    began, cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt(answer: concurrent.futures.Future[object], timeout: float) -> None:
        assert began.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(concurrent.futures.Future, "exception", interrupt)
    with pytest.raises(KeyboardInterrupt):
        loop.run(wait)
    monkeypatch.undo()
    assert cancelled.wait(30)
    loop.stop()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("is_closed", [True, False])
def test_a_loop_that_stops_before_it_takes_a_coroutine_lets_its_caller_go(
    is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = EventLoop("test-loop")

    async def answer() -> None: ...

    loop.run(answer)
    submit = asyncio.run_coroutine_threadsafe

    def too_late(awaited: Any, on: asyncio.AbstractEventLoop) -> concurrent.futures.Future[Any]:
        loop.stop(30)
        if is_closed:
            return submit(awaited, on)
        return concurrent.futures.Future()  # the loop never takes it

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", too_late)
    with pytest.raises(RuntimeError, match="stopped"):
        loop.run(answer)
    gc.collect()
