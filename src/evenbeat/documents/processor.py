"""The processor: what users hold. It works on the documents of a store until it is stopped."""

from __future__ import annotations

import inspect
import threading
from types import TracebackType
from typing import get_args

from evenbeat.core.durations import Duration, read_duration
from evenbeat.documents.base import Documents
from evenbeat.documents.rules import OnFailure, Policy
from evenbeat.documents.runtime import Hook, Hooks, OnDocument, OnError, Runtime
from evenbeat.documents.worker import Limits
from evenbeat.errors import InvalidValue, shown
from evenbeat.processes.importing import is_looking
from evenbeat.processes.signals import check_main_thread, until_signalled

# A lock is renewed at a third of it, by a thread that others may hold up.
_SHORTEST_LOCK = 100
_MOST = 10_000


class Processor:
    """Calls ``on_document`` for each document that is due, and sees to what becomes of it.

    Any number of processors, in any number of processes and on any number of machines, may work on the same
    documents: each document is processed by one at a time.

    :param documents: the store: ``MongoDocuments``, ``PostgresDocuments``, ``SqliteDocuments``,
        ``RedisDocuments`` or ``MemoryDocuments``.
    :param on_document: called with each ``Document``: ``def``, in a thread, or ``async def``.
    :param on_start: called by ``start``, before the first document.
    :param on_stop: called by ``stop``, after the last one.
    :param on_idle: called once whenever there is nothing left to do.
    :param on_error: called with an error, and with the document that it is about or None.
    :param lock_duration: for how long a document is locked; renewed while its handler runs. That long
        it takes until the document of a process that died is taken up by another one.
    :param next_delay: how long a slot rests after each document.
    :param reprocess_delay: how long after it was due a recurring document may be due again.
    :param idle_delay: how long to wait before looking again when nothing is due. 0 sleeps until the next
        document is due or ``hint`` is called, and looks once a second for documents that others have added.
    :param on_failure: what becomes of a document whose handler raised: ``reschedule`` for its next tick, and
        held if it has none; ``retry`` after ``retry_delay``; or ``hold`` for a person to look at.
    :param concurrency: how many documents at once.
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
    ) -> None:
        _check_documents(documents)
        _check_function(on_document, "on_document", "document")
        for hook, name in ((on_start, "on_start"), (on_stop, "on_stop"), (on_idle, "on_idle")):
            if hook is not None:
                _check_function(hook, name)
        if on_error is not None:
            _check_function(on_error, "on_error", "error", "document")
        self.documents = documents
        self._hooks = Hooks(on_document, on_start, on_stop, on_idle, on_error)
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
        self._runtime: Runtime | None = None
        # Hooks may start and stop it, too.
        self._guard = threading.RLock()

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not told to stop since."""
        runtime = self._runtime
        return runtime is not None and not runtime.is_ending

    @property
    def is_processing(self) -> bool:
        """Whether a document is in hand."""
        runtime = self._runtime
        return runtime is not None and runtime.worker.is_processing

    @property
    def is_idle(self) -> bool:
        """Whether it runs and there is nothing to do."""
        runtime = self._runtime
        return runtime is not None and not runtime.is_ending and runtime.worker.is_idle

    def start(self) -> None:
        """Begin, in threads of its own. A mistake in what was said about the documents is raised here; a
        database that is away is waited for. Does nothing if it runs already."""
        if is_looking():
            return  # somebody imports the module to see what it has
        ending = self._runtime
        if ending is not None and ending.is_ending and not ending.is_here:
            ending.over.wait()
        with self._guard:
            if self._runtime is not None:
                return
            # There already when on_start is called.
            self._runtime = Runtime(self.documents, self._hooks, self._limits, self._policy)
            try:
                self._runtime.start()
            except BaseException:
                self._runtime = None
                raise

    def stop(self, timeout: Duration | None = None) -> bool:
        """Take nothing more, wait for the documents in hand, and end. With a timeout, wait no longer than
        that: False says that some were still in hand. They stay locked until the lock ends, and are processed
        again after that.

        A hook or a handler that calls it does not wait, which would be for itself: it gets False, and all
        ends when it has returned."""
        patience = None if timeout is None else read_duration(timeout, "timeout") / 1000
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
            return runtime.over.wait(patience) and runtime.is_done
        try:
            return runtime.stop(patience)
        finally:
            self._runtime = None
            runtime.over.set()

    def run(self) -> bool:
        """Work until SIGINT or SIGTERM comes, and stop then; or until a hook or a handler calls ``stop``. A
        second signal does not wait for what is in hand. Answers as ``stop`` does."""
        if is_looking():
            return True
        check_main_thread()
        started: list[Runtime] = []

        def start() -> None:
            self.start()
            if self._runtime is not None:  # else a hook has stopped it already
                started.append(self._runtime)

        until_signalled(
            hurry=self._hurry, over=lambda: all(runtime.is_ending for runtime in started), start=start
        )
        return self.stop() and all(runtime.is_done for runtime in started)

    def _hurry(self) -> None:
        runtime = self._runtime
        if runtime is not None:
            runtime.hurry()

    def hint(self) -> None:
        """Look now: a document was added that is due. Without it, that is noticed within a second; what
        others add to a large Redis by HSET, when ``RedisDocuments`` says so."""
        runtime = self._runtime
        if runtime is not None:
            runtime.worker.hint()

    def __enter__(self) -> Processor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _check_documents(documents: object) -> None:
    if not callable(getattr(documents, "lock_next", None)):
        raise InvalidValue(
            f"documents {shown(documents)} is no store of documents",
            field="documents",
            value=documents,
            hint="wrap it: MongoDocuments(…), PostgresDocuments(…), MemoryDocuments(…)",
        )


def _check_function(function: object, name: str, *parameters: str) -> None:
    """Refuse what can't be called with so many arguments: each document would fail by it."""
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
        return  # of something built in, that does not say
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
    if type(value) is int and 1 <= value <= _MOST:
        return value
    raise InvalidValue(
        f"concurrency {shown(value)} is not a number from 1 to {_MOST}", field="concurrency", value=value
    )


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
