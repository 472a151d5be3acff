"""A processor at work, from its start to its stop."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec

from evenbeat.core.instants import Instant
from evenbeat.documents.base import Documents
from evenbeat.documents.document import Document
from evenbeat.documents.handlers import HandlerPool
from evenbeat.documents.held import HeldDocument
from evenbeat.documents.rules import Policy
from evenbeat.documents.worker import LONGEST_SLEEP, DocumentWorker, Limits, WorkerCallbacks
from evenbeat.errors import DocumentLockLost, StoreUnavailable
from evenbeat.node.loop import Loop
from evenbeat.observe.events import Events
from evenbeat.observe.health import patience
from evenbeat.observe.status_files import LoopStatus, NodeStatus, StatusWriter
from evenbeat.processes import forks

# Seconds that a stop waits for a database that is unavailable, once only results are left to be written.
_PATIENCE = 10.0
# Seconds that a stop waits for threads that should have nothing left to do.
_BRIEFLY = 1.0
# Seconds to wait for more handlers to end before results are written, and how often.
_GATHERING, _GATHERINGS = 0.001, 5
# Seconds between two checks of a stop whether it still has to wait.
_CHECK_EVERY = 0.1

_T = TypeVar("_T")
_log = logging.getLogger("evenbeat.documents")

OnDocument: TypeAlias = Callable[[Document], Any]
OnError: TypeAlias = Callable[[BaseException, Document | None], Any]
Hook: TypeAlias = Callable[[], Any]


class ProcessorHooks(msgspec.Struct, frozen=True):
    """The user's functions: ``def`` or ``async def``."""

    on_document: OnDocument
    on_start: Hook | None = None
    on_stop: Hook | None = None
    on_idle: Hook | None = None
    on_error: OnError | None = None


