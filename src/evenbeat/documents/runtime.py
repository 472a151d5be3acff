"""A processor at work, from its start to its stop."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.documents.base import Documents
from evenbeat.documents.document import Document
from evenbeat.documents.handlers import HandlerPool
from evenbeat.documents.rules import Policy
from evenbeat.documents.worker import LONGEST_SLEEP, Calls, DocumentWorker, HeldDocument, Limits
from evenbeat.errors import DocumentLockLost, StoreUnavailable
from evenbeat.node.loop import Loop
from evenbeat.observe.events import Events
from evenbeat.observe.health import patience
from evenbeat.observe.status_files import LoopStatus, NodeStatus, StatusWriter
from evenbeat.processes import forks

# How long a stop waits for a database that is away, when nothing but ends is left to be written.
_PATIENCE = 10.0
# How long it waits for threads that should have nothing to do.
_BRIEFLY = 1.0
# Seconds to wait for more ends, and how often, before those that came are written.
_GATHERING, _GATHERINGS = 0.001, 5
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


class Runtime:
    """The worker, the thread that steps it, and the pool that calls the handlers."""

    def __init__(self, documents: Documents, hooks: Hooks, limits: Limits, policy: Policy) -> None:
        self._documents = documents
        self._hooks = hooks
        self._handlers = HandlerPool(limits.concurrency)
        self._status_writer = StatusWriter(
            "processor", documents.name, patience(limits.lock_duration), self._status
        )
        calls = Calls(self._handle, self._tell, lambda: self._hook(hooks.on_idle), self._wake)
        self.worker = DocumentWorker(documents, limits, policy, calls)
        self._loop = Loop("documents", self._step, self._clock, LONGEST_SLEEP, Events())
        self._is_open = False
        self._trouble: str | None = None
        """The last error in a row, if the last step raised one."""
        # Not an Event: a signal that comes while it is set would wait for its lock forever.
        self._is_hurried = False
        self._waiting: deque[Callable[[], None]] = deque()
        """Handlers that could not begin."""
        self._tells = 0
        self._told = threading.Condition()
        self.is_ending = False
        self.over = threading.Event()
        """Set once it has stopped."""
        self.is_done = True
        """Whether everything in hand came to its end; known once it is over."""

    @property
    def is_here(self) -> bool:
        """Whether this thread executes one of its hooks or handlers."""
        return self._handlers.is_here

    def start(self) -> None:
        _log.info("starting", extra=self._fields())
        try:
            self._open()
        except StoreUnavailable as error:
            # The loop tries again, and tells of it.
            _log.warning("the documents are not there yet, waiting for them: %s", error, extra=self._fields())
        _log.info("started", extra=self._fields())
        self._hook(self._hooks.on_start)
        self._loop.start()
        self._status_writer.start()

    def _status(self) -> tuple[tuple[LoopStatus, ...], tuple[NodeStatus, ...]]:
        """What ``evenbeat health`` goes by."""
        loop = self._loop.status
        return (), (NodeStatus(self._documents.name, os.getpid(), () if loop is None else (loop,)),)

    def stop(self, timeout: float | None) -> bool:
        """Whether everything in hand came to its end."""
        began = time.monotonic()
        self.worker.drain()
        if self.worker.is_handling:
            _log.info(
                "stopping, and waiting for the documents in hand",
                extra=self._fields() | {"waiting_for": self.worker.in_hand},
            )
        self.is_done = self._await_end(timeout)
        self._loop.stop()
        self._loop.join(_PATIENCE if self.is_done else _BRIEFLY)
        self._status_writer.stop()
        self._close()
        self._hook(self._hooks.on_stop)
        left = _PATIENCE if timeout is None else timeout - (time.monotonic() - began)
        self._await_tells(min(left, _PATIENCE))
        self._handlers.stop(_BRIEFLY if self.is_done else 0)
        if not self.is_done:
            _log.warning(
                "documents stay locked, and are processed again when that has ended",
                extra={**self._fields(), "left": self.worker.in_hand},
            )
        _log.info("stopped", extra=self._fields() | {"unfinished": not self.is_done})
        return self.is_done

    def hurry(self) -> None:
        """Have a stop wait no longer."""
        self._is_hurried = True

    def _await_end(self, timeout: float | None) -> bool:
        began = time.monotonic()
        handled = began
        while not self.worker.empty.wait(_LOOK):
            now = time.monotonic()
            if self.worker.is_handling:
                handled = now
            is_late = timeout is not None and now - began >= timeout
            if is_late or now - handled >= _PATIENCE or self._is_hurried:
                return False
        return True

    def _await_tells(self, patience: float) -> None:
        """The last errors reach the user before it is over."""
        until = time.monotonic() + patience
        with self._told:
            while self._tells and not self._is_hurried and time.monotonic() < until:
                self._told.wait(_LOOK)

    # Called by the loop

    def _open(self) -> None:
        if not self._is_open:
            self._documents.open()
            self._is_open = True

    def _close(self) -> None:
        """Once for each time it was opened: others may share it."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._documents.close()
        except Exception as error:
            _log.exception("the documents can't be closed", extra=self._fields())
            self._tell(error, None)

    def _clock(self) -> Instant:
        return self._watched(self._documents_now)

    def _documents_now(self) -> Instant:
        self._open()
        return self._documents.now()

    def _step(self, now: Instant) -> Instant | None:
        self._begin_waiting()
        # 15 to 30 % more documents a second on MongoDB with 25 handlers at once that do nothing.
        for _ in range(_GATHERINGS):
            if not self.worker.is_gathering:
                break
            time.sleep(_GATHERING)
        due = self._watched(lambda: self.worker.step(now))
        self._trouble = None
        return due

    def _watched(self, function: Callable[[], _T]) -> _T:
        """Tell the user of each error that is not the same as the one before; the loop logs them all, and
        goes on."""
        try:
            return function()
        except Exception as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._tell(error, None)
            self.worker.see_empty()
            raise

    # Called by the worker

    def _handle(self, item: HeldDocument) -> None:
        failures: list[BaseException] = []

        def told(trouble: BaseException | None) -> None:
            _complain(trouble)
            self.worker.ended(item, failures[0])

        def ended(failure: BaseException | None) -> None:
            if item.document.is_lost:
                failure = DocumentLockLost(item.id)
            if self.over.is_set():
                _log.warning(
                    "a handler has outlived its processor, its document is processed again",
                    exc_info=failure,
                    extra=self._fields(),
                )
            elif failure is None or self._hooks.on_error is None:
                self.worker.ended(item, failure)
            else:
                # The slot is free when the user has been told.
                failures.append(failure)
                self._handlers.begin(told, self._hooks.on_error, failure, item.document)

        def begin() -> None:
            item.interrupt = self._handlers.begin(ended, self._hooks.on_document, item.document)

        self._waiting.append(begin)
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Have handlers begin; where the system has no thread left for them, at a later step."""
        self._handlers.nudge()
        while self._waiting:
            try:
                self._waiting[0]()
            except RuntimeError as error:
                _log.error("a handler can't begin, trying again: %s", error, extra=self._fields())
                return
            self._waiting.popleft()

    def _tell(self, error: BaseException, document: Document | None) -> None:
        if self._hooks.on_error is None:
            return
        with self._told:
            self._tells += 1
        self._handlers.begin(self._has_told, self._hooks.on_error, error, document)

    def _has_told(self, trouble: BaseException | None) -> None:
        _complain(trouble)
        with self._told:
            self._tells -= 1
            self._told.notify_all()

    def _hook(self, hook: Hook | None) -> None:
        if hook is None:
            return
        born = forks.generation
        failure: BaseException | None = None
        try:
            self._handlers.call(hook)
        except BaseException as error:  # also SystemExit: the loop must go on
            failure = error
        forks.leave_if_since(born, failure)
        if failure is not None:
            _log.error("a hook raised", exc_info=failure, extra=self._fields())
            self._tell(failure, None)

    def _wake(self) -> None:
        self._loop.wake()

    def _fields(self) -> dict[str, object]:
        return {"component": "documents", "documents": self._documents.name}


def _complain(trouble: BaseException | None) -> None:
    if trouble is not None:
        _log.error("on_error raised", exc_info=trouble, extra={"component": "documents"})
