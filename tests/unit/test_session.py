"""What the parts of a scheduler share: one store, opened when it is needed, and names that are checked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from evenbeat import InvalidValue, LockHeld, Scheduler
from evenbeat.app.locks import Lock, extend, new_token, release, try_acquire
from evenbeat.app.session import AppSession
from evenbeat.stores.memory import MemoryStore
from evenbeat.tasks.task import Tasks
from evenbeat.testing import VirtualClock

WRONG = ["", "a b", "a\x00", "\ud800"]


class Counting(MemoryStore):
    def __init__(self) -> None:
        super().__init__(VirtualClock())
        self.opened = 0
        self.closed = 0

    def open(self) -> None:
        self.opened += 1

    def close(self) -> None:
        self.closed += 1


def test_a_store_is_opened_once_when_it_is_first_needed_and_again_after_it_was_closed() -> None:
    store = Counting()
    session = AppSession(store, Tasks(), "default")
    assert session.unopened() is store
    assert store.opened == 0
    assert session.store() is session.store() is store
    assert store.opened == 1
    session.close()
    assert store.closed == 1
    assert session.store() is store
    assert store.opened == 2


def test_a_store_that_stands_in_is_opened_and_closed_and_the_other_left_alone() -> None:
    store, other = Counting(), Counting()
    session = AppSession(store, Tasks(), "default")
    session.store()
    with session.replaced(other):
        assert other.opened == 0
        assert session.store() is other
    assert (other.opened, other.closed) == (1, 1)
    assert session.store() is store
    assert (store.opened, store.closed) == (1, 0)


@pytest.mark.parametrize("name", WRONG, ids=ascii)
def test_a_tenant_that_there_can_not_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Scheduler(Counting(), tenant=name)
    assert refused.value.field == "tenant"
    app = Scheduler(Counting())
    with pytest.raises(InvalidValue) as refused:
        app.enqueue("work", tenant=name)
    assert refused.value.field == "tenant"
    with pytest.raises(InvalidValue) as refused:
        app.runs.list(tenant=name)
    assert refused.value.field == "tenant"


@pytest.mark.parametrize("name", ["", "a\x00"], ids=ascii)
def test_a_task_that_there_can_not_be_is_refused(name: str) -> None:
    app = Scheduler(Counting())
    for call in (lambda: app.enqueue(name), lambda: app.schedules.add("beat", "every 1h", name)):
        with pytest.raises(InvalidValue) as refused:
            call()
        assert refused.value.field == "task"


def test_a_payload_is_given_once_and_by_name() -> None:
    app = Scheduler(Counting())
    work = app.task(name="work")(lambda value=0: value)
    wrong: Any = [1]
    with pytest.raises(InvalidValue, match="not an object of named arguments"):
        app.enqueue("work", wrong)
    with pytest.raises(InvalidValue, match="has its payload already"):
        app.enqueue(work.bind(value=1), {"value": 2})
    assert app.enqueue(work.bind(value=1)).payload == {"value": 1}
    assert app.enqueue(work, {"value": 2}).payload == {"value": 2}
    assert app.enqueue("elsewhere", {"anything": 3}).payload == {"anything": 3}
    assert app.enqueue("elsewhere").payload is None


# -- locks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRONG, ids=ascii)
def test_a_lock_that_there_can_not_be_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        Lock(Counting, name, "30s")
    assert refused.value.field == "lock"
    with pytest.raises(InvalidValue) as refused:
        try_acquire(Counting(), name, "30s", new_token())
    assert refused.value.field == "lock"


def test_a_lock_of_no_duration_is_refused_where_it_is_made() -> None:
    with pytest.raises(InvalidValue) as refused:
        Lock(Counting, "import", "soon")
    assert refused.value.field == "ttl"


def test_nobody_extends_or_releases_what_is_not_held() -> None:
    store = Counting()
    lock = Lock(lambda: store, "import", "30s")
    assert lock.extend() is False
    assert lock.release() is False
    assert extend(store, "import", "30s", "mine") is False
    assert release(store, "import", "mine") is False
    assert lock.try_acquire()
    assert extend(store, "import", "30s", "mine") is False
    assert release(store, "import", "mine") is False
    assert lock.release() is True


def test_a_lock_is_a_context_manager_of_both_kinds() -> None:
    store = Counting()
    lock, other = Lock(lambda: store, "import", "30s"), Lock(lambda: store, "import", "30s")
    assert lock.tenant == "default"
    with lock as held:
        assert held is lock
        assert not other.try_acquire()

    async def hold() -> None:
        async with lock as held:
            assert held is lock
            with pytest.raises(LockHeld, match="import"):
                await other.__aenter__()
        assert other.try_acquire()

    asyncio.run(hold())


def test_a_release_that_is_repeated_does_not_end_a_later_hold() -> None:
    store = Counting()
    lock = Lock(lambda: store, "import", "30s")
    assert lock.try_acquire()
    before = lock.token
    assert lock.release()
    assert lock.try_acquire()
    assert lock.token != before
    assert release(store, "import", before) is False
    assert not Lock(lambda: store, "import", "30s").try_acquire()
    assert Lock(lambda: store, "import", "30s", "acme").try_acquire()


def test_an_acquire_that_is_repeated_holds_the_lock_from_then_on() -> None:
    store = Counting()
    assert try_acquire(store, "import", "30s", "mine")
    before = store.get_record("lock", "default", "import")
    assert try_acquire(store, "import", "1h", "mine")
    after = store.get_record("lock", "default", "import")
    assert before is not None
    assert after is not None
    assert before.expires is not None
    assert after.expires == before.expires - 30_000 + 3_600_000
    assert after.version != before.version
    assert (after.body, after.tenant) == (before.body, before.tenant)