class Runtime:
    """The worker, its thread, and the pool that calls the handlers. Started and stopped once."""

    def __init__(self, documents: Documents, hooks: ProcessorHooks, limits: Limits, policy: Policy) -> None:
        self._documents = documents
        self._hooks = hooks
        self._handlers = HandlerPool(limits.concurrency)
        self._status_writer = StatusWriter(
            "processor", documents.name, patience(limits.lock_duration), self._status
        )
        callbacks = WorkerCallbacks(
            self._handle, self._report, lambda: self._call_hook(hooks.on_idle), self._wake
        )
        self.worker = DocumentWorker(documents, limits, policy, callbacks)
        self._loop = Loop("documents", self._step, self._clock, LONGEST_SLEEP, Events())
        self.pid = os.getpid()
        self._is_open = False
        self._last_error: str | None = None
        """The error of the last step, if it raised one."""
        # Not an Event: a signal handler that sets it could wait forever for the Event's lock.
        self._is_hurried = False
        self._reports = 0
        """Calls of ``on_error`` that have not ended, other than those for failed handlers."""
        self._reported = threading.Condition()
        self.is_ending = False
        self.over = threading.Event()
        """Set once it has stopped."""
        self.is_done = True
        """Whether every document came to its end; known once it is over."""

    @property
    def is_here(self) -> bool:
        """Whether this code is part of one of its hooks or handlers."""
        return self._handlers.is_here

    def start(self) -> None:
        _log.info("starting", extra=self._fields())
        try:
            self._open()
        except StoreUnavailable as error:
            # The loop tries again, and reports it.
            _log.warning("the documents are unavailable, trying again: %s", error, extra=self._fields())
        _log.info("started", extra=self._fields())
        self._call_hook(self._hooks.on_start)
        self._loop.start()
        self._status_writer.start()

    def _status(self) -> tuple[tuple[LoopStatus, ...], tuple[NodeStatus, ...]]:
        """Return the status that ``evenbeat health`` reads."""
        loop = self._loop.status
        return (), (NodeStatus(self._documents.name, os.getpid(), () if loop is None else (loop,)),)

    def stop(self, timeout: float | None) -> bool:
        """Return whether every document came to its end."""
        began = time.monotonic()
        self.worker.drain()
        if self.worker.is_handling:
            _log.info(
                "stopping, and waiting for documents that are being processed",
                extra=self._fields() | {"waiting_for": self.worker.held.ids},
            )
        self.is_done = self._await_end(timeout)
        self._loop.stop()
        self._loop.join(_PATIENCE if self.is_done else _BRIEFLY)
        self._status_writer.stop()
        self._close()
        self._call_hook(self._hooks.on_stop)
        left = _PATIENCE if timeout is None else timeout - (time.monotonic() - began)
        self._await_reports(min(left, _PATIENCE))
        self._handlers.stop(_BRIEFLY if self.is_done else 0)
        if not self.is_done:
            _log.warning(
                "documents stay locked, and are processed again when their locks end",
                extra={**self._fields(), "left": self.worker.held.ids},
            )
        _log.info("stopped", extra=self._fields() | {"unfinished": not self.is_done})
        return self.is_done

    def hurry(self) -> None:
        """Make a stop that waits end now."""
        self._is_hurried = True

    def _await_end(self, timeout: float | None) -> bool:
        began = time.monotonic()
        handled = began
        while not self.worker.empty.wait(_CHECK_EVERY):
            now = time.monotonic()
            if self.worker.is_handling:
                handled = now
            is_late = timeout is not None and now - began >= timeout
            if is_late or now - handled >= _PATIENCE or self._is_hurried:
                return False
        return True

    def _await_reports(self, patience: float) -> None:
        """Wait until the user was notified of the last errors."""
        until = time.monotonic() + patience
        with self._reported:
            while self._reports and not self._is_hurried and time.monotonic() < until:
                self._reported.wait(_CHECK_EVERY)

    # Called by the loop

    def _open(self) -> None:
        if not self._is_open:
            self._documents.open()
            self._is_open = True

    def _close(self) -> None:
        """Close the documents once for each time they were opened: other processors may share them."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._documents.close()
        except Exception as error:
            _log.exception("the documents can't be closed", extra=self._fields())
            self._report(error, None)

    def _clock(self) -> Instant:
        return self._watch(self._documents_now)

    def _documents_now(self) -> Instant:
        self._open()
        return self._documents.now()

    def _step(self, now: Instant) -> Instant | None:
        # For handlers that wait because the system refused to start a thread.
        self._handlers.start_threads()
        # 15 to 30 % more documents a second on MongoDB with 25 handlers at once that do nothing.
        for _ in range(_GATHERINGS):
            if not self.worker.is_gathering:
                break
            time.sleep(_GATHERING)
        due = self._watch(lambda: self.worker.step(now))
        self._last_error = None
        return due

    def _watch(self, function: Callable[[], _T]) -> _T:
        """Report each error that differs from the one before. The loop logs all of them, and goes on."""
        try:
            return function()
        except Exception as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                self._report(error, None)
            self.worker.check_empty()
            raise

    # Called by the worker

    def _handle(self, held: HeldDocument) -> None:
        def ended(failure: BaseException | None) -> None:
            if held.document.is_lost:
                failure = DocumentLockLost(held.id)
            if self.over.is_set():
                _log.warning(
                    "a handler ended after its processor had stopped, its document is processed again",
                    exc_info=failure,
                    extra=self._fields(),
                )
            elif failure is None or self._hooks.on_error is None:
                self.worker.handler_ended(held, failure)
            else:
                self._report_failure(held, failure, self._hooks.on_error)

        held.interrupt = self._handlers.begin(ended, self._hooks.on_document, held.document)

    def _report_failure(self, held: HeldDocument, failure: BaseException, on_error: OnError) -> None:
        """Call ``on_error`` for a handler that failed. Its slot is free after that."""

        def reported(error: BaseException | None) -> None:
            _log_failed_report(error)
            self.worker.handler_ended(held, failure)

        self._handlers.begin(reported, on_error, failure, held.document)

    def _report(self, error: BaseException, document: Document | None) -> None:
        if self._hooks.on_error is None:
            return
        with self._reported:
            self._reports += 1
        self._handlers.begin(self._report_ended, self._hooks.on_error, error, document)

    def _report_ended(self, error: BaseException | None) -> None:
        _log_failed_report(error)
        with self._reported:
            self._reports -= 1
            self._reported.notify_all()

    def _call_hook(self, hook: Hook | None) -> None:
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
            self._report(failure, None)

    def _wake(self) -> None:
        self._loop.wake()

    def _fields(self) -> dict[str, object]:
        return {"component": "documents", "documents": self._documents.name}


def _log_failed_report(error: BaseException | None) -> None:
    if error is not None:
        _log.error("on_error raised", exc_info=error, extra={"component": "documents"})
