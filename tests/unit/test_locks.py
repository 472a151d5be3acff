"""Named locks as users hold them: waiting, renewing, and losing one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evenbeat import LockHeld, LockLost, Scheduler
from evenbeat.app import locks
from evenbeat.app.locks import Lock
from evenbeat.core import awaitable
from evenbeat.core.records import Record
from evenbeat.errors import InvalidValue, StoreUnavailable
from evenbeat.stores.memory import MemoryStore
from evenbeat.testing.clock import VirtualClock
from tests.unit.sleeping import replace_sleep


class Watched(MemoryStore):
    """Notes renewals, and can be away."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.is_away = False
        self.before_next_write: Callable[[], object] = bool
        self.renewed = threading.Event()
        self.asked = threading.Event()

    def _begin_write(self) -> None:
        before, self.before_next_write = self.before_next_write, bool
        before()
        if self.is_away:
            raise StoreUnavailable("away")

    def delete_record(self, kind: str, tenant: str, key: str, version: int) -> bool:
        self._begin_write()
        return super().delete_record(kind, tenant, key, version)

    def put_record(self, record: Record, expect: int | None = None) -> bool:
        if expect is not None:
            self.asked.set()
        self._begin_write()
        accepted = super().put_record(record, expect)
        if expect is not None and accepted:
            self.renewed.set()
        return accepted


@pytest.fixture
def store() -> Watched:
    return Watched(VirtualClock())


def lock_on(store: MemoryStore, ttl: str = "30s", timeout: str | None = "0s") -> Lock:
    return Lock(lambda: store, "import", ttl, timeout=timeout)


def test_a_lock_that_is_held_is_acquired_when_it_is_released(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = lock_on(store), lock_on(store)
    assert theirs.try_acquire()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            theirs.release()

    replace_sleep(monkeypatch, pause)
    mine.acquire()
    assert not theirs.try_acquire()
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


def test_acquiring_gives_up_at_its_timeout(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lock_on(store).try_acquire()
    seconds = [100.0]
    monkeypatch.setattr(locks, "steady_clock", lambda: seconds[0])
    replace_sleep(monkeypatch, lambda pause: seconds.__setitem__(0, seconds[0] + max(pause, 1e-3)))
    with pytest.raises(LockHeld, match="import"):
        lock_on(store).acquire("2s")
    assert 102 <= seconds[0] < 102.1
    with pytest.raises(LockHeld):
        lock_on(store).acquire("0s")
    with pytest.raises(LockHeld), lock_on(store, timeout="3s"):
        pass
    assert 105 <= seconds[0] < 105.2
    with pytest.raises(InvalidValue, match="timeout"):
        lock_on(store).acquire("soon")


def test_an_awaited_acquire_holds_no_thread_while_it_waits(store: Watched) -> None:
    async def everybody() -> None:
        assert await lock_on(store).atry_acquire()
        threads = threading.active_count()
        waiters = [asyncio.create_task(lock_on(store).aacquire()) for _ in range(100)]
        await asyncio.sleep(0.05)
        # Tries are short calls in at most 32 threads, not 100 calls that wait.
        assert threading.active_count() <= threads + 32
        for waiter in waiters:
            waiter.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError)
            for end in await asyncio.gather(*waiters, return_exceptions=True)
        )
        with pytest.raises(LockHeld):
            await lock_on(store).aacquire("30ms")
        with pytest.raises(LockHeld):
            async with lock_on(store):
                pass

    asyncio.run(everybody())


def test_a_with_block_renews_the_lock_and_releases_it(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "steady_clock", lambda: 5.0)  # it does not expire, however busy the machine is
    lock = lock_on(store, "150ms")
    with lock:
        assert store.renewed.wait(30)
        assert not lock.is_lost
        lock.raise_if_lost()
    assert lock_on(store).try_acquire()


def test_the_renewal_waits_for_a_store_that_comes_back(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "steady_clock", lambda: 5.0)
    with lock_on(store, "60s") as lock:
        assert isinstance(lock._renewal, locks._ThreadRenewal)
        lock._renewal._stopping.set()  # the thread of this lock sleeps for 20 s; this one is stepped by hand
        lock._renewal._thread.join(30)
        lock._renewal._stopping.clear()
        lock._renewal._ttl = 0.06
        store.is_away = True
        thread = threading.Thread(target=lock._renewal._renew)
        thread.start()
        assert store.asked.wait(30)
        assert not store.renewed.is_set()
        store.is_away = False
        assert store.renewed.wait(30)
        lock._renewal._stopping.set()
        thread.join(30)
        lock._renewal._ttl = 60


def test_a_lock_that_was_taken_away_is_lost_and_the_block_says_so(store: Watched) -> None:
    lock = lock_on(store, "90ms")

    def hold() -> None:
        with lock:
            held = store.get_record("lock", "default", "import")
            assert held is not None
            store.delete_record("lock", "default", "import", held.version)
            assert lock_on(store).try_acquire()
            assert isinstance(lock._renewal, locks._ThreadRenewal)
            lock._renewal._thread.join(30)
            assert lock.is_lost
            with pytest.raises(LockLost):
                lock.raise_if_lost()

    with pytest.raises(LockLost, match="import") as caught:
        hold()
    assert (caught.value.tenant, caught.value.name) == ("default", "import")
    # The other holder's lock is left alone, and this object can be used again.
    assert store.get_record("lock", "default", "import") is not None
    assert not lock.is_lost


