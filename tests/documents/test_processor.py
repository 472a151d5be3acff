"""The processor in real threads: hooks, state, start and stop. Tests wait for events, with a deadline."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from evenbeat import InvalidTrigger, InvalidValue
from evenbeat.core.clocks import wall_clock
from evenbeat.core.instants import from_ms, to_ms
from evenbeat.documents import (
    HELD,
    Change,
    Document,
    DocumentLockLost,
    MemoryDocuments,
    Processor,
    Taken,
    runtime,
)
from evenbeat.errors import StoreUnavailable

LONG = 30.0


def wait(event: threading.Event) -> None:
    assert event.wait(LONG)


class Shop(MemoryDocuments):
    """Documents in memory, whose database can be unavailable."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        super().__init__(self.rows)
        self.is_away = False
        self.is_clock_away = False
        self.renewed = threading.Event()
        self.asked = threading.Event()
        self.opened = 0
        self.closed = 0

    def add(self, key: Any, **fields: Any) -> None:
        with self.lock:
            self.rows[key] = {"sleep_until": from_ms(wall_clock()), **fields}

    def due(self, key: Any) -> datetime | None:
        with self.lock:
            moment: datetime | None = self.rows[key]["sleep_until"]
            return moment

    def open(self) -> None:
        self.asked.set()
        self._check()
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def now(self) -> int:
        if self.is_clock_away:
            self._check()
        return super().now()

    def lock_next(self, duration: int, limit: int) -> Taken:
        self.asked.set()
        self._check()
        return super().lock_next(duration, limit)

    def update(self, changes: Sequence[Change]) -> list[bool]:
        self.asked.set()
        self._check()
        answers = super().update(changes)
        if any(change.sleep_until is not None for change in changes):
            self.renewed.set()
        return answers

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("nobody answers")


class Errors:
    """Collects the arguments of on_error."""

    def __init__(self) -> None:
        self.all: list[tuple[BaseException, Document | None]] = []
        self.came = threading.Event()

    def __call__(self, error: BaseException, document: Document | None) -> None:
        self.all.append((error, document))
        self.came.set()


def nothing(_document: Document) -> None:
    pass


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("evenbeat-twin"):
            continue  # the threads of twins stay for the next call
        thread.join(LONG)
        assert not thread.is_alive(), thread.name


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_PATIENCE", 0.3)


# Hooks


@pytest.mark.parametrize("is_async", [False, True])
def test_hooks_are_called_in_order(shop: Shop, is_async: bool) -> None:
    came: list[str] = []
    idle = threading.Event()

    def hook(name: str, event: threading.Event | None = None) -> Callable[..., Any]:
        def plain(*arguments: object) -> None:
            came.append(name)
            if event is not None:
                event.set()

        async def coroutine(*arguments: object) -> None:
            await asyncio.sleep(0)
            plain(*arguments)

        return coroutine if is_async else plain

    shop.add("a")
    processor = Processor(
        shop, hook("document"), on_start=hook("start"), on_stop=hook("stop"), on_idle=hook("idle", idle)
    )
    processor.start()
    wait(idle)
    assert processor.stop()
    assert came == ["start", "document", "idle", "stop"]
    assert (shop.opened, shop.closed) == (1, 1)
    assert shop.due("a") is None


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("oh"), SystemExit(3), KeyboardInterrupt()])
def test_a_hook_that_raises_does_not_stop_the_processor(
    shop: Shop, errors: Errors, is_async: bool, error: BaseException
) -> None:
    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    hook = coroutine if is_async else plain
    handled = threading.Event()
    processor = Processor(
        shop, lambda _: handled.set(), on_start=hook, on_stop=hook, on_idle=hook, on_error=errors
    )
    processor.start()
    wait(errors.came)
    shop.add("a")
    processor.hint()
    wait(handled)
    assert processor.stop()
    # on_start, on_stop, and on_idle: not at all if the document came first, else once or twice.
    assert len(errors.all) >= 2
    assert all(each == (error, None) for each in errors.all)


