"""``Processor``: processes the documents of a store until it is stopped."""

from __future__ import annotations

import inspect
import os
import threading
from types import TracebackType
from typing import Self, get_args

from evenbeat.core.awaitable import twin
from evenbeat.core.durations import Duration, read_duration
from evenbeat.documents.base import Documents
from evenbeat.documents.rules import OnFailure, Policy
from evenbeat.documents.runtime import Hook, OnDocument, OnError, ProcessorHooks, Runtime
from evenbeat.documents.worker import Limits
from evenbeat.errors import InvalidValue, shown
from evenbeat.processes.importing import is_importing
from evenbeat.processes.signals import check_main_thread, until_signalled

# Milliseconds. A thread that others may delay renews the lock when a third of it has passed.
_SHORTEST_LOCK = 100
_MOST_CONCURRENCY = 10_000


class Processor:
    """Calls ``on_document`` for each document that is due, and writes what becomes of it.

    Any number of processors, in any number of processes and on any number of machines, may work on the same
    documents: one at a time processes each document.

    :param documents: the document store: ``MongoDocuments``, ``PostgresDocuments``, ``SqliteDocuments``,
        ``RedisDocuments`` or ``MemoryDocuments``.
    :param on_document: called with each ``Document``: a ``def``, in a thread, or an ``async def``.
    :param on_start: called by ``start``, before the first document.
    :param on_stop: called by ``stop``, after the last document.
    :param on_idle: called once each time that nothing is left to do.
    :param on_error: called with an error, and with the document that it is about or None.
    :param lock_duration: how long a document is locked; the processor renews the lock while the handler runs.
        If a process dies, another one takes its documents after this time.
    :param next_delay: how long a slot rests after each document.
    :param reprocess_delay: the shortest time between two ticks of a recurring document.
    :param idle_delay: how long to wait before looking again when nothing is due. 0 sleeps until the next
        document is due or ``hint`` is called, and looks once a second for documents that others have added.
    :param on_failure: what becomes of a document whose handler raised: ``reschedule`` for its next tick, and
        held if it has none; ``retry`` after ``retry_delay``; or ``hold`` for a person to look at.
    :param concurrency: how many documents to process at once.
    :param drain_timeout: how long ``stop`` waits for handlers to end. Without it, until all have ended.
    """

    def __init__(
        self,
        documents: Documents,
        on_document: OnDocument,
        *,
        on_start: Hook | None = None,
        on_stop: Hook | None = None,
        on_idle: Hook | None = None,
        on_error: OnError | None = None,
        lock_duration: Duration = "10m",
        next_delay: Duration = 0,
        reprocess_delay: Duration = 0,
        idle_delay: Duration = 0,
        on_failure: OnFailure = "reschedule",
        retry_delay: Duration = "1m",
        concurrency: int = 1,
        drain_timeout: Duration | None = None,
    ) -> None:
        _check_documents(documents)
        self.documents = documents
        self._hooks = _checked(ProcessorHooks(on_document, on_start, on_stop, on_idle, on_error))
        self._limits = Limits(
            concurrency=_concurrency(concurrency),
            lock_duration=_lock_duration(lock_duration),
            next_delay=read_duration(next_delay, "next_delay"),
            idle_delay=read_duration(idle_delay, "idle_delay"),
        )
        self._policy = Policy(
            reprocess_delay=read_duration(reprocess_delay, "reprocess_delay"),
            on_failure=_on_failure(on_failure),
            retry_delay=read_duration(retry_delay, "retry_delay"),
        )
        self._drain_timeout = _seconds(drain_timeout, "drain_timeout")
        self._started: Runtime | None = None
        # Reentrant: hooks may start and stop it, too.
        self._guard = threading.RLock()

    @property
    def is_running(self) -> bool:
        """Whether it was started, and ``stop`` was not called since."""
        runtime = self._runtime
        return runtime is not None and not runtime.is_ending

    @property
    def is_processing(self) -> bool:
        """Whether it has locked a document whose result is not written yet."""
        runtime = self._runtime
        return runtime is not None and runtime.worker.is_processing

    @property
    def is_idle(self) -> bool:
        """Whether it runs and there is nothing to do."""
        runtime = self._runtime
        return runtime is not None and not runtime.is_ending and runtime.worker.is_idle

    @property
    def _runtime(self) -> Runtime | None:
        """The one that was started and has not stopped."""
        runtime = self._started
        # Threads do not survive a fork: the child process has none, and nothing to wait for.
        return runtime if runtime is not None and runtime.pid == os.getpid() else None

    def start(self) -> None:
        """Start, in threads of this process. Raises ``InvalidValue`` if the table, a column or the condition
        is wrong. If the database is unavailable, the processor retries until it is there.

        While it stops, wait for the end of that first. Does nothing while Evenbeat imports the module.
        """
        if is_importing():
            return
        ending = self._runtime
        if ending is not None and ending.is_ending and not ending.is_here:
            ending.over.wait()
        with self._guard:
            if self._runtime is not None:
                raise InvalidValue(
                    "the processor has been started already",
                    field="start",
                    value=True,
                    hint="stop() it first",
                )
            # Set before on_start is called, which may use the processor.
            self._started = Runtime(self.documents, self._hooks, self._limits, self._policy)
            try:
                self._started.start()
            except BaseException:
                self._started = None
                raise

    def stop(self, timeout: Duration | None = None) -> bool:
        """Take no more documents, wait for the handlers that run, and stop. Return whether all of them ended
        in time. Safe to repeat. ``timeout`` overrides ``drain_timeout``.

        A document whose handler did not end in time stays locked until its lock ends; then it is processed
        again.

        Called by a hook or a handler of this processor, it returns False at once, since it would wait for
        itself; the processor stops when the hook or handler has returned.
        """
        seconds = self._drain_timeout if timeout is None else _seconds(timeout, "timeout")
        runtime = self._runtime
        if runtime is not None and runtime.is_here:
            runtime.worker.drain()
            if not runtime.is_ending:
                threading.Thread(target=self.stop, args=(timeout,), name="evenbeat-documents-stop").start()
            return False
        with self._guard:
            runtime = self._runtime
            if runtime is None:
                return True
            is_first, runtime.is_ending = not runtime.is_ending, True
        if not is_first:
            return runtime.over.wait(seconds) and runtime.is_done
        try:
            return runtime.stop(seconds)
        finally:
            self._started = None
            runtime.over.set()

    def run(self) -> bool:
        """Start, and stop when SIGINT, SIGTERM or SIGHUP comes, or when a hook or a handler calls ``stop``. A
        second signal does not wait for handlers that run. Return what ``stop`` returns."""
        if is_importing():
            return True
        check_main_thread()
        started: list[Runtime] = []

        def start() -> None:
            self.start()
            if self._runtime is not None:  # else a hook has stopped it already
                started.append(self._runtime)

        until_signalled(
            hurry=self.hurry, over=lambda: all(runtime.is_ending for runtime in started), start=start
        )
        return self.stop() and all(runtime.is_done for runtime in started)

    def hurry(self) -> None:
        """Make a ``stop`` that waits end now, as a second signal does."""
        runtime = self._runtime
        if runtime is not None:
            runtime.hurry()

    def hint(self) -> None:
        """Look for due documents now, after one was added. Without a hint, the processor looks within a
        second; ``RedisDocuments`` describes when it sees documents that others write to a large Redis."""
        runtime = self._runtime
        if runtime is not None:
            runtime.worker.hint()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    astart = twin(start)
    astop = twin(stop)


