"""The supervisor's children: node processes, each started in a slot, and replaced when it ends."""

from __future__ import annotations

import io
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from evenbeat.observe.status_files import NodeStatus
from evenbeat.processes.begun import Begun, make_file
from evenbeat.processes.channel import Channel
from evenbeat.processes.signals import KILL, end_group
from evenbeat.supervision.node_process import Alive, Begin, FromChild, Started

# Seconds between the end of a process and the start of the next. They double with each process that ends
# before it has lived for LONG_LIFE seconds.
FIRST_BACKOFF, LONGEST_BACKOFF, LONG_LIFE = 0.5, 30.0, 30.0

_decoder: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)
_log = logging.getLogger("evenbeat.supervision.children")


class Child:
    """A node in a process of its own. All times are by ``time.monotonic``."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], channel: Channel[FromChild], begun: Begun
    ) -> None:
        self.name = name
        self.process = process
        self.channel = channel
        self.begun = begun
        self.started = self.last_message = time.monotonic()
        self.up = False
        self.failure: str | None = None
        """Why it could not start."""
        self.store_unavailable = False
        """Whether it could not start because the store did not answer."""
        self.deadline: float | None = None
        """When the supervisor kills it; set once it has been asked to stop, or stops by itself."""
        self.is_renewed = False
        """Whether the supervisor renews its leases."""
        self.status = NodeStatus(name, process.pid, up=False, last_message=self.last_message)
        """The last status that it sent; set by the listener thread."""


Messages: TypeAlias = SimpleQueue[tuple[Child, FromChild | None] | None]
"""The messages of children, None after the last one of a child; a plain None for a signal."""


class Slot:
    """A place for one child."""

    def __init__(self) -> None:
        self.child: Child | None = None
        self.start_at = 0.0
        self.short_lives = 0
        """How many children in a row have ended before they had lived for long."""


class Children:
    """The child processes of a supervisor: one for each slot, and those that are about to end."""

    def __init__(
        self, supervisor: str, begin: Begin, processes: int, places: int, messages: Messages
    ) -> None:
        self._supervisor = supervisor
        self._begin = begin
        self._places = places
        self._messages = messages
        self.slots = [Slot() for _ in range(processes)]
        self._leaving: list[Child] = []
        """Children that no slot has any more, and that still run."""
        self._count = 0

    def __iter__(self) -> Iterator[Child]:
        for slot in tuple(self.slots):
            if slot.child is not None:
                yield slot.child
        yield from tuple(self._leaving)

    def start(self, slot: Slot) -> None:
        """Start a child in an empty slot. If the system refuses, the slot is retried after a backoff."""
        try:
            slot.child = self._start()
        except OSError as error:
            slot.short_lives += 1
            slot.start_at = time.monotonic() + backoff(slot.short_lives)
            _log.error("a process can't be started, retrying: %s", error)

    def _start(self) -> Child:
        self._count += 1
        name = f"{self._supervisor}-{self._count}"
        ours, theirs = socket.socketpair()
        with ours, theirs, make_file(self._places) as file:
            number = file.fileno()
            process = subprocess.Popen(  # noqa: S603  # all arguments are our own
                [sys.executable, "-P", "-m", "evenbeat.supervision.node_process", name],
                stdin=theirs.fileno(),
                pass_fds=(number,),
                # A terminal sends Ctrl-C to the supervisor alone, which passes it on.
                start_new_session=True,
            )
            reader, writer = (io.FileIO(os.dup(ours.fileno()), mode) for mode in ("rb", "wb"))
            begun = Begun(number)
        channel = Channel(reader, writer, _decoder)
        child = Child(name, process, channel, begun)
        threading.Thread(target=self._listen, args=(child,), name=f"evenbeat-{name}", daemon=True).start()
        channel.send(replace(self._begin, name=name, begun=number))
        return child

    def _listen(self, child: Child) -> None:
        """Put the messages of a child into the supervisor's queue. Runs in a thread per child."""
        while (message := child.channel.receive()) is not None:
            status = (message.status if isinstance(message, Alive) else None) or child.status
            up = child.status.up or isinstance(message, Started)
            child.status = status._replace(up=up, last_message=time.monotonic())
            self._messages.put((child, message))
        child.channel.close()
        self._messages.put((child, None))

    def vacate(self, child: Child) -> None:
        """Free the slot of a child that still runs, so that the next child starts at once."""
        for slot in self.slots:
            if slot.child is child:
                slot.child, slot.start_at = None, 0.0
                self._leaving.append(child)

    def remove(self, child: Child, *, at_once: bool = False) -> None:
        """Forget a child whose process has ended. Its slot is filled after a backoff, or ``at_once``."""
        child.begun.close()
        if child in self._leaving:
            self._leaving.remove(child)
        now = time.monotonic()
        for slot in self.slots:
            if slot.child is child:
                slot.child = None
                slot.short_lives = 1 if now - child.started >= LONG_LIFE else slot.short_lives + 1
                slot.start_at = now if at_once else now + backoff(slot.short_lives)


def kill(child: Child) -> None:
    """Kill a child together with the processes that its jobs have started."""
    end_group(child.process, KILL)
    child.process.wait()


def backoff(failures: int) -> float:
    """Return how many seconds to wait after this many failures in a row."""
    return min(FIRST_BACKOFF * float(1 << min(failures - 1, 10)), LONGEST_BACKOFF)
