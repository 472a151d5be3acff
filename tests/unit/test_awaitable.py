"""Async twins: threads of their own, and waits that hold none."""

from __future__ import annotations

import asyncio
import os
import threading
from contextvars import ContextVar

import pytest

from evenbeat import RunNotFound, Scheduler
from evenbeat.core.awaitable import twin
from evenbeat.stores.memory import MemoryStore

_who: ContextVar[str] = ContextVar("who", default="nobody")


def test_a_twin_has_the_context_of_its_caller() -> None:
    def where() -> tuple[str, str]:
        return _who.get(), threading.current_thread().name

    async def ask() -> tuple[str, str]:
        _who.set("anna")
        return await twin(where)()

    who, thread = asyncio.run(ask())
    assert who == "anna"
    assert thread.startswith("evenbeat-twin")


def test_many_who_wait_for_runs_leave_threads_to_others() -> None:
    app = Scheduler("memory://")
    app.task(name="never")(lambda: None)
    run = app.enqueue("never")

    async def everybody() -> None:
        waiters = [asyncio.create_task(app.runs.ajoin(run.id)) for _ in range(100)]
        await asyncio.sleep(0)
        # asyncio's own executor is free: six waiters used to take all its threads on two cores.
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 30) == "free"
        assert (await asyncio.wait_for(app.runs.aget(run.id), 30)).state == "queued"
        app.runs.cancel(run.id)
        ended = await asyncio.wait_for(asyncio.gather(*waiters), 60)
        assert {each.state for each in ended} == {"cancelled"}

    asyncio.run(everybody())


def test_a_wait_ends_at_its_timeout_and_when_it_is_cancelled() -> None:
    app = Scheduler("memory://")
    app.task(name="never")(lambda: None)
    run = app.enqueue("never")

    async def wait() -> None:
        assert (await app.runs.ajoin(run.id, "30ms")).state == "queued"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app.runs.ajoin(run.id), 0.03)
        with pytest.raises(RunNotFound):
            await app.runs.ajoin("nobody")

    asyncio.run(wait())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork with threads: what is tested
def test_a_forked_child_has_threads_of_its_own() -> None:
    async def ask() -> str:
        return await twin(lambda: "here")()

    assert asyncio.run(ask()) == "here"
    pid = os.fork()
    if pid == 0:
        os._exit(0 if asyncio.run(asyncio.wait_for(ask(), 30)) == "here" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_store_is_not_opened_on_the_event_loop() -> None:
    opened: list[threading.Thread] = []

    class Noted(MemoryStore):
        def open(self) -> None:
            opened.append(threading.current_thread())
            super().open()

    async def join() -> None:
        with pytest.raises(RunNotFound):
            await Scheduler(Noted()).runs.ajoin("none")

    asyncio.run(join())
    assert opened
    assert opened[0] is not threading.current_thread()