def _checked(hooks: ProcessorHooks) -> ProcessorHooks:
    _check_function(hooks.on_document, "on_document", "document")
    for name in ("on_start", "on_stop", "on_idle"):
        if getattr(hooks, name) is not None:
            _check_function(getattr(hooks, name), name)
    if hooks.on_error is not None:
        _check_function(hooks.on_error, "on_error", "error", "document")
    return hooks


def _check_documents(documents: object) -> None:
    if not callable(getattr(documents, "lock_next", None)):
        raise InvalidValue(
            f"documents {shown(documents)} is not a document store",
            field="documents",
            value=documents,
            hint="wrap it: MongoDocuments(…), PostgresDocuments(…), MemoryDocuments(…)",
        )


def _check_function(function: object, name: str, *parameters: str) -> None:
    """Refuse a function that can't be called with these parameters: each document would fail."""
    wanted = f"a def or async def {name}({', '.join(parameters)})"
    if not callable(function):
        raise InvalidValue(
            f"{name} {shown(function)} is not a function",
            field=name,
            value=function,
            hint=f"give {wanted}, and do not call it yourself",
        )
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # a built-in function without a signature
    try:
        signature.bind(*parameters)
    except TypeError as error:
        called = getattr(function, "__name__", shown(function))
        raise InvalidValue(
            f"{name} {called}{signature} can't be called with {len(parameters)} arguments: {error}",
            field=name,
            value=called,
            hint=f"give {wanted}",
        ) from None


def _concurrency(value: int) -> int:
    if type(value) is int and 1 <= value <= _MOST_CONCURRENCY:
        return value
    raise InvalidValue(
        f"concurrency {shown(value)} is not a whole number of 1 to {_MOST_CONCURRENCY:,}",
        field="concurrency",
        value=value,
    )


def _seconds(value: Duration | None, name: str) -> float | None:
    return None if value is None else read_duration(value, name) / 1000


def _lock_duration(value: Duration) -> int:
    ms = read_duration(value, "lock_duration")
    if ms < _SHORTEST_LOCK:
        raise InvalidValue(
            f"lock_duration {shown(value)} is too short",
            field="lock_duration",
            value=value,
            hint="100ms at least, and better some seconds: a lock is renewed at a third of it",
        )
    return ms


def _on_failure(value: OnFailure) -> OnFailure:
    if value in get_args(OnFailure):
        return value
    raise InvalidValue(
        f"on_failure {shown(value)} is not known",
        field="on_failure",
        value=value,
        hint=f"there are {', '.join(get_args(OnFailure))}",
    )