def test_an_error_of_on_stop_reaches_an_async_on_error(shop: Shop) -> None:
    reported: list[str] = []

    async def on_error(error: BaseException, document: Document | None) -> None:
        await asyncio.sleep(0.01)
        reported.append(str(error))

    def on_stop() -> None:
        raise RuntimeError("last words")

    with Processor(shop, nothing, on_stop=on_stop, on_error=on_error):
        pass
    assert reported == ["last words"]


@pytest.mark.parametrize("is_async", [False, True])
def test_on_error_gets_the_error_and_the_document(shop: Shop, is_async: bool) -> None:
    errors = Errors()

    async def coroutine(error: BaseException, document: Document | None) -> None:
        errors(error, document)

    failure = RuntimeError("oh")

    def handle(document: Document) -> None:
        raise failure

    shop.add("a", total=7)
    with Processor(shop, handle, on_error=coroutine if is_async else errors):
        wait(errors.came)
    ((error, document),) = errors.all
    assert error is failure
    assert document is not None
    assert document["total"] == 7


def test_on_error_that_raises_does_not_stop_the_processor(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    came = threading.Event()

    def handle(document: Document) -> None:
        if document.id == "good":
            came.set()
        else:
            raise RuntimeError("first")

    def on_error(error: BaseException, document: Document | None) -> None:
        raise RuntimeError("second")

    shop.add("bad")
    shop.add("good")
    with Processor(shop, handle, on_error=on_error):
        wait(came)
    assert "on_error raised" in caplog.text
    assert shop.due("bad") == HELD


def test_an_invalid_document_is_reported_and_held(shop: Shop, errors: Errors) -> None:
    shop.add("a", interval="61 * * * *")
    with Processor(shop, nothing, on_error=errors):
        wait(errors.came)
    ((error, document),) = errors.all
    assert isinstance(error, InvalidTrigger)
    assert document is not None
    assert document.id == "a"
    assert shop.due("a") == HELD


def test_errors_are_reported_while_all_slots_are_occupied(shop: Shop, errors: Errors) -> None:
    begun, release = threading.Event(), threading.Event()

    def handle(_document: Document) -> None:
        begun.set()
        wait(release)

    shop.add("a")
    with Processor(shop, handle, on_error=errors, lock_duration=0.1):
        wait(begun)
        shop.is_away = True  # a renewal is due soon
        wait(errors.came)
        shop.is_away = False
        release.set()
    assert isinstance(errors.all[0][0], StoreUnavailable)


# Flags, start and stop


def test_is_running_is_processing_and_is_idle(shop: Shop) -> None:
    idle, begun, release = threading.Event(), threading.Event(), threading.Event()
    seen: list[tuple[bool, bool, bool]] = []

    def see() -> None:
        seen.append((processor.is_running, processor.is_processing, processor.is_idle))

    def handle(_document: Document) -> None:
        see()
        begun.set()
        wait(release)

    processor = Processor(shop, handle, on_start=see, on_stop=see, on_idle=idle.set)
    see()
    processor.start()
    wait(idle)
    see()
    shop.add("a")
    processor.hint()
    wait(begun)
    release.set()
    processor.stop()
    see()
    assert seen == [
        (False, False, False),
        (True, False, False),  # on_start
        (True, False, True),
        (True, True, False),  # the handler
        (False, False, False),  # on_stop
        (False, False, False),
    ]


def test_starting_twice_is_refused(shop: Shop) -> None:
    starts: list[int] = []
    processor = Processor(shop, nothing, on_start=lambda: starts.append(1))
    processor.start()
    with pytest.raises(InvalidValue, match=r"the processor has been started already; stop\(\) it first"):
        processor.start()
    assert processor.is_running
    assert processor.stop()
    assert starts == [1]


@pytest.mark.parametrize("hook", ["on_start", "on_stop"])
def test_a_hook_of_a_processor_that_runs_or_stops_can_not_start_it(
    shop: Shop, errors: Errors, hook: str
) -> None:
    def start() -> None:
        processor.start()

    hooks: dict[str, Any] = {hook: start}
    processor = Processor(shop, nothing, on_error=errors, **hooks)
    processor.start()
    assert processor.stop()
    assert [str(error) for error, _ in errors.all] == [
        "the processor has been started already; stop() it first"
    ]


def test_it_starts_and_stops_in_an_event_loop(shop: Shop) -> None:
    idle = threading.Event()
    shop.add("a")
    processor = Processor(shop, nothing, on_idle=idle.set)

    async def main() -> None:
        await processor.astart()
        await asyncio.to_thread(wait, idle)
        assert await processor.astop()
        assert await processor.astop(timeout="1s")
        async with processor as started:
            assert started is processor
            assert processor.is_running
        assert not processor.is_running

    asyncio.run(main())
    assert shop.due("a") is None
    assert (shop.opened, shop.closed) == (2, 2)


def test_a_coroutine_of_its_own_can_stop_it_without_waiting_for_itself(shop: Shop) -> None:
    answers: list[bool] = []
    stopped = threading.Event()

    async def handle(_document: Document) -> None:
        answers.append(await processor.astop())

    shop.add("a")
    processor = Processor(shop, handle, on_stop=stopped.set)
    processor.start()
    wait(stopped)
    processor.stop()
    assert answers == [False]
    assert shop.due("a") is None


def test_drain_timeout_is_how_long_a_stop_waits(shop: Shop) -> None:
    begun, release = threading.Event(), threading.Event()

    def handle(_document: Document) -> None:
        begun.set()
        wait(release)

    shop.add("a")
    processor = Processor(shop, handle, drain_timeout=0)
    processor.start()
    wait(begun)
    assert not processor.stop()
    release.set()


def test_the_timeout_of_a_stop_overrides_drain_timeout(shop: Shop) -> None:
    begun, release = threading.Event(), threading.Event()

    def handle(_document: Document) -> None:
        begun.set()
        wait(release)

    shop.add("a")
    processor = Processor(shop, handle, drain_timeout=0)
    processor.start()
    wait(begun)
    threading.Timer(0.05, release.set).start()
    assert processor.stop(timeout=LONG)


def test_hurry_ends_the_wait_of_a_stop(shop: Shop) -> None:
    begun, release = threading.Event(), threading.Event()
    answers: list[bool] = []

    def handle(_document: Document) -> None:
        begun.set()
        wait(release)

    shop.add("a")
    processor = Processor(shop, handle)
    processor.hurry()  # does nothing: it does not run
    processor.start()
    wait(begun)
    stopper = threading.Thread(target=lambda: answers.append(processor.stop()))
    stopper.start()
    processor.hurry()
    stopper.join(LONG)
    assert answers == [False]
    release.set()


def test_stopping_twice_or_before_the_start_does_nothing(shop: Shop) -> None:
    stops: list[int] = []
    processor = Processor(shop, nothing, on_stop=lambda: stops.append(1))
    assert processor.stop()
    processor.start()
    assert processor.stop()
    assert processor.stop()
    assert stops == [1]


def test_stop_waits_for_handlers_that_run_and_takes_no_more_documents(shop: Shop) -> None:
    begun, release = threading.Event(), threading.Event()
    handled: list[str] = []

    def handle(document: Document) -> None:
        begun.set()
        wait(release)
        handled.append(document.id)

    shop.add("a")
    processor = Processor(shop, handle)
    processor.start()
    wait(begun)
    shop.add("b")
    answers: list[bool] = []
    stoppers = [threading.Thread(target=lambda: answers.append(processor.stop())) for _ in range(3)]
    for stopper in stoppers:
        stopper.start()
    assert not processor.stop(timeout=0.05)  # a later call waits as well
    assert answers == []
    release.set()
    for stopper in stoppers:
        stopper.join(LONG)
    assert answers == [True, True, True]
    assert handled == ["a"]
    assert shop.due("a") is None
    assert shop.due("b") is not None


@pytest.mark.parametrize("is_async", [False, True])
def test_stop_with_a_timeout_leaves_the_document_locked(
    shop: Shop, errors: Errors, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release, over = threading.Event(), threading.Event(), threading.Event()

    def handle(_document: Document) -> None:
        begun.set()
        wait(release)
        over.set()
        raise RuntimeError("too late")

    async def coroutine(_document: Document) -> None:
        begun.set()
        try:
            await asyncio.sleep(LONG)
        finally:
            over.set()

    shop.add("a", auto_remove=True)
    processor = Processor(shop, coroutine if is_async else handle, on_error=errors)
    processor.start()
    wait(begun)
    assert not processor.stop(timeout=0)
    assert not processor.is_running
    release.set()
    wait(over)  # the coroutine is cancelled, the thread goes on
    due = shop.due("a")
    assert due is not None
    assert to_ms(due) > wall_clock()
    assert errors.all == []


def test_it_can_be_started_again(shop: Shop) -> None:
    handled: list[str] = []
    came = threading.Event()

    async def handle(document: Document) -> None:
        handled.append(document.id)
        came.set()

    processor = Processor(shop, handle)
    for key in "abc":
        came.clear()
        shop.add(key)
        processor.start()
        wait(came)
        assert processor.stop()
    assert handled == ["a", "b", "c"]
    assert (shop.opened, shop.closed) == (3, 3)


def test_a_start_while_it_stops_waits_for_the_end_of_that(shop: Shop) -> None:
    stopping, release, starts = threading.Event(), threading.Event(), []

    def on_stop() -> None:
        stopping.set()
        wait(release)

    processor = Processor(shop, nothing, on_start=lambda: starts.append(1), on_stop=on_stop)
    processor.start()
    stopper = threading.Thread(target=processor.stop)
    stopper.start()
    wait(stopping)
    starter = threading.Thread(target=processor.start)
    starter.start()
    release.set()
    starter.join(LONG)
    stopper.join(LONG)
    assert processor.is_running
    assert processor.stop()
    assert starts == [1, 1]


@pytest.mark.parametrize("where", ["on_start", "on_document", "on_document, async", "on_idle", "on_error"])
def test_a_hook_or_handler_can_stop_it(shop: Shop, where: str) -> None:
    stopped = threading.Event()
    answers: list[bool] = []

    def stop(*_arguments: object) -> None:
        answers.append(processor.stop())

    async def stop_async(_document: Document) -> None:
        stop()

    def fail(_document: Document) -> None:
        raise RuntimeError("oh")

    handlers: dict[str, Callable[[Document], Any]] = {
        "on_document": stop,
        "on_document, async": stop_async,
        "on_error": fail,
    }
    hooks: dict[str, Any] = {} if where.startswith("on_document") else {where: stop}
    if where.startswith(("on_document", "on_error")):
        shop.add("a", interval="every 1s")
    processor = Processor(shop, handlers.get(where, nothing), on_stop=stopped.set, **hooks)
    processor.start()
    wait(stopped)
    processor.stop()  # waits until it has stopped
    assert answers == [False]
    if where.startswith("on_document"):
        due = shop.due("a")
        assert due is not None
        assert to_ms(due) < wall_clock() + 5000  # the result was written


def test_a_hook_may_stop_another_processor_and_wait_for_it(shop: Shop) -> None:
    other = Processor(Shop(), nothing)
    other.start()
    answers: list[bool] = []
    idle = threading.Event()

    def on_idle() -> None:
        answers.append(other.stop())
        idle.set()

    with Processor(shop, nothing, on_idle=on_idle):
        wait(idle)
    assert answers == [True]


def test_a_with_block_starts_and_stops_it(shop: Shop) -> None:
    came = threading.Event()
    shop.add("a")
    with Processor(shop, lambda _: came.set()) as processor:
        wait(came)
        seen = processor.is_running
    assert seen
    assert not processor.is_running
    assert shop.due("a") is None


def test_start_raises_what_is_wrong_with_the_documents(shop: Shop) -> None:
    def wrong() -> None:
        raise InvalidValue("there is no such table", field="table", value="x")

    shop.open = wrong  # type: ignore[method-assign]  # as for a missing table
    processor = Processor(shop, nothing)
    with pytest.raises(InvalidValue, match="no such table"):
        processor.start()
    assert not processor.is_running
    assert processor.stop()


def test_an_error_while_documents_are_closed_is_reported(shop: Shop, errors: Errors) -> None:
    def broken() -> None:
        raise OSError("already gone")

    shop.close = broken  # type: ignore[method-assign]  # as a driver may raise
    stops: list[int] = []
    processor = Processor(shop, nothing, on_stop=lambda: stops.append(1), on_error=errors)
    processor.start()
    assert processor.stop()
    assert stops == [1]
    assert [str(error) for error, _ in errors.all] == ["already gone"]


# Handlers


def test_concurrency_is_how_many_handlers_run_at_once(shop: Shop) -> None:
    for number in range(4):
        shop.add(number)
    together = threading.Barrier(4, timeout=LONG)
    with Processor(shop, lambda _: together.wait() and None, concurrency=4) as processor:
        pass
    assert not processor.is_processing
    assert [shop.due(number) for number in range(4)] == [None] * 4


def test_coroutines_run_together(shop: Shop) -> None:
    for number in range(50):
        shop.add(number)
    count, done = 0, threading.Event()
    all_here: list[asyncio.Event] = []

    async def handle(_document: Document) -> None:
        nonlocal count
        if not all_here:
            all_here.append(asyncio.Event())
        count += 1
        if count == 50:
            all_here[0].set()
            done.set()
        await all_here[0].wait()

    with Processor(shop, handle, concurrency=50):
        wait(done)
    assert [shop.due(number) for number in range(50)] == [None] * 50


class Asynchronous:
    def __init__(self) -> None:
        self.handled: list[str] = []

    async def __call__(self, document: Document) -> None:
        await asyncio.sleep(0)
        self.handled.append(document.id)

    async def method(self, document: Document) -> None:
        await self(document)

    def awaitable(self, document: Document) -> Any:
        return self(document)

    async def with_more(self, more: int, document: Document) -> None:
        await self(document)


def _forms() -> list[Callable[[Asynchronous], Any]]:
    return [
        lambda handler: handler,
        lambda handler: handler.method,
        lambda handler: handler.awaitable,
        lambda handler: functools.partial(handler.with_more, 5),
        lambda handler: functools.partial(handler),
    ]


@pytest.mark.parametrize("form", _forms())
def test_every_kind_of_async_handler_is_awaited(
    shop: Shop, errors: Errors, form: Callable[[Asynchronous], Any]
) -> None:
    handler = Asynchronous()
    idle = threading.Event()
    shop.add("a")
    with Processor(shop, form(handler), on_idle=idle.set, on_error=errors):
        wait(idle)
    assert handler.handled == ["a"]
    assert shop.due("a") is None
    assert errors.all == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_can_not_be_called_fails_like_any_other(
    shop: Shop, errors: Errors, is_async: bool
) -> None:
    # Its signature accepts any arguments, as that of some decorators.
    def plain(*_: object) -> None:
        (lambda: None)(*_)

    async def coroutine(*_: object) -> None:
        (lambda: None)(*_)

    shop.add("a")
    handler: Any = coroutine if is_async else plain
    with Processor(shop, handler, on_error=errors, on_failure="hold"):
        wait(errors.came)
    assert isinstance(errors.all[0][0], TypeError)
    assert shop.due("a") == HELD


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error", [RuntimeError("oh"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_the_processor_goes_on_whatever_a_handler_raises(
    shop: Shop, errors: Errors, is_async: bool, error: BaseException
) -> None:
    came = threading.Event()

    def plain(document: Document) -> None:
        if document.id == "b":
            came.set()
            return
        document.update(result="forgotten")
        raise error

    async def coroutine(document: Document) -> None:
        plain(document)

    shop.add("a")
    shop.add("b")
    with Processor(
        shop, coroutine if is_async else plain, on_error=errors, on_failure="retry", retry_delay="1h"
    ):
        wait(came)
        wait(errors.came)
    ((reported, document),) = errors.all
    assert reported is error
    assert document is not None
    assert document.id == "a"
    due = shop.due("a")
    assert due is not None
    assert to_ms(due) > wall_clock() + 3_000_000
    assert "result" not in shop.rows["a"]
    assert shop.due("b") is None


def test_a_task_that_a_handler_left_on_the_loop_can_not_end_the_process(shop: Shop) -> None:
    handled, came = [], threading.Event()

    async def leave() -> None:
        raise SystemExit(3)

    async def handle(document: Document) -> None:
        handled.append(asyncio.ensure_future(leave()))
        await asyncio.sleep(0.01)
        if document.id == "b":
            came.set()

    shop.add("a")
    shop.add("b")
    with Processor(shop, handle):
        wait(came)
    assert [task.exception().__class__ for task in handled] == [SystemExit, SystemExit]


def test_an_event_loop_that_a_handler_breaks_is_replaced(shop: Shop, errors: Errors) -> None:
    came = threading.Event()

    def fails() -> None:
        raise OSError("bad file descriptor")

    async def handle(document: Document) -> None:
        if document.id == "b":
            came.set()
            return
        loop: Any = asyncio.get_running_loop()
        loop._run_once = fails  # as if a file of the loop had been closed
        await asyncio.sleep(LONG)

    shop.add("a")
    shop.add("b")
    with Processor(shop, handle, on_error=errors):
        wait(came)
    assert [str(error) for error, _ in errors.all] == ["the event loop broke: OSError('bad file descriptor')"]
    assert shop.due("a") == HELD


def test_a_lock_is_renewed_while_the_handler_runs_and_no_other_gets_the_document(shop: Shop) -> None:
    begun, release, idle = threading.Event(), threading.Event(), threading.Event()
    handled: list[str] = []

    def handle(_document: Document) -> None:
        handled.append(threading.current_thread().name)
        begun.set()
        wait(release)

    shop.add("a")
    first = Processor(shop, handle, lock_duration=0.3)
    second = Processor(shop, handle, lock_duration=0.3, on_idle=idle.set)
    first.start()
    wait(begun)
    second.start()
    wait(idle)
    until = shop.due("a")
    for _ in range(4):
        shop.renewed.clear()
        wait(shop.renewed)
    assert until is not None
    assert (shop.due("a") or until) > until
    release.set()
    assert first.stop()
    assert second.stop()
    assert len(handled) == 1
    assert shop.due("a") is None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_whose_lock_is_lost_is_cancelled_or_finds_out(
    shop: Shop, errors: Errors, is_async: bool
) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def coroutine(_document: Document) -> None:
        begun.set()
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def plain(document: Document) -> None:
        begun.set()
        while not cancelled.wait(0.001):
            try:
                document.raise_if_lost()
            except DocumentLockLost:
                cancelled.set()
                raise

    shop.add("a")
    with Processor(shop, coroutine if is_async else plain, lock_duration=0.2, on_error=errors):
        wait(begun)
        with shop.lock:
            shop.rows["a"]["sleep_until"] = HELD
        wait(cancelled)
        wait(errors.came)
    ((error, document),) = errors.all
    assert isinstance(error, DocumentLockLost)
    assert document is not None
    assert document.is_lost
    assert shop.due("a") == HELD


def test_a_hint_is_quicker_than_the_next_poll(shop: Shop) -> None:
    idle, came = threading.Event(), threading.Event()
    with Processor(shop, lambda _: came.set(), on_idle=idle.set, idle_delay="1h") as processor:
        wait(idle)
        shop.add("a")
        processor.hint()
        wait(came)
    processor.hint()  # does nothing: it does not run


# An unavailable database


def test_a_processor_retries_while_the_database_is_unavailable_at_its_start(
    shop: Shop, errors: Errors
) -> None:
    came = threading.Event()
    shop.add("a")
    shop.is_away = True
    with Processor(shop, lambda _: came.set(), on_error=errors) as processor:
        assert processor.is_running
        wait(errors.came)
        shop.is_away = False
        wait(came)
    assert [type(error) for error, _ in errors.all] == [StoreUnavailable]
    assert errors.all[0][1] is None


def test_a_processor_goes_on_after_an_outage_of_the_database(shop: Shop, errors: Errors) -> None:
    begun, release, came = threading.Event(), threading.Event(), threading.Event()

    def handle(document: Document) -> None:
        if document.id == "a":
            begun.set()
            wait(release)
        else:
            came.set()

    shop.add("a")
    with Processor(shop, handle, on_error=errors):
        wait(begun)
        shop.is_away = True
        release.set()
        wait(errors.came)  # its result can't be written
        for _ in range(2):
            shop.asked.clear()
            wait(shop.asked)
        assert len(errors.all) == 1  # only the first of equal errors is reported
        shop.is_away = False
        shop.add("b")
        wait(came)
    assert shop.due("a") is None
    assert len(errors.all) == 1


@pytest.mark.parametrize("with_clock", [False, True])
def test_a_stop_without_held_documents_does_not_need_the_database(shop: Shop, with_clock: bool) -> None:
    idle = threading.Event()
    processor = Processor(shop, nothing, on_idle=idle.set)
    processor.start()
    wait(idle)
    shop.is_away, shop.is_clock_away = True, with_clock
    assert processor.stop()


@pytest.mark.parametrize("with_clock", [False, True])
@pytest.mark.usefixtures("impatient")
def test_a_stop_gives_up_on_results_that_it_can_not_write(shop: Shop, with_clock: bool) -> None:
    begun, release = threading.Event(), threading.Event()

    def handle(_document: Document) -> None:
        begun.set()
        wait(release)

    shop.add("a")
    processor = Processor(shop, handle)
    processor.start()
    wait(begun)
    shop.is_away, shop.is_clock_away = True, with_clock
    release.set()
    assert not processor.stop()
    assert shop.due("a") is not None


# Options


def test_a_document_is_locked_for_ten_minutes_by_default(shop: Shop) -> None:
    locked: list[int] = []
    begun = threading.Event()

    def handle(_document: Document) -> None:
        until = shop.due("a")
        assert until is not None
        locked.append(to_ms(until) - wall_clock())
        begun.set()

    shop.add("a")
    with Processor(shop, handle):
        wait(begun)
    # On a busy machine, some time passes between the lock and the handler.
    assert 540_000 < locked[0] < 660_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_document": 5}, r"on_document 5 is not a function; give a def or async def on_document\(doc"),
        (
            {"on_document": lambda: 5},
            r"<lambda>\(\) can't be called with 1 arguments: too many.*; give a def",
        ),
        ({"on_error": lambda _: 5}, r"\(_\) can't be called with 2 arguments: too many"),
        ({"on_idle": lambda _: 5}, r"\(_\) can't be called with 0 arguments: missing"),
        ({"documents": {}}, "documents {} is not a document store; wrap it"),
        ({"on_idle": "x"}, r'on_idle "x" is not a function; give a def or async def on_idle\(\)'),
        (
            {"on_error": 1},
            r"on_error 1 is not a function; give a def or async def on_error\(error, document\)",
        ),
        ({"concurrency": 0}, "concurrency 0 is not a whole number of 1 to 10,000"),
        ({"concurrency": True}, "concurrency True is not a whole number"),
        ({"concurrency": 2.0}, r"concurrency 2\.0 is not a whole number"),
        ({"lock_duration": 0}, "lock_duration 0 is too short; 100ms at least"),
        ({"lock_duration": "soon"}, "lock_duration"),
        ({"next_delay": -1}, "next_delay -1 is negative"),
        ({"idle_delay": None}, "idle_delay None is not a duration"),
        ({"reprocess_delay": "1x"}, "reprocess_delay"),
        ({"retry_delay": "x"}, "retry_delay"),
        ({"drain_timeout": "x"}, "drain_timeout"),
        ({"on_failure": "ignore"}, 'on_failure "ignore" is not known; there are reschedule, retry, hold'),
    ],
)
def test_invalid_options_are_refused_by_name(shop: Shop, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words) as caught:
        Processor(**{"documents": cast(Any, shop), "on_document": nothing} | options)
    assert caught.value.field == next(iter(options))


