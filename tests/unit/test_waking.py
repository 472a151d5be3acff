"""What wait and hint do on every transport: without a server, over a transport that the test plays."""

from __future__ import annotations

import gc
import logging
import queue
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from evenbeat.stores import waking
from evenbeat.stores.waking import Interrupted, Receiver, Transport, Waker
from tests.store_calls import exit_code_of_child

PATIENCE = 60.0


class FakeReceiver(Receiver):
    """Receives what the test puts into the transport's queue; None breaks the connection."""

    def __init__(self, transport: FakeTransport) -> None:
        super().__init__()
        self._transport = transport
        self.is_disowned = False

    def connect(self) -> None:
        self._transport.connecting.set()
        self._transport.may_connect.wait(PATIENCE)
        if self._transport.refuses:
            raise OSError("nobody\n there")
        self._transport.connections += 1

    def receive(self) -> list[str]:
        message = self._transport.messages.get(timeout=PATIENCE)
        if message is None:
            raise Interrupted
        return [message]

    def interrupt(self) -> None:
        self._transport.messages.put(None)

    def disconnect(self) -> None:
        self._transport.disconnections += 1

    def disown(self) -> None:
        self.is_disowned = True

    def ring(self) -> None:
        super().ring()
        self._transport.messages.put(None)


class FakeTransport(Transport):
    shown = "fake://"

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.sent: list[str] = []
        self.connecting, self.may_connect = threading.Event(), threading.Event()
        self.may_connect.set()
        self.refuses = False
        self.connections = self.disconnections = 0

    def send(self, sender: str) -> None:
        self.sent.append(sender)

    def receiver(self, sender: str) -> FakeReceiver:
        return FakeReceiver(self)


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def waker(transport: FakeTransport, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waker]:
    monkeypatch.setattr(waking, "POLL_SECONDS", 0.05)
    waker = Waker(transport)
    waker.open()
    yield waker
    transport.may_connect.set()
    waker.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def count_readings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that tells how often the clock was read since: often, if a thread does not sleep."""
    readings: list[float] = []

    def monotonic() -> float:
        readings.append(time.monotonic())
        return readings[-1]

    monkeypatch.setattr(waking, "time", SimpleNamespace(monotonic=monotonic))
    return lambda: len(readings)


def listeners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "evenbeat-hints"]


def test_a_receiver_waits_for_its_descriptor_until_a_thread_interrupts_it(transport: FakeTransport) -> None:
    receiver = FakeReceiver(transport)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert receiver.is_ready(ours.fileno(), selectors.EVENT_READ, 0) is False
        theirs.send(b"!")
        assert receiver.is_ready(ours.fileno(), selectors.EVENT_READ, PATIENCE) is True
        ours.recv(1)
        Receiver.interrupt(receiver)
        # Not only once: the listener may be about to wait for something else.
        for _ in range(2):
            with pytest.raises(Interrupted):
                receiver.is_ready(ours.fileno(), selectors.EVENT_READ, PATIENCE)
        receiver.pause(PATIENCE)
        assert receiver.is_ready(ours.fileno(), selectors.EVENT_READ, 0) is False
    receiver.close()
    assert [end.fileno() for end in receiver._bell] == [-1, -1]


def test_a_pause_takes_as_long_as_asked_and_one_in_the_past_no_time(
    transport: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a listener would connect as fast as it can, as long as the server refuses."""
    pauses: list[float | None] = []

    class Selector(selectors.SelectSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            pauses.append(timeout)
            return []

    monkeypatch.setattr(waking, "_Selector", Selector)
    receiver = FakeReceiver(transport)
    receiver.pause(5.0)
    receiver.pause(-1.0)
    receiver.close()
    assert pauses == [5.0, 0.0]


def test_a_hint_of_another_process_ends_a_wait_and_an_own_one_does_not(
    transport: FakeTransport, waker: Waker
) -> None:
    waker.wait(0)
    until(lambda: waker.is_receiving)
    while waker.wait(0):
        pass
    waker.hint()
    (own,) = transport.sent
    transport.messages.put(own)
    # Longer than POLL_SECONDS: nothing is polled while hints arrive.
    assert waker.wait(0.2) is False
    transport.messages.put("another")
    assert waker.wait(PATIENCE) is True


def test_nothing_is_sent_or_received_before_opening_or_after_closing(transport: FakeTransport) -> None:
    waker = Waker(transport)
    for _ in range(2):
        waker.hint()
        waker.wait(0)
        assert transport.sent == []
        assert listeners() == []
        waker.close()


def test_the_first_wait_begins_when_the_listener_is_connected(
    transport: FakeTransport, waker: Waker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "POLL_SECONDS", PATIENCE)
    transport.may_connect.clear()

    def connect() -> None:
        transport.connecting.wait(PATIENCE)
        time.sleep(0.05)
        transport.may_connect.set()

    thread = threading.Thread(target=connect)
    thread.start()
    waker.wait(0)
    assert waker.is_receiving
    thread.join()


def test_connecting_delays_neither_hints_nor_waits_nor_closing(
    transport: FakeTransport, waker: Waker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "_CLOSE_SECONDS", 0.05)
    transport.may_connect.clear()
    assert waker.wait(PATIENCE) is True
    assert transport.connecting.is_set()
    readings = count_readings(monkeypatch)
    # Not the first try any more: returns after POLL_SECONDS, in which the thread sleeps.
    assert waker.wait(PATIENCE) is True
    assert readings() < 50
    waker.hint()
    assert len(transport.sent) == 1
    waker.close()
    # A thread that comes out of connecting after the end has no effect on the next listener.
    waker.open()
    transport.connecting.clear()
    assert waker.wait(PATIENCE) is True
    assert len(listeners()) == 2
    transport.may_connect.set()
    until(lambda: len(listeners()) == 1 and waker.is_receiving)


def test_waits_are_short_while_the_connection_is_lost_and_one_ends_when_it_is_back(
    transport: FakeTransport, waker: Waker
) -> None:
    waker.wait(0)
    until(lambda: waker.is_receiving)
    while waker.wait(0):
        pass
    transport.refuses = True
    transport.messages.put(None)
    until(lambda: not waker.is_receiving)
    assert [waker.wait(PATIENCE) for _ in range(3)] == [True] * 3
    transport.refuses = False
    until(lambda: waker.is_receiving)
    assert waker.wait(PATIENCE) is True
    assert waker.wait(0) is False


def test_a_connection_that_was_lost_between_two_waits_counts_as_a_hint(
    transport: FakeTransport, waker: Waker
) -> None:
    waker.wait(0)
    until(lambda: waker.is_receiving)
    while waker.wait(0):
        pass
    transport.messages.put(None)
    until(lambda: transport.connections == 2 and waker.is_receiving)
    assert waker.wait(0) is True
    assert waker.wait(0) is False


def test_a_store_that_notices_changes_itself_waits_for_the_whole_timeout(
    transport: FakeTransport, waker: Waker
) -> None:
    transport.store_polls = True
    transport.refuses = True
    assert waker.wait(0.2) is False
    waker.close()
    assert waker.wait(PATIENCE) is True


def test_failures_that_go_on_are_logged_once(
    transport: FakeTransport, waker: Waker, caplog: pytest.LogCaptureFixture
) -> None:
    transport.refuses = True
    with caplog.at_level(logging.WARNING):
        until(lambda: waker.wait(PATIENCE) and transport.disconnections > 6)
    (record,) = caplog.records
    assert "nobody there" in record.getMessage()


def test_a_listener_that_was_refused_waits_before_it_tries_again(
    transport: FakeTransport, waker: Waker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "POLL_SECONDS", PATIENCE)
    transport.refuses = True
    waker.wait(0)
    until(lambda: transport.disconnections)
    waker.wait(0.1)
    assert transport.disconnections == 1


def test_threads_wake_each_other_without_a_transport() -> None:
    waker = Waker()
    waker.open()
    assert waker.wait(0.001) is False
    thread = threading.Thread(target=waker.hint)
    thread.start()
    thread.join()
    assert waker.wait(PATIENCE) is True
    waker.hint()
    assert waker.wait(0) is False


def test_closing_ends_the_listener_and_every_wait(transport: FakeTransport, waker: Waker) -> None:
    waker.wait(0)
    thread = threading.Thread(target=waker.wait, args=(PATIENCE,))
    thread.start()
    while thread.is_alive():
        waker.close()
        thread.join(0.01)
    assert listeners() == []
    assert not waker.is_receiving
    assert transport.disconnections == transport.connections


def test_a_store_that_is_dropped_without_closing_leaves_no_thread(transport: FakeTransport) -> None:
    waker = Waker(transport)
    waker.open()
    waker.wait(0)
    assert len(listeners()) == 1
    del waker
    gc.collect()
    until(lambda: listeners() == [])


def test_the_listener_ends_in_silence_when_a_job_has_closed_the_descriptors_of_its_process(
    tmp_path: Path,
) -> None:
    """Without its bell it would connect as fast as it can, and a failing thread prints into the log."""
    closing = f"""
import os, threading
from evenbeat.stores.sqlite.store import SqliteStore

store = SqliteStore({str(tmp_path / "jobs.db")!r})
store.open()
store.wait(0.5)
(listener,) = (thread for thread in threading.enumerate() if thread.name == "evenbeat-hints")
os.closerange(3, 256)
listener.join({PATIENCE})
os._exit(listener.is_alive())
"""
    ended = subprocess.run([sys.executable, "-c", closing], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


# Python 3.12 and later warn of forks beside threads.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_has_a_listener_and_a_name_of_its_own(transport: FakeTransport, waker: Waker) -> None:
    waker.wait(0)
    until(lambda: waker.is_receiving)
    waker.hint()
    assert waker._listener is not None
    receiver = waker._listener.receiver
    assert isinstance(receiver, FakeReceiver)
    finalizer = waker._finalizer
    assert finalizer is not None

    def work() -> None:
        assert receiver.is_disowned
        assert [end.fileno() for end in receiver._bell] == [-1, -1]
        assert not finalizer.alive
        assert not waker.is_receiving
        waker.hint()
        assert len(set(transport.sent)) == 2
        # The parent's queue may be locked forever by the thread that is not here.
        transport.messages = queue.SimpleQueue()
        waker.wait(0)
        until(lambda: waker.is_receiving)
        waker.close()

    assert exit_code_of_child(work) == 0
    assert waker.is_receiving
    assert not receiver.is_disowned