def test_a_lock_is_lost_once_the_store_was_away_for_its_time(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [5.0]
    monkeypatch.setattr(locks, "steady_clock", lambda: seconds[0])

    async def hold() -> None:
        async with lock_on(store, "60s") as lock:
            assert not lock.is_lost
            seconds[0] = 64.9
            assert not lock.is_lost
            seconds[0] = 65.0
            assert lock.is_lost

    with pytest.raises(LockLost):
        asyncio.run(hold())


def test_the_error_of_the_block_comes_first(store: Watched) -> None:
    def hold() -> None:
        with lock_on(store) as lock:
            assert lock._renewal is not None
            lock._renewal._is_refused = True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hold()


def test_a_lock_is_entered_once_at_a_time(store: Watched) -> None:
    with lock_on(store) as lock, pytest.raises(InvalidValue, match="held by this object already"), lock:
        pass
    with lock:
        pass


def test_the_scheduler_hands_its_options_on() -> None:
    app = Scheduler("memory://")
    lock = app.lock("import", "1m", timeout=None, description="prices", tenant="acme")
    assert (lock.name, lock.ttl, lock._timeout, lock.description, lock.tenant) == (
        "import",
        "1m",
        None,
        "prices",
        "acme",
    )
    assert app.lock("import")._timeout == 0


def test_whoever_acquires_a_lock_again_holds_it_for_its_whole_time(store: Watched) -> None:
    lock = lock_on(store, "10s")
    assert lock.try_acquire()
    store.clock.advance("9s")
    assert lock.try_acquire()
    store.clock.advance("9s")
    assert not lock_on(store).try_acquire()


@pytest.mark.parametrize("call", ["extend", "release"])
def test_a_renewal_in_between_is_not_taken_for_a_loss(store: Watched, call: str) -> None:
    lock = lock_on(store)
    assert lock.try_acquire()
    store.before_next_write = lock.extend
    assert getattr(lock, call)()
    assert lock_on(store).try_acquire() == (call == "release")


def test_an_extension_by_hand_counts_inside_a_block(store: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [5.0]
    monkeypatch.setattr(locks, "steady_clock", lambda: seconds[0])

    def hold() -> None:
        with lock_on(store, "60s") as lock:
            seconds[0] = 60.0
            assert lock.extend()
            seconds[0] = 119.0
            assert not lock.is_lost
            seconds[0] = 120.0

    with pytest.raises(LockLost):
        hold()


def test_a_timeout_is_checked_also_if_the_lock_is_free(store: Watched) -> None:
    with pytest.raises(InvalidValue, match="timeout"):
        lock_on(store).acquire("soon")
    with pytest.raises(InvalidValue, match="timeout"):
        asyncio.run(lock_on(store).aacquire("soon"))
    assert lock_on(store).try_acquire()


@pytest.mark.parametrize("way", ["async with", "aacquire", "atry_acquire"])
def test_a_lock_is_not_held_after_its_acquisition_was_cancelled(
    store: Watched, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_on(store)
    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(awaitable, "_executor", threads)
    is_writing, may_write = threading.Event(), threading.Event()

    def wait() -> None:
        is_writing.set()
        assert may_write.wait(30)

    async def acquire() -> None:
        if way == "async with":
            async with lock:
                raise AssertionError("not reached")
        await getattr(lock, way)()

    async def cancel() -> None:
        store.before_next_write = wait
        acquiring = asyncio.create_task(acquire())
        while not is_writing.is_set():
            await asyncio.sleep(0.001)
        acquiring.cancel()
        await asyncio.sleep(0)
        acquiring.cancel()  # also one that is impatient
        threading.Timer(0.01, may_write.set).start()
        with pytest.raises(asyncio.CancelledError):
            await acquiring

    asyncio.run(cancel())
    threads.shutdown()
    assert lock._renewal is None
    assert lock_on(store).try_acquire()


def test_a_lock_is_released_though_the_end_of_its_block_is_cancelled(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_on(store)
    # No thread is free when the block ends: a call that waits for one can be cancelled before it begins.
    threads = ThreadPoolExecutor(1)
    monkeypatch.setattr(awaitable, "_executor", threads)
    may_end = threading.Event()

    async def hold() -> None:
        async with lock:
            threads.submit(may_end.wait, 30)

    async def cancel() -> None:
        holding = asyncio.create_task(hold())
        while lock._renewal is None:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        holding.cancel()
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await holding

    asyncio.run(cancel())
    threads.shutdown()
    assert lock._renewal is None
    assert lock_on(store).try_acquire()


@pytest.mark.parametrize("kind", ["with", "async with"])
def test_the_error_of_the_block_comes_first_also_if_the_store_is_away(store: Watched, kind: str) -> None:
    def hold() -> None:
        with lock_on(store):
            store.is_away = True
            raise ZeroDivisionError

    async def ahold() -> None:
        async with lock_on(store):
            store.is_away = True
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hold() if kind == "with" else asyncio.run(ahold())
    store.is_away = False
    lock = lock_on(store)
    store.clock.advance("1m")
    with pytest.raises(StoreUnavailable), lock:
        store.is_away = True


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_the_child_of_a_fork_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    app = Scheduler(f"sqlite:///{tmp_path}/evenbeat.db")
    lock = app.lock("import")
    with lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                lock.__exit__(None, None, None)  # as sys.exit() inside of the block does
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert not app.lock("import").try_acquire()
    app.close()