def test_an_invalid_timeout_is_refused_and_stops_nothing(shop: Shop) -> None:
    with Processor(shop, nothing) as processor:
        with pytest.raises(InvalidValue, match="timeout"):
            processor.stop(timeout="soon")
        assert processor.is_running


@pytest.mark.parametrize("is_async", [False, True])
def test_a_thread_that_can_not_be_started_is_tried_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    handled = threading.Event()
    refusals = iter([True])
    start = threading.Thread.start

    def unsteady(thread: threading.Thread) -> None:
        if thread.name.startswith(("evenbeat-document-", "evenbeat-documents-async")) and next(
            refusals, False
        ):
            raise RuntimeError("can't start new thread")
        start(thread)

    async def coroutine(document: Document) -> None:
        handled.set()

    monkeypatch.setattr(threading.Thread, "start", unsteady)
    shop.add("a")
    processor = Processor(shop, coroutine if is_async else lambda _: handled.set())
    processor.start()
    wait(handled)
    assert processor.stop()
    assert shop.due("a") is None


# Processes

PROGRAM = """
import signal, sys
from datetime import UTC, datetime
from evenbeat.documents import MemoryDocuments, Processor

rows = {"a": {"sleep_until": datetime(2026, 1, 1, tzinfo=UTC)}}

def on_document(document):
    # Until run() has set its handlers, signals have their default effect.
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        pass
    print("began", document.id, flush=True)
    sys.stdin.readline()
    print("ended", document.id, flush=True)

signal.setitimer(signal.ITIMER_REAL, 60)  # the test must not hang
processor = Processor(MemoryDocuments(rows), on_document, on_stop=lambda: print("stopped", flush=True))
print("answer", processor.run(), [key for key, row in rows.items() if row["sleep_until"] is None], flush=True)
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def test_a_signal_drains_the_processor(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "began a\n"
    program.send_signal(signal.SIGTERM)
    program.stdin.write("go on\n")
    program.stdin.flush()
    assert program.stdout.read().splitlines() == ["ended a", "stopped", "answer True ['a']"]
    assert program.wait(LONG) == 0


def test_a_second_signal_does_not_wait_for_handlers(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    assert program.stdout.readline() == "began a\n"
    program.send_signal(signal.SIGTERM)
    program.send_signal(signal.SIGINT)
    assert program.stdout.read().splitlines() == ["stopped", "answer False []"]
    assert program.wait(LONG) == 0


def test_run_ends_when_a_hook_stops_it() -> None:
    program = """
