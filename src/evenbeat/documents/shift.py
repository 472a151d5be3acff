"""A shift: a processor at work, from its start to its stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from evenbeat.documents.base import Documents
from evenbeat.documents.desk import LONGEST_SLEEP, Calls, Desk, Item, Pace
from evenbeat.documents.document import Document
from evenbeat.documents.hands import Hands
from evenbeat.documents.rules import Policy
from evenbeat.errors import LockLost, StoreUnavailable
from evenbeat.instants import Instant
from evenbeat.loop import Loop
from evenbeat.observe.events import Events

# How long a stop waits for a database that is away, when nothing but ends is left to be written.
_PATIENCE = 10.0
# How often a stop looks whether it still has to wait.
_LOOK = 0.1

_T = TypeVar("_T")
_log = logging.getLogger("evenbeat.documents")

OnDocument: TypeAlias = Callable[[Document], Any]
OnError: TypeAlias = Callable[[BaseException, Document | None], Any]
Hook: TypeAlias = Callable[[], Any]


class Hooks(msgspec.Struct, frozen=True):
    """The user's functions: ``def`` or ``async def``."""

    on_document: OnDocument
    on_start: Hook | None = None
    on_stop: Hook | None = None
    on_idle: Hook | None = None
    on_error: OnError | None = None


class Shift:
    """The desk, the thread that steps it, and the hands that do the work."""

    def __init__(self, documents: Documents, hooks: Hooks, pace: Pace, policy: Policy) -> None:
        self._documents = documents
        self._hooks = hooks
        self._hands = Hands(pace.concurrency)
        calls = Calls(self._handle, self._tell, lambda: self._hook(hooks.on_idle), self._wake)
        self.desk = Desk(documents, pace, policy, calls)
        self._loop = Loop("documents", self._step, self._clock, LONGEST_SLEEP, Events())
        self._is_open = False
        self._is_away = False
        self._hurried = threading.Event()
        self.is_ending = False

    def start(self) -> None:
        try:
            self._open()
        except StoreUnavailable as error:
            # The loop tries again, and tells of it.
            _log.warning("the documents are not there yet, waiting for them: %s", error, extra=self._fields())
        _log.info("started", extra=self._fields())
        self._hook(self._hooks.on_start)
        self._loop.start()

    def stop(self, timeout: float | None) -> bool:
        """Whether everything in hand came to its end."""
        self.desk.drain()
        is_done = self._await_end(timeout)
        self._loop.stop()
        self._loop.join(_PATIENCE)
        self._hook(self._hooks.on_stop)
        self._hands.stop()
        self._documents.close()
        _log.info("stopped", extra=self._fields() | {"unfinished": not is_done})
        return is_done

    def hurry(self) -> None:
        """Have a stop wait no longer."""
        self._hurried.set()

    def _await_end(self, timeout: float | None) -> bool:
        began = time.monotonic()
        handled = began
        while not self.desk.empty.wait(_LOOK):
            now = time.monotonic()
            if self.desk.is_handling:
                handled = now
            is_late = timeout is not None and now - began >= timeout
            if is_late or now - handled >= _PATIENCE or self._hurried.is_set():
                return False
        return True

    # Called by the loop

    def _open(self) -> None:
        if not self._is_open:
            self._documents.open()
            self._is_open = True

    def _clock(self) -> Instant:
        return self._watched(self._documents_now)

    def _documents_now(self) -> Instant:
        self._open()
        return self._documents.now()

    def _step(self, now: Instant) -> Instant | None:
        due = self._watched(lambda: self.desk.step(now))
        self._is_away = False
        return due

    def _watched(self, function: Callable[[], _T]) -> _T:
        """Tell the user of the first error of a row; the loop logs them all, and goes on."""
        try:
            return function()
        except Exception as error:
            if not self._is_away:
                self._is_away = True
                self._tell(error, None)
            raise

    # Called by the desk

    def _handle(self, item: Item) -> None:
        failures: list[BaseException] = []

        def told(trouble: BaseException | None) -> None:
            _complain(trouble)
            self.desk.ended(item, failures[0])

        def ended(failure: BaseException | None) -> None:
            if item.document.is_lost:
                failure = LockLost(item.id)
            if failure is None or self._hooks.on_error is None:
                self.desk.ended(item, failure)
            else:
                # The slot is free when the user has been told.
                failures.append(failure)
                self._hands.begin(told, self._hooks.on_error, failure, item.document)

        item.interrupt = self._hands.begin(ended, self._hooks.on_document, item.document)

    def _tell(self, error: BaseException, document: Document | None) -> None:
        if self._hooks.on_error is not None:
            self._hands.begin(_complain, self._hooks.on_error, error, document)

    def _hook(self, hook: Hook | None) -> None:
        if hook is None:
            return
        try:
            self._hands.call(hook)
        except BaseException as error:  # also SystemExit: the loop must go on
            _log.exception("a hook raised", extra=self._fields())
            self._tell(error, None)

    def _wake(self) -> None:
        self._loop.wake()

    def _fields(self) -> dict[str, object]:
        return {"component": "documents", "documents": self._documents.name}


def _complain(trouble: BaseException | None) -> None:
    if trouble is not None:
        _log.error("on_error raised", exc_info=trouble, extra={"component": "documents"})
