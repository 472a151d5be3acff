"""Forks, and hints between processes, on every store."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time

import pytest
from tests.contract.adapters import ADAPTERS, Adapter
from tests.store_calls import WAITER, add_schedules, exit_code_of_child, schedule_names

from evenbeat.core.records import RunRecord
from evenbeat.errors import StoreUnavailable
from evenbeat.rules.firing import plan
from evenbeat.stores.mongo import MongoStore

# Python 3.12 and later warn of forks beside threads, for reasons like those tested here.
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def test_a_closed_store_raises_an_error_and_can_be_opened_again(adapter: Adapter) -> None:
    store = adapter.open()
    add_schedules(store, "a")
    store.close()
    for call in (store.count_runs, lambda: store.add_runs([]), lambda: store.fire_due(0, 1, plan)):
        with pytest.raises(StoreUnavailable, match="not open"):
            call()
    store.open()
    assert schedule_names(store) == ["a"]


@FORKS
def test_after_a_fork_parent_and_child_both_write_and_wait(adapter: Adapter) -> None:
    store = adapter.open()
    add_schedules(store, "before")
    store.wait(0)

    def work() -> None:
        add_schedules(store, "child")
        store.wait(0)
        store.hint()
        store.close()

    assert exit_code_of_child(work) == 0
    assert store.wait(60) is True
    add_schedules(store, "parent")
    assert schedule_names(store) == ["before", "child", "parent"]


# The driver of MongoDB may deadlock in a child if other threads of the parent used it at the fork.
@pytest.mark.parametrize("adapter", [name for name in ADAPTERS if name != "mongo"], indirect=True)
@FORKS
def test_a_fork_while_other_threads_write_shares_nothing_with_them(adapter: Adapter) -> None:
    store = adapter.open()
    started, stop = threading.Event(), threading.Event()
    written: list[bool] = []

    def write() -> None:
        while not stop.is_set():
            written.extend(store.add_runs([RunRecord(id=f"parent-{len(written)}", task="work")]))
            started.set()

    def work() -> None:
        for at in range(5):
            assert store.add_runs([RunRecord(id=f"child-{os.getpid()}-{at}", task="work")]) == [True]

    thread = threading.Thread(target=write)
    thread.start()
    started.wait(60)
    try:
        for _ in range(5):
            assert exit_code_of_child(work) == 0
    finally:
        stop.set()
        thread.join()
    assert all(written)
    assert store.count_runs() == {"queued": len(written) + 25}


def test_a_hint_wakes_a_waiter_in_another_process(adapter: Adapter) -> None:
    store = adapter.open()
    command = [sys.executable, "-c", WAITER, adapter.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        store.hint()
        assert process.stdout.readline() == "True\n"
        assert process.wait(60) == 0


def test_closing_ends_the_listener_thread(adapter: Adapter) -> None:
    before = _listeners()
    store = adapter.open()
    store.wait(0)
    assert _listeners() > before
    store.close()
    _wait_until_only(before)


# Drivers warn of connections that are dropped without being closed.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_store_that_is_dropped_without_closing_leaves_no_listener_thread(adapter: Adapter) -> None:
    before = _listeners()
    # On MongoDB the thread ends with its present request, which takes as long as the timeout.
    store = adapter.make() if adapter.server is None else adapter.make(timeout=2.0)
    store.open()
    store.wait(0)
    assert _listeners() > before
    shared = store._connections._reference if isinstance(store, MongoStore) else None
    del store
    gc.collect()
    _wait_until_only(before)
    gc.collect()  # the thread held the client, which warns when it goes: here, not at the end of all tests
    if shared is not None:  # stores of a process share a client, which would stay open until its end
        shared.give_back()


def _listeners() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "evenbeat-hints"}


def _wait_until_only(before: set[threading.Thread]) -> None:
    deadline = time.monotonic() + 60
    while not _listeners() <= before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
