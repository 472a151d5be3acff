"""The pool of coroutines: every job ends once, also when the pool is stopped or its loop breaks."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from evenbeat.executors.coroutine_pool import CoroutinePool

LONG = 30.0

number: ContextVar[int] = ContextVar("number", default=0)


class Job:
    def __init__(self, function: Callable[[], Awaitable[Any]]) -> None:
        self.function = function
        self.results: list[Any] = []
        self.is_dropped = False
        self.is_cancelled = False
        self.over = threading.Event()

    def result(self) -> Any:
        assert self.over.wait(LONG)
        assert len(self.results) == 1
        return self.results[0]


class Jobs(CoroutinePool[Job, Any]):
    def _is_cancelled(self, job: Job) -> bool:
        return job.is_cancelled

    async def _execute(self, job: Job) -> Any:
        try:
            return await job.function()
        except BaseException as error:
            return error

    def _broken(self, error: Exception) -> Any:
        return f"broken: {error}"

    def _finish(self, job: Job, result: Any) -> None:
        job.results.append(result)
        job.over.set()

    def _drop(self, job: Job) -> None:
        job.is_dropped = True
        job.over.set()


@pytest.fixture
def pool() -> Iterator[Jobs]:
    pool = Jobs("test-pool")
    yield pool
    pool.stop(LONG)
    assert pool._thread is None or not pool._thread.is_alive()


def test_a_stop_cancels_coroutines_and_awaits_their_ends(pool: Jobs) -> None:
    begun = threading.Event()

    async def cleans_up() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            for _ in range(10):
                await asyncio.sleep(0.001)
        return "cleaned up"

    job = Job(cleans_up)
    pool.submit([job])
    assert begun.wait(LONG)
    pool.stop(LONG)
    assert job.results == ["cleaned up"]


def test_a_stop_awaits_tasks_that_a_job_has_started(pool: Jobs) -> None:
    begun, ended = threading.Event(), threading.Event()
    tasks: list[asyncio.Task[None]] = []

    async def lasts() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.001)
            ended.set()

    async def starts() -> None:
        tasks.append(asyncio.create_task(lasts()))

    pool.submit([Job(starts)])
    assert begun.wait(LONG)
    pool.stop(LONG)
    assert ended.is_set()


def test_a_stopped_pool_drops_jobs_that_it_has_not_begun() -> None:
    pool = Jobs("test-pool", slots=1)
    begun, gate = threading.Event(), threading.Event()

    async def blocks() -> None:
        begun.set()
        assert gate.wait(LONG)

    async def works() -> None:
        pass

    first, waiting, late = Job(blocks), Job(works), Job(works)
    pool.submit([first, waiting])
    assert begun.wait(LONG)
    pool.stop(0)
    pool.submit([late])
    assert late.is_dropped
    gate.set()
    assert first.result() is None
    assert waiting.over.wait(LONG)
    assert waiting.is_dropped
    pool.stop(LONG)


def test_a_pool_that_never_began_drops_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def works() -> None:
        pass

    pool, job = Jobs("test-pool"), Job(works)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        pool.submit([job])
    pool.stop()
    assert job.is_dropped


def test_an_empty_submit_starts_the_thread_that_could_not_be_started(
    pool: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def works() -> int:
        return 1

    job = Job(works)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        pool.submit([job])
    pool.submit([])
    assert job.result() == 1


def test_a_job_does_not_see_the_context_of_another(pool: Jobs) -> None:
    pool = Jobs("test-pool", slots=1)

    async def sets() -> int:
        number.set(7)
        return number.get()

    async def reads() -> int:
        return number.get()

    number.set(5)  # nor that of the caller
    first, second = Job(sets), Job(reads)
    pool.submit([first, second])
    assert (first.result(), second.result()) == (7, 0)
    pool.stop(LONG)


def test_a_job_that_was_cancelled_while_it_waited_is_interrupted(pool: Jobs) -> None:
    async def sleeps() -> None:
        await asyncio.sleep(3600)

    job = Job(sleeps)
    job.is_cancelled = True
    pool.submit([job])
    assert isinstance(job.result(), asyncio.CancelledError)


def test_only_the_thread_of_the_pool_is_here(pool: Jobs) -> None:
    async def asks() -> bool:
        return pool.is_here

    job = Job(asks)
    pool.submit([job])
    assert job.result() is True
    assert not pool.is_here


def test_jobs_on_a_loop_that_breaks_end_once_and_others_go_on(
    pool: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    def fails() -> None:
        raise OSError("bad file descriptor")

    async def lasts() -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def breaks() -> None:
        loop: Any = asyncio.get_running_loop()
        loop._run_once = fails  # as if a file of the loop had been closed
        await asyncio.sleep(3600)

    async def works() -> int:
        return 1

    other, broken, after = Job(lasts), Job(breaks), Job(works)
    pool.submit([other])
    assert begun.wait(LONG)
    pool.submit([broken])
    assert other.result() == broken.result() == "broken: bad file descriptor"
    pool.submit([after])
    assert after.result() == 1
    gc.collect()
    # The pool has reported both: asyncio does not add that their tasks never ended.
    assert [record.getMessage() for record in caplog.records] == ["the event loop broke, and is replaced"]