from datetime import UTC, datetime
from evenbeat.documents import MemoryDocuments, Processor

rows = {1: {"sleep_until": datetime(2026, 1, 1, tzinfo=UTC)}}
processor = Processor(MemoryDocuments(rows), print, on_idle=lambda: processor.stop())
print("answer", processor.run(), rows, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=True
    )
    assert done.stdout.splitlines() == ["<Document 1>", "answer True {1: {'sleep_until': None}}"]


def test_run_outside_the_main_thread_says_what_to_do(shop: Shop) -> None:
    caught: list[InvalidValue] = []

    def elsewhere() -> None:
        try:
            Processor(shop, nothing).run()
        except InvalidValue as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(LONG)
    assert "use start() and stop() here" in str(caught[0])
    assert shop.opened == 0


CHILD = """
import os, threading
from evenbeat.documents import MemoryDocuments, Processor

idle = threading.Event()
processor = Processor(MemoryDocuments({}), print, on_idle=idle.set, on_stop=lambda: print("stop", flush=True))
processor.start()
assert idle.wait(60)
if os.fork() == 0:
    print(processor.is_running, processor.is_idle, processor.is_processing, processor.stop(), flush=True)
    with processor:
        print(processor.is_running, flush=True)
    os._exit(0)
os.wait()
print(processor.is_running, flush=True)
processor.stop()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_process_does_not_run_the_processor_of_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CHILD],
        capture_output=True,
        text=True,
        timeout=2 * LONG,
        check=False,
    )
    words = ["False False False True", "True", "stop", "True", "stop"]
    assert done.stdout.splitlines() == words, done.stderr


FORKS = """
import os, sys, threading
from datetime import UTC, datetime
from evenbeat.documents import MemoryDocuments, Processor

rows = {"a": {"sleep_until": datetime(2026, 1, 1, tzinfo=UTC), "auto_remove": True}}
idle = threading.Event()
main = os.getpid()

def fork():
    if os.fork() == 0:
        print("child", flush=True)
    else:
        os.wait()

def on_document(document):
    fork()

async def on_document_async(document):
    fork()

def on_idle():
    if "idle" in sys.argv:
        fork()
    idle.set()

on_stop = lambda: print("stop", os.getpid() == main, flush=True)
handler = on_document_async if "async" in sys.argv else on_document
with Processor(MemoryDocuments(rows), handler, on_stop=on_stop, on_idle=on_idle):
    assert idle.wait(60)
print("end", os.getpid() == main, rows, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.parametrize("how", ["def", "async", "idle"])
def test_a_forked_child_ends_where_its_function_does(how: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, how],
        capture_output=True,
        text=True,
        timeout=2 * LONG,
        check=False,
    )
    children = 2 if how == "idle" else 1
    assert done.stdout.splitlines() == ["child"] * children + ["stop True", "end True {}"], done.stderr
